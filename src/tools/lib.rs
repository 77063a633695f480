//! What a person runs beside the gateway.
//!
//! | module | what it is |
//! |---|---|
//! | [`call`] | lists the tools of a server and calls one |
//! | [`doctor`] | inspects a server and says what to do about what is wrong with it |
//! | [`connect`] | a server on standard input and output that passes everything to a server elsewhere |
//! | [`client_config`] | configurations of desktop and IDE clients, to and from the gateway's |
//! | [`provider`] | whether people can sign in at an `OpenID` provider, and the configuration for it |
//! | [`admin_client`] | reads the admin listener of a running gateway |
//! | [`top`] | shows what was read, live |
//! | [`terminal`] | what all of these show a person |
//!
//! Deliberately not here: arguments and exit codes, which are the binary's.

pub mod admin_client;
pub mod call;
pub mod client_config;
pub mod connect;
pub mod doctor;
pub mod provider;
pub mod terminal;
pub mod top;
