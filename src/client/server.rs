//! Which server a command speaks to, and with what.

use std::ffi::OsString;
use std::sync::Arc;

use http::HeaderMap;

use config::Url;
use net::tls::Connector;

/// A server.
#[derive(Clone, Debug)]
pub enum Server {
    /// Over Streamable HTTP.
    Http(HttpServer),
    /// A program that is started, on its standard input and output.
    Stdio(StdioServer),
}

/// A server over HTTP.
#[derive(Clone, Debug)]
pub struct HttpServer {
    /// Its URL.
    pub url: Url,
    /// Headers for every request.
    pub headers: HeaderMap,
    /// How an `https` URL is reached; `None`: in clear text.
    pub tls: Option<Arc<Connector>>,
}

/// A program that is a server.
#[derive(Clone, Debug)]
pub struct StdioServer {
    /// What is started: a path, or a name that `PATH` leads to.
    pub name: OsString,
    /// What it is given.
    pub arguments: Vec<OsString>,
}
