//! Client certificates as credentials: whom they name, alone and beside keys and tokens.

use std::time::{Duration, SystemTime};

use rcgen::SanType;
use serde_json::json;

use crate::harness::{
    Authority, Certificates, Config, Connection, DEADLINE, Daemon, Http2, RESOURCE, Request, SigningKey,
    TlsClient, Upstream, api_key, call, claims, eventually_within, jwks, jwt,
};

pub(super) const KEY: &str = "tl_0123456789abcdefghijklmnopqrstuvwxyz";
pub(super) const BOTH: [&str; 2] = ["http/1.1", "h2"];
/// For as long a certificate counts: long enough to connect with it.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(5);

/// A connection that is kept, of either version of HTTP.
enum Kept {
    Http1(Box<Connection>),
    Http2(Http2),
}

impl Kept {
    fn open(daemon: &Daemon, client: &TlsClient, http: &str) -> Self {
        let client = client.clone().offering(&[http]);
        match http {
            "h2" => Self::Http2(Http2::connect_tls(daemon.address(), &client, "localhost")),
            _ => Self::Http1(Box::new(client.connect(daemon.address(), "localhost"))),
        }
    }

    fn status(&mut self, request: &Request) -> u16 {
        match self {
            Self::Http1(connection) => {
                connection.write(&request.bytes());
                connection.response().status
            }
            Self::Http2(connection) => connection.send(request).status,
        }
    }
}

#[test]
fn a_certificate_names_the_caller_unless_a_credential_is_presented() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let server = files.add("server", &authority.issue(&["localhost"]));
    let ca = files.write("ca.pem", &authority.pem);
    let key = SigningKey::ec("e");
    let keys = files.write("jwks.json", &jwks(&[&key]));
    let config = Config::transparent(&upstream)
        .listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
             client_certificates = \"optional\"\nclient_ca = \"{}\"",
            ca.display()
        ))
        .endpoint(&format!("public_url = \"{RESOURCE}\"\nhosts = [\"localhost\"]\nscopes = [\"use\"]"))
        .section(&format!("{}\nscopes = [\"use\"]", api_key("ci", KEY)))
        .section(&jwt(&format!("jwks_file = \"{}\"", keys.display())))
        .section("[client_certificate]\nscopes = { use = [\"spiffe://example/ops/*\"] }")
        .section(
            "[[endpoint]]\npath = \"/certificates\"\nupstreams = [\"up\"]\nauth = [\"client_certificate\"]",
        );
    let daemon = Daemon::start(&config);
    let ops = authority.issue_uri("spiffe://example/ops/ann");
    let dev = authority.issue_uri("spiffe://example/dev/bob");
    let nameless = authority.issue(&["client.example"]);
    let token = key.token(&claims("ann", &json!({ "scope": "use" })));
    let cases = [
        ("nothing", None, None, [401, 401]),
        ("a certificate", Some(&ops), None, [200, 200]),
        ("one without the scope", Some(&dev), None, [403, 200]),
        ("one that names nobody", Some(&nameless), None, [401, 401]),
        ("a token", None, Some(token.as_str()), [200, 401]),
        ("a certificate and a token", Some(&dev), Some(token.as_str()), [200, 200]),
        ("a certificate and a bad token", Some(&ops), Some("a.b.c"), [401, 200]),
        ("a certificate and a key", Some(&dev), Some(KEY), [200, 200]),
        ("a certificate and a bad key", Some(&ops), Some("tl_x"), [401, 200]),
    ];
    for (what, identity, credential, expected) in cases {
        let client = match identity {
            Some(identity) => TlsClient::showing(&authority, identity),
            None => TlsClient::new(&authority),
        };
        let mut connection = client.connect(daemon.address(), "localhost");
        for _ in 0..2 {
            for (path, expected) in ["/mcp", "/certificates"].into_iter().zip(expected) {
                let mut request = call("7", "echo").target(path);
                if let Some(credential) = credential {
                    request = request.with("Authorization", format!("Bearer {credential}"));
                }
                connection.write(&request.bytes());
                assert_eq!(connection.response().status, expected, "{what} at {path}");
            }
        }
    }
}

#[test]
fn an_authority_that_went_is_believed_on_no_open_connection() {
    let upstream = Upstream::with_tools(&["echo"]);
    let [server_authority, stays, goes] = [(); 3].map(|()| Authority::new());
    let files = Certificates::new();
    let server = files.add("server", &server_authority.issue(&["localhost"]));
    let ca = files.write("ca.pem", &format!("{}{}", stays.pem, goes.pem));
    let config = Config::transparent(&upstream)
        .listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
             client_certificates = \"required\"\nclient_ca = \"{}\"",
            ca.display()
        ))
        .endpoint("auth = [\"client_certificate\"]");
    let daemon = Daemon::start(&config);
    let mut open = [&stays, &goes].map(|authority| {
        let client = TlsClient::showing(&server_authority, &authority.issue_uri("spiffe://example/ann"));
        client.connect(daemon.address(), "localhost")
    });
    let mut statuses = || {
        open.each_mut().map(|connection| {
            connection.write(&call("7", "echo").bytes());
            connection.response().status
        })
    };
    assert_eq!(statuses(), [200, 200]);
    let from = daemon.log().len();
    files.write("ca.pem", &stays.pem);
    daemon.reload(&config);
    daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    assert_eq!(statuses(), [200, 401]);
    assert_eq!(statuses(), [200, 401]);
}

#[test]
fn a_connection_ends_with_its_authority_whatever_the_endpoint_goes_by() {
    let upstream = Upstream::with_tools(&["echo"]);
    let demands = [("required", None), ("optional", None), ("required", Some(KEY))];
    for ((demand, key), http) in demands.into_iter().flat_map(|demand| BOTH.map(|http| (demand, http))) {
        let [server_authority, stays, goes] = [(); 3].map(|()| Authority::new());
        let files = Certificates::new();
        let server = files.add("server", &server_authority.issue(&["localhost"]));
        let ca = files.write("ca.pem", &format!("{}{}", stays.pem, goes.pem));
        let mut config = Config::transparent(&upstream).admin().listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
             client_certificates = \"{demand}\"\nclient_ca = \"{}\"",
            ca.display()
        ));
        if let Some(key) = key {
            config = config.section(&api_key("ci", key)).endpoint("auth = [\"api_key\"]");
        }
        let daemon = Daemon::start(&config);
        let mut open = [&stays, &goes].map(|authority| {
            let client = TlsClient::showing(&server_authority, &authority.issue(&["client.example"]));
            Kept::open(&daemon, &client, http)
        });
        let request = match key {
            Some(key) => call("7", "echo").with("Authorization", format!("Bearer {key}")),
            None => call("7", "echo"),
        };
        let mut statuses = || open.each_mut().map(|connection| connection.status(&request));
        assert_eq!(statuses(), [200, 200], "{demand} {key:?} {http}");
        let from = daemon.log().len();
        files.write("ca.pem", &stays.pem);
        daemon.reload(&config);
        daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
        for _ in 0..2 {
            assert_eq!(statuses(), [200, 401], "{demand} {key:?} {http}");
        }
        let refused = daemon.metric("trunkline_credentials_refused_total{reason=\"certificate\"}");
        assert_eq!(refused, 2, "{demand} {key:?} {http}");
    }
}

#[test]
fn a_certificate_that_ends_counts_no_more_on_connections_that_are_kept() {
    let upstream = Upstream::with_tools(&["echo"]);
    let [server_authority, ours] = [(); 2].map(|()| Authority::new());
    let files = Certificates::new();
    let server = files.add("server", &server_authority.issue(&["localhost"]));
    let ca = files.write("ca.pem", &ours.pem);
    let base = Config::transparent(&upstream).admin().listener(&format!(
        "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
         client_certificates = \"required\"\nclient_ca = \"{}\"",
        ca.display()
    ));
    let by_certificate = base.clone().endpoint("auth = [\"client_certificate\"]");
    let by_key = base.clone().section(&api_key("ci", KEY)).endpoint("auth = [\"api_key\"]");
    let daemons = [base, by_certificate, by_key].map(|config| Daemon::start(&config));
    let identity = ours.issue_with(&[], |params| {
        let uri = "spiffe://example/ann".try_into().expect("ASCII");
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.not_after = (SystemTime::now() + SHORT_LIFE).into();
    });
    let client = TlsClient::showing(&server_authority, &identity);
    let mut kept: Vec<Kept> =
        daemons.iter().flat_map(|daemon| BOTH.map(|http| Kept::open(daemon, &client, http))).collect();
    let without_key = call("7", "echo");
    let with_key = call("7", "echo").with("Authorization", format!("Bearer {KEY}"));
    let requests = [&without_key, &without_key, &without_key, &without_key, &with_key, &with_key];
    let mut statuses = || -> Vec<u16> {
        kept.iter_mut().zip(requests).map(|(connection, request)| connection.status(request)).collect()
    };
    assert_eq!(statuses(), [200; 6]);
    eventually_within(SHORT_LIFE + DEADLINE, "it ends", || {
        let all = statuses();
        assert!(all.iter().all(|status| [200, 401].contains(status)), "{all:?}");
        (all == [401; 6]).then_some(())
    });
    assert_eq!(statuses(), [401; 6]);
    for daemon in &daemons {
        assert!(daemon.metric("trunkline_credentials_refused_total{reason=\"expired\"}") >= 4);
    }
}

/// The listener has nobody left to check a certificate, and asks new clients for none.
#[test]
fn certificates_that_are_not_asked_for_any_more_lock_nobody_out() {
    let upstream = Upstream::with_tools(&["echo"]);
    for demand in ["required", "optional"] {
        for stays_encrypted in [true, false] {
            let [server_authority, ours] = [(); 2].map(|()| Authority::new());
            let files = Certificates::new();
            let server = files.add("server", &server_authority.issue(&["localhost"]));
            let ca = files.write("ca.pem", &ours.pem);
            let plain = "address = \"127.0.0.1:0\"";
            let tls = format!("{plain}\n[listener.tls]\ncertificates = [{server}]");
            let asked =
                format!("{tls}\nclient_certificates = \"{demand}\"\nclient_ca = \"{}\"", ca.display());
            let base = Config::transparent(&upstream)
                .admin()
                .section(&api_key("ci", KEY))
                .endpoint("auth = [\"api_key\"]")
                .section("[[endpoint]]\npath = \"/open\"\nupstreams = [\"up\"]\nauth = []");
            let daemon = Daemon::start(&base.clone().listener(&asked));
            let client = TlsClient::showing(&server_authority, &ours.issue_uri("spiffe://example/ann"));
            let mut open = client.connect(daemon.address(), "localhost");
            let with_key = call("7", "echo").with("Authorization", format!("Bearer {KEY}"));
            let requests = [with_key, call("7", "echo").target("/open"), call("7", "echo")];
            let mut statuses = || {
                requests.each_ref().map(|request| {
                    open.write(&request.bytes());
                    open.response().status
                })
            };
            let what = format!("{demand}, TLS stays: {stays_encrypted}");
            assert_eq!(statuses(), [200, 200, 401], "{what}");
            let from = daemon.log().len();
            daemon.reload(&base.listener(if stays_encrypted { &tls } else { plain }));
            let told = daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
            assert!(!told.contains("not reloaded"), "{what}: {told}");
            for _ in 0..2 {
                assert_eq!(statuses(), [200, 200, 401], "{what}");
            }
            let refused = daemon.metric("trunkline_credentials_refused_total{reason=\"certificate\"}");
            assert_eq!(refused, 0, "{what}");
        }
    }
}

/// A path that a glob and another program may read differently.
#[test]
fn a_name_that_could_be_taken_for_another_is_none() {
    let upstream = Upstream::with_tools(&["echo"]);
    let (authority, files) = (Authority::new(), Certificates::new());
    let server = files.add("server", &authority.issue(&["localhost"]));
    let ca = files.write("ca.pem", &authority.pem);
    let config = Config::transparent(&upstream)
        .listener(&format!(
            "address = \"127.0.0.1:0\"\n[listener.tls]\ncertificates = [{server}]\n\
             client_certificates = \"required\"\nclient_ca = \"{}\"",
            ca.display()
        ))
        .section("[client_certificate]\nscopes = { use = [\"spiffe://example/ops/*\"] }")
        .endpoint("auth = [\"client_certificate\"]\nscopes = [\"use\"]");
    let daemon = Daemon::start(&config);
    for (uri, expected) in [
        ("spiffe://example/ops/ann", 200),
        ("spiffe://example/ops/a..b", 200),
        ("spiffe://example/dev/ann", 403),
        ("spiffe://example/ops/../dev/ann", 401),
        ("spiffe://example/ops/./ann", 401),
        ("spiffe://example/ops/..", 401),
        ("spiffe://example/ops/%2e%2e/dev", 401),
        ("spiffe://example/ops/ann ", 401),
    ] {
        let mut connection =
            TlsClient::showing(&authority, &authority.issue_uri(uri)).connect(daemon.address(), "localhost");
        connection.write(&call("7", "echo").bytes());
        assert_eq!(connection.response().status, expected, "{uri}");
    }
}
