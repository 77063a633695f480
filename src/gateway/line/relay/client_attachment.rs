//! A reply that is still arriving and the client it is for. When the client leaves before the end, the reply is read on
//! without it where that is called for.

use std::rc::Rc;
use std::task::{Context, Poll};

use http_body::SizeHint;

use super::stream::{BytesPoll, RelayedReply};
use crate::context::call::Call;
use crate::line::legacy::detached::go_on;

pub(crate) struct ClientAttachment(Option<Box<RelayedReply>>);

impl ClientAttachment {
    pub(super) fn new(stream: Box<RelayedReply>) -> Self {
        Self(Some(stream))
    }

    pub(super) fn carry(&mut self, call: Call) {
        if let Some(stream) = &mut self.0 {
            stream.carry(call);
        }
    }

    pub(super) fn call(&mut self) -> Option<&mut Call> {
        self.0.as_mut()?.call()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> BytesPoll {
        match &mut self.0 {
            Some(stream) => stream.poll(cx),
            None => Poll::Ready(None),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(|stream| stream.size_hint()).unwrap_or_default()
    }
}

impl Drop for ClientAttachment {
    fn drop(&mut self) {
        let Some(mut stream) = self.0.take() else { return };
        let Some(session) = stream.detach() else { return };
        let worker = Rc::clone(stream.worker());
        go_on(&worker, session, read_on(stream));
    }
}

async fn read_on(mut stream: Box<RelayedReply>) {
    while let Some(Ok(_)) = std::future::poll_fn(|cx| stream.poll(cx)).await {}
}
