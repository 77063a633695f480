//! Messages over HTTP+SSE (2024-11-05): one stream on which a server says everything, and an address that it names for
//! what it is told.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::duplex::DuplexTransport;
use super::error::RequestError;
use super::exchange_error::{ExchangeError, unusable};
use super::http_endpoint::HttpEndpoint;
use super::incoming_handler::IncomingHandler;
use super::response_reader::ResponseReader;
use super::server::HttpServer;
use net::tasks::Tasks;
use protocol::sse_endpoint::{Base, resolve};

/// How long a server may take to accept a message.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where messages for the server go.
#[derive(Debug)]
pub struct MessageEndpoint(HttpEndpoint);

/// Opens the stream. An error: there is none.
pub(super) async fn open(
    address: &HttpServer,
    handler: Rc<IncomingHandler>,
    patience: Duration,
) -> Result<Rc<DuplexTransport>, RequestError> {
    let (stream, posts) = connect(address, Instant::now() + patience).await?;
    let (lines, outgoing) = DuplexTransport::new(handler);
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
pub async fn connect(
    address: &HttpServer,
    deadline: Instant,
) -> Result<(ResponseReader, MessageEndpoint), ExchangeError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let reply = endpoint(address)?.send(Method::GET, headers, Bytes::new(), true, deadline).await?;
    if !reply.head.status.is_success() {
        return Err(ExchangeError::Status(reply.head.status));
    }
    let mut stream = ResponseReader::of(reply);
    if !stream.is_stream() {
        return Err(ExchangeError::Nonsense);
    }
    let first = async {
        // The first event with data in it.
        loop {
            let event = stream.next_event(None).await?.ok_or(ExchangeError::Reset)?;
            if event.data.is_some() {
                return Ok::<_, ExchangeError>(event);
            }
        }
    };
    let first = timeout_at(deadline.into(), first).await.map_err(|_| ExchangeError::TimedOut)??;
    let path = first.data.as_deref().filter(|_| first.event.as_deref() == Some(b"endpoint"));
    let path = path.and_then(|path| std::str::from_utf8(path).ok()).ok_or(ExchangeError::Nonsense)?;
    let posts = endpoint(&beside(address, path.trim()).ok_or(ExchangeError::Nonsense)?)?;
    Ok((stream, MessageEndpoint(posts)))
}

impl MessageEndpoint {
    /// Sends a message, which the server accepts or does not; what it answers comes on the stream.
    pub async fn send(&self, message: Bytes, deadline: Instant) -> Result<(), ExchangeError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.0.accepted(self.0.send(Method::POST, headers, message, false, deadline).await?).await
    }
}

fn endpoint(address: &HttpServer) -> Result<HttpEndpoint, ExchangeError> {
    HttpEndpoint::new(address, Tasks::default()).map_err(unusable)
}

/// The address that the server names, which must be its own: our key goes there.
fn beside(address: &HttpServer, named: &str) -> Option<HttpServer> {
    let own = &address.url;
    let target = own.path_and_query.parse().ok()?;
    let base = Base { host: &own.host, port: own.port, is_tls: own.is_tls, target: &target };
    let named = resolve(base, named).ok()?;
    let mut beside = address.clone();
    beside.url.path_and_query = named.to_string();
    Some(beside)
}

async fn read(mut stream: ResponseReader, lines: &Rc<DuplexTransport>) -> RequestError {
    loop {
        match stream.next(None).await {
            Ok(Some(message)) => {
                lines.take(&message);
                // A flood must not keep everything else from its turn.
                tokio::task::yield_now().await;
            }
            Ok(None) => return ExchangeError::Reset.into(),
            Err(fault) => return fault.into(),
        }
    }
}

/// Sends what is to be sent, until there will be no more.
async fn write(posts: MessageEndpoint, mut outgoing: mpsc::Receiver<Bytes>) -> RequestError {
    while let Some(message) = outgoing.recv().await {
        if let Err(fault) = posts.send(message, Instant::now() + ACCEPT_TIMEOUT).await {
            return fault.into();
        }
    }
    ExchangeError::Reset.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_server_itself() {
        let url = config::server_url("http://a:8080/x/sse?k=1").unwrap();
        let address = HttpServer { url, headers: HeaderMap::new(), tls: None };
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
