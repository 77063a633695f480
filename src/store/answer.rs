//! Answers that another thread gives: awaited on any runtime, or waited for on a thread that may block.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::StoreError;

/// The sender of an [`Answer`].
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// An answer that is on its way. The work is done even if nothing waits for it.
#[must_use = "the answer tells whether it was done"]
#[derive(Debug)]
pub struct Answer<T>(Result<oneshot::Receiver<Result<T, StoreError>>, Option<StoreError>>);

impl<T> Answer<T> {
    /// The way of an answer.
    pub(crate) fn new() -> (Reply<T>, Self) {
        let (reply, answer) = oneshot::channel();
        (reply, Self(Ok(answer)))
    }

    /// A refusal, known at once.
    pub(crate) fn refused(error: StoreError) -> Self {
        Self(Err(Some(error)))
    }

    /// Blocks this thread until the answer is there. It must be no thread of a runtime.
    pub fn wait(self) -> Result<T, StoreError> {
        match self.0 {
            Ok(answer) => answer.blocking_recv().unwrap_or(Err(StoreError::Closed)),
            Err(error) => Err(error.unwrap_or(StoreError::Closed)),
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(answer) => Pin::new(answer).poll(context).map(|sent| sent.unwrap_or(Err(StoreError::Closed))),
            Err(error) => Poll::Ready(Err(error.take().unwrap_or(StoreError::Closed))),
        }
    }
}
