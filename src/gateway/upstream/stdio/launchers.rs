//! Advice on launchers that stay beside each process of a server, and take more memory than most of them.

use std::collections::BTreeMap;

use config::{CommandConfig, Config, staying};
use protocol::text::first_names;

use super::npx;

/// So many upstreams are named.
const NAMED_MAX: usize = 5;

/// For each kind of launcher, the first of the upstreams that have it, and what to do.
pub(crate) fn advice(config: &Config) -> Vec<(String, String)> {
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for upstream in &config.upstreams {
        if let Some(launcher) = upstream.command.as_ref().and_then(stays) {
            kinds.entry(launcher).or_default().push(&upstream.name);
        }
    }
    kinds
        .into_iter()
        .filter_map(|(launcher, upstreams)| {
            Some(((*upstreams.first()?).to_owned(), told(launcher, &upstreams)))
        })
        .collect()
}

fn stays(command: &CommandConfig) -> Option<&'static str> {
    let words = std::iter::once(&command.program).chain(&command.args).map(String::as_str);
    staying(words).filter(|_| !npx::is_found_out(command))
}

fn told(launcher: &str, upstreams: &[&str]) -> String {
    let named = first_names(upstreams, NAMED_MAX);
    let exact = if ["npx", "npm"].contains(&launcher) {
        "write an exact version without other options, as in `npx -y PACKAGE@1.2.3`, or "
    } else {
        ""
    };
    format!(
        "`{launcher}` stays beside each process of {named}, and takes memory: {exact}install the server, and write its \
         own program as `command`"
    )
}
