//! What a person runs beside the gateway.
//!
//! | module | what it is |
//! |---|---|
//! | [`doctor`] | inspects a server and says what to do about what is wrong with it |
//! | [`connect`] | a server on standard input and output that passes everything to a server elsewhere |
//! | [`entries`] | configurations of desktop and IDE clients, to and from the gateway's |
//! | [`watch`] | reads the admin listener of a running gateway |
//! | [`top`] | shows what was read, live |
//! | [`terminal`] | what all of these show a person |
//!
//! Deliberately not here: arguments and exit codes, which are the binary's.

pub mod connect;
pub mod doctor;
pub mod entries;
pub mod terminal;
pub mod top;
pub mod watch;
