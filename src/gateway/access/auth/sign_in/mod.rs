//! Sign-in where a call comes in: its settings, and the tokens that it gave out.
//!
//! A token is known at first sight by its seal, without a store: for its endpoint, until its time is over or its grant was
//! ended. Not here: how somebody signs in ([`crate::sign_in`]), and where grants are kept ([`crate::grants`]).

pub(crate) mod faults;
pub(crate) mod fetched;
pub(crate) mod memory;
pub(crate) mod named;
pub(crate) mod settings;
pub(crate) mod token;
