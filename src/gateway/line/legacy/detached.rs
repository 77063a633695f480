//! Exchanges whose client has left. Leaving is no cancellation in the legacy era, so that what an upstream has begun it
//! may end: its reply is read to the end and dropped, and its connection is used again.
//!
//! Nothing is spawned while the client stays. Bounded in number, each charged to the client that has left, and each by the
//! deadline it had anyway, by the end of its session, by its cancellation, and by the drain once connections are closed.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_util::sync::CancellationToken;

use crate::access::limit::payer::Payer;
use crate::context::worker::Worker;
use crate::session::UpstreamSession;
use crate::upstream::sending::Sending;
use crate::upstream::withdrawal::WaitingTask;
use protocol::error::{ClientError, Error};

type Unfinished<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

/// A future that goes on when it is dropped before its end, and ends before it where the call is given up.
pub(crate) struct Detachable<T: 'static> {
    worker: Rc<Worker>,
    payer: Payer,
    ended: CancellationToken,
    sending: Arc<Sending>,
    reader: WaitingTask,
    unfinished: Option<Unfinished<T>>,
}

impl<T> Detachable<T> {
    pub(crate) fn new<F: Future<Output = Result<T, Error>> + 'static>(
        worker: &Rc<Worker>,
        (session, payer): (&UpstreamSession, Payer),
        sending: Arc<Sending>,
        begin: impl FnOnce() -> F,
    ) -> Self {
        let (worker, ended) = (Rc::clone(worker), session.ended.clone());
        // Made where it stays: `Box::pin` would copy all of it.
        let unfinished = Box::into_pin(Box::write(Box::new_uninit(), begin()));
        Self { worker, payer, ended, sending, reader: WaitingTask::default(), unfinished: Some(unfinished) }
    }
}

impl<T> Future for Detachable<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.sending.withdrawal.is_given_up() {
            self.unfinished = None;
            return Poll::Ready(Err(ClientError::Cancelled.into()));
        }
        let Self { sending, reader, unfinished: Some(unfinished), .. } = &mut *self else {
            return Poll::Pending;
        };
        let Poll::Ready(output) = unfinished.as_mut().poll(cx) else {
            if reader.is_given_up(&sending.withdrawal, cx.waker()) {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        self.unfinished = None;
        Poll::Ready(output)
    }
}

impl<T> Drop for Detachable<T> {
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            let (ended, sending) = (std::mem::take(&mut self.ended), Arc::clone(&self.sending));
            go_on(&self.worker, (ended, self.payer), async move {
                tokio::select! {
                    unfinished = unfinished => drop(unfinished),
                    () = sending.withdrawal.given_up() => {}
                }
            });
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
