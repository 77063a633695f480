//! The session of a legacy client: what its requests are sent with, and what opens another one like it.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio_util::sync::CancellationToken;

use client::message_headers;
use protocol::version::LegacyVersion;

#[derive(Debug)]
pub(super) struct ServerSession {
    /// Its id, where the server gave one.
    pub(super) id: Option<HeaderValue>,
    pub(super) version: LegacyVersion,
    pub(super) initialize: Bytes,
    /// Cancelled when it is over or another one took its place.
    pub(super) over: CancellationToken,
}

impl ServerSession {
    pub(super) fn headers(&self) -> HeaderMap {
        message_headers::in_session(Some(self.version), self.id.as_ref())
    }
}

#[derive(Debug, Default)]
pub(super) struct CurrentSession(RefCell<Option<Rc<ServerSession>>>);

impl CurrentSession {
    pub(super) fn current(&self) -> Option<Rc<ServerSession>> {
        self.0.borrow().clone()
    }

    /// Puts another in its place, which is returned.
    pub(super) fn replace(&self, session: Option<Rc<ServerSession>>) -> Option<Rc<ServerSession>> {
        let before = std::mem::replace(&mut *self.0.borrow_mut(), session);
        before.inspect(|before| before.over.cancel())
    }

    pub(super) fn is_current(&self, session: &Rc<ServerSession>) -> bool {
        self.0.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, session))
    }
}
