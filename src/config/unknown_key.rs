//! What may have been meant by a key that is not there: one that is spelled alike, what nginx, Envoy, HAProxy and Caddy
//! call it, or a key of the whole file that stands below a section.

use super::error::nearest;

/// Keys that are named where none is meant for sure.
const NAMED_MAX: usize = 5;

/// What others call something → what it is called here, the first that the table has; or what to do instead.
const SYNONYMS: [(&[&str], &[&str]); 28] = [
    (
        &["timeout", "read_timeout", "proxy_read_timeout", "reply_timeout"],
        &["response_timeout", "body_timeout", "suspended_call_timeout", "timeout"],
    ),
    (&["request_timeout"], &["response_timeout", "body_timeout", "timeout"]),
    (&["keepalive_timeout", "keepalive", "keep_alive"], &["idle_timeout"]),
    (&["defaults", "default"], &["upstream_defaults"]),
    (&["retries", "max_retries", "num_retries"], &["retry"]),
    (&["max_fails", "consecutive_failures", "failures"], &["failures_max", "breaker"]),
    (&["circuit_breaker", "outlier_detection"], &["breaker"]),
    (&["health_check", "healthcheck", "health_checks"], &["health"]),
    (
        &["rate", "rps", "rate_limit", "ratelimit", "requests_per_second"],
        &["rate", "calls", "write a [[limit]]: it says how many calls are allowed in a time"],
    ),
    (&["window", "interval", "per"], &["period"]),
    (&["key", "keys"], &["certificates", "by", "`trunkline key NAME` makes a key and its entry"]),
    (
        &["max_body_size", "client_max_body_size", "max_request_bytes", "max_body"],
        &["body_bytes_max", "`body_bytes_max` of [limits]"],
    ),
    (&["max_concurrency", "concurrency", "max_concurrent_calls", "max_in_flight"], &["calls_max"]),
    (&["pool_size", "max_idle", "max_idle_connections"], &["idle_connections_max"]),
    (&["listen", "bind", "port", "host", "socket"], &["address", "hosts"]),
    (&["servers", "backends", "server", "backend", "members", "targets"], &["upstreams", "urls", "upstream"]),
    (&["target", "endpoint", "uri", "address", "proxy_pass"], &["url"]),
    (&["replicas", "hosts"], &["urls"]),
    (&["location", "route", "prefix"], &["path"]),
    (
        &["mcpServers", "mcp_servers", "context_servers", "mcp"],
        &[
            "`trunkline import FILE` makes a configuration of what clients have: an upstream is [upstream.NAME]",
        ],
    ),
    (
        &["certificate", "cert", "ssl_certificate", "tls_cert", "cert_file", "client_cert"],
        &["certificates", "certificate", "tls"],
    ),
    (
        &["key_file", "ssl_certificate_key", "tls_key", "client_key", "private_key"],
        &["key", "certificates", "tls"],
    ),
    (&["ca_file", "ca_cert", "root_ca", "trusted_ca"], &["ca", "client_ca"]),
    (
        &["insecure_skip_verify", "verify", "insecure", "skip_verify", "ssl_verify"],
        &["certificates are always verified: name the authority with `ca`"],
    ),
    (&["user", "users", "client", "clients"], &["principals"]),
    (&["token", "secret", "api_key", "password"], &["sha256", "bearer", "token"]),
    (&["cors", "allowed_origins", "cors_origins"], &["origins"]),
    (&["cwd", "workdir", "working_directory"], &["directory"]),
];

/// What to say beside a key that a table with the keys `known` does not have; `of_file` are those of the whole file.
pub(super) fn suggestion(name: &str, known: &[&str], of_file: &[&str]) -> String {
    if of_file.contains(&name) && !known.contains(&name) {
        return match name {
            "include" | "workers" | "state_directory" | "trusted_proxies" => {
                format!("`{name}` belongs above the first [section]")
            }
            _ => format!("`{name}` is a section of the whole file"),
        };
    }
    let meant = |key: &str| format!("did you mean `{key}`?");
    let said = |found: &str| if found.contains(' ') { found.to_owned() } else { meant(found) };
    synonym(name, known)
        .map(said)
        .or_else(|| turned(name).filter(|key| known.contains(&&**key)).map(|key| meant(&key)))
        .or_else(|| nearest(name, known.iter().copied()))
        .or_else(|| near_synonym(name, known).map(said))
        .unwrap_or_else(|| nearest_keys(name, known))
}

/// `max_connections` is `connections_max` here, and so on.
fn turned(name: &str) -> Option<String> {
    ["max", "min"].into_iter().find_map(|bound| {
        let rest = name.strip_prefix(bound)?.strip_prefix('_')?;
        Some(format!("{rest}_{bound}"))
    })
}

fn synonym(name: &str, known: &[&str]) -> Option<&'static str> {
    let of = |(theirs, _): &&(&[&str], &[&str])| theirs.contains(&name);
    let all = SYNONYMS.iter().filter(of).flat_map(|(_, ours)| ours.iter().copied());
    all.into_iter().find(|key| key.contains(' ') || known.contains(key))
}

/// The key that a misspelt word of other programs means.
fn near_synonym(name: &str, known: &[&str]) -> Option<&'static str> {
    let words = SYNONYMS.iter().flat_map(|(theirs, _)| theirs.iter().copied());
    let near = |word: &&str| strsim::osa_distance(name, word) <= word.chars().count() / 4;
    let mut near: Vec<&str> = words.filter(near).collect();
    near.sort_by_key(|word| strsim::osa_distance(name, word));
    near.into_iter().find_map(|word| synonym(word, known).filter(|key| !key.contains(' ')))
}

fn nearest_keys(name: &str, known: &[&str]) -> String {
    let mut near: Vec<&str> = known.to_vec();
    if near.len() <= NAMED_MAX {
        return format!("the keys here are: {}", near.join(", "));
    }
    near.sort_by_key(|key| strsim::osa_distance(name, key));
    near.truncate(NAMED_MAX);
    format!("the nearest keys here are: {}; trunkline.toml(5) has all", near.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_call_it_is_understood() {
        let upstream = [
            "connect_timeout",
            "response_timeout",
            "client_response_timeout",
            "retry",
            "breaker",
            "idle_timeout",
            "url",
        ];
        let limits = [
            "connections_max",
            "body_bytes_max",
            "body_timeout",
            "headers_max",
            "calls_max",
            "cache_bytes_max",
        ];
        let file = ["include", "workers", "limits", "upstream"];
        for (name, known, expected) in [
            ("timeout", &upstream[..], "did you mean `response_timeout`?"),
            ("read_timeout", &upstream[..], "did you mean `response_timeout`?"),
            ("request_timeout", &upstream[..], "did you mean `response_timeout`?"),
            ("timout", &upstream[..], "did you mean `response_timeout`?"),
            ("timout", &limits[..], "did you mean `body_timeout`?"),
            ("tiemout", &upstream[..], "did you mean `response_timeout`?"),
            ("cert", &["url", "tls"], "did you mean `tls`?"),
            ("cert", &["ca", "certificate", "key"], "did you mean `certificate`?"),
            ("cert", &["address", "certificates"], "did you mean `certificates`?"),
            (
                "mcpServers",
                &file[..],
                "`trunkline import FILE` makes a configuration of what clients have: an upstream is [upstream.NAME]",
            ),
            ("request_timeout", &limits[..], "did you mean `body_timeout`?"),
            ("conect_timeout", &upstream[..], "did you mean `connect_timeout`?"),
            ("retries", &upstream[..], "did you mean `retry`?"),
            ("max_connections", &limits[..], "did you mean `connections_max`?"),
            ("max_body_size", &limits[..], "did you mean `body_bytes_max`?"),
            ("rate", &limits[..], "write a [[limit]]: it says how many calls are allowed in a time"),
            ("workers", &upstream[..], "`workers` belongs above the first [section]"),
            ("include", &upstream[..], "`include` belongs above the first [section]"),
            ("limits", &upstream[..], "`limits` is a section of the whole file"),
            ("colour", &upstream[..2], "the keys here are: connect_timeout, response_timeout"),
        ] {
            assert_eq!(suggestion(name, known, &file), expected, "{name}");
        }
        let far = suggestion("colour", &limits, &file);
        assert_eq!(far.matches(',').count(), NAMED_MAX - 1, "{far}");
        assert!(far.ends_with("; trunkline.toml(5) has all"), "{far}");
    }
}
