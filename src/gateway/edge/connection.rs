//! Which HTTP a connection speaks; and one of HTTP/2 to its end, with its clocks.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::time::{sleep, timeout};

use super::AcceptedConnection;
use super::read_ahead::Http2Body;
use crate::clock;
use crate::context::peer::Peer;
use crate::line::client_body::ClientBody;
use crate::line::relay::{Silence, begin_late};
use crate::line::response::ClientResponse;
use config::LimitsConfig;
use net::drain::Drain;
use net::socket::Observed;
use net::stream::MaybeTls;

/// What every HTTP/2 connection starts with (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The clocks of a connection are looked at this often, or more often where a clock is shorter.
const WATCH_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// How many times more seldom they are looked at while a call is under way.
const PAUSE_PERIODS_MAX: u32 = 4;

pub(super) enum CloseReason {
    ByPeer,
    Clock(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection of HTTP/2 that began with these bytes, to its end.
pub(super) async fn serve_http2(
    accepted: &AcceptedConnection,
    stream: MaybeTls,
    start: Vec<u8>,
) -> CloseReason {
    let AcceptedConnection { listener, limits, peer, .. } = accepted;
    let (worker, proxy) = (&listener.worker, &listener.proxy);
    let noted = Rc::clone(peer);
    let stream = Observed::new(start, stream, move |_| noted.received());
    let service = service_fn(|request: Request<Incoming>| {
        let (proxy, worker, other_end) = (Rc::clone(proxy), Rc::clone(worker), (peer.payer, peer.address));
        let connection = peer.enter();
        let (parts, body) = request.into_parts();
        // Boxed for as long as the call: hyper keeps the place for it as long as the connection, most of them idle.
        async move {
            let silence = Arc::<Silence>::default();
            let (answering, noted) = (Rc::clone(&proxy), Arc::clone(&silence));
            let mut call: Pin<Box<dyn Future<Output = ClientResponse>>> = Box::pin(async move {
                let mut header = parts.into();
                answering.handle(connection, Some(noted), &mut header, ClientBody::Http2(body)).await
            });
            let answered = poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Pending if silence.is_due() => Poll::Ready(None),
                answered => answered.map(Some),
            });
            let response = match answered.await {
                Some(response) => response,
                None => begin_late(&silence, async { Some(call.await) }),
            };
            let response = Response::from(response);
            Ok::<_, Infallible>(response.map(|body| Http2Body::new(body, &worker, other_end)))
        }
    });
    let mut builder = http2::Builder::new(worker.client.tasks.clone());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_per_connection_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let age_max = jitter(limits.connection_age_max, peer.address.port());
    watch(proxy.drain(), peer, limits, connection, http2::Connection::graceful_shutdown, age_max).await
}

/// What a connection begins with, and whether that is HTTP/2. Without `protocol`, its first bytes tell it from HTTP/1.1.
pub(super) async fn detect(
    stream: &mut MaybeTls,
    protocol: Option<Protocol>,
    drain: &Drain,
    limits: &LimitsConfig,
) -> Result<(Vec<u8>, bool), CloseReason> {
    let start = tokio::select! {
        start = timeout(limits.header_timeout, read_start(stream)) => match start {
            Ok(Ok(start)) if !start.is_empty() => start,
            Ok(_) => return Err(CloseReason::ByPeer),
            Err(_) => return Err(CloseReason::Clock("header_timeout")),
        },
        () = drain.closing() => return Err(CloseReason::ByPeer),
    };
    let is_http2 = match protocol {
        Some(protocol) => protocol == Protocol::Http2,
        None => start.starts_with(&HTTP2_PREFACE[..3]),
    };
    Ok((start, is_http2))
}

/// Drives a connection of HTTP/2 to its end, watching its clocks and the drain.
async fn watch<C: Future<Output = hyper::Result<()>>>(
    drain: &Drain,
    peer: &Peer,
    limits: &LimitsConfig,
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    age_max: Duration,
) -> CloseReason {
    let mut quiet = pin!(drain.quiet());
    let mut closing = pin!(drain.closing());
    let mut old = pin!(sleep(age_max));
    let period = limits.header_timeout.min(limits.idle_timeout).div_f32(4.0).min(WATCH_INTERVAL_MAX);
    let period = period.max(Duration::from_millis(5));
    let mut pause = period;
    let mut clocks = pin!(sleep(pause));
    let (mut is_quiet, mut is_closing, mut is_old) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(client = %peer.address, %error, "connection ended");
                }
                return CloseReason::ByPeer;
            }
            () = &mut clocks => {
                // No clock runs while a call does, and most of those that take so long are idle streams.
                pause = if peer.is_busy() { (pause * 2).min(period * PAUSE_PERIODS_MAX) } else { period };
                clocks.as_mut().reset((clock::now() + pause).into());
                match peer.overdue(clock::now(), limits) {
                    None => {}
                    // A call may be on the wire: GOAWAY lets its client send it elsewhere.
                    Some(_) if !is_old => {
                        is_old = true;
                        shut_down(connection.as_mut());
                    }
                    Some(clock) => return CloseReason::Clock(clock),
                }
            }
            () = &mut quiet, if !is_quiet => {
                is_quiet = true;
                shut_down(connection.as_mut());
            }
            () = &mut closing, if !is_closing => {
                is_closing = true;
                shut_down(connection.as_mut());
            }
            () = &mut old, if !is_old => {
                is_old = true;
                shut_down(connection.as_mut());
            }
        }
    }
}

/// ±10 %, so that connections opened together do not all end together.
fn jitter(age_max: Duration, seed: u16) -> Duration {
    let tenths = f64::from(seed % 201) / 1000.0;
    age_max.mul_f64(0.9 + tenths)
}

/// The bytes that tell HTTP/2 from HTTP/1.1: as many as agree with the preface's first three, and one more.
async fn read_start(stream: &mut MaybeTls) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(3);
    while start.len() < 3 && HTTP2_PREFACE.starts_with(&start) {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            break;
        }
        start.push(byte[0]);
    }
    Ok(start)
}
