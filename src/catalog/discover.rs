//! `server/discover` of an endpoint.
//!
//! On a transparent endpoint the upstream's answer is handed on with the endpoint's versions in
//! place of its own. Elsewhere a capability is offered if an upstream has it. Of the extensions only those survive that an
//! aggregating endpoint can route. Change notices are not offered there, as nothing would deliver them.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::fetch::{Fetcher, ttl_ms};
use crate::config;
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::json::{Scratch, Value, quote};
use crate::protocol::splice::{Edit, splice};
use crate::protocol::version;
use crate::route::Style;
use crate::snapshot::{Endpoint, Snapshot};
use crate::upstream::Upstream;

/// The `_meta` of results that the gateway makes itself.
pub const SERVER_INFO: &str = concat!(
    r#"{"io.modelcontextprotocol/serverInfo":{"name":"trunkline","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// Core capabilities, in the order they are written.
const CAPABILITIES: [&str; 5] = ["tools", "prompts", "resources", "completions", "logging"];

/// Extensions whose names and ids an aggregating endpoint can route.
const EXTENSIONS: [&str; 2] = ["io.modelcontextprotocol/tasks", "io.modelcontextprotocol/ui"];

/// Upstreams asked at once.
const CONCURRENT_MAX: usize = 32;

/// Together the instructions of the upstreams may be this long.
const INSTRUCTIONS_BYTES_MAX: usize = 64 * 1024;

/// The result object of `server/discover`, as JSON. Fails only if no upstream answered.
pub async fn merged(
    fetcher: Fetcher<'_>,
    snapshot: &Snapshot,
    endpoint: &Rc<Arc<Endpoint>>,
) -> Result<String, Error> {
    let upstreams: Vec<_> =
        endpoint.members.iter().filter_map(|member| snapshot.upstreams.get(*member)).collect();
    let asked = upstreams.iter().map(|upstream| fetcher.discover(upstream));
    let replies: Vec<_> = stream::iter(asked).buffered(CONCURRENT_MAX).collect().await;
    let depth_max = snapshot.limits.json_depth_max;
    let mut scratch = fetcher.scratch.borrow_mut();
    if let [reply] = &replies[..]
        && endpoint.naming.style() == Style::Transparent
    {
        let reply = reply.clone()?;
        return own_versions(&reply, &mut scratch, depth_max).ok_or_else(|| UpstreamError::Nonsense.into());
    }
    let mut summary = Summary { ttl_ms: u64::MAX, ..Summary::default() };
    for (upstream, reply) in upstreams.iter().zip(&replies) {
        let read = reply
            .as_ref()
            .ok()
            .and_then(|reply| summary.add(&heading(endpoint, upstream), reply, &mut scratch, depth_max));
        if read.is_none() {
            summary.is_partial = true;
            tracing::debug!(upstream = upstream.config.name, "discovery answered without this upstream");
        }
    }
    if summary.is_empty {
        return Err(UpstreamError::NoneReachable.into());
    }
    Ok(summary.write(endpoint.config.instructions.as_deref()))
}

/// The one upstream's result with the endpoint's versions.
fn own_versions(reply: &Bytes, scratch: &mut Scratch, depth_max: usize) -> Option<String> {
    let document = scratch.index(reply, depth_max).ok()?;
    let result = document.root().get("result")?;
    let versions = result.get("supportedVersions")?.span();
    let edit = Edit { span: versions, with: supported_versions().into() };
    let start = result.span().start;
    let cut_after = reply.len() - result.span().end;
    let spliced = splice(reply, &[edit]).to_bytes();
    let result = spliced.get(start..spliced.len() - cut_after)?;
    String::from_utf8(result.to_vec()).ok()
}

/// What introduces an upstream's instructions to whoever sees its names under the endpoint's.
fn heading(endpoint: &Endpoint, upstream: &Upstream) -> String {
    let config::Upstream { name, prefix, .. } = &upstream.config;
    match endpoint.naming.style() {
        Style::Transparent => String::new(),
        Style::Prefixed => format!("## {name} (names start with {prefix}__)\n\n"),
        Style::Bare => format!("## {name}\n\n"),
    }
}

fn supported_versions() -> String {
    let versions: Vec<String> = version::MODERN.iter().map(|version| quote(version)).collect();
    format!("[{}]", versions.join(","))
}

#[derive(Debug)]
struct Summary {
    capabilities: BTreeSet<usize>,
    extensions: Vec<(usize, String)>,
    instructions: Vec<String>,
    ttl_ms: u64,
    is_partial: bool,
    is_empty: bool,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            capabilities: BTreeSet::new(),
            extensions: Vec::new(),
            instructions: Vec::new(),
            ttl_ms: 0,
            is_partial: false,
            is_empty: true,
        }
    }
}

impl Summary {
    fn add(&mut self, heading: &str, reply: &[u8], scratch: &mut Scratch, depth_max: usize) -> Option<()> {
        let document = scratch.index(reply, depth_max).ok()?;
        let result = document.root().get("result")?;
        let capabilities = result.get("capabilities")?;
        self.capabilities.extend(known(capabilities, &CAPABILITIES).map(|(known, _)| known));
        if let Some(extensions) = capabilities.get("extensions") {
            for (extension, settings) in known(extensions, &EXTENSIONS) {
                if self.extensions.iter().all(|(known, _)| *known != extension) {
                    let settings = String::from_utf8_lossy(settings.raw()).into_owned();
                    self.extensions.push((extension, settings));
                }
            }
        }
        let instructions = result.get("instructions").and_then(Value::as_literal);
        if let Some(text) = instructions.and_then(|literal| literal.decode(reply).map(String::from)) {
            self.instructions.push(format!("{heading}{text}"));
        }
        self.ttl_ms = self.ttl_ms.min(ttl_ms(result));
        self.is_empty = false;
        Some(())
    }

    fn write(mut self, own_instructions: Option<&str>) -> String {
        let mut capabilities: Vec<String> =
            self.capabilities.iter().map(|known| format!(r#""{}":{{}}"#, CAPABILITIES[*known])).collect();
        if !self.extensions.is_empty() {
            self.extensions.sort();
            let extensions: Vec<String> = self
                .extensions
                .iter()
                .map(|(known, settings)| format!("{}:{settings}", quote(EXTENSIONS[*known])))
                .collect();
            capabilities.push(format!(r#""extensions":{{{}}}"#, extensions.join(",")));
        }
        let mut instructions: Vec<&str> = own_instructions.into_iter().collect();
        instructions.extend(self.instructions.iter().map(String::as_str));
        let mut instructions = instructions.join("\n\n");
        if instructions.len() > INSTRUCTIONS_BYTES_MAX {
            instructions.truncate(instructions.floor_char_boundary(INSTRUCTIONS_BYTES_MAX));
        }
        let instructions = match instructions.as_str() {
            "" => String::new(),
            text => format!(r#","instructions":{}"#, quote(text)),
        };
        let ttl_ms = if self.is_partial { 0 } else { self.ttl_ms };
        format!(
            r#"{{"resultType":"complete","supportedVersions":{},"capabilities":{{{}}}{instructions},"ttlMs":{ttl_ms},"cacheScope":"private","_meta":{SERVER_INFO}}}"#,
            supported_versions(),
            capabilities.join(",")
        )
    }
}

/// The entries whose keys are among `keys`, by index.
fn known<'d>(object: Value<'d>, keys: &'d [&'d str]) -> impl Iterator<Item = (usize, Value<'d>)> {
    let text = object.text();
    object
        .entries()
        .filter_map(move |(key, value)| Some((keys.iter().position(|known| key.equals(text, known))?, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_upstream_keeps_all_but_its_versions() {
        let reply = r#"{"id":1,"result":{"x":1e400, "supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"a":{}}},"jsonrpc":"2.0"}"#;
        let result = own_versions(&Bytes::from_static(reply.as_bytes()), &mut Scratch::default(), 128);
        assert_eq!(
            result.as_deref(),
            Some(r#"{"x":1e400, "supportedVersions":["2026-07-28"],"capabilities":{"a":{}}}"#)
        );
    }

    #[test]
    fn several_are_joined() {
        let mut summary = Summary { ttl_ms: u64::MAX, ..Summary::default() };
        let mut scratch = Scratch::default();
        for (name, result) in [
            (
                "a",
                r#"{"capabilities":{"prompts":{"listChanged":true},"tools":{}},"ttlMs":500,"instructions":"A"}"#,
            ),
            (
                "b",
                r#"{"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{"x":1},"other":{}}},"ttlMs":900}"#,
            ),
        ] {
            let reply = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            assert!(summary.add(&format!("## {name}\n\n"), reply.as_bytes(), &mut scratch, 128).is_some());
        }
        let expected = format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}},"prompts":{{}},"extensions":{{"io.modelcontextprotocol/tasks":{{"x":1}}}}}},"instructions":"Own\n\n## a\n\nA","ttlMs":500,"cacheScope":"private","_meta":{SERVER_INFO}}}"#
        );
        assert_eq!(summary.write(Some("Own")), expected);
    }
}
