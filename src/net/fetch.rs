//! Documents that the gateway itself fetches from web servers: keys of token issuers, tokens for upstreams.
//!
//! A connection for each; bounded in bytes and time; redirects are not followed. Never on the way of a call.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response};
use http_body_util::Full;

use crate::http_client::{Destination, HttpClient, HttpError};
use crate::tasks::Tasks;
use crate::tls::Connector;

/// A thread's way to fetch.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// Where connections run.
    pub tasks: Tasks,
    /// How `https` is spoken; `None`: only `http` can be fetched.
    pub tls: Option<Arc<Connector>>,
}

impl Fetcher {
    /// Sends `request`, whose URI is absolute, and reads the whole answer, of whatever status.
    pub async fn fetch(
        &self,
        mut request: Request<Full<Bytes>>,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response<Bytes>, HttpError> {
        let tls = match (request.uri().scheme_str(), &self.tls) {
            (Some("http"), _) => None,
            (Some("https"), Some(tls)) => Some(Arc::clone(tls)),
            _ => return Err(HttpError::Url),
        };
        let authority = request.uri().authority().cloned().ok_or(HttpError::Url)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let header = authority.as_str().parse().map_err(|_| HttpError::Url)?;
        request.headers_mut().insert(HOST, header);
        let target = request.uri().path_and_query().cloned().ok_or(HttpError::Url)?;
        *request.uri_mut() = target.into();
        let client = HttpClient::new(Destination::Tcp { host, port, tls }, self.tasks.clone());
        client.fetch(request, bytes_max, deadline).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;
    use crate::tls::{TlsFault, tests::Pki};

    const BYTES_MAX: usize = 16;

    /// What a fetch makes of `answer`, over TLS where there is an authority.
    async fn fetch(answer: &'static [u8], trust: Option<(&Pki, &Pki)>) -> Result<Response<Bytes>, HttpError> {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("address").port();
        let acceptor = trust.map(|(of_server, _)| of_server.server(&["127.0.0.1"], (2020, 4000)));
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let tls = trust.map(|(_, believed)| {
            Connector::trusting(Some(&believed.file(&folder, "ca.pem"))).expect("a connector")
        });
        let serve = async {
            let (stream, _) = listener.accept().await.expect("accepted");
            let mut request = [0; 1024];
            match acceptor {
                None => {
                    let mut stream = stream;
                    let count = stream.read(&mut request).await.expect("request");
                    stream.write_all(answer).await.expect("answered");
                    request[..count].to_vec()
                }
                Some(acceptor) => {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return Vec::new() };
                    let count = stream.read(&mut request).await.expect("request");
                    stream.write_all(answer).await.expect("answered");
                    stream.shutdown().await.expect("closed");
                    request[..count].to_vec()
                }
            }
        };
        let fetcher = Fetcher { tasks: Tasks::default(), tls };
        let request = Request::get(format!("{scheme}://127.0.0.1:{port}/a?b=c")).body(Full::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        let local = LocalSet::new();
        let fetching = local.run_until(fetcher.fetch(request.expect("request"), BYTES_MAX, deadline));
        let (answer, request) = tokio::join!(fetching, serve);
        if !matches!(answer, Err(HttpError::Tls(_))) {
            let expected = format!("GET /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n");
            assert_eq!(String::from_utf8_lossy(&request), expected);
        }
        answer
    }

    #[tokio::test]
    async fn what_is_fetched_is_bounded_and_no_redirect_is_followed() {
        let (ours, other) = (Pki::new(), Pki::new());
        for trust in [None, Some((&ours, &ours))] {
            let fetched =
                fetch(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", trust).await.expect("fetched");
            assert_eq!((fetched.status().as_u16(), &fetched.body()[..]), (200, &b"{}"[..]));
            let moved = b"HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n";
            assert_eq!(fetch(moved, trust).await.expect("fetched").status(), 302);
            let long = b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n12345678901234567";
            assert_eq!(fetch(long, trust).await.err(), Some(HttpError::TooLarge));
            assert_eq!(fetch(b"SSH-2.0\r\n", trust).await.err(), Some(HttpError::Malformed));
        }
        let refused = fetch(b"", Some((&ours, &other))).await.err();
        assert_eq!(refused, Some(HttpError::Tls(TlsFault::UnknownIssuer)));
    }

    #[tokio::test]
    async fn what_has_no_scheme_that_is_spoken_is_refused() {
        let fetcher = Fetcher { tasks: Tasks::default(), tls: None };
        for url in ["https://127.0.0.1:1/", "ftp://127.0.0.1:1/", "/relative"] {
            let request = Request::get(url).body(Full::default()).expect("request");
            let deadline = Instant::now() + Duration::from_secs(10);
            assert_eq!(
                fetcher.fetch(request, BYTES_MAX, deadline).await.err(),
                Some(HttpError::Url),
                "{url}"
            );
        }
    }
}
