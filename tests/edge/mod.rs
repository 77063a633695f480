//! From the socket to a request: HTTP, TLS, proxies in front, browsers, and limits on what one client may hold.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`bad_http`] | What does hostile HTTP/1.1 framing do: floods, pipelines, connections that are cut or closed by half? |
//! | [`http1`] | What does a client of HTTP/1.1 see: interim replies, pipelining, versions, and when does its connection end? |
//! | [`http1_refusals`] | Which requests of HTTP/1.1 are refused, with which status, and can every client read that? |
//! | [`smuggling`] | Which bytes are a request, whatever two readers could make of them? (`requests.toml`) |
//! | [`http2`] | Does HTTP/2 give the same answers as HTTP/1.1? |
//! | [`tls`] | Which TLS versions and certificates does a client see, which of its own are checked, when are they replaced? |
//! | [`proxy_protocol`] | Which address does a client have behind a proxy (PROXY, `Forwarded`), and which proxy is believed? |
//! | [`origins`] | What may a browser do: Origin, Host, CORS? |
//! | [`hosts`] | Which of several endpoints at one path is a request for, by its host? |
//! | [`unix_listener`] | What has a client on a Unix socket, and a proxy there? |
//! | [`limits`] | How large, slow or many may bodies, heads and connections be? (Calls per time: `access/rates.rs`.) |

mod bad_http;
mod hosts;
mod http1;
mod http1_refusals;
mod http2;
mod limits;
mod origins;
mod proxy_protocol;
mod smuggling;
mod tls;
mod unix_listener;
