//! `[[endpoint]]`: paths, names, who may call and from where.

use std::ops::Range;

use serde_json::Value as Json;

use super::array::{Array, Map};
use super::error::{Diagnostic, nearest};
use super::findings::{Findings, Node};
use super::host::{self, Host, is_host_and_port};
use super::identity::{AuthMethod, default_methods};
use super::listener::{CertificateDemand, open_address};
use super::schema::Definitions;
use super::section::section;
use super::table::Table;
use super::text::{Any, Audience, Fault, Glob, Scope, texts};
use super::value::{GIB, KIB, Setting, Size, choice};
use super::{Config, UpstreamConfig};

/// Between an upstream's prefix and the name it gave.
const SEPARATOR: &str = "__";
const PUBLIC_NAME_BYTES_MAX: usize = 128;
/// Models' interfaces take no longer names.
const MODEL_NAME_CHARS_MAX: usize = 64;
/// The prefix that a host puts before names, where it knows the gateway by its usual name.
const HOST_PREFIX: &str = "mcp__trunkline__";
const INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;

section! {
    /// A path clients see, and what is behind it.
    pub struct EndpointConfig {
        /// Path of the URL, such as `/mcp`.
        #[example("/mcp")]
        path: Path,
        /// Whether it is there: with `false`, everything is as if it were not written.
        enabled: bool = true,
        /// Names of the upstreams, each once; merged lists keep this order. Without any that is on, lists are empty.
        #[example(["weather"])]
        upstreams: Array<Any>,
        /// How public names are made: `transparent` passes names and bodies unchanged, for one upstream only; `prefixed`
        /// makes `weather__forecast` of `forecast`; `bare` leaves names as they are and routes by what the upstreams
        /// list. Default: `transparent` with one upstream, `prefixed` with several.
        #[example("transparent")]
        names: Names => if upstreams.len() > 1 { Names::Prefixed } else { Names::Transparent },
        /// On prefixed endpoints: an unprefixed name that exactly one upstream offers is routed there.
        accept_unprefixed: bool = true,
        /// Other public names: `alias = "upstream__inner"`, with the name (not the prefix) of the upstream.
        #[example({ today = "weather__forecast" })]
        aliases: Aliases = {},
        /// Globs over public names and URIs of what is offered.
        allow: Array<Glob> = ["*"],
        /// Globs over public names and URIs of what is not offered, whatever `allow` says.
        deny: Array<Glob> = [],
        /// How clients authenticate, by any of these; empty: anyone may call. A key or token that is presented decides,
        /// whatever the certificate. Default: what is configured of `[[api_key]]`, `[[jwt]]` and `[client_certificate]`;
        /// `sign_in` counts where it is named only.
        #[example(["api_key"])]
        auth: Array<AuthMethod> => Vec::new(),
        /// Lets anyone call although a listener is not loopback.
        allow_unauthenticated: bool = false,
        /// Browser origins that may call. Default: loopback origins on a loopback listener, none elsewhere.
        #[example(["https://app.example.com"])]
        origins: Option<Array<Origin>>,
        /// Hosts that it is for, as `Host` or `:authority` name them: with a port where only that port is meant, with `*.` for
        /// any first label. Several endpoints may have one path, each for hosts of its own; one without `hosts` takes what is
        /// left. Default: localhost names on loopback listeners, the host of `public_url` where set, else any.
        #[example(["mcp.example.com", "*.tools.example.com"])]
        hosts: Option<Array<Host, 1>>,
        /// The URL by which clients reach the endpoint. Required with `jwt` and `sign_in`: it is the audience of tokens, and
        /// named in what clients are told of how to get one. Clients of HTTP+SSE are told to send messages to its path.
        #[example("https://mcp.example.com/mcp")]
        public_url: Option<PublicUrl>,
        /// What the audience of a token may be beside `public_url`, byte for byte.
        audiences: Array<Audience> = [],
        /// Scopes that every caller must have been granted, such as `mcp:read`.
        scopes: Array<Scope> = [],
        /// How the failure of a request is shown to clients with sessions: in an HTTP 200 (`jsonrpc`), which every client
        /// survives, or with its own status (`http`).
        legacy_errors: LegacyErrors = "jsonrpc",
        /// The refusal of a request that no credential of its kind allows (`forbidden`): with HTTP 403 (`http`), as the
        /// specification says, or in an HTTP 200 (`jsonrpc`), for hosts that ask their user to sign in again at every 403.
        forbidden_errors: ForbiddenErrors = "http",
        /// Of which calls in sessions the headers `Mcp-Param-*` have to be there, where a tool has some: of those of clients that
        /// sent any in their session (`if_sent`), or of all (`required`), which clients of those revisions do not know. Requests
        /// of 2026-07-28 always have them.
        param_headers: ParamHeaders = "if_sent",
        /// Whether clients of HTTP+SSE (2024-11-05) are served as well: a GET that names no session opens their stream.
        sse: bool = false,
        /// Whether the text of what an upstream asks a user begins with the upstream's name, where there are several.
        prefix_elicitations: bool = false,
        /// Lists longer than this are given out in pages of about this size. Default: one page, however long, as many
        /// hosts read only the first.
        #[example("1MiB")]
        list_page_bytes_max: Option<Size<KIB, GIB>>,
        /// Put before the instructions of the upstreams; up to 16KiB.
        #[example("Ask for the weather before planning a trip.")]
        instructions: Option<Instructions>,
    }
    computed {
        /// What it is called: its path, and before it the first of its `hosts` where others have the path, too.
        name: String,
        /// Those of its upstreams that have `enabled = false`.
        off: Vec<String>
    }
    check check_endpoint;
}

impl EndpointConfig {
    /// Whether `text` is what it is called, or the path that it may share with others.
    pub fn is_called(&self, text: &str) -> bool {
        self.name == text || self.path == text
    }
}

/// One more public name for something an upstream offers: `today = "weather__forecast"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// What clients call it.
    pub public: String,
    /// Name (not prefix) of the upstream, one of the endpoint's.
    pub upstream: String,
    /// What the upstream calls it.
    pub inner: String,
}

choice! {
    /// How an endpoint makes public names from those of its upstreams.
    pub enum Names {
        /// Names and bodies pass unchanged; for one upstream.
        Transparent = "transparent",
        /// `prefix__name`.
        Prefixed = "prefixed",
        /// Names are unchanged and routed by what the upstreams list.
        Bare = "bare",
    }
}

choice! {
    /// How the failure of a request is shown to clients with sessions.
    pub enum LegacyErrors {
        /// As a JSON-RPC error in an HTTP 200: some clients give up their session at any other status.
        JsonRpc = "jsonrpc",
        /// With the HTTP status that clients without sessions get.
        Http = "http",
    }
}

choice! {
    /// The way to tell a caller that it may not do something, with any credential.
    pub enum ForbiddenErrors {
        /// With HTTP 403.
        Http = "http",
        /// As a JSON-RPC error in an HTTP 200.
        JsonRpc = "jsonrpc",
    }
}

choice! {
    /// Of which calls in sessions mirrored parameters have to be there.
    pub enum ParamHeaders {
        /// Of those of clients that sent any in their session.
        IfSent = "if_sent",
        /// Of all.
        Required = "required",
    }
}

texts! {
    /// The path of an endpoint: begins with `/`, and does not end with one unless it is `/`.
    pub Path -> String, "^/([^?#]*[^/?#])?$", path;
    /// An origin as browsers send it: lower case, without the scheme's own port.
    pub Origin -> String, "", origin;
    /// Where clients reach an endpoint.
    pub PublicUrl -> String, "^[Hh][Tt][Tt][Pp][Ss]?://[^@?#]+$", public_url;
    /// What is said of the upstreams.
    pub Instructions -> String, "", |text: &str| match text.len() {
        0..=INSTRUCTIONS_BYTES_MAX => Ok(text.to_owned()),
        bytes => {
            Err(format!("{bytes} bytes of instructions: at most 16KiB, as every client gives them to its model").into())
        }
    };
}

/// Aliases, sorted by their public names.
#[derive(Debug)]
pub struct Aliases;

impl Setting for Aliases {
    type Out = Vec<Alias>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Vec<Alias>> {
        let aliases = Map::<Any>::read(node, findings)?;
        let alias = |(public, target): (String, String)| {
            let (upstream, inner) = target.split_once(SEPARATOR).unwrap_or((&target, ""));
            Alias { public, upstream: upstream.to_owned(), inner: inner.to_owned() }
        };
        Some(aliases.into_iter().map(alias).collect())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        Map::<Any>::schema(definitions)
    }
}

fn path(text: &str) -> Result<String, Fault> {
    let fault = if !text.starts_with('/') {
        "a path begins with `/`"
    } else if text.contains(['?', '#']) {
        "a path has no query and no fragment: remove `?` or `#` and what follows"
    } else if text.len() > 1 && text.ends_with('/') {
        "a path does not end with `/`"
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        "a path is visible ASCII: write other characters as %XX"
    } else {
        return Ok(text.to_owned());
    };
    Err(fault.into())
}

pub(super) fn origin(text: &str) -> Result<String, Fault> {
    let lower = text.to_ascii_lowercase();
    let shape =
        || format!("`{text}` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards");
    let (scheme, authority) = lower.split_once("://").ok_or_else(shape)?;
    if let Some((host, _)) = authority.split_once(['/', '?', '#'])
        && is_host_and_port(host)
    {
        return Err(format!("an origin has no path: write `{scheme}://{host}`").into());
    }
    let scheme_is_valid = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !scheme_is_valid || !is_host_and_port(authority) {
        return Err(shape().into());
    }
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Ok(format!("{scheme}://{}", authority.strip_suffix(own_port).unwrap_or(authority)))
}

fn public_url(url: &str) -> Result<String, Fault> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let is_plain = !url.contains(['?', '#']) && url.bytes().all(|byte| byte.is_ascii_graphic());
    if is_web && is_plain && is_host_and_port(authority) {
        return Ok(url.to_owned());
    }
    let message = "not the URL of an endpoint: write for example \"https://mcp.example.com/mcp\", without user, query \
                   and fragment";
    Err(message.into())
}

fn check_endpoint(mut endpoint: EndpointConfig, table: Table<'_>, findings: &mut Findings) -> EndpointConfig {
    if endpoint.names == Names::Transparent && endpoint.upstreams.len() > 1 {
        let message =
            "several upstreams cannot be transparent: choose `names = \"prefixed\"` or `names = \"bare\"`";
        findings.error_at(table, "names", message);
    }
    let mut distinct = Vec::new();
    endpoint.auth.retain(|method| {
        let is_new = !distinct.contains(method);
        distinct.push(*method);
        is_new
    });
    endpoint
}

/// What holds between endpoints, and between an endpoint and its upstreams. Fills in how clients authenticate.
pub(super) fn check(config: &mut Config, root: Table<'_>, findings: &mut Findings) {
    let mut endpoints = std::mem::take(&mut config.endpoints);
    host::check(&endpoints, root, findings);
    host::name_endpoints(&mut endpoints);
    for (endpoint, table) in endpoints.iter_mut().zip(root.tables("endpoint")) {
        let members = members(config, root, table, findings);
        check_aliases(endpoint, &members, table, findings);
        check_auth(endpoint, config, root, table, findings);
    }
    config.endpoints = endpoints;
}

/// The upstreams of the endpoint that exist, each once.
fn members<'u>(
    config: &'u Config,
    root: Table<'_>,
    endpoint: Table<'_>,
    findings: &mut Findings,
) -> Vec<&'u UpstreamConfig> {
    let mut members: Vec<&UpstreamConfig> = Vec::new();
    for (name, span) in endpoint.texts("upstreams") {
        let Some(upstream) = config.upstreams.iter().find(|upstream| upstream.name == name) else {
            // A misspelt [upstream] table has been reported, and all its names would be unknown.
            if !(config.upstreams.is_empty() && findings.is_damaged(root)) {
                let names = config.upstreams.iter().map(|upstream| upstream.name.as_str());
                let message = format!("no upstream is named `{name}`: add [upstream.{name}]");
                findings.errors.push(Diagnostic::error(span, message).suggest(nearest(name, names)));
            }
            continue;
        };
        if members.iter().any(|member| member.name == name) {
            findings.error(span, format!("`{name}` is named twice"));
            continue;
        }
        if let Some(other) = members.iter().find(|member| member.prefix == upstream.prefix) {
            let message = format!(
                "upstreams `{}` and `{name}` have the same prefix `{}`: give one of them another `prefix`",
                other.name, upstream.prefix
            );
            findings.error(span, message);
        }
        members.push(upstream);
    }
    members
}

fn check_aliases(
    endpoint: &EndpointConfig,
    members: &[&UpstreamConfig],
    table: Table<'_>,
    findings: &mut Findings,
) {
    for (public, target) in table.table("aliases").entries() {
        let Some(alias) = endpoint.aliases.iter().find(|alias| alias.public == *public.get_ref()) else {
            continue;
        };
        if let Some(message) = long_name(&alias.public) {
            findings.warning(public.span(), message);
        }
        if let Some(message) = alias_name_fault(&alias.public, members) {
            findings.error(public.span(), message);
        }
        if let Some(error) = alias_target_error(alias, target.span(), members) {
            findings.errors.push(error);
        }
    }
}

/// A warning of a name that the interfaces of models refuse, or do as soon as a host names the gateway before it.
fn long_name(public: &str) -> Option<String> {
    let chars = public.chars().count();
    let before = if chars > MODEL_NAME_CHARS_MAX {
        String::new()
    } else if chars + HOST_PREFIX.len() > MODEL_NAME_CHARS_MAX {
        format!(" with `{HOST_PREFIX}` before it")
    } else {
        return None;
    };
    Some(format!(
        "the alias has over {MODEL_NAME_CHARS_MAX} characters{before}: models' interfaces refuse a whole request because of \
         such a name"
    ))
}

fn alias_name_fault(public: &str, members: &[&UpstreamConfig]) -> Option<String> {
    if public.is_empty() || public.len() > PUBLIC_NAME_BYTES_MAX || public.chars().any(char::is_control) {
        return Some(format!("an alias has 1 to {PUBLIC_NAME_BYTES_MAX} bytes and no control characters"));
    }
    let (prefix, _) = public.split_once(SEPARATOR)?;
    let member = members.iter().find(|member| member.prefix == prefix)?;
    Some(format!(
        "alias `{public}` could be a name of upstream `{}`: choose one that does not begin with `{prefix}{SEPARATOR}`",
        member.name
    ))
}

fn alias_target_error(alias: &Alias, span: Range<usize>, members: &[&UpstreamConfig]) -> Option<Diagnostic> {
    let Alias { upstream: name, inner, .. } = alias;
    if inner.is_empty() {
        let message = "an alias stands for `UPSTREAM__NAME`: the upstream, two underscores, what it calls it";
        return Some(Diagnostic::error(span, message));
    }
    if members.iter().any(|member| member.name == *name) {
        return None;
    }
    let suggestion = match members.iter().find(|member| member.prefix == *name) {
        Some(same) => Some(format!("`{name}` is its prefix: write `{}{SEPARATOR}{inner}`", same.name)),
        None => nearest(name, members.iter().map(|member| member.name.as_str())),
    };
    let message = format!("this endpoint has no upstream named `{name}`");
    Some(Diagnostic::error(span, message).suggest(suggestion))
}

/// Fills in how clients authenticate where nothing is written of it, and checks that somebody could.
fn check_auth(
    endpoint: &mut EndpointConfig,
    config: &Config,
    root: Table<'_>,
    table: Table<'_>,
    findings: &mut Findings,
) {
    let span = table.get("auth").map_or_else(|| table.span(), toml::Spanned::span);
    if !table.has("auth") {
        endpoint.auth = default_methods(root);
    }
    // A misspelt `auth` or [[api_key]] has been reported; it was meant to close the endpoint.
    let is_reported = findings.is_damaged(table) || !table.has("auth") && findings.is_damaged(root);
    if endpoint.auth.is_empty()
        && !endpoint.allow_unauthenticated
        && !is_reported
        && let Some(address) = open_address(config)
    {
        let message = format!(
            "anyone who reaches {address} could call this endpoint: add an [[api_key]], listen on 127.0.0.1, \
             or write `allow_unauthenticated = true`"
        );
        findings.error(span.clone(), message);
    }
    if !findings.is_damaged(root) {
        for (method, span) in table.texts("auth") {
            check_method(method, span, config, root, findings);
        }
    }
    // A token says for whom it is, and so the endpoint must have a name. What is asked of callers must be of somebody.
    if endpoint.auth.is_empty() && !endpoint.scopes.is_empty() {
        findings.error_at(table, "scopes", "`scopes` are asked of nobody, as anyone may call: add `auth`");
    }
    if !table.has("public_url") && !findings.is_damaged(table) {
        if endpoint.auth.contains(&AuthMethod::Jwt) {
            let message = "tokens (JWT) are for one endpoint, named by its URL: add `public_url`, or leave \"jwt\" out \
                           of `auth`";
            findings.error(span.clone(), message);
        }
        if endpoint.auth.contains(&AuthMethod::SignIn) {
            let message = "a sign-in is for one endpoint, named by its URL: add `public_url`";
            findings.error(span, message);
        }
    }
}

/// Whether anybody could authenticate by `method`, or what to add.
fn check_method(method: &str, span: Range<usize>, config: &Config, root: Table<'_>, findings: &mut Findings) {
    let mut demands =
        config.listeners.iter().filter_map(|listener| Some(listener.tls.as_ref()?.client_certificates));
    let missing = match method {
        "client_certificate" if demands.all(|demand| demand == CertificateDemand::None) => {
            "`client_certificates = \"optional\"` to the [listener.tls] of a listener"
        }
        "api_key" if !root.has("api_key") => "an [[api_key]], made by `trunkline key NAME`",
        "jwt" if !root.has("jwt") => "a [[jwt]] with an issuer and its keys",
        "sign_in" if !root.has("sign_in") => "[sign_in] with the provider at which people sign in",
        _ => return,
    };
    findings.error(span, format!("no client could authenticate: add {missing}"));
}
