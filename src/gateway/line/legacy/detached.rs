//! Exchanges whose client has left. Leaving is no cancellation in the legacy era, so that what an upstream has begun it
//! may end: its reply is read to the end and dropped, and its connection is used again.
//!
//! Nothing is spawned while the client stays. Bounded in number, each charged to the client that has left, and each by the
//! deadline it had anyway, by the end of its session, and by the drain once connections are closed.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio_util::sync::CancellationToken;

use crate::access::limit::payer::Payer;
use crate::context::worker::Worker;
use crate::session::UpstreamSession;

/// A future that goes on when it is dropped before its end.
pub(crate) struct Detachable<T: 'static> {
    worker: Rc<Worker>,
    payer: Payer,
    ended: CancellationToken,
    unfinished: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<T> Detachable<T> {
    pub(crate) fn new<F: Future<Output = T> + 'static>(
        worker: &Rc<Worker>,
        (session, payer): (&UpstreamSession, Payer),
        begin: impl FnOnce() -> F,
    ) -> Self {
        let (worker, ended) = (Rc::clone(worker), session.ended.clone());
        // Made where it stays: `Box::pin` would copy all of it.
        let unfinished = Box::into_pin(Box::write(Box::new_uninit(), begin()));
        Self { worker, payer, ended, unfinished: Some(unfinished) }
    }
}

impl<T> Future for Detachable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(unfinished) = &mut self.unfinished else { return Poll::Pending };
        let output = ready!(unfinished.as_mut().poll(cx));
        self.unfinished = None;
        Poll::Ready(output)
    }
}

impl<T> Drop for Detachable<T> {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            let ended = std::mem::take(&mut self.ended);
            go_on(&self.worker, (ended, self.payer), async { drop(unfinished.await) });
        }
    }
}

/// Lets `future` go on by itself until the session has `ended`, where there is room for one more of this client.
pub(crate) fn go_on(
    worker: &Rc<Worker>,
    (session_ended, payer): (CancellationToken, Payer),
    future: impl Future<Output = ()> + 'static,
) {
    let counter = |result| worker.state.metrics.calls.exchanges_detached.with_label_values(&[result]);
    let Ok(place) = worker.detached.take(payer) else { return counter("dropped").inc() };
    counter("kept").inc();
    let ended = counter("ended");
    let state = Arc::clone(&worker.state);
    worker.client.tasks.spawn_unboxed(async move {
        tokio::select! {
            () = future => {}
            () = session_ended.cancelled() => {}
            // Nobody waits for it, so the end of the process does not either.
            () = state.drain.closing() => {}
        }
        ended.inc();
        drop(place);
    });
}
