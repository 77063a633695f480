//! What of a configuration's text may be shown to people, in errors and in the log. Every line that is shown passes here.
//!
//! A secret stands in the place of a source, among the words of a command, or behind a key that is misspelt. So nobody asks
//! what may be a secret: a value is shown where its key and the tables around it are among those whose values are none, and
//! where it looks as such a value does. Keys and headings are shown; comments are not.
//!
//! `broken_line.rs` covers a text that is no TOML, where no rule says where a value ends.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::broken_line::shown_bytes;
use super::credentials::looks_secret;
use super::findings::Node;

/// Keys whose values are no secrets, and the tables in which they are.
pub(super) const SHOWN: &str = "accept_unprefixed access access_token_lifetime address admin algorithms aliases allow allow_unauthenticated \
    annotated_tools annotations api_key audiences audit auth breaker bridge budget_percent burst by ca calls \
    certificate certificates chain client client_auth client_authentication client_ca client_certificate \
    client_certificates client_documents clients_denied consent consent_remembered deny destructiveHint directory \
    drain durations effect enabled endpoint endpoints eras exact expires expiry fallback fields file follow_parent \
    forbidden_errors format grant_lifetime grant_lifetime_without_refresh groups groups_claim health healthy_after \
    host hosts id idempotentHint include interval isolation issuer journal jwks_file jwks_url jwt lazy leeway \
    legacy_errors level limit limits listener log max metrics missing_arguments name names no_proxy oauth openWorldHint \
    open_time origins outbound param_headers path period pins prefix prefix_elicitations principals prompts provider \
    provider_patience provider_scopes proxy proxy_protocol public_url quiet rate rate_grace_period ratio readOnlyHint \
    ready redirects redis refresh_reuse registration reload replicas require resource resources retry rule \
    scope_claim scopes server_name session session_loss shared sign_in slow_start socket_group socket_mode sse \
    stale_if_error stale_while_revalidate state_directory subject_claim success_ratio task_expiry timeout tls \
    token_url tools trace transport trust_public_cache trusted_proxies unhealthy_after unique_ids upstream \
    upstream_defaults upstreams url urls watch weights workers";

/// Keys whose values are never shown.
pub(super) const HIDDEN: &str = "args arguments basic bearer claims client_id client_key client_key_id client_secret command credential \
    description env env_pass forward_headers headers instructions key parameters password query secret sha256 \
    token user username";

/// What keys end with that have a number.
pub(super) const ENDS_OF_NUMBERS: [&str; 4] = ["_interval", "_max", "_min", "_timeout"];

/// Tables whose keys are names that somebody chose.
pub(super) const FREE_NAMES: &str = "aliases groups parameters require scopes upstream weights";

/// Keys of URLs: a password stands before the host, and a token in a path.
const URLS: &str =
    "endpoint issuer jwks_url origins proxy public_url redirects redis resource resources token_url url urls";

/// Keys of files: who mistakes one for its content writes a secret there.
const FILES: &str =
    "ca certificate chain client_ca client_documents directory file jwks_file state_directory";

/// Tables in whose place somebody may write a secret.
const TABLES: &str = "api_key client jwt oauth outbound session shared sign_in tls";

/// A part of a URL's path is shown if it is no longer.
const PATH_PART_BYTES_MAX: usize = 16;
/// A name of a file is shown if none of its parts is longer.
const FILE_PART_BYTES_MAX: usize = 48;
/// A number is shown if it is no longer, wherever no secret is expected.
const NUMBER_BYTES_MAX: usize = 4;

/// What of a text may be shown.
#[derive(Debug, Clone)]
pub(super) enum Outline {
    /// Its values, in the order of the text.
    Toml(Vec<Scalar>),
    /// It is no TOML.
    Other,
}

/// A value that has no others inside.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    span: Range<usize>,
    /// What of it is shown.
    shown: Range<usize>,
    is_string: bool,
    /// Whether it is a string that no password is.
    is_quantity: bool,
}

/// What a place in the tree of values says of what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is shown if it looks as it should.
    Shown,
    /// Nobody knows what it is.
    Unknown,
    /// A secret is expected there.
    Secret,
}

/// What a finding lets people see of its own place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mask {
    /// What may be seen anywhere.
    Nothing,
    /// No string of the line but quantities.
    Line,
    /// No value of the span.
    Values,
    /// Nothing of the span.
    Span,
    /// All of the span.
    Beside,
}

impl Outline {
    pub(super) fn of(text: &str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Self::Other;
        }
        let mut values = Vec::new();
        collect_table(text, root.get_ref(), Standing::Shown, false, &mut values);
        values.sort_by_key(|value| value.span.start);
        Self::Toml(values)
    }

    /// True if the masked part ends a line, so that not even its length is shown.
    pub(super) fn ends_lines(&self) -> bool {
        matches!(self, Self::Other)
    }

    /// For each byte of the `line`, whether it is masked in what is said about `span`.
    pub(super) fn masked(
        &self,
        text: &str,
        line: &Range<usize>,
        span: &Range<usize>,
        mask: Mask,
    ) -> Vec<bool> {
        let shown_line = &text[line.clone()];
        let mut masked = match self {
            Self::Toml(values) => masked_in_toml(shown_line, line.start, span, mask, values),
            Self::Other => {
                let shown = shown_bytes(text, line.start, shown_line);
                (0..shown_line.len()).map(|at| at >= shown).collect()
            }
        };
        let in_span =
            span.start.max(line.start) - line.start..span.end.clamp(line.start, line.end) - line.start;
        if let (Mask::Span | Mask::Beside, Some(of_span)) = (mask, masked.get_mut(in_span)) {
            of_span.fill(mask == Mask::Span);
        }
        masked
    }
}

fn masked_in_toml(line: &str, begin: usize, span: &Range<usize>, mask: Mask, values: &[Scalar]) -> Vec<bool> {
    let end = begin + line.len();
    let mut masked = vec![false; line.len()];
    let first = values.partition_point(|value| value.span.end <= begin);
    let mut after = 0;
    for value in values[first..].iter().take_while(|value| value.span.start < end) {
        let in_line =
            |range: &Range<usize>| range.start.clamp(begin, end) - begin..range.end.clamp(begin, end) - begin;
        let at = in_line(&value.span);
        after = at.end;
        masked[at].fill(true);
        let in_span = span.start < value.span.end && value.span.start < span.end;
        let is_hidden =
            mask == Mask::Line && value.is_string && !value.is_quantity || mask == Mask::Values && in_span;
        if !is_hidden {
            masked[in_line(&value.shown)].fill(false);
        }
        // The quotes of what is hidden stay where it is not what the finding is about.
        if value.is_string && !(mask == Mask::Values && value.span == *span) {
            for quote in [value.span.start, value.span.end.saturating_sub(1)] {
                if let Some(quote) = quote.checked_sub(begin).and_then(|at| masked.get_mut(at)) {
                    *quote = false;
                }
            }
        }
    }
    if let Some(at) = comment(&line[after..]) {
        masked[after + at + 1..].fill(true);
    }
    masked
}

/// Where a comment begins in what stands between values: keys may have quotes.
fn comment(between: &str) -> Option<usize> {
    let mut quote = None;
    let mut is_escaped = false;
    between.bytes().position(|byte| {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(open) if open == byte => quote = None,
            Some(open) => is_escaped = byte == b'\\' && open == b'"',
            None if byte == b'#' => return true,
            None => quote = matches!(byte, b'"' | b'\'').then_some(byte),
        }
        false
    })
}

fn collect_table(
    text: &str,
    table: &DeTable<'_>,
    standing: Standing,
    is_free: bool,
    values: &mut Vec<Scalar>,
) {
    for (key, node) in table {
        let key = &**key.get_ref();
        let below = if is_free { standing } else { standing.below(key) };
        collect(text, key, node, below, !is_free && is_among(key, FREE_NAMES), values);
    }
}

fn collect(
    text: &str,
    key: &str,
    node: &Node<'_>,
    standing: Standing,
    is_free: bool,
    values: &mut Vec<Scalar>,
) {
    match node.get_ref() {
        DeValue::Table(table) => collect_table(text, table, standing, is_free, values),
        DeValue::Array(nodes) => {
            for (at, node) in nodes.iter().enumerate() {
                // Only the first word of a command is its program.
                let key = if at > 0 && key == "command" { "args" } else { key };
                collect(text, key, node, standing, is_free, values);
            }
        }
        scalar => {
            let span = node.span();
            let written = text.get(span.clone()).unwrap_or_default();
            let bytes = match scalar {
                DeValue::Boolean(_) => written.len(),
                DeValue::String(_) => shown_of_string(key, written, standing),
                _ if standing == Standing::Shown && key != "command" && key != "args" => written.len(),
                _ if standing == Standing::Unknown && written.len() <= NUMBER_BYTES_MAX => written.len(),
                _ => 0,
            };
            let shown = span.start..span.start + bytes;
            let is_quantity = scalar.as_str().is_some_and(is_quantity);
            values.push(Scalar { span, shown, is_string: scalar.is_str(), is_quantity });
        }
    }
}

impl Standing {
    fn below(self, key: &str) -> Self {
        match self {
            Self::Secret => Self::Secret,
            known if is_shown(key) || key == "command" => known,
            _ if looks_secret(key) || ["basic", "env", "headers", "query"].contains(&key) => Self::Secret,
            _ => Self::Unknown,
        }
    }
}

/// How many bytes of a string are shown, with its first quote. A string of several lines is not.
fn shown_of_string(key: &str, written: &str, standing: Standing) -> usize {
    let inner = written.strip_prefix(['"', '\'']).and_then(|text| text.strip_suffix(['"', '\'']));
    if standing == Standing::Unknown && inner.is_some_and(is_quantity) {
        return written.len();
    }
    let Some(inner) = inner.filter(|inner| standing == Standing::Shown && !inner.contains('\n')) else {
        return 0;
    };
    1 + match key {
        _ if key == "args" || is_among(key, TABLES) => 0,
        "command" => {
            if is_program(inner) {
                inner.len()
            } else {
                0
            }
        }
        _ if is_among(key, FILES) => {
            if is_file(inner) {
                inner.len()
            } else {
                0
            }
        }
        "name" | "principals" if !inner.contains([':', '/']) => inner.len(),
        _ if inner.contains('@') => 0,
        _ if is_among(key, URLS) || inner.contains("://") => shown_of_url(inner),
        _ => inner.len(),
    }
}

/// Whether a text is a short number with a unit, as durations and sizes are.
pub(super) fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (1..=NUMBER_BYTES_MAX).contains(&(text.len() - unit.len()))
        && ["ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB", "KB", "MB", "GB"].contains(&unit)
}

/// Whether the value of the key at the end of `path` may be repeated.
pub(super) fn is_shown_text(path: &[String], text: &str) -> bool {
    let (mut standing, mut is_free, mut last) = (Standing::Shown, false, "");
    for key in path {
        standing = if is_free { standing } else { standing.below(key) };
        (is_free, last) = (!is_free && is_among(key, FREE_NAMES), key);
    }
    shown_of_string(last, &format!("\"{text}\""), standing) == 1 + text.len()
}

/// Whether a word is a program as most are called, and no secret in its place.
pub(super) fn is_program(word: &str) -> bool {
    !word.starts_with('-') && is_file(word)
}

fn is_file(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    path.split('/').all(|part| part.len() <= FILE_PART_BYTES_MAX && part.bytes().all(is_plain))
}

/// How many bytes of a URL are shown: what stands before a part that may be a token. None where the host has no plain port.
fn shown_of_url(url: &str) -> usize {
    let begin = url.find("://").map_or(0, |at| at + "://".len());
    let authority = url[begin..].split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port, is_plain): (_, _, fn(u8) -> bool) = if let Some(address) = authority.strip_prefix('[') {
        let (host, port) = address.split_once(']').unwrap_or((address, ""));
        (host, port, |byte| byte.is_ascii_hexdigit() || byte == b':')
    } else {
        let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        (host, port, |byte| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte))
    };
    let is_port =
        port.len() <= 6 && port.strip_prefix(':').unwrap_or(port).bytes().all(|byte| byte.is_ascii_digit());
    if !is_port || !host.bytes().all(is_plain) {
        return 0;
    }
    let mut shown = begin + authority.len();
    for part in url[shown..].split_inclusive(['/', '?', '#']) {
        let name = part.trim_end_matches(['/', '?', '#']);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
        if name.len() > PATH_PART_BYTES_MAX || !name.bytes().all(is_plain) {
            break;
        }
        shown += part.len();
        if !part.ends_with('/') {
            break;
        }
    }
    shown
}

/// True if the values of a key are no secrets.
pub(super) fn is_shown(key: &str) -> bool {
    is_among(key, SHOWN) || ENDS_OF_NUMBERS.iter().any(|end| key.ends_with(end))
}

pub(super) fn is_among(key: &str, keys: &str) -> bool {
    keys.split_ascii_whitespace().any(|other| other == key)
}
