//! What servers offer.

pub mod lists;
pub mod own_session;
pub mod pin_watch;
pub mod probe;
pub mod subscriptions;
