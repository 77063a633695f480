//! Messages over HTTP+SSE (2024-11-05): one stream on which a server says everything, and an address that it names for
//! what it is told.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::MESSAGE_BYTES_MAX;
use super::failure::Failure;
use super::fault::{Fault, unusable};
use super::hearing::Hearing;
use super::http_endpoint::HttpEndpoint;
use super::over_lines::OverLines;
use super::server::Address;
use net::http_client::{Reply, collect};
use net::tasks::Tasks;
use protocol::sse::{Event, Events};
use protocol::sse_endpoint::{Base, resolve};

/// How long a server may take to accept a message.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPTED_BYTES_MAX: usize = 64 << 10;

/// The stream of a server.
pub struct Stream {
    reply: Reply,
    events: Events,
}

/// Where messages for the server go.
#[derive(Debug)]
pub struct Posts {
    endpoint: HttpEndpoint,
}

/// Opens the stream. An error: there is none.
pub(super) async fn open(
    address: &Address,
    hearing: Rc<Hearing>,
    patience: Duration,
) -> Result<Rc<OverLines>, Failure> {
    let (stream, posts) = dial(address, Instant::now() + patience).await?;
    let (lines, outgoing) = OverLines::new(hearing);
    let running = Rc::clone(&lines);
    lines.tasks.spawn(async move {
        let failure = tokio::select! {
            failure = read(stream, &running) => failure,
            failure = write(posts, outgoing) => failure,
        };
        running.end(&failure);
    });
    Ok(lines)
}

/// Opens the stream and reads on it where messages for the server go.
pub async fn dial(address: &Address, deadline: Instant) -> Result<(Stream, Posts), Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let reply = endpoint(address)?.send(Method::GET, headers, Bytes::new(), true, deadline).await?;
    let media = reply.head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !reply.head.status.is_success() {
        return Err(Fault::Status(reply.head.status));
    }
    if !media.to_ascii_lowercase().starts_with(b"text/event-stream") {
        return Err(Fault::Nonsense);
    }
    let mut stream = Stream { reply, events: Events::new(MESSAGE_BYTES_MAX) };
    let first = timeout_at(deadline.into(), stream.next());
    let first = first.await.map_err(|_| Fault::TimedOut)??.ok_or(Fault::Reset)?;
    let path = first.data.as_deref().filter(|_| first.event.as_deref() == Some(b"endpoint"));
    let path = path.and_then(|path| std::str::from_utf8(path).ok()).ok_or(Fault::Nonsense)?;
    let posts = endpoint(&beside(address, path.trim()).ok_or(Fault::Nonsense)?)?;
    Ok((stream, Posts { endpoint: posts }))
}

impl Stream {
    /// The next message; `None` at the end of the stream. Nothing is lost if it is not waited for to the end.
    pub async fn message(&mut self) -> Result<Option<Bytes>, Fault> {
        while let Some(event) = self.next().await? {
            let is_message = event.event.as_deref().is_none_or(|name| name == b"message");
            if let Some(data) = event.data.filter(|_| is_message) {
                return Ok(Some(data));
            }
            // A flood must not keep everything else from its turn.
            tokio::task::yield_now().await;
        }
        Ok(None)
    }

    async fn next(&mut self) -> Result<Option<Event>, Fault> {
        loop {
            match self.events.next() {
                Some(Ok(event)) if event.data.is_some() => return Ok(Some(event)),
                Some(Ok(_)) => continue,
                Some(Err(_)) => return Err(Fault::TooLarge),
                None => {}
            }
            match self.reply.body.frame().await {
                Some(Ok(frame)) => self.events.push(frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(Fault::Reset),
                None => return Ok(None),
            }
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Posts {
    /// Sends a message, which the server accepts or does not; what it answers comes on the stream.
    pub async fn send(&self, message: Bytes, deadline: Instant) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut reply = self.endpoint.send(Method::POST, headers, message, false, deadline).await?;
        if !reply.head.status.is_success() {
            return Err(Fault::Status(reply.head.status));
        }
        if collect(&mut reply.body, ACCEPTED_BYTES_MAX, deadline).await.is_ok() {
            self.endpoint.put_back(reply).await;
        }
        Ok(())
    }
}

fn endpoint(address: &Address) -> Result<HttpEndpoint, Fault> {
    HttpEndpoint::new(address, Tasks::default()).map_err(unusable)
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

async fn read(mut stream: Stream, lines: &Rc<OverLines>) -> Failure {
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                lines.take(&message);
                // A flood must not keep everything else from its turn.
                tokio::task::yield_now().await;
            }
            Ok(None) => return Fault::Reset.into(),
            Err(fault) => return fault.into(),
        }
    }
}

/// Sends what is to be sent, until there will be no more.
async fn write(posts: Posts, mut outgoing: mpsc::Receiver<Bytes>) -> Failure {
    while let Some(message) = outgoing.recv().await {
        if let Err(fault) = posts.send(message, Instant::now() + ACCEPT_TIMEOUT).await {
            return fault.into();
        }
    }
    Fault::Reset.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_server_itself() {
        let url = config::server_url("http://a:8080/x/sse?k=1").unwrap();
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
