//! Streams that a client with a certificate holds open: they end with the certificate and with its authority, whatever the
//! endpoint goes by.

use std::time::{Instant, SystemTime};

use hyper::body::Incoming;
use rcgen::SanType;

use super::client_certificates::{BOTH, KEY, SHORT_LIFE};
use crate::harness::{
    Authority, Certificates, Config, Connection, DEADLINE, Daemon, Http2, LEGACY_VERSION, Listening, Offer,
    Request, TlsClient, Upstream, api_key, eventually, in_session, initialize, listen, post, with_key,
};

/// Endpoints that differ in what they go by: nothing, a key, the certificate.
const PATHS: [&str; 3] = ["/mcp", "/key", "/certificate"];
/// What a client listens by.
const KINDS: [&str; 3] = ["subscriptions/listen", "GET", "HTTP+SSE"];

/// A connection with an open stream.
enum Open {
    Http1(Box<Connection>),
    Http2(Box<Http2>, Incoming),
}

impl Open {
    #[track_caller]
    fn start(daemon: &Daemon, client: &TlsClient, http: &str, kind: &str, path: &str) -> Self {
        let client = client.clone().offering(&[http]);
        let get = || post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
        let there = |request: Request| {
            let request = request.target(path);
            if path == "/key" { with_key(request, KEY) } else { request }
        };
        let request = |session: String| match kind {
            "GET" => there(in_session(&session, get())),
            "HTTP+SSE" => there(get()),
            _ => there(listen("1", r#"{"toolsListChanged":true}"#)),
        };
        let opening = there(initialize("0", LEGACY_VERSION));
        let mut open = if http == "h2" {
            let mut connection = Http2::connect_tls(daemon.address(), &client, "localhost");
            let opened = connection.send(&opening);
            let session = opened.header("mcp-session-id").expect("a session").to_owned();
            let (head, body) = connection.open(&request(session));
            assert_eq!(head.status, 200, "{http} {kind} {path}");
            Self::Http2(Box::new(connection), body)
        } else {
            let mut connection = Box::new(client.connect(daemon.address(), "localhost"));
            connection.write(&opening.bytes());
            let session = connection.response().header("mcp-session-id").expect("a session").to_owned();
            connection.write(&request(session).bytes());
            assert_eq!(connection.head().status, 200, "{http} {kind} {path}");
            Self::Http1(connection)
        };
        if kind != "GET" {
            assert!(open.next().is_some(), "its first event");
        }
        open
    }

    fn next(&mut self) -> Option<String> {
        match self {
            Self::Http1(connection) => connection.event(),
            Self::Http2(connection, body) => {
                connection.next(body).map(|piece| String::from_utf8_lossy(&piece).into_owned())
            }
        }
    }

    /// Reads to the end. Signs of life go on for ever.
    fn wait_end(&mut self, name: &str) {
        let until = Instant::now() + DEADLINE;
        while self.next().is_some() {
            assert!(Instant::now() < until, "{name} goes on");
        }
    }
}

/// A gateway in front of a server that can be listened to.
struct Site {
    server: Listening,
    /// Of the listeners' own certificate.
    authority: Authority,
    files: Certificates,
    certificate: String,
    daemon: Daemon,
}

impl Site {
    /// Believes clients of these authorities.
    fn start(authorities: &[&Authority]) -> Self {
        let (server, authority) = (Listening::start(Offer::tools(&["echo"])), Authority::new());
        let files = Certificates::new();
        let certificate = files.add("server", &authority.issue(&["localhost"]));
        let pem: String = authorities.iter().map(|authority| authority.pem.as_str()).collect();
        files.write("ca.pem", &pem);
        let daemon = Daemon::start(&config(&server.upstream, (&files, &certificate), true));
        Self { server, authority, files, certificate, daemon }
    }

    /// A stream of each kind at each endpoint, with each version of HTTP; with its name.
    fn open_all(&self, client: &TlsClient) -> Vec<(String, Open)> {
        let mut all = Vec::new();
        for http in BOTH {
            for kind in KINDS {
                all.extend(PATHS.map(|path| {
                    let stream = Open::start(&self.daemon, client, http, kind, path);
                    (format!("{http} {kind} {path}"), stream)
                }));
            }
        }
        all
    }

    fn reload(&self, asks_first: bool) {
        let from = self.daemon.log().len();
        self.daemon.reload(&config(&self.server.upstream, (&self.files, &self.certificate), asks_first));
        let told = self.daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
        assert!(!told.contains("not reloaded"), "{told}");
    }

    /// How many streams of each kind are open.
    fn open(&self) -> [u64; 3] {
        ["trunkline_subscriptions", "trunkline_session_streams", "trunkline_sse_streams"]
            .map(|name| self.daemon.metric(name))
    }

    fn wait_open(&self, expected: [u64; 3]) {
        eventually("the others go on", || (self.open() == expected).then_some(()));
    }
}

/// Two listeners, of which the first asks for certificates or not.
fn config(upstream: &Upstream, (files, certificate): (&Certificates, &str), asks_first: bool) -> String {
    let asks =
        format!("client_certificates = \"required\"\nclient_ca = \"{}\"", files.path("ca.pem").display());
    let tls = format!("[listener.tls]\ncertificates = [{certificate}]");
    let first = if asks_first { &*asks } else { "" };
    let endpoint = |path: &str, auth: &str| {
        format!("[[endpoint]]\npath = \"{path}\"\nupstreams = [\"up\"]\nsse = true\nauth = [\"{auth}\"]")
    };
    let config = Config::transparent(upstream)
        .admin()
        .listener(&format!("address = \"127.0.0.1:0\"\n{tls}\n{first}"))
        .section(&format!("[[listener]]\naddress = \"127.0.0.2:0\"\n{tls}\n{asks}"))
        .endpoint("sse = true\nauth = []")
        .section(&api_key("ci", KEY))
        .section(&endpoint("/key", "api_key"))
        .section(&endpoint("/certificate", "client_certificate"));
    config.to_string().replace("\n[listener]\n", "\n[[listener]]\n")
}

fn wait_ends(streams: &mut [(String, Open)]) {
    for (name, stream) in streams {
        stream.wait_end(name);
    }
}

#[test]
fn streams_end_with_the_authority_of_their_connection() {
    let [stays, goes] = [(); 2].map(|()| Authority::new());
    let site = Site::start(&[&stays, &goes]);
    let open = |authority: &Authority| {
        let identity = authority.issue_uri("spiffe://example/ann");
        site.open_all(&TlsClient::showing(&site.authority, &identity))
    };
    let _going_on = open(&stays);
    let left = site.open();
    let mut ending = open(&goes);
    site.files.write("ca.pem", &stays.pem);
    site.reload(true);
    wait_ends(&mut ending);
    site.wait_open(left);
}

#[test]
fn streams_end_with_the_certificate_of_their_connection() {
    let ours = Authority::new();
    let site = Site::start(&[&ours]);
    let [lasting, short] = [None, Some(SHORT_LIFE)].map(|life| {
        let identity = ours.issue_with(&[], |params| {
            let uri = "spiffe://example/ann".try_into().expect("ASCII");
            params.subject_alt_names = vec![SanType::URI(uri)];
            if let Some(life) = life {
                params.not_after = (SystemTime::now() + life).into();
            }
        });
        TlsClient::showing(&site.authority, &identity)
    });
    let _going_on = site.open_all(&lasting);
    let left = site.open();
    let mut ending = site.open_all(&short);
    wait_ends(&mut ending);
    site.wait_open(left);
}

/// The endpoint that goes by certificates is there for clients of the other listener.
#[test]
fn only_streams_of_certificates_end_where_they_are_not_asked_for_any_more() {
    let ours = Authority::new();
    let site = Site::start(&[&ours]);
    let client = TlsClient::showing(&site.authority, &ours.issue_uri("spiffe://example/ann"));
    let all = site.open_all(&client);
    let left = site.open().map(|count| count / 3 * 2);
    site.reload(false);
    let (mut ending, _going_on): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(name, _)| name.ends_with("/certificate"));
    wait_ends(&mut ending);
    site.wait_open(left);
}
