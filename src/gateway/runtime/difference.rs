//! What differs between two configurations, in words for the log: names of things, never what is in them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::snapshot::Snapshot;
use crate::upstream::Upstream;
use config::{Config, LimitsConfig};

/// A line for everything that is added, removed or changed from `old` to `new`.
pub(super) fn difference(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let mut all = ChangeLines(&mut lines);
    all.of("listener", (&old.listeners, &new.listeners), |listener| listener.address.to_string());
    all.of("endpoint", (&old.endpoints, &new.endpoints), |endpoint| endpoint.name.clone());
    all.of("upstream", (&old.upstreams, &new.upstreams), |upstream| upstream.name.clone());
    all.of("api_key", (&old.api_keys, &new.api_keys), |key| key.name.clone());
    all.of("jwt", (&old.jwt, &new.jwt), |issuer| issuer.name.clone());
    all.of("rule", (&old.rules, &new.rules), |rule| rule.name.clone());
    all.of("limit", (&old.rate_limits, &new.rate_limits), |limit| limit.name.clone());
    for key in limits(&old.limits, &new.limits) {
        all.changed(true, &format!("limits.{key}"));
    }
    all.changed(old.admin != new.admin, "admin");
    all.changed(old.client_certificates != new.client_certificates, "client_certificate");
    all.changed(old.drain != new.drain, "drain");
    all.changed(old.log != new.log, "log");
    all.changed(old.metrics != new.metrics, "metrics");
    all.changed(old.outbound != new.outbound, "outbound");
    all.changed(old.reload != new.reload, "reload");
    all.changed(old.session != new.session, "session");
    all.changed(old.shared != new.shared, "shared");
    all.changed(old.sign_in != new.sign_in, "sign_in");
    all.changed(old.state_directory != new.state_directory, "state_directory");
    all.changed(old.trace != new.trace, "trace");
    all.changed(old.trusted_proxies != new.trusted_proxies, "trusted_proxies");
    all.changed(old.workers != new.workers, "workers");
    lines
}

/// A line for every upstream whose settings are equal, but not the secrets or certificates that they name.
pub(super) fn renewed(old: &Snapshot, new: &Snapshot) -> Vec<String> {
    let is_renewed = |upstream: &&Arc<Upstream>| {
        let same = old.upstreams.iter().find(|old| old.config == upstream.config);
        same.is_some_and(|old| old.access.material != upstream.access.material)
    };
    let renewed = new.upstreams.iter().filter(is_renewed);
    renewed
        .map(|upstream| format!("upstream {}: secrets or certificates changed", upstream.config.name))
        .collect()
}

struct ChangeLines<'l>(&'l mut Vec<String>);

impl ChangeLines<'_> {
    fn of<T: PartialEq>(&mut self, what: &str, (old, new): (&[T], &[T]), name: impl Fn(&T) -> String) {
        let names = |all: &[T]| all.iter().map(&name).collect::<Vec<_>>();
        let (old_names, new_names) = (names(old), names(new));
        let place_of: HashMap<&str, usize> =
            old_names.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        for (thing, name) in new.iter().zip(&new_names) {
            match place_of.get(name.as_str()) {
                None => self.0.push(format!("{what} {name}: added")),
                Some(place) if old[*place] != *thing => self.0.push(format!("{what} {name}: changed")),
                Some(_) => {}
            }
        }
        let kept: HashSet<&str> = new_names.iter().map(String::as_str).collect();
        let gone = old_names.iter().filter(|name| !kept.contains(name.as_str()));
        self.0.extend(gone.map(|name| format!("{what} {name}: removed")));
    }

    fn changed(&mut self, is_changed: bool, what: &str) {
        if is_changed {
            self.0.push(format!("{what}: changed"));
        }
    }
}

/// Names the fields that differ; a field that is left out here does not compile.
macro_rules! differing {
    ($type:ident, $old:expr, $new:expr; $($field:ident),* $(,)?) => {{
        let $type { $($field),* } = $old;
        let mut names = Vec::new();
        $(if *$field != $new.$field { names.push(stringify!($field)); })*
        names
    }};
}

fn limits(old: &LimitsConfig, new: &LimitsConfig) -> Vec<&'static str> {
    differing!(LimitsConfig, old, new;
        connections_max, connections_per_address_max, handshakes_max, handshakes_per_address_max, handshake_timeout,
        header_bytes_max, headers_max, body_bytes_max, buffered_bytes_max, reply_bytes_max, list_bytes_max,
        list_pages_max, list_entries_max, cache_bytes_max, kept_lists_bytes_max, pins_bytes_max, children_max, children_starting_max,
        token_bytes_max, json_depth_max,
        streams_per_connection_max, subscriptions_max, subscriptions_per_principal_max, limiter_keys_max,
        subscription_uris_max, session_messages_max, header_timeout, body_timeout, body_rate_min, reply_rate_min,
        rate_grace_period, idle_timeout, connection_age_max,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"
        [listener]
        address = "127.0.0.1:8000"
        [[endpoint]]
        path = "/a"
        upstreams = ["one"]
        [[endpoint]]
        path = "/b"
        upstreams = ["one"]
        [upstream.one]
        url = "http://127.0.0.1:1/"
    "#;

    fn read(text: &str) -> Config {
        config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("test", text)))
    }

    #[test]
    fn everything_that_differs_is_named() {
        let key = format!("[[api_key]]\nname = \"ci\"\nsha256 = \"{}\"\n", "ab".repeat(32));
        // With the first key there is, endpoints ask for one.
        let cases: [(&str, &str, &[&str]); 8] = [
            ("", "", &[]),
            (
                "127.0.0.1:8000",
                "127.0.0.1:8001",
                &["listener 127.0.0.1:8001: added", "listener 127.0.0.1:8000: removed"],
            ),
            ("\"/b\"", "\"/c\"", &["endpoint /c: added", "endpoint /b: removed"]),
            ("/b\"", "/b\"\n instructions = \"x\"", &["endpoint /b: changed"]),
            ("1:1/\"", "1:2/\"", &["upstream one: changed"]),
            ("[listener]", "[drain]\nquiet = \"1s\"\n[listener]", &["drain: changed"]),
            ("[listener]", "[limits]\nheaders_max = 99\n[listener]", &["limits.headers_max: changed"]),
            (
                "[listener]",
                &format!("{key}[listener]"),
                &["endpoint /a: changed", "endpoint /b: changed", "api_key ci: added"],
            ),
        ];
        for (from, to, expected) in cases {
            let (old, new) = (read(BEFORE), read(&BEFORE.replacen(from, to, 1)));
            assert_eq!(difference(&old, &new), expected, "{from} -> {to}");
        }
    }

    #[test]
    fn nothing_of_a_key_is_shown() {
        let key = |digest: &str| {
            let digest = digest.repeat(32);
            read(&format!("{BEFORE}\n[[api_key]]\nname = \"ci\"\nsha256 = \"{digest}\"\n"))
        };
        assert_eq!(difference(&key("ab"), &key("cd")), ["api_key ci: changed"]);
    }
}
