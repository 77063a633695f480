//! What every black-box test stands on: the real binary as a child process, clients that speak bytes, and a scripted
//! MCP server behind the gateway.
//!
//! Everything is bounded in time ([`DEADLINE`]) and everything that is started is stopped when it is dropped. Tests
//! wait for conditions (a log line, a request that arrived, a connection that closed), never for time to pass. The
//! harness knows HTTP and JSON-RPC as a peer on the wire does and shares no code with the program.
//!
//! | what a test needs | where |
//! |---|---|
//! | the daemon, its log, files for it; other commands | `daemon.rs`: [`Daemon`], [`Folder`], [`trunkline`] |
//! | its configuration | `config.rs`: [`Config`], such as [`Config::transparent`] and [`Config::legacy`] |
//! | a number out of `/metrics` | `metrics.rs`: [`Daemon::metric`], [`Daemon::wait_metric`] |
//! | requests of the modern era | `message.rs`: [`call`], [`list`], [`listen`], …, and [`Request`] to spoil them |
//! | requests and sessions of the legacy era | `legacy.rs`: [`legacy_call`], [`open_session`], [`in_session`], [`tell`] |
//! | connections and responses, byte by byte | `client.rs`: [`Connection`], [`Response`]; `http2.rs`, `tls.rs` |
//! | a server that answers as the test says | `upstream.rs`: [`Upstream`]; what it says: `reply.rs`: [`Reply`], [`Gate`] |
//! | a server that makes no mistakes | `reply.rs`: [`Offer`] (modern), `legacy.rs`: [`Legacy`] |
//! | a server that notifies of changes | `listening.rs`: [`Listening`], [`Stream`] |
//! | a client and a server that play a script, whatever their eras | `caller.rs`, `script.rs`, `scripted.rs` |
//! | a server that is a program | `child.rs`, with `child.py`: [`Child`] |
//! | a provider that users sign in at | `provider.rs`: [`Provider`] |
//! | servers behind TLS, certificates, tokens | `tls_upstream.rs`, `tls.rs`, `issuer.rs` |
//! | a proxy before the Internet | `proxy.rs`: [`Proxy`] |
//! | Redis, Prometheus, an OTLP receiver, a terminal | `redis.rs`, `prometheus.rs`, `spans.rs`, `terminal.rs` |

mod caller;
mod child;
mod client;
mod config;
mod daemon;
mod http2;
mod issuer;
mod legacy;
mod listening;
mod message;
mod metrics;
mod prometheus;
mod provider;
mod proxy;
mod redis;
mod reply;
mod script;
mod scripted;
mod selftest;
mod spans;
mod terminal;
mod tls;
mod tls_upstream;
mod upstream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use caller::{Answer, Asked, Caller, Outcome, Turn};
pub(crate) use child::Child;
pub(crate) use client::{Broken, Connection, Response, event_data, tool_names};
pub(crate) use config::{Config, api_key};
pub(crate) use daemon::{Daemon, Folder, trunkline};
pub(crate) use http2::Http2;
pub(crate) use issuer::{ISSUER, RESOURCE, SigningKey, claims, jwks, jwt, now_s, sign};
pub(crate) use legacy::{
    LEGACY_VERSION, Legacy, in_session, initialize, legacy, legacy_call, open_session, open_session_with,
    tell,
};
pub(crate) use listening::{Listened, Listening, Stream};
pub(crate) use message::{
    META, Request, VERSION, body, call, call_as, get_prompt, list, listen, modern, post, read_resource,
    with_key,
};
pub(crate) use prometheus::{Prometheus, promtool};
pub(crate) use provider::{PROVIDER_CLIENT, PROVIDER_SECRET, Provider};
pub(crate) use proxy::{Lead, Proxy};
pub(crate) use redis::Redis;
pub(crate) use reply::{Gate, Offer, Reply, literal, members, result_body};
pub(crate) use script::{Act, Kind, Script, answer, question_of};
pub(crate) use scripted::Scripted;
pub(crate) use spans::{Receiver, Span, TAKEN};
pub(crate) use terminal::Terminal;
pub(crate) use tls::{Authority, Certificates, Identity, TlsClient};
pub(crate) use tls_upstream::{TlsEar, write_secret};
pub(crate) use upstream::{Received, Upstream, refusing_address, unresponsive_address};

/// How long anything may take that is expected to happen. Generous: a loaded machine must not fail a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs `check` on every case at once: for cases that spend their time waiting and have nothing to do with each other.
pub(crate) fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        let running: Vec<_> = cases.into_iter().map(|case| scope.spawn(|| check(case))).collect();
        for case in running {
            if let Err(panic) = case.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Sets a flag when it is dropped, be it by a test that fails: threads that go on until then come to their end.
pub(crate) struct SetOnDrop<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tries `attempt` until it yields a value; for conditions that only the other process can see.
pub(crate) fn eventually<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    eventually_within(DEADLINE, what, attempt)
}

/// As [`eventually`], for what may take another time.
pub(crate) fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < end, "did not happen in {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
