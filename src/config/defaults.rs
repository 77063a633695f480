//! `[upstream_defaults]`: keys that every upstream has which does not say otherwise.
//!
//! They are put into the tables of the upstreams before these are read, so that they are checked there, and errors point at
//! where they stand. Keys that do not fit an upstream (of a command where there is a URL, of TLS where there is no
//! `https://`) are no defaults of it.

use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::command::CommandConfig;
use super::credentials::CredentialKeys;
use super::findings::{Findings, Node};
use super::schema::Definitions;
use super::section::{self, Group as _};
use super::table::Table;
use super::upstream::UpstreamConfig;
use super::value::Setting;

/// The section's name.
const SECTION: &str = "upstream_defaults";
/// What each upstream has to say for itself: also what it is shown, so that no credential goes where it does not belong.
const OWN: [&str; 8] = ["url", "urls", "command", "args", "prefix", "bearer", "basic", "oauth"];

/// The section itself: its values are read with the upstreams.
#[derive(Debug)]
pub struct UpstreamDefaults;

impl Setting for UpstreamDefaults {
    type Out = ();

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<()> {
        let Some(table) = Table::of(node) else {
            findings.error(node.span(), "expected [upstream_defaults], followed by its keys");
            return None;
        };
        for (name, _) in table.entries().filter(|(name, _)| OWN.contains(&&**name.get_ref())) {
            let message = format!("`{}` is each upstream's own: write it in [upstream.NAME]", name.get_ref());
            findings.error(name.span(), message);
        }
        section::refuse_unknown(table, &all_keys(), findings);
        Some(())
    }

    fn absent(_: &mut Findings) -> Option<()> {
        Some(())
    }

    const IS_OPTIONAL: bool = true;

    fn schema(_: &mut Definitions) -> Json {
        let keys: Vec<&str> = all_keys().into_iter().filter(|key| !OWN.contains(key)).collect();
        json!({ "type": "object", "propertyNames": { "enum": keys } })
    }
}

fn all_keys() -> Vec<&'static str> {
    let mut keys = Vec::new();
    UpstreamConfig::keys(&mut keys);
    keys
}

/// Gives the upstreams below `root` what they do not say themselves.
pub(super) fn apply(root: &mut DeTable<'_>) {
    let Some(DeValue::Table(defaults)) = root.get(SECTION).map(|node| node.get_ref().clone()) else { return };
    let Some(DeValue::Table(upstreams)) = root.get_mut("upstream").map(toml::Spanned::get_mut) else {
        return;
    };
    for (_, node) in upstreams.iter_mut() {
        if let DeValue::Table(upstream) = node.get_mut() {
            let unfit = unfit_keys(upstream);
            let fits = |key: &str| !unfit.contains(&key) && !OWN.contains(&key);
            let fit = defaults.iter().filter(|(key, _)| fits(key.get_ref()));
            merge(upstream, fit.map(|(key, value)| (key.clone(), value.clone())).collect());
        }
    }
}

/// Keys that would be errors in this upstream.
fn unfit_keys(upstream: &DeTable<'_>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    if upstream.contains_key("command") {
        CredentialKeys::keys(&mut keys);
        keys.extend(["tls", "transport", "unique_ids"]);
    } else {
        CommandConfig::keys(&mut keys);
        keys.push("env");
        let is_tls = |node: &Node<'_>| match node.get_ref() {
            DeValue::String(url) => url.starts_with("https://"),
            DeValue::Array(urls) => {
                urls.iter().any(|url| url.get_ref().as_str().is_some_and(|url| url.starts_with("https://")))
            }
            _ => false,
        };
        if !["url", "urls"].iter().any(|key| upstream.get(*key).is_some_and(is_tls)) {
            keys.push("tls");
        }
    }
    keys
}

/// Adds what `table` does not have, also in the tables within.
fn merge<'t>(table: &mut DeTable<'t>, defaults: DeTable<'t>) {
    for (key, default) in defaults {
        let name = &**key.get_ref();
        if !table.contains_key(name) {
            table.insert(key, default);
        } else if let Some(DeValue::Table(inner)) = table.get_mut(name).map(toml::Spanned::get_mut)
            && let DeValue::Table(defaults) = default.into_inner()
        {
            merge(inner, defaults);
        }
    }
}
