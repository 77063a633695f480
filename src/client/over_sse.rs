//! Messages over HTTP+SSE (2024-11-05): one stream on which a server says everything, and an address that it names for
//! what it is told.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use prometheus::IntCounter;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::MESSAGE_BYTES_MAX;
use super::failure::Failure;
use super::fault::{Fault, unusable};
use super::hearing::Hearing;
use super::http::{Http, Reply, collect};
use super::over_lines::OverLines;
use super::server::Address;
use crate::protocol::sse::{Event, Events};
use crate::protocol::sse_endpoint::{Base, resolve};
use crate::tasks::Tasks;

/// How long a server may take to accept a message.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPTED_BYTES_MAX: usize = 64 << 10;

/// Opens the stream. An error: there is none.
pub(super) async fn open(
    address: &Address,
    hearing: Rc<Hearing>,
    patience: Duration,
) -> Result<Rc<OverLines>, Failure> {
    let deadline = Instant::now() + patience;
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let mut reply = way(address)?.send(Method::GET, headers, Bytes::new(), true, deadline).await?;
    let media = reply.head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !reply.head.status.is_success() {
        return Err(Fault::Status(reply.head.status).into());
    }
    if !media.to_ascii_lowercase().starts_with(b"text/event-stream") {
        return Err(Fault::Nonsense.into());
    }
    let mut events = Events::new(MESSAGE_BYTES_MAX);
    let first = timeout_at(deadline.into(), next(&mut events, &mut reply));
    let first = first.await.map_err(|_| Fault::TimedOut)??.ok_or(Fault::Reset)?;
    let path = first.data.as_deref().filter(|_| first.event.as_deref() == Some(b"endpoint"));
    let path = path.and_then(|path| std::str::from_utf8(path).ok()).ok_or(Fault::Nonsense)?;
    let posts = way(&beside(address, path.trim()).ok_or(Fault::Nonsense)?)?;
    let (lines, outgoing) = OverLines::new(hearing)?;
    let running = Rc::clone(&lines);
    lines.tasks.spawn(async move {
        let failure = tokio::select! {
            failure = read(events, reply, &running) => failure,
            failure = write(posts, outgoing) => failure,
        };
        running.end(&failure);
    });
    Ok(lines)
}

fn way(address: &Address) -> Result<Http, Fault> {
    let panics = IntCounter::new("panics", "panics").map_err(unusable)?;
    Http::new(address, Tasks::new(panics)).map_err(unusable)
}

/// The address that the server names, which must be its own: our key goes there.
fn beside(address: &Address, named: &str) -> Option<Address> {
    let own = &address.url;
    let target = own.path_and_query.parse().ok()?;
    let base = Base { host: &own.host, port: own.port, is_tls: own.is_tls, target: &target };
    let named = resolve(base, named).ok()?;
    let mut beside = address.clone();
    beside.url.path_and_query = named.to_string();
    Some(beside)
}

async fn next(events: &mut Events, reply: &mut Reply) -> Result<Option<Event>, Fault> {
    loop {
        match events.next() {
            Some(Ok(event)) if event.data.is_some() => return Ok(Some(event)),
            Some(Ok(_)) => continue,
            Some(Err(_)) => return Err(Fault::TooLarge),
            None => {}
        }
        match reply.body.frame().await {
            Some(Ok(frame)) => events.push(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return Err(Fault::Reset),
            None => return Ok(None),
        }
    }
}

async fn read(mut events: Events, mut reply: Reply, lines: &Rc<OverLines>) -> Failure {
    loop {
        match next(&mut events, &mut reply).await {
            Ok(Some(event)) => {
                let is_message = event.event.as_deref().is_none_or(|name| name == b"message");
                if let Some(data) = event.data.filter(|_| is_message) {
                    lines.take(&data);
                }
                // A flood must not keep everything else from its turn.
                tokio::task::yield_now().await;
            }
            Ok(None) => return Fault::Reset.into(),
            Err(fault) => return fault.into(),
        }
    }
}

/// Sends what is to be sent, until there will be no more.
async fn write(posts: Http, mut outgoing: mpsc::Receiver<Bytes>) -> Failure {
    while let Some(message) = outgoing.recv().await {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        let mut reply = match posts.send(Method::POST, headers, message, false, deadline).await {
            Ok(reply) if reply.head.status.is_success() => reply,
            Ok(reply) => return Fault::Status(reply.head.status).into(),
            Err(fault) => return fault.into(),
        };
        if collect(&mut reply.body, ACCEPTED_BYTES_MAX, deadline).await.is_ok() {
            posts.put_back(reply).await;
        }
    }
    Fault::Reset.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_server_itself() {
        let url = crate::config::server_url("http://a:8080/x/sse?k=1").unwrap();
        let address = Address { url, headers: HeaderMap::new(), tls: None };
        for (named, path) in [
            ("/messages?id=1", Some("/messages?id=1")),
            ("messages", Some("/x/messages")),
            ("?id=1", Some("/x/sse?id=1")),
            ("../m", Some("/m")),
            ("//a:8080/m", Some("/m")),
            ("http://a:8080/m", Some("/m")),
            ("http://A:8080/m", Some("/m")),
            ("http://a/m", None),
            ("https://a:8080/m", None),
            ("http://evil:8080/m", None),
            ("//evil/m", None),
            ("/a b", None),
        ] {
            let beside = beside(&address, named).map(|beside| beside.url.path_and_query);
            assert_eq!(beside.as_deref(), path, "{named}");
        }
    }
}
