//! Trunkline: a multiplexing proxy daemon for the Model Context Protocol.

pub mod config;
pub mod protocol;
