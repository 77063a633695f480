//! An HTTP/2 client with prior knowledge.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{DEADLINE, Request, Response, TlsClient};

/// One connection. Its runtime runs only inside its methods, which is enough for a test that asks and waits.
pub(crate) struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

impl Http2 {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let sender = bounded(&runtime, async {
            let stream = TcpStream::connect(address).await.expect("the gateway accepts");
            begin(stream).await
        });
        Self { runtime, sender, address }
    }

    /// A connection whose client lets come so many bytes of each reply, and more only as it reads.
    pub(crate) fn connect_with_window(address: SocketAddr, window: u32) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let sender = bounded(&runtime, async {
            let stream = TcpStream::connect(address).await.expect("the gateway accepts");
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(window);
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender, address }
    }

    /// A connection over TLS; the client must offer what it takes to speak HTTP/2.
    pub(crate) fn connect_tls(address: SocketAddr, client: &TlsClient, name: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let name = name.to_owned().try_into().expect("a name");
        let sender = bounded(&runtime, async {
            let stream = TcpStream::connect(address).await.expect("the gateway accepts");
            let connector = TlsConnector::from(client.config());
            begin(connector.connect(name, stream).await.expect("a handshake")).await
        });
        Self { runtime, sender, address }
    }

    /// Sends a request and reads the whole reply.
    pub(crate) fn send(&mut self, request: &Request) -> Response {
        self.send_all(std::slice::from_ref(request)).remove(0)
    }

    /// Sends a request, unless the connection has said that it takes no more of them.
    pub(crate) fn try_send(&mut self, request: &Request) -> Option<Response> {
        let encoded = self.encode(request);
        let ready = bounded(&self.runtime, self.sender.ready()).is_ok();
        let reply = ready.then(|| self.sender.send_request(encoded))?;
        bounded(&self.runtime, async {
            match reply.await {
                Ok(reply) => {
                    let (mut response, body) = split(reply);
                    response.body = body.collect().await.expect("a whole body").to_bytes().to_vec();
                    Some(response)
                }
                Err(error) => {
                    assert!(error.is_canceled() || error.is_closed(), "a request was lost: {error:?}");
                    None
                }
            }
        })
    }

    /// Opens this many streams, each of which is reset as soon as it is open.
    pub(crate) fn open_and_drop(&mut self, request: &Request, count: usize) {
        let requests: Vec<_> = (0..count).map(|_| self.encode(request)).collect();
        bounded(&self.runtime, async {
            for request in requests {
                if self.sender.ready().await.is_err() {
                    return;
                }
                let reply = self.sender.send_request(request);
                let _ = timeout(Duration::from_micros(200), reply).await;
            }
        });
    }

    /// Whether the connection takes requests.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends all requests at once and reads all replies, in the order of the requests.
    pub(crate) fn send_all(&mut self, requests: &[Request]) -> Vec<Response> {
        let replies: Vec<_> =
            requests.iter().map(|request| self.sender.send_request(self.encode(request))).collect();
        bounded(&self.runtime, async {
            let mut responses = Vec::new();
            for reply in replies {
                let (mut response, body) = split(reply.await.expect("a reply"));
                response.body = body.collect().await.expect("a whole body").to_bytes().to_vec();
                responses.push(response);
            }
            responses
        })
    }

    /// Sends a request and reads the head of the reply; the body is read by [`next`](Self::next).
    pub(crate) fn open(&mut self, request: &Request) -> (Response, Incoming) {
        let request = self.encode(request);
        let reply = self.sender.send_request(request);
        bounded(&self.runtime, async { split(reply.await.expect("a reply")) })
    }

    /// The next piece of a body; `None` at its end.
    pub(crate) fn next(&self, body: &mut Incoming) -> Option<Bytes> {
        bounded(&self.runtime, async {
            while let Some(frame) = body.frame().await {
                match frame.expect("the stream goes on").into_data() {
                    Ok(data) if !data.is_empty() => return Some(data),
                    _ => {}
                }
            }
            None
        })
    }

    /// Whether a body breaks off before its end.
    pub(crate) fn fails(&self, body: &mut Incoming) -> bool {
        bounded(&self.runtime, async {
            while let Some(frame) = body.frame().await {
                if frame.is_err() {
                    return true;
                }
            }
            false
        })
    }

    /// Lets the connection run while the test waits for something else.
    pub(crate) fn run_until(&self, mut done: impl FnMut() -> bool) {
        bounded(&self.runtime, async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    fn encode(&self, request: &Request) -> hyper::Request<Full<Bytes>> {
        let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let authority =
            host.map_or_else(|| self.address.to_string(), |(_, host)| String::from_utf8_lossy(host).into());
        let mut builder = hyper::Request::builder()
            .method(request.method.as_str())
            .uri(format!("http://{authority}{}", request.target));
        for (name, value) in &request.headers {
            if !name.eq_ignore_ascii_case("host") {
                builder = builder.header(name, value.as_slice());
            }
        }
        builder.body(Full::new(Bytes::from(request.body.clone()))).expect("a request that hyper can send")
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Full<Bytes>> {
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("the gateway speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn split(reply: hyper::Response<Incoming>) -> (Response, Incoming) {
    let (parts, body) = reply.into_parts();
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    (Response { status: parts.status.as_u16(), headers, body: Vec::new() }, body)
}

fn bounded<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(DEADLINE, future).await.expect("the gateway answers in time") })
}
