//! What servers offer.

pub mod lists;
pub mod pins;
pub mod probe;
pub mod subscriptions;
