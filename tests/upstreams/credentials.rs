//! What upstreams are shown: by whom it is seen, by whom it is not, and what becomes of tokens.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{
    Child, Config, DEADLINE, Daemon, Folder, LEGACY_VERSION, Legacy, Offer, Received, Reply, Response,
    Upstream, api_key, call, eventually, in_session, legacy, list, open_session, read_resource,
    refusing_address, trunkline, write_secret,
};

/// Files of secrets, as the configuration names them.
struct Secrets(Folder);

impl Secrets {
    fn new() -> Self {
        Self(Folder::new())
    }

    /// Writes a secret and returns its source.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        write_secret(&path, text);
        format!("{{ file = \"{}\" }}", path.display())
    }
}

#[test]
fn what_is_always_the_same_goes_with_every_request_and_what_clients_show_with_none() {
    let secrets = Secrets::new();
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern().with_streams();
    let upstream = server.start();
    let lines = format!(
        "headers = {{ X-Tenant = \"acme\", x-api-key = {{ env = \"UP_KEY\" }} }}\nbearer = {}",
        secrets.file("token", "up-token\n")
    );
    let config = Config::new().probed("up", upstream.address, &lines).section(&api_key("me", "client-key"));
    let daemon = Daemon::start_with(&config, &[("UP_KEY", "up-key")]);
    let shows = |request: crate::harness::Request| {
        request
            .with("Authorization", "Bearer client-key")
            .with("Cookie", "client=cookie")
            .with("X-Tenant", "other")
    };
    eventually("both eras are known", || {
        (daemon.send(&shows(call("1", "echo"))).status == 200).then_some(())
    });
    daemon.send(&shows(list("2", "tools/list"))).assert_ok();
    // Who can be asked for something gets a stream.
    let client = r#""capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}"#;
    let params = format!(r#"{{"protocolVersion":"{LEGACY_VERSION}",{client}}}"#);
    let opened = daemon.send(&shows(legacy("3", "initialize", &params)));
    opened.assert_ok();
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    for request in
        [legacy("4", "tools/call", r#"{"name":"echo","arguments":{}}"#), legacy("5", "tools/list", "{}")]
    {
        daemon.send(&shows(in_session(&session, request))).assert_ok();
    }
    server.stream(1);
    let arrived = upstream.received();
    let methods: Vec<String> = arrived.iter().map(Received::method).collect();
    for method in
        ["server/discover", "initialize", "notifications/initialized", "tools/call", "tools/list", "GET"]
    {
        assert!(methods.iter().any(|arrived| arrived == method), "{method} not among {methods:?}");
    }
    for request in &arrived {
        assert_eq!(request.headers("authorization"), ["Bearer up-token"], "{request:?}");
        assert_eq!(request.headers("x-api-key"), ["up-key"], "{request:?}");
        assert_eq!(request.headers("x-tenant"), ["acme"], "{request:?}");
        assert_eq!(request.headers("cookie"), [""; 0], "{request:?}");
    }
}

#[test]
fn a_user_and_a_password_are_shown_and_nothing_without() {
    let secrets = Secrets::new();
    let (basic, open) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let lines = format!("basic = {{ user = \"me\", password = {} }}", secrets.file("password", "pa:ss"));
    let config = Config::new().upstream("basic", basic.address, &lines).upstream("open", open.address, "");
    let daemon = Daemon::start(&config);
    for tool in ["basic__echo", "open__echo"] {
        daemon.send(&call("1", tool).with("Authorization", "Bearer x").with("Cookie", "a=b")).assert_ok();
    }
    assert_eq!(basic.only_call().headers("authorization"), ["Basic bWU6cGE6c3M="]);
    let names = open.only_call().header_names();
    assert!(!names.iter().any(|name| name == "authorization" || name == "cookie"), "{names:?}");
}

#[test]
fn headers_that_the_operator_names_are_handed_on_with_all_that_is_sent_for_their_client() {
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern();
    let upstream = server.start();
    let lines = "forward_headers = [\"X-Tenant\", \"x-absent\"]\neras = [\"modern\", \"legacy\"]";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
    let shown = |request: crate::harness::Request| request.with("x-tenant", "acme").with("X-Other", "1");
    daemon.send(&shown(call("1", "echo"))).assert_ok();
    daemon.send(&shown(list("2", "tools/list"))).assert_ok();
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let request = legacy("3", "tools/call", r#"{"name":"echo","arguments":{}}"#);
    daemon.send(&shown(in_session(&session, request))).assert_ok();
    let received = upstream.received();
    for request in &received {
        assert_eq!(request.headers("x-other"), [""; 0], "{request:?}");
        if ["tools/call", "tools/list"].contains(&&*request.method()) {
            assert_eq!(request.headers("x-tenant"), ["acme"], "{request:?}");
        }
    }
    for method in ["initialize", "notifications/initialized", "tools/call", "tools/list"] {
        let is_shown =
            |request: &&Received| request.method() == method && request.headers("x-tenant") == ["acme"];
        assert!(received.iter().any(|request| is_shown(&request)), "{method}: {received:?}");
    }
}

#[test]
fn a_child_gets_its_secrets_in_its_environment_and_anew_after_a_reload() {
    let secrets = Secrets::new();
    let child = Child::new(&[]);
    let source = secrets.file("token", "child-token");
    let lines = format!("eras = [\"legacy\"]\nenv = {{ PLAIN = \"plain\", TOKEN = {source} }}");
    let config = Config::new().raw("up", &child.keys(&lines));
    let daemon = Daemon::start(&config);
    let environment = || {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let request = legacy("1", "tools/call", r#"{"name":"env","arguments":{}}"#);
        daemon.send(&in_session(&session, request)).text()
    };
    let told = environment();
    assert!(told.contains("plain") && told.contains("child-token"), "{told}");
    secrets.file("token", "second-token");
    daemon.reload(&config);
    eventually("a child with the new secret", || environment().contains("second-token").then_some(()));
}

#[test]
fn secrets_are_read_at_start_and_at_reload_and_a_missing_one_is_named() {
    let secrets = Secrets::new();
    let upstream = Upstream::with_tools(&["echo"]);
    let source = secrets.file("token", "first");
    let config = |source: &str| Config::new().upstream("up", upstream.address, &format!("bearer = {source}"));
    let shown =
        || upstream.received_of("tools/call").last().map(|call| call.headers("authorization").join(""));
    for (source, said) in [
        ("{ env = \"TRUNKLINE_TEST_ABSENT\" }", "TRUNKLINE_TEST_ABSENT"),
        ("{ file = \"/nowhere/token\" }", "/nowhere/token"),
        ("{ credential = \"absent\" }", "absent"),
    ] {
        let (output, _) = trunkline(&["run"], Some(&config(source).to_string()));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("upstream up") && text.contains(said), "{text}");
    }
    let daemon = Daemon::start(&config(&source));
    daemon.send(&call("1", "echo")).assert_ok();
    assert_eq!(shown().as_deref(), Some("Bearer first"));

    daemon.reload(&config("{ file = \"/nowhere/token\" }"));
    daemon.wait_for_log(0, "the missing file", |line| line.contains("/nowhere/token"));
    daemon.send(&call("2", "echo")).assert_ok();
    assert_eq!(shown().as_deref(), Some("Bearer first"));

    secrets.file("token", "second\n");
    daemon.reload(&config(&source));
    eventually("the new token is shown", || {
        daemon.send(&call("3", "echo")).assert_ok();
        (shown().as_deref() == Some("Bearer second")).then_some(())
    });
}

#[test]
fn a_file_that_others_can_read_is_remarked_upon() {
    use std::os::unix::fs::PermissionsExt as _;
    let secrets = Secrets::new();
    let upstream = Upstream::with_tools(&["echo"]);
    let source = secrets.file("token", "hunter2");
    let path = secrets.0.path().join("token");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("its mode can be set");
    let daemon =
        Daemon::start(&Config::new().upstream("up", upstream.address, &format!("bearer = {source}")));
    let line = daemon.wait_for_log(0, "a warning", |line| line.contains("WARN") && line.contains("chmod"));
    assert!(line.contains(path.to_str().unwrap()) && !line.contains("hunter2"), "{line}");
}

/// A token endpoint.
struct Issuer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
}

impl Issuer {
    /// Answers the n-th request, counted from 1, as `answer` says; with nothing it says nothing.
    fn start(answer: impl Fn(usize) -> Option<String> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (received, stopped) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (noted, ended) = (Arc::clone(&received), Arc::clone(&stopped));
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let request = read_request(&mut stream);
                let count = {
                    let mut received = noted.lock().unwrap();
                    received.push(request);
                    received.len()
                };
                match answer(count) {
                    Some(answer) => {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    None => silent.push(stream),
                }
            }
        });
        Self { address, received, stopped }
    }

    fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// The keys of an upstream that fetches its token here.
    fn keys(&self, secret: &str, more: &str) -> String {
        let url = format!("http://{}/token", self.address);
        format!("oauth = {{ token_url = {url:?}, client_id = \"me:you\", client_secret = {secret}{more} }}")
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let _ = stream.set_read_timeout(Some(DEADLINE));
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).unwrap_or_default();
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let length = text
            .to_ascii_lowercase()
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.split("\r\n").next().and_then(|length| length.parse::<usize>().ok()));
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if count == 0 || length.is_some_and(|length| body.is_some_and(|body| body >= length)) {
            return text;
        }
    }
}

fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn token(token: &str, expires_in_s: u32) -> String {
    let body = format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{expires_in_s}}}"#);
    http("200 OK", &body)
}

/// A server that lets in only those who show one of these.
fn guarded(accepted: &'static [&'static str]) -> Upstream {
    let offer = Offer::tools(&["echo"]);
    Upstream::start(move |request| {
        let shown = request.headers("authorization").join(",");
        if accepted.contains(&shown.as_str()) {
            return offer.answer(request);
        }
        Reply::http("401 Unauthorized", "WWW-Authenticate: Bearer realm=\"upstream\"\r\n", "")
    })
}

#[track_caller]
fn assert_no_token(response: &Response) {
    let error = response.assert_error(503, 503, Some("7"));
    assert!(error.to_string().contains("no credentials for this upstream now"), "{error}");
    assert!(response.header("retry-after").is_some());
}

#[test]
fn one_token_is_fetched_for_all() {
    let secrets = Secrets::new();
    for (auth, more) in [
        ("basic", ", scopes = [\"a.read\", \"b\"], resource = \"https://up.example/mcp\""),
        ("post", ", client_auth = \"post\""),
    ] {
        let issuer = Issuer::start(|_| Some(token("t-1", 3600)));
        let upstream = guarded(&["Bearer t-1"]);
        let keys = issuer.keys(&secrets.file("secret", "s&cret +"), more);
        let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
        for _ in 0..8 {
            daemon.send(&call("7", "echo")).assert_ok();
        }
        daemon.send(&list("8", "tools/list")).assert_ok();
        let received = issuer.received();
        assert_eq!(received.len(), 1, "{received:?}");
        let request = &received[0];
        assert!(request.starts_with("POST /token HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("content-type: application/x-www-form-urlencoded\r\n"), "{request}");
        let (head, body) = request.split_once("\r\n\r\n").expect("a body");
        if auth == "basic" {
            assert!(head.contains("authorization: Basic bWUlM0F5b3U6cyUyNmNyZXQrJTJC"), "{head}");
            let form = "grant_type=client_credentials&scope=a.read+b&resource=https%3A%2F%2Fup.example%2Fmcp";
            assert_eq!(body, form);
        } else {
            assert!(!head.contains("authorization"), "{head}");
            let form = "grant_type=client_credentials&client_id=me%3Ayou&client_secret=s%26cret+%2B";
            assert_eq!(body, form);
        }
    }
}

#[test]
fn a_read_that_dies_and_is_then_refused_is_answered_under_its_own_id() {
    let secrets = Secrets::new();
    let issuer = Issuer::start(|count| Some(token(&format!("t-{count}"), 3600)));
    let offer = Offer::tools(&["echo"]);
    // The first to ask for a resource is cut off; then the token is no longer believed.
    let reads = AtomicUsize::new(0);
    let upstream = Upstream::start(move |request| {
        let shown = request.headers("authorization").join(",");
        if request.method() != "resources/read" {
            return offer.answer(request);
        }
        match (reads.fetch_add(1, Ordering::SeqCst), &*shown) {
            (0, _) => Reply::default().reset(),
            (_, "Bearer t-2") => offer.answer(request),
            _ => Reply::http("401 Unauthorized", "", ""),
        }
    });
    let keys = issuer.keys(&secrets.file("secret", "s"), "");
    let daemon = Daemon::start(&Config::new().top("workers = 1").upstream("up", upstream.address, &keys));
    daemon.send(&call("1", "echo")).assert_ok();
    let response = daemon.send(&read_resource("\"mine\"", "file:///a"));
    response.assert_ok();
    assert!(response.text().contains("\"mine\""), "{}", response.text());
    assert_eq!(upstream.received_of("resources/read").len(), 3);
}

#[test]
fn many_at_once_wait_for_one_fetch() {
    let secrets = Secrets::new();
    let issuer = Issuer::start(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Some(token("t-1", 3600))
    });
    let upstream = guarded(&["Bearer t-1"]);
    let keys = issuer.keys(&secrets.file("secret", "s"), "");
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..16).map(|_| scope.spawn(|| daemon.send(&call("7", "echo")))).collect();
        for call in calls {
            call.join().expect("a response").assert_ok();
        }
    });
    assert_eq!(issuer.received().len(), 1);
}

#[test]
fn a_token_is_fetched_anew_before_it_expires_and_nobody_waits() {
    let secrets = Secrets::new();
    // The second is due after 4/5 of five seconds, and takes a while.
    let issuer = Issuer::start(|count| {
        if count > 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(token(&format!("t-{count}"), if count == 1 { 5 } else { 3600 }))
    });
    let upstream = guarded(&["Bearer t-1", "Bearer t-2"]);
    let keys = issuer.keys(&secrets.file("secret", "s"), "");
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
    eventually("the second token is shown", || {
        daemon.send(&call("7", "echo")).assert_ok();
        let shown =
            upstream.received_of("tools/call").last().map(|call| call.headers("authorization").join(""));
        (shown.as_deref() == Some("Bearer t-2")).then_some(())
    });
    assert_eq!(issuer.received().len(), 2);
}

#[test]
fn a_token_that_is_refused_is_fetched_anew_once() {
    let secrets = Secrets::new();
    let issuer = Issuer::start(|count| Some(token(&format!("t-{count}"), 3600)));
    let upstream = guarded(&["Bearer t-2"]);
    let keys = issuer.keys(&secrets.file("secret", "s"), "");
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
    daemon.send(&call("7", "echo")).assert_ok();
    assert_eq!(issuer.received().len(), 2);
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].body, calls[1].body);
}

#[test]
fn a_server_that_takes_no_token_does_not_cost_a_fetch_for_each_call() {
    let secrets = Secrets::new();
    let issuer = Issuer::start(|count| Some(token(&format!("t-{count}"), 3600)));
    let upstream = guarded(&[]);
    let keys = issuer.keys(&secrets.file("secret", "s"), "");
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
    for _ in 0..10 {
        let response = daemon.send(&call("7", "echo"));
        let error = response.assert_error(502, 502, Some("7"));
        assert!(error.to_string().contains("credentials for this upstream were refused"), "{error}");
        assert_eq!(response.header("www-authenticate"), None);
    }
    assert_eq!(issuer.received().len(), 2);
}

#[test]
fn without_a_token_calls_fail_at_once_others_are_unharmed_and_it_heals() {
    let secrets = Secrets::new();
    let heals = Arc::new(AtomicBool::new(false));
    let healed = Arc::clone(&heals);
    let issuer = Issuer::start(move |_| {
        if healed.load(Ordering::SeqCst) {
            return Some(token("t", 3600));
        }
        Some(http("400 Bad Request", r#"{"error":"invalid_client","error_description":"hunter2"}"#))
    });
    let (upstream, well) = (guarded(&["Bearer t"]), Upstream::with_tools(&["fine"]));
    let keys = issuer.keys(&secrets.file("secret", "hunter3"), "");
    let config = Config::new().upstream("up", upstream.address, &keys).upstream("well", well.address, "");
    let daemon = Daemon::start(&config);
    for _ in 0..5 {
        assert_no_token(&daemon.send(&call("7", "up__echo")));
    }
    // A refusal is not tried again at once, by nobody.
    assert!(issuer.received().len() <= 3, "{}", issuer.received().len());
    let line = daemon.wait_for_log(0, "no token", |line| line.contains("no token for an upstream"));
    assert!(line.contains("invalid_client") && line.contains("upstream=\"up\""), "{line}");
    daemon.send(&call("7", "well__fine")).assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 0);
    heals.store(true, Ordering::SeqCst);
    eventually("there is a token", || (daemon.send(&call("7", "up__echo")).status == 200).then_some(()));
    let log = daemon.log().join("\n");
    assert!(!log.contains("hunter"), "{log}");
}

#[test]
fn without_a_token_nothing_is_said_of_the_server() {
    let secrets = Secrets::new();
    let issuer = Issuer::start(|_| Some(http("400 Bad Request", r#"{"error":"invalid_client"}"#)));
    let upstream = guarded(&["Bearer t"]);
    let health = "\nhealth = { interval = \"20ms\", unhealthy_after = 1 }";
    let keys = issuer.keys(&secrets.file("secret", "s"), "") + health;
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &keys));
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(500) {
        assert_no_token(&daemon.send(&call("7", "echo")));
    }
}

#[test]
fn a_token_endpoint_that_falters_is_tried_again_and_one_that_is_silent_costs_no_more_than_the_deadline() {
    let secrets = Secrets::new();
    let falters = Issuer::start(|count| {
        if count < 3 { Some(http("503 Service Unavailable", "")) } else { Some(token("t", 3600)) }
    });
    let silent = Issuer::start(|_| None);
    let upstream = guarded(&["Bearer t"]);
    let secret = secrets.file("secret", "s");
    let keys = silent.keys(&secret, "") + "\nresponse_timeout = \"500ms\"";
    let config = Config::new().upstream("falters", upstream.address, &falters.keys(&secret, ""));
    let daemon = Daemon::start(&config.upstream("silent", upstream.address, &keys));
    daemon.send(&call("7", "falters__echo")).assert_ok();
    assert_eq!(falters.received().len(), 3);
    assert_no_token(&daemon.send(&call("7", "silent__echo")));
}

/// Everything that is secret here holds this word.
const MARK: &str = "hunter";

/// The gateway is made to do all it can do with secrets, at the most talkative, and must keep them to itself.
#[test]
fn no_secret_is_ever_shown() {
    let secrets = Secrets::new();
    let secret = |number: u32| secrets.file(&format!("secret-{number}"), &format!("{MARK}{number}"));
    let good = Issuer::start(|count| Some(token(&format!("{MARK}-token-{count}"), 3600)));
    let bad = Issuer::start(|count| match count {
        1 => Some(http("401 Unauthorized", &format!(r#"{{"error":"{MARK}"}}"#))),
        _ => Some(http("200 OK", MARK)),
    });
    let well = Upstream::with_tools(&["echo"]);
    let refusing = guarded(&[]);
    let broken = Upstream::calling(|_| Reply::default().reset());
    let late = Upstream::calling(|_| Reply::silence());
    let nonsense = Upstream::calling(|_| Reply::raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"));
    let (nobody, _socket) = refusing_address();
    let server = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let old = server.start();
    let child = Child::new(&[]);
    let quick = "response_timeout = \"500ms\"\n";
    let bearer = |number: u32| format!("{quick}bearer = {}", secret(number));
    let env = format!("eras = [\"modern\"]\nenv = {{ TOKEN = {} }}", secret(10));
    let config = Config::new()
        .section("[log]\nlevel = \"trace\"")
        .admin()
        .section(&api_key("me", &format!("{MARK}-client-key")))
        .upstream(
            "well",
            well.address,
            &format!("headers = {{ x-key = {{ env = \"UP_KEY\" }} }}\n{}", bearer(1)),
        )
        .upstream("refusing", refusing.address, &good.keys(&secret(2), ""))
        .upstream("broken", broken.address, &bearer(3))
        .upstream(
            "late",
            late.address,
            &format!("{quick}basic = {{ user = \"u\", password = {} }}", secret(4)),
        )
        .upstream("nonsense", nonsense.address, &bearer(5))
        .upstream("nobody", nobody, &bearer(6))
        .upstream("tokenless", well.address, &bad.keys(&secret(7), ""))
        .upstream("old", old.address, &format!("eras = [\"legacy\"]\n{}", bearer(8)))
        .raw("child", &child.keys(&env));
    let daemon = Daemon::start_with(&config, &[("UP_KEY", &format!("{MARK}9"))]);
    let mut shown = Vec::new();
    let with_credentials = |request: crate::harness::Request| {
        request
            .with("Authorization", format!("Bearer {MARK}-client-key"))
            .with("Cookie", format!("session={MARK}-cookie"))
    };
    for upstream in ["well", "refusing", "broken", "late", "nonsense", "nobody", "tokenless", "old", "child"]
    {
        for _ in 0..2 {
            let response = daemon.send(&with_credentials(call("7", &format!("{upstream}__echo"))));
            shown.push(format!("{response:?} {}", response.text()));
        }
    }
    daemon.send(&with_credentials(call("7", "well__echo"))).assert_ok();
    let wrong = call("7", "well__echo").with("Authorization", format!("Bearer {MARK}-wrong-key"));
    let response = daemon.send(&wrong);
    shown.push(format!("{response:?} {}", response.text()));
    shown.push(daemon.send(&with_credentials(list("8", "tools/list"))).text());
    shown.push(daemon.get_admin("/metrics").text());
    daemon.reload(&config.clone().upstream("more", well.address, &bearer(11)));
    daemon.wait_for_log(0, "the reload", |line| line.contains("reload"));
    daemon.reload(&Config::new().upstream("x", well.address, &format!("bearer = \"{MARK}12\"")));
    daemon.wait_for_log(0, "the refused reload", |line| line.contains("a secret cannot stand here"));
    shown.extend(daemon.log());
    let inline =
        format!("bearer = \"{MARK}13\"\nheaders = {{ x-api-key = \"{MARK}14\" }}\nbasic = \"{MARK}15\"");
    for config in [config, Config::new().upstream("x", well.address, &inline)] {
        let (output, _) = trunkline(&["check"], Some(&config.to_string()));
        shown.push(String::from_utf8_lossy(&output.stdout).into_owned());
        shown.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let leaks: Vec<&String> = shown.iter().filter(|text| text.contains(MARK)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
    // The marks did go where they belong, or nothing was tested.
    assert_eq!(well.received_of("tools/call")[0].headers("authorization"), [format!("Bearer {MARK}1")]);
    assert_eq!(well.received_of("tools/call")[0].headers("x-key"), [format!("{MARK}9")]);
    // A question of the gateway's own may have been refused before, which costs the first token.
    let given = refusing.received_of("tools/call")[0].headers("authorization").join(", ");
    assert!(given.starts_with(&format!("Bearer {MARK}-token-")), "{given}");
    assert!(daemon.log().len() > 20 && good.received().len() >= 2 && !bad.received().is_empty());
}
