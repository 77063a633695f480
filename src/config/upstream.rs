//! `[upstream.NAME]`: the MCP servers.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::Config;
use super::array::{Array, Distinct};
use super::bridge::BridgeConfig;
use super::command::Program;
use super::credentials::{ClientTls, CredentialKeys, UpstreamTls, check_queries, check_urls};
use super::findings::{Findings, Node};
use super::host::is_host_and_port;
use super::pins::PinsConfig;
use super::rate::Concurrency;
use super::replicas::ReplicasConfig;
use super::schema::Definitions;
use super::section::section;
use super::table::Table;
use super::text::{checked, texts};
use super::url::{ServerUrl, Url};
use super::value::{Count, DAY_MS, HOUR_MS, Period, Setting, choice};
use protocol::version::{Era, Eras};

section! {
    /// An MCP server: reached by `url`, or by `urls` where it has replicas, or started as a child process by `command`.
    /// What it is shown never stands here if it is secret: each secret is read at start and at every reload from a file, an
    /// environment variable of the gateway, or a credential that systemd passes.
    pub struct UpstreamConfig {
        /// Whether it is there: with `false`, endpoints are served as if they did not name it.
        enabled: bool = true,
        /// TLS towards it; for `https` URLs.
        tls: UpstreamTls => ClientTls::default(),
        /// What stands before its names in public names; the grammar of upstream names. Default: its name.
        #[example("wx")]
        prefix: UpstreamName => String::new(),
        /// The `Host` that it is sent, as `host` or `host:port`: for a server that serves another host than that of its
        /// URL, and answers 421 to all else. Default: the host of the URL.
        #[example("files.example.com")]
        host: Option<SentHost>,
        /// How it is spoken to: `http` is Streamable HTTP, or HTTP+SSE where that is what it turns out to speak; `sse` is
        /// HTTP+SSE (2024-11-05) without asking.
        transport: TransportConfig = "http",
        /// The kinds of protocol revisions it speaks: `modern` (2026-07-28), `legacy` (2024-11-05 to 2025-11-25).
        /// Default: it is asked, at start and every few minutes.
        #[example(["modern", "legacy"])]
        eras: Option<Distinct<Era, 1, Eras>>,
        /// Time to open a connection.
        connect_timeout: Period<1, HOUR_MS> = "5s",
        /// Time to the head of a reply, and to the end of a JSON reply.
        response_timeout: Period<1, DAY_MS> = "60s",
        /// Time to the head of a reply, at most `response_timeout`. Default: `response_timeout`.
        #[example("10s")]
        first_byte_timeout: Period<1, DAY_MS> => response_timeout,
        /// Time to the end of an SSE reply, however busy. 0s: no bound.
        stream_duration_max: Period<0, DAY_MS> = "0s",
        /// Time between two chunks of an SSE reply.
        stream_idle_timeout: Period<1, DAY_MS> = "5m",
        /// Time for a client to answer a request of this server.
        client_response_timeout: Period<1, DAY_MS> = "5m",
        /// Time for a whole list, all pages.
        list_timeout: Period<1, HOUR_MS> = "5s",
        /// Time for which a list is kept at least, even if the server says less. 0s obeys the server.
        list_ttl_min: Period<0, DAY_MS> = "0s",
        /// Time after its freshness for which a list is given out while it is fetched anew. 0s: never.
        stale_while_revalidate: Period<0, DAY_MS> = "0s",
        /// Time after its freshness for which a list is given out while the server fails. 0s: never.
        stale_if_error: Period<0, DAY_MS> = "1h",
        /// Sessions in which the gateway asks a server with sessions for lists, one for each set of capabilities that
        /// clients declare. Beyond, the one that was not used for longest is closed. Of a command only `elicitation`,
        /// `roots` and `sampling` tell sets apart, with 1 nothing does; with a process for each session, at most a quarter
        /// of its `children_max`. Default: 8, of a command 1.
        #[example(8)]
        list_sessions_max: Option<Count<1, 1024>>,
        /// Whether to believe the server that a list is the same for everybody (`cacheScope` of `public`), which lets
        /// caches between share it.
        trust_public_cache: bool = false,
        /// Whether requests to it have ids of the gateway's own, with which replies are compared, on transparent endpoints
        /// and outside sessions, too: a server that answers twice never gives one client's reply to another.
        unique_ids: bool = false,
        /// What becomes of a client's session when the server loses the session it had for it: the client goes on with a
        /// new one (`reopen`), which is told the log level and the subscriptions again, or is told to start anew (`end`),
        /// for servers that keep what cannot be brought back.
        session_loss: SessionLoss = "reopen",
        /// Time a pooled connection may be idle. Keep it below the upstream's own limit, which often is 5s.
        idle_timeout: Period<1, HOUR_MS> = "4s",
        /// Idle connections kept, per worker; 0 keeps none. Default: as many as were in use at once within `idle_timeout`,
        /// at most `connections_max`.
        #[example(64)]
        idle_connections_max: Option<Count<0, 65_536>>,
        /// What is translated for clients of the era that the server does not speak.
        bridge: BridgeConfig,
    }
    groups {
        /// Its replicas, distinct; at least one, unless it has a command.
        urls: UrlKeys,
        /// How it knows the gateway.
        credentials: CredentialKeys,
        /// How it is started, if it is a child process.
        command: Program,
        /// How the definitions of its tools are watched.
        pins: PinsConfig,
        /// How many calls it gets at once; `None`: as many as come.
        concurrency: Concurrency,
        /// Which replica a call goes to, and what becomes of those that fail.
        replicas: ReplicasConfig
    }
    computed {
        /// Its name: `^[a-z][a-z0-9-]{0,31}$`.
        name: String
    }
    check check_upstream;
}

section! {
    /// Where an upstream is: the URLs of its replicas.
    pub struct UrlKeys {
        /// Its URL: `https`, or `http` over a network you trust.
        #[example("http://127.0.0.1:9101/mcp")]
        url: Option<ServerUrl>,
        /// The URLs of its replicas, instead of `url`.
        #[example(["https://files-1.example.com/mcp", "https://files-2.example.com/mcp"])]
        urls: Option<Array<ServerUrl, 1>>,
    }
    one_of url | urls | command;
    check replica_urls => Vec<Url>;
}

choice! {
    /// How an upstream is spoken to over HTTP.
    pub enum TransportConfig {
        /// Streamable HTTP, or HTTP+SSE where that is what it turns out to speak.
        Http = "http",
        /// HTTP+SSE of 2024-11-05.
        Sse = "sse",
    }
}

choice! {
    /// What becomes of a client's session when an upstream loses the session it had for it.
    pub enum SessionLoss {
        /// It goes on: the upstream gets a new session, and is told the log level and the subscriptions again.
        Reopen = "reopen",
        /// It ends: what the upstream kept for the client cannot be brought back.
        End = "end",
    }
}

texts! {
    /// The host that a server is sent.
    pub SentHost -> String, "", |text: &str| checked(
        text,
        is_host_and_port(text),
        "not a host: write `host` or `host:port`, without scheme and path",
    );
    /// The name of an upstream, and its prefix.
    pub UpstreamName -> String, "^[a-z][a-z0-9-]{0,31}$", |text: &str| if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` cannot be a prefix: {NAME_GRAMMAR}").into())
    };
}

const NAME_GRAMMAR: &str = "use a lower-case letter, then up to 31 of a-z, 0-9 and -";

fn is_name(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

choice!(
    Era,
    [
        (Self::Legacy, "legacy", "2024-11-05 to 2025-11-25: `initialize`, sessions, streams opened by GET."),
        (Self::Modern, "modern", "2026-07-28: every request stands for itself.")
    ]
);

/// All upstreams by name, in the order of the text.
#[derive(Debug)]
pub struct Upstreams;

impl Setting for Upstreams {
    type Out = Vec<UpstreamConfig>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Vec<UpstreamConfig>> {
        let Some(table) = Table::of(node) else {
            findings.error(node.span(), "expected [upstream.NAME], followed by its keys");
            return None;
        };
        let mut upstreams = Vec::new();
        for (name, node) in table.entries() {
            if !is_name(name.get_ref()) {
                let message = format!("`{}` cannot name an upstream: {NAME_GRAMMAR}", name.get_ref());
                findings.error(name.span(), message);
            }
            findings.path.push(name.get_ref().to_string());
            let upstream = <UpstreamConfig as Setting>::read(node, findings);
            findings.path.pop();
            upstreams
                .push((name.span().start, upstream.map(|upstream| upstream.named(name.get_ref(), node))));
        }
        upstreams.sort_by_key(|(begin, _)| *begin);
        upstreams.into_iter().map(|(_, upstream)| upstream).collect()
    }

    fn absent(_: &mut Findings) -> Option<Vec<UpstreamConfig>> {
        Some(Vec::new())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({
            "type": "object",
            "additionalProperties": UpstreamConfig::schema(definitions),
            "minProperties": 1,
            "propertyNames": { "pattern": "^[a-z][a-z0-9-]{0,31}$" }
        })
    }
}

impl UpstreamConfig {
    fn named(mut self, name: &str, node: &Node<'_>) -> Self {
        name.clone_into(&mut self.name);
        if Table::of(node).is_none_or(|table| !table.has("prefix")) {
            name.clone_into(&mut self.prefix);
        }
        self
    }
}

fn replica_urls(keys: UrlKeys, table: Table<'_>, findings: &mut Findings) -> Vec<Url> {
    if table.has("command") {
        return Vec::new();
    }
    if table.has("url") {
        let message = "`url` and `urls` exclude each other: put all replicas in `urls`";
        findings.error_at(table, "urls", message);
    } else if !table.has("urls") && !findings.is_misspelt(table) {
        let message = format!(
            "{} has no `url`: write `url = \"http://HOST:PORT/mcp\"`, or the `command` that starts it",
            findings.heading()
        );
        findings.error(table.span(), message);
    }
    let mut distinct = BTreeSet::new();
    let urls = keys.url.map(|url| vec![url]).or(keys.urls).unwrap_or_default();
    for (url, node) in urls.iter().zip(table.elements("urls")) {
        if !distinct.insert((&url.host, url.port, url.is_tls, &url.path_and_query)) {
            findings.error(node.span(), "the same URL twice: name each replica once");
        }
    }
    urls
}

fn check_upstream(upstream: UpstreamConfig, table: Table<'_>, findings: &mut Findings) -> UpstreamConfig {
    if upstream.first_byte_timeout > upstream.response_timeout {
        findings.error_at(
            table,
            "first_byte_timeout",
            "`first_byte_timeout` is more than `response_timeout`",
        );
    }
    if upstream.eras.is_some_and(|eras| eras.modern) && upstream.transport == TransportConfig::Sse {
        let message = "HTTP+SSE carries no modern revision: write `eras = [\"legacy\"]`, or leave it out";
        findings.error_at(table, "eras", message);
    }
    if table.has("command") {
        findings.error_at(table, "host", "`host` is for upstreams with a URL");
    }
    check_urls(&upstream.urls, &upstream.credentials, table, findings);
    check_queries(&upstream.urls, table, findings);
    upstream
}

/// A program can rest only while its lists are known.
fn warn_of_lazy(config: &Config, root: Table<'_>, findings: &mut Findings) {
    let is_lazy = |upstream: &&UpstreamConfig| upstream.command.as_ref().is_some_and(|command| command.lazy);
    if config.state_directory.is_some() {
        return;
    }
    for upstream in config.upstreams.iter().filter(is_lazy) {
        let table = root.table("upstream").table(&upstream.name);
        let message = format!(
            "upstream `{}` is `lazy`, and there is no `state_directory` to keep its lists in: each start of the gateway starts \
             it once to list it",
            upstream.name
        );
        findings.warning(findings.span(table, "lazy").unwrap_or_else(|| table.span()), message);
    }
}

/// An upstream that nobody uses is odd, and one that is lazy in vain.
pub(super) fn check(config: &Config, root: Table<'_>, findings: &mut Findings) {
    warn_of_lazy(config, root, findings);
    let endpoints = root.tables("endpoint");
    for (name, _) in root.table("upstream").entries() {
        let is_used = endpoints
            .iter()
            .any(|endpoint| endpoint.texts("upstreams").any(|(used, _)| used == name.get_ref()));
        if !is_used && config.upstreams.iter().any(|upstream| upstream.name == *name.get_ref()) {
            let message =
                format!("no endpoint uses upstream `{}`: name it in the `upstreams` of one", name.get_ref());
            findings.warning(name.span(), message);
        }
    }
}
