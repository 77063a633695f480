//! What operators see of every error, what a good file becomes, and that no text whatever makes the parser panic.

mod credentials;
mod endpoints;
mod hosts;
mod identity;
mod keys;
mod outbound;
mod pins;
mod policy;
mod process;
mod rate;
mod replicas;
mod secrets;
mod shared;
mod sign_in;
mod tls;
mod upstreams;

use std::fs;
use std::path::Path;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use protocol::version::Eras;

use super::*;

/// A valid configuration, which the cases change.
const BASE: &str = r#"[listener]
address = "127.0.0.1:8080"
[[endpoint]]
path = "/mcp"
upstreams = ["a", "b"]
[upstream.a]
url = "http://127.0.0.1:9101/"
[upstream.b]
url = "http://127.0.0.1:9102/"
"#;

/// A change of [`BASE`] that makes it invalid, and what is said about it.
struct Case {
    name: &'static str,
    replace: &'static str,
    by: &'static str,
    /// After a newline, so that it stands at the left margin.
    rendered: &'static str,
}

fn base_with(replace: &str, by: &str) -> String {
    assert!(BASE.contains(replace), "{replace:?}");
    BASE.replacen(replace, by, 1)
}

fn parsed(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("f.toml", text)))
}

#[test]
fn every_error_says_where_it_is_and_what_to_do() {
    let mut wrong = Vec::new();
    for case in [
        rate::CASES,
        keys::CASES,
        outbound::CASES,
        shared::CASES,
        process::CASES,
        policy::CASES,
        endpoints::CASES,
        replicas::CASES,
        upstreams::CASES,
        credentials::CASES,
    ]
    .into_iter()
    .flatten()
    {
        let text = base_with(case.replace, case.by);
        let rendered = match parse(&text) {
            Ok(config) => format!("{config:?}"),
            Err(errors) => errors.render("f.toml", &text),
        };
        if rendered.trim_end() != case.rendered.trim() {
            wrong.push(format!("{}:\n{rendered}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line for each key")]
fn a_small_configuration_gets_its_defaults() {
    let expected = Config {
        include: Vec::new(),
        upstream_defaults: (),
        included: Vec::new(),
        off: Vec::new(),
        workers: None,
        state_directory: None,
        shared: None,
        listeners: vec![Listener {
            address: ListenAddress::Address("127.0.0.1:8080".parse().unwrap()),
            socket_mode: 0o600,
            socket_group: None,
            proxy_protocol: false,
            tls: None,
        }],
        trusted_proxies: Networks::default(),
        admin: None,
        limits: LimitsConfig {
            connections_max: None,
            connections_per_address_max: 1024,
            handshakes_max: 32,
            handshakes_per_address_max: 16,
            handshake_timeout: Duration::from_secs(5),
            header_bytes_max: 32 << 10,
            headers_max: 100,
            body_bytes_max: 4 << 20,
            buffered_bytes_max: None,
            reply_bytes_max: 16 << 20,
            list_bytes_max: 16 << 20,
            list_pages_max: 100,
            list_entries_max: 100_000,
            cache_bytes_max: None,
            kept_lists_bytes_max: None,
            pins_bytes_max: 16 << 20,
            children_max: 256,
            children_starting_max: None,
            token_bytes_max: 16 << 10,
            json_depth_max: 128,
            streams_per_connection_max: 128,
            subscriptions_max: 10_000,
            subscriptions_per_principal_max: 2500,
            limiter_keys_max: 100_000,
            subscription_uris_max: 1000,
            session_messages_max: 256,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate_min: 1 << 10,
            reply_rate_min: 16 << 10,
            rate_grace_period: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            connection_age_max: Duration::from_mins(10),
        },
        drain: DrainConfig { quiet: None, max: Duration::from_secs(20) },
        log: Log {
            format: LogFormat::Text,
            level: LogLevel::Info,
            journal: None,
            buffer_bytes_max: 1 << 20,
            refusals_per_second_max: 100,
            audit: Audit::Refusals,
            file: None,
            access: None,
        },
        metrics: MetricsConfig { tools_max: 1000, durations: true, address: None, token: None },
        trace: None,
        outbound: Outbound { proxy: None, basic: None, ca: None, no_proxy: NoProxy::default() },
        reload: Reload { watch: false },
        session: SessionConfig {
            key_file: None,
            expiry: Duration::from_hours(24),
            idle_timeout: Duration::from_mins(30),
            sessions_max: 100_000,
            sessions_per_principal_max: 25_000,
            upstream_sessions_max: 100_000,
            streams_max: 16_384,
            streams_per_principal_max: 8192,
            stream_queue_bytes_max: 1 << 20,
            keep_alive_interval: Duration::from_secs(25),
            upstream_sessions_per_principal_max: 10_000,
            upstream_streams_max: 16_384,
            initialize_rate_max: 1000,
            tasks_max: 100_000,
            tasks_per_principal_max: 25_000,
            task_expiry: Duration::from_hours(7 * 24),
        },
        api_keys: Vec::new(),
        rate_limits: Vec::new(),
        jwt: Vec::new(),
        sign_in: None,
        client_certificates: CertificateNames::NONE,
        rules: Vec::new(),
        endpoints: vec![EndpointConfig {
            path: "/mcp".to_owned(),
            enabled: true,
            upstreams: vec!["a".to_owned(), "b".to_owned()],
            names: Names::Prefixed,
            accept_unprefixed: true,
            legacy_errors: LegacyErrors::JsonRpc,
            forbidden_errors: ForbiddenErrors::Http,
            param_headers: ParamHeaders::IfSent,
            sse: false,
            prefix_elicitations: false,
            aliases: Vec::new(),
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            auth: Vec::new(),
            allow_unauthenticated: false,
            origins: None,
            hosts: None,
            name: "/mcp".to_owned(),
            off: Vec::new(),
            public_url: None,
            audiences: Vec::new(),
            scopes: Vec::new(),
            list_page_bytes_max: None,
            instructions: None,
        }],
        upstreams: vec![upstream_with_defaults("a", 9101), upstream_with_defaults("b", 9102)],
        warnings: Vec::new(),
        places: NamedPlaces(vec![("127.0.0.1:8080".into(), 21..37)]),
        digest: parsed(BASE).digest,
    };
    assert_eq!(parsed(BASE), expected);
}

fn upstream_with_defaults(name: &str, port: u16) -> UpstreamConfig {
    UpstreamConfig {
        host: None,
        enabled: true,
        name: name.to_owned(),
        prefix: name.to_owned(),
        urls: vec![Url {
            authority: format!("127.0.0.1:{port}"),
            host: "127.0.0.1".to_owned(),
            port,
            is_tls: false,
            path_and_query: "/".to_owned(),
        }],
        tls: ClientTls::default(),
        credentials: Credentials::default(),
        command: None,
        transport: TransportConfig::Http,
        eras: None,
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_mins(1),
        stream_idle_timeout: Duration::from_mins(5),
        client_response_timeout: Duration::from_mins(5),
        list_timeout: Duration::from_secs(5),
        list_ttl_min: Duration::ZERO,
        stale_while_revalidate: Duration::ZERO,
        stale_if_error: Duration::from_hours(1),
        list_sessions_max: None,
        trust_public_cache: false,
        unique_ids: false,
        session_loss: SessionLoss::Reopen,
        pins: PinsConfig { mode: PinMode::Off, age_max: Duration::from_mins(1) },
        idle_timeout: Duration::from_secs(4),
        concurrency: None,
        idle_connections_max: None,
        first_byte_timeout: Duration::from_mins(1),
        stream_duration_max: Duration::ZERO,
        replicas: replicas::defaults(),
        bridge: BridgeConfig {
            is_on: true,
            input_requests_max: 16,
            state_bytes_max: 256 << 10,
            sessions_max: 2048,
            session_idle_timeout: Duration::from_secs(30),
            suspended_calls_max: 1000,
            suspended_calls_per_principal_max: 100,
            suspended_call_timeout: Duration::from_mins(5),
        },
    }
}

#[test]
fn what_is_wrong_in_nested_tables_and_arrays_is_all_reported() {
    let text = base_with(
        "[[endpoint]]",
        "tls = { certificates = [{ chian = \"/c\", key = { env = \"K\" } }, { chain = \"c\" }], version_min = \"1\" }\n\
         [log.access]\nsuccess_ratio = 2\nfields = [\"tim\", \"name\", 3]\nfle = \"/f\"\n[[endpoint]]",
    ) + "health = { interval = \"x\", timeout = 0, breaker = 1 }\nbreaker = { open_time = \"5s\", open_time_max = \"1s\", x = 1 }\n";
    let errors = parse(&text).expect_err("nine faults and more");
    let said: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    for part in [
        "unknown key `chian` in [[listener.tls.certificates]]",
        "not an absolute path",
        "[[listener.tls.certificates]] has no `key`",
        "`version_min`: must be one of `1.2`, `1.3`",
        "`success_ratio`: must be from 0 to 1",
        "`fields`: must be one of `time`",
        "`fields`: expected a string, found an integer",
        "unknown key `fle` in [log.access]",
        "`interval`: expected a duration",
        "`timeout`: a unit is missing",
        "unknown key `breaker` in [upstream.b.health]",
        "unknown key `x` in [upstream.b.breaker]",
        "`open_time_max` is less than `open_time`",
    ] {
        let times = said.iter().filter(|message| message.starts_with(part)).count();
        assert_eq!(times, 1, "{part}: {}", errors.render("f.toml", &text));
    }
    assert_eq!(said.len(), 13, "{said:?}");
}

#[test]
fn upstreams_keep_the_order_of_the_text() {
    let text = base_with("[upstream.a]", "[upstream.z]\nurl = \"http://127.0.0.1:9100/\"\n[upstream.a]");
    let names: Vec<String> = parsed(&text).upstreams.into_iter().map(|upstream| upstream.name).collect();
    assert_eq!(names, ["z", "a", "b"]);
}

#[test]
fn eras_are_asked_for_or_fixed() {
    for (lines, eras) in [
        ("", None),
        ("eras = [\"modern\"]", Some(Eras { legacy: false, modern: true })),
        ("eras = [\"legacy\"]", Some(Eras { legacy: true, modern: false })),
        ("eras = [\"legacy\", \"modern\"]", Some(Eras::BOTH)),
    ] {
        let text = base_with("[upstream.a]", &format!("[upstream.a]\n{lines}"));
        assert_eq!(parsed(&text).upstreams[0].eras, eras, "{lines}");
    }
}

#[test]
fn an_upstream_that_nobody_uses_is_a_warning() {
    let text = base_with(r#"upstreams = ["a", "b"]"#, r#"upstreams = ["a"]"#);
    let (config, source) = (parsed(&text), ConfigSource::new("f.toml", text.as_str()));
    let rendered: Vec<String> = config.warnings.iter().map(|warning| source.render(warning)).collect();
    let expected = "f.toml:8:11: warning: no endpoint uses upstream `b`: name it in the `upstreams` of one\n  \
                    |\n8 | [upstream.b]\n  |           ^\n";
    assert_eq!(rendered, [expected]);
    assert_eq!(config.endpoints[0].names, Names::Transparent);
}

#[test]
fn values_are_brought_into_one_form() {
    let text = base_with(
        "[[endpoint]]",
        "[[endpoint]]\n\
         aliases = { today = \"a__fore__cast\" }\n\
         origins = [\"HTTPS://App.example.com:443\", \"http://localhost:3000\", \"vscode-webview://x\"]\n\
         hosts = [\"MCP.example.com\", \"[::1]:8080\"]",
    );
    let endpoint = parsed(&text).endpoints.remove(0);
    let alias = Alias { public: "today".into(), upstream: "a".into(), inner: "fore__cast".into() };
    assert_eq!(endpoint.aliases, [alias]);
    let origins =
        ["https://app.example.com", "http://localhost:3000", "vscode-webview://x"].map(String::from);
    assert_eq!(endpoint.origins, Some(origins.to_vec()));
    assert_eq!(endpoint.hosts, Some(["mcp.example.com", "[::1]:8080"].map(String::from).to_vec()));
}

#[test]
fn sizes_and_durations_have_units() {
    let limits = "[limits]\nbody_bytes_max = 65536\nlist_bytes_max = \"1GiB\"";
    let config = parsed(&format!("{BASE}{limits}\n[drain]\nquiet = \"0s\"\nmax = \"1h\""));
    assert_eq!(config.limits.body_bytes_max, 64 << 10);
    assert_eq!(config.limits.list_bytes_max, 1 << 30);
    assert_eq!(config.drain, DrainConfig { quiet: Some(Duration::ZERO), max: Duration::from_hours(1) });
}

#[test]
fn fewer_connections_need_no_second_limit() {
    let limits = parsed(&format!("{BASE}[limits]\nconnections_max = 10")).limits;
    assert_eq!((limits.connections_max, limits.connections_per_address_max), (Some(10), 10));
}

#[test]
fn a_network_is_served_with_keys_or_when_the_operator_says_so() {
    let key = format!("[[api_key]]\nname = \"ci\"\nsha256 = \"{}\"\n", "aB".repeat(32));
    let open = base_with("127.0.0.1:8080", "[::ffff:10.0.0.1]:8080");
    let cases = [
        (format!("{open}{key}"), vec![AuthMethod::ApiKey]),
        (open.replace("[[endpoint]]", "[[endpoint]]\nallow_unauthenticated = true"), vec![]),
        (base_with("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080"), vec![]),
        (format!("{}{key}", base_with("[[endpoint]]", "[[endpoint]]\nauth = []")), vec![]),
    ];
    for (text, auth) in cases {
        assert_eq!(parsed(&text).endpoints[0].auth, auth, "{text}");
    }
    assert_eq!(parsed(&format!("{BASE}{key}")).api_keys[0].sha256, [0xab; 32]);
}

#[test]
fn port_0_may_be_listened_on_twice() {
    let any_port = "address = \"127.0.0.1:0\"";
    let listeners = format!("[[listener]]\n{any_port}\n[[listener]]\n{any_port}\n[admin]\n{any_port}");
    let text = base_with("[listener]\naddress = \"127.0.0.1:8080\"", &listeners);
    assert_eq!(parsed(&text).listeners.len(), 2);
}

#[test]
fn deep_nesting_is_an_error() {
    for deep in [
        "a = ".to_owned() + &"[".repeat(100_000),
        "a = ".to_owned() + &"{b=".repeat(100_000),
        "a.".repeat(100_000) + "b = 1",
    ] {
        assert!(parse(&deep).is_err());
    }
}

/// Lines that are each valid somewhere, so that shuffled they reach the checks behind the parser.
fn lines_of_the_reference() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/trunkline.toml");
    let text = fs::read_to_string(path).unwrap();
    let uncommented = |line: &str| match line.strip_prefix("#e.g. ").or_else(|| line.strip_prefix('#')) {
        Some(setting) if !setting.starts_with(' ') => setting.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(uncommented).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Whatever is said about a text can be shown.
fn parses_or_explains(text: &str) -> Result<(), TestCaseError> {
    let Err(errors) = parse(text) else { return Ok(()) };
    prop_assert!(errors.iter().count() > 0);
    for error in errors.iter() {
        prop_assert!(error.span.start <= error.span.end && error.span.end <= text.len(), "{error:?}");
        prop_assert!(!error.message.is_empty());
    }
    prop_assert!(errors.render("f.toml", text).starts_with("f.toml:"));
    Ok(())
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        parses_or_explains(&text)?;
    }

    #[test]
    fn no_toml_like_text_panics(text in "([a-z_]{1,9}|[\\[\\]{}=.,\"'#\n é0-9-]|\"[a-z_:/@*\\[]{0,9}\"){0,60}") {
        parses_or_explains(&text)?;
    }

    #[test]
    fn no_choice_of_lines_panics(lines in subsequence(lines_of_the_reference(), 0..50)) {
        parses_or_explains(&lines.join("\n"))?;
    }

    #[test]
    fn no_mutation_of_the_reference_panics(
        edits in vec((any::<Index>(), 0_usize..9, "[\\[\\]{}=.,\"'#\n a-z0-9_é-]{0,4}"), 1..4),
    ) {
        let mut text: Vec<char> = lines_of_the_reference().join("\n").chars().collect();
        for (at, removed, inserted) in edits {
            let start = at.index(text.len());
            let end = (start + removed).min(text.len());
            text.splice(start..end, inserted.chars());
        }
        parses_or_explains(&text.into_iter().collect::<String>())?;
    }
}

#[test]
fn a_limit_gets_its_defaults() {
    let text = base_with(
        "[[endpoint]]",
        "[[limit]]\nname = \"own\"\nby = [\"tool\", \"principal\"]\ncalls = 10\nperiod = \"1m\"\n[[endpoint]]",
    );
    let text = text.replace("[upstream.b]", "[upstream.b]\ncalls_max = 5");
    let config = parsed(&text);
    let expected = RateLimit {
        name: "own".to_owned(),
        by: vec![CountedBy::Principal, CountedBy::Tool],
        rate: None,
        calls: 10,
        period: Duration::from_mins(1),
        burst: 10,
        weights: Vec::new(),
        endpoints: Vec::new(),
        upstreams: Vec::new(),
        tools: Vec::new(),
        principals: Vec::new(),
        groups: Vec::new(),
        shared: false,
        exact: false,
        fallback: Fallback::Local,
        missing_arguments: MissingArgument::Refuse,
    };
    assert_eq!(config.rate_limits, [expected]);
    let short = text.replace("calls = 10\nperiod = \"1m\"", "rate = \"10/m\"");
    assert_eq!(parsed(&short).rate_limits, config.rate_limits);
    let waiting =
        Concurrency { calls_max: 5, calls_waiting_max: 1000, calls_wait_max: Duration::from_secs(10) };
    assert_eq!([&config.upstreams[0].concurrency, &config.upstreams[1].concurrency], [&None, &Some(waiting)]);
}
