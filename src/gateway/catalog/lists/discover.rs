//! `server/discover` of an endpoint.
//!
//! On a transparent endpoint the upstream's answer is handed on with the endpoint's versions in place of its own.
//! Elsewhere it is the [`Summary`] of all. The endpoint is there whatever its upstreams do: clients take an error for a
//! server of an older revision, or for none. An upstream that gave no answer counts as one with tools, prompts and resources.

use std::sync::Arc;

use bytes::Bytes;

use super::summary::{Summary, versions};
use crate::snapshot::Endpoint;
use crate::tables::lists::cache::MergedPage;
use crate::tables::lists::part::Content;
use crate::upstream::Upstream;
use protocol::json::{Scratch, Span};
use protocol::route::Style;
use protocol::version::Era;

pub(crate) struct DiscoverSource<'s> {
    pub endpoint: &'s Endpoint,
    /// Its upstreams; `None` for one of which the caller may use nothing.
    pub upstreams: &'s [Option<&'s Arc<Upstream>>],
    /// What each of them said, in order; `None` for one that did not.
    pub contents: &'s [Option<Arc<Content>>],
}

impl DiscoverSource<'_> {
    /// The answer.
    pub(crate) fn merge(&self, supported: &[&str], is_public: bool, depth_max: usize) -> MergedPage {
        let mut scratch = Scratch::default();
        if self.endpoint.naming.style() == Style::Transparent
            && let [Some(_)] = self.upstreams
            && let [Some(content)] = self.contents
            && let Some(own) = own(&content.result, supported, is_public, &mut scratch, depth_max)
        {
            return own;
        }
        let mut summary = Summary::default();
        for (upstream, content) in self.upstreams.iter().zip(self.contents) {
            let Some(upstream) = upstream else { continue };
            let is_added = content.as_ref().is_some_and(|content| {
                summary.add(&heading(self.endpoint, upstream), &content.result, &mut scratch, depth_max)
            });
            if !is_added && upstream.era_for(Era::Modern).is_ok() {
                summary.assume();
            }
        }
        let instructions = self.endpoint.config.instructions.as_deref();
        let rest = summary.write_modern(instructions, supported, is_public);
        MergedPage {
            before_ttl: Some(Bytes::from_static(br#"{"resultType":"complete","ttlMs":"#)),
            rest: Bytes::from(format!(",{rest}}}}}")),
        }
    }
}

/// What introduces an upstream's instructions to whoever sees its names under the endpoint's.
pub(super) fn heading(endpoint: &Endpoint, upstream: &Upstream) -> String {
    let config::UpstreamConfig { name, prefix, .. } = &upstream.config;
    match endpoint.naming.style() {
        Style::Transparent => String::new(),
        Style::Prefixed => format!("## {name} (names start with {prefix}__)\n\n"),
        Style::Bare => format!("## {name}\n\n"),
    }
}

/// The one upstream's result with the endpoint's versions, scope and freshness.
fn own(
    result: &Bytes,
    supported: &[&str],
    is_public: bool,
    scratch: &mut Scratch,
    depth_max: usize,
) -> Option<MergedPage> {
    let root = scratch.index(result, depth_max).ok()?.root();
    let scope = if is_public { "\"public\"" } else { "\"private\"" };
    let mut edits = vec![(root.get("supportedVersions")?.span(), versions(supported))];
    // What is missing is written first.
    let mut before = b"{".to_vec();
    match root.get("cacheScope") {
        Some(value) => edits.push((value.span(), scope.to_owned())),
        None => before.extend_from_slice(format!("\"cacheScope\":{scope},").as_bytes()),
    }
    edits.sort_unstable_by_key(|(span, _)| span.start);
    let mut rest = Vec::new();
    let rest_start = if let Some(ttl) = root.get("ttlMs") {
        replace(result, 1..ttl.span().start, &edits, &mut before);
        ttl.span().end
    } else {
        before.extend_from_slice(b"\"ttlMs\":");
        rest.push(b',');
        1
    };
    replace(result, rest_start..result.len(), &edits, &mut rest);
    rest.push(b'}');
    Some(MergedPage { before_ttl: Some(before.into()), rest: rest.into() })
}

/// Writes a range of `text` with those edits that lie in it, which are in order.
fn replace(text: &[u8], range: Span, edits: &[(Span, String)], out: &mut Vec<u8>) {
    let mut at = range.start;
    for (span, with) in edits.iter().filter(|(span, _)| range.start <= span.start && span.end <= range.end) {
        out.extend_from_slice(text.get(at..span.start).unwrap_or_default());
        out.extend_from_slice(with.as_bytes());
        at = span.end;
    }
    out.extend_from_slice(text.get(at..range.end).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_upstream_keeps_all_but_versions_scope_and_freshness() {
        for (result, expected) in [
            (
                r#"{"x":1e400, "supportedVersions":["2026-07-28","2025-11-25"],"ttlMs": 5 ,"cacheScope":"public","capabilities":{"a":{}}}"#,
                r#"{"x":1e400, "supportedVersions":["2026-07-28"],"ttlMs": 42 ,"cacheScope":"private","capabilities":{"a":{}}}"#,
            ),
            (
                r#"{ "cacheScope":"private", "ttlMs":5,"supportedVersions":[ ] }"#,
                r#"{ "cacheScope":"private", "ttlMs":42,"supportedVersions":["2026-07-28"] }"#,
            ),
            (
                r#"{"supportedVersions":[],"y":0}"#,
                r#"{"cacheScope":"private","ttlMs":42,"supportedVersions":["2026-07-28"],"y":0}"#,
            ),
            (
                r#"{"y":0,"ttlMs":1,"supportedVersions":[]}"#,
                r#"{"cacheScope":"private","y":0,"ttlMs":42,"supportedVersions":["2026-07-28"]}"#,
            ),
        ] {
            let page =
                own(&Bytes::from(result), &["2026-07-28"], false, &mut Scratch::default(), 128).unwrap();
            let before = String::from_utf8(page.before_ttl.unwrap().to_vec()).unwrap();
            let rest = String::from_utf8(page.rest.to_vec()).unwrap();
            assert_eq!(format!("{before}42{rest}"), format!("{expected}}}"));
        }
        for result in ["{}", "[]", r#"{"capabilities":{}}"#] {
            assert_eq!(own(&Bytes::from(result), &[], false, &mut Scratch::default(), 128), None, "{result}");
        }
    }
}
