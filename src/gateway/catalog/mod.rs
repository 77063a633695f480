//! What servers offer.

pub(crate) mod lists;
pub(crate) mod own_session;
pub(crate) mod pin_watch;
pub(crate) mod probe;
pub(crate) mod subscriptions;
