//! Fetching: what is sent, by which way, and what comes of answers.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use config::{Basic, NoProxy, SecretSource, Url};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::*;
use crate::outbound::WayOut;
use crate::tls::{TlsFault, tests::Pki};

const BYTES_MAX: usize = 16;
/// `Basic` of `me` and `hunter2`.
const SHOWN: &str = "bWU6aHVudGVyMg==";

fn fetcher(way: WayOut) -> Fetcher {
    let outbound = Arc::<Outbound>::default();
    outbound.replace(&Arc::new(way));
    Fetcher { tasks: Tasks::default(), outbound }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// The way through a proxy in clear text that listens here and wants a password.
fn through(proxy: &TcpListener) -> WayOut {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    std::fs::write(&path, "hunter2\n").expect("a file");
    let port = proxy.local_addr().expect("an address").port();
    let url = Url {
        authority: format!("127.0.0.1:{port}"),
        host: "127.0.0.1".into(),
        port,
        is_tls: false,
        path_and_query: "/".into(),
    };
    let basic = Basic { user: "me".into(), password: SecretSource::File(path) };
    let config =
        config::Outbound { proxy: Some(url), basic: Some(basic), ca: None, no_proxy: NoProxy::default() };
    WayOut::read(&config).expect("a way")
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("bound")
}

/// Reads to the end of a head.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

/// In a box: such futures are large.
fn run<'f, T: 'f>(
    fetching: impl Future<Output = T> + 'f,
    serving: impl Future<Output = ()> + 'f,
) -> Pin<Box<dyn Future<Output = T> + 'f>> {
    Box::pin(async move {
        let local = LocalSet::new();
        tokio::join!(local.run_until(fetching), serving).0
    })
}

fn believing(folder: &tempfile::TempDir, pki: &Pki) -> Arc<Connector> {
    Connector::trusting(Some(&pki.file(folder, "ca.pem"))).expect("a connector")
}

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).expect("a request")
}

/// The outcome of a fetch for `answer`, over TLS where there is an authority.
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
    let fetcher = fetcher(WayOut::default());
    let request = Request::get(format!("{scheme}://127.0.0.1:{port}/a?b=c")).body(Full::default());
    let deadline = Instant::now() + Duration::from_secs(10);
    let local = LocalSet::new();
    let fetching =
        local.run_until(fetcher.fetch(request.expect("request"), tls.as_ref(), BYTES_MAX, deadline));
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
        let outcome = fetch(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", trust).await.expect("fetched");
        assert_eq!((outcome.status().as_u16(), &outcome.body()[..]), (200, &b"{}"[..]));
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
    let fetcher = fetcher(WayOut::default());
    for url in ["https://127.0.0.1:1/", "ftp://127.0.0.1:1/", "/relative"] {
        let request = Request::get(url).body(Full::default()).expect("request");
        let deadline = Instant::now() + Duration::from_secs(10);
        assert_eq!(
            fetcher.fetch(request, None, BYTES_MAX, deadline).await.err(),
            Some(HttpError::Url),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_lead_there_is_named_with_its_status_and_without_the_password() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(17 << 10));
    let refused = |status| ProxyFault::Refused(StatusCode::from_u16(status).expect("a status"));
    let folder = tempfile::tempdir().expect("a folder");
    let tls = believing(&folder, &Pki::new());
    for (answer, fault) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\nx: hunter2\r\n\r\n", refused(407)),
        ("HTTP/1.1 302 Found\r\nlocation: https://b.test/\r\ncontent-length: 0\r\n\r\n", refused(302)),
        ("HTTP/1.1 502 hunter2\r\n\r\n", refused(502)),
        ("SSH-2.0-hunter2\r\n", ProxyFault::Malformed),
        (&*long, ProxyFault::TooLarge),
        ("", ProxyFault::Closed),
    ] {
        let proxy = listener().await;
        let fetcher = fetcher(through(&proxy));
        assert!(!format!("{fetcher:?}").contains(SHOWN) && !format!("{fetcher:?}").contains("hunter2"));
        let serve = async {
            let (mut stream, _) = proxy.accept().await.expect("accepted");
            let expected = format!(
                "CONNECT a.test:8443 HTTP/1.1\r\nhost: a.test:8443\r\nproxy-authorization: Basic {SHOWN}\r\n\r\n"
            );
            assert_eq!(head(&mut stream).await, expected);
            stream.write_all(answer.as_bytes()).await.expect("answered");
            drop(stream);
        };
        let outcome =
            run(fetcher.fetch(get("https://a.test:8443/"), Some(&tls), BYTES_MAX, soon()), serve).await;
        let error = outcome.expect_err("no answer");
        let place = proxy.local_addr().expect("an address").to_string();
        assert_eq!(error, HttpError::Proxy { proxy: place.clone(), fault }, "{answer}");
        let told = format!("{error} {error:?}");
        assert!(told.contains(&place) && !told.contains("hunter2") && !told.contains(SHOWN), "{told}");
    }
}

#[tokio::test]
async fn a_proxy_that_says_nothing_costs_no_more_than_the_time_for_the_request() {
    let proxy = listener().await;
    let fetcher = fetcher(through(&proxy));
    let folder = tempfile::tempdir().expect("a folder");
    let tls = believing(&folder, &Pki::new());
    for url in ["https://a.test/", "https://[2001:db8::7]/"] {
        let deadline = Instant::now() + Duration::from_millis(100);
        let (gone, outcome) = tokio::sync::oneshot::channel();
        let serve = async {
            let (mut stream, _) = proxy.accept().await.expect("accepted");
            let place = if url.contains("a.test") { "a.test:443" } else { "[2001:db8::7]:443" };
            assert!(head(&mut stream).await.starts_with(&format!("CONNECT {place} HTTP/1.1\r\n")));
            outcome.await.expect("an outcome");
        };
        let fetch = async {
            let outcome = fetcher.fetch(get(url), Some(&tls), BYTES_MAX, deadline).await;
            gone.send(()).expect("somebody waits");
            outcome
        };
        let error = run(fetch, serve).await.expect_err("no answer");
        assert!(matches!(&error, HttpError::Proxy { fault: ProxyFault::TimedOut(_), .. }), "{error:?}");
    }
}

#[tokio::test]
async fn tls_is_spoken_with_the_server_behind_the_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = Pki::new();
    let tls = believing(&folder, &pki);
    for (name, expected) in [("a.test", Ok(200)), ("b.test", Err(HttpError::Tls(TlsFault::OtherName)))] {
        let proxy = listener().await;
        let acceptor = pki.server(&[name], (2020, 4000));
        let serve = async {
            let (mut stream, _) = proxy.accept().await.expect("accepted");
            head(&mut stream).await;
            // Fields of such an answer mean nothing (RFC 9110 §9.3.6).
            let answer = b"HTTP/1.0 200 Connection established\r\ncontent-length: 9\r\n\r\n";
            stream.write_all(answer).await.expect("answered");
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut request = vec![0; 1024];
            let count = stream.read(&mut request).await.expect("a request");
            let request = String::from_utf8_lossy(&request[..count]);
            assert_eq!(request, "GET /keys HTTP/1.1\r\nhost: a.test\r\n\r\n");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.expect("answered");
            stream.shutdown().await.expect("closed");
        };
        let fetcher = fetcher(through(&proxy));
        let outcome =
            run(fetcher.fetch(get("https://a.test/keys"), Some(&tls), BYTES_MAX, soon()), serve).await;
        assert_eq!(outcome.map(|answer| answer.status().as_u16()), expected, "{name}");
    }
}

#[tokio::test]
async fn in_clear_text_a_proxy_is_asked_by_the_whole_url() {
    for (status, is_of_proxy) in [(200, false), (403, false), (302, false), (407, true)] {
        let proxy = listener().await;
        let serve = async {
            let (mut stream, _) = proxy.accept().await.expect("accepted");
            let expected = format!(
                "GET http://a.test:4318/b?c HTTP/1.1\r\nhost: a.test:4318\r\nproxy-authorization: Basic {SHOWN}\r\n\r\n"
            );
            assert_eq!(head(&mut stream).await, expected);
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("answered");
        };
        let fetcher = fetcher(through(&proxy));
        let outcome = run(fetcher.fetch(get("http://a.test:4318/b?c"), None, BYTES_MAX, soon()), serve).await;
        assert_eq!(outcome.is_err(), is_of_proxy, "{status}");
        if let Ok(answer) = outcome {
            assert_eq!(answer.status(), status);
        }
    }
}

#[tokio::test]
async fn this_machine_is_asked_without_the_proxy() {
    let (proxy, server) = (listener().await, listener().await);
    let serve = async {
        let (mut stream, _) = server.accept().await.expect("accepted");
        assert!(head(&mut stream).await.starts_with("GET / HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("answered");
    };
    let url = format!("http://{}/", server.local_addr().expect("an address"));
    let outcome = run(fetcher(through(&proxy)).fetch(get(&url), None, BYTES_MAX, soon()), serve).await;
    assert_eq!(outcome.expect("an answer").status(), 200);
}

/// `0.0.0.0` is no address of this machine to the way out, and another than the one that is connected to.
#[tokio::test]
async fn what_strangers_name_is_fetched_from_the_very_address_that_was_chosen_and_through_no_proxy() {
    let (proxy, server) = (listener().await, listener().await);
    let folder = tempfile::tempdir().expect("a folder");
    let pki = Pki::new();
    let tls = believing(&folder, &pki);
    let fetcher = fetcher(through(&proxy));
    let acceptor = pki.server(&["0.0.0.0"], (2020, 4000));
    let place = server.local_addr().expect("an address");
    let url = format!("https://0.0.0.0:{}/c", place.port());
    let serve = async {
        let (stream, _) = server.accept().await.expect("accepted");
        assert_eq!(stream.local_addr().expect("an address"), place);
        let mut stream = acceptor.accept(stream).await.expect("TLS");
        let mut request = vec![0; 1024];
        let count = stream.read(&mut request).await.expect("a request");
        assert!(request[..count].starts_with(b"GET /c HTTP/1.1\r\n"));
        let answer = b"HTTP/1.1 302 Found\r\nlocation: /d\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("answered");
        stream.shutdown().await.expect("closed");
    };
    let choose = |found: &[IpAddr]| {
        assert_eq!(found, ["0.0.0.0".parse::<IpAddr>().expect("an address")]);
        Some(place.ip())
    };
    let outcome = run(fetcher.fetch_chosen(get(&url), &tls, choose, BYTES_MAX, soon(), ()), serve).await;
    assert_eq!(outcome.expect("an answer").status(), 302);

    let none = |_: &[IpAddr]| None;
    let refused = fetcher.fetch_chosen(get(&url), &tls, none, BYTES_MAX, soon(), ()).await;
    assert_eq!(refused.err(), Some(HttpError::Address));
    let in_clear = fetcher.fetch_chosen(get("http://0.0.0.0/"), &tls, choose, BYTES_MAX, soon(), ()).await;
    assert_eq!(in_clear.err(), Some(HttpError::Url));
}

#[tokio::test]
async fn names_that_strangers_choose_wait_for_no_place_of_the_gateways_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = believing(&folder, &Pki::new());
    let fetcher = fetcher(WayOut::default());
    let _all = crate::dns::tests::all_places().await;
    let (none, place) = (|_: &[IpAddr]| None, Arc::new(()));
    let taken = Arc::clone(&place);
    let outcome = fetcher.fetch_chosen(get("https://localhost/"), &tls, none, BYTES_MAX, soon(), taken).await;
    assert_eq!(outcome.err(), Some(HttpError::Address), "it was looked up");
    assert_eq!(Arc::strong_count(&place), 1);
}

#[tokio::test]
async fn another_way_is_told_from_the_same() {
    let (first, second) = (listener().await, listener().await);
    let outbound = Outbound::default();
    let replace = |way| outbound.replace(&Arc::new(way));
    assert!(!replace(WayOut::default()));
    assert!(replace(through(&first)));
    let before = outbound.current();
    assert!(!replace(through(&first)) && Arc::ptr_eq(&before, &outbound.current()));
    assert!(replace(through(&second)) && replace(WayOut::default()));
}
