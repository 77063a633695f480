//! The result of `initialize` for an endpoint, from what is remembered of its upstreams: none is asked.
//!
//! On a transparent endpoint it is the upstream's own, but that changes of lists are always announced. Elsewhere a
//! capability is offered if an upstream has it. What an upstream said in the legacy era counts before what it said in
//! the modern one; one that never said anything counts as having tools, prompts and resources. One that no call of a
//! session reaches, as it speaks the modern era alone and nothing is translated, is left out.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::discover::heading;
use super::starting;
use super::summary::{Capability, Summary, has_list, object};
use crate::access::policy::Class;
use crate::snapshot::{Endpoint, Snapshot};
use crate::upstream::Upstream;
use crate::upstream::facts::{EMPTY, EraIntroduction, Fact};
use protocol::json::{Document, JsonKind, Scratch, Value, quote};
use protocol::route::Style;
use protocol::version::{Era, LegacyVersion};

/// How long an upstream is waited for that was never asked before.
const PATIENCE: Duration = Duration::from_secs(1);

const SERVER_INFO: &str = concat!(r#"{"name":"trunkline","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// The version of the session, and the result object as JSON.
/// A caller of `class` is told of those that it may use something of.
pub(crate) async fn result(
    snapshot: &Snapshot,
    endpoint: &Endpoint,
    class: &Class,
    requested: &str,
) -> (LegacyVersion, String) {
    let members = endpoint.members.iter().enumerate().filter(|(member, _)| class.reaches(*member));
    let members: Vec<&Upstream> =
        members.filter_map(|(_, slot)| Some(&**snapshot.upstreams.get(*slot)?)).collect();
    join_all(members.iter().map(|upstream| heard_of(upstream))).await;
    let said: Vec<(&Upstream, UpstreamIntroduction)> = members
        .iter()
        .filter_map(|upstream| Some((*upstream, UpstreamIntroduction::by(upstream)?)))
        .collect();
    let version = negotiate(requested, said.iter().map(|(_, said)| said));
    let mut scratch = Scratch::default();
    let depth_max = snapshot.limits.json_depth_max;
    let result = match &said[..] {
        [(_, said)] if endpoint.naming.style() == Style::Transparent => {
            own(version, said, &mut scratch, depth_max)
        }
        said => merged(version, endpoint, said, &mut scratch, depth_max),
    };
    (version, result)
}

/// Waits until the upstream has said what is needed of it, for a while. A program that is not up counts as it was before.
async fn heard_of(upstream: &Upstream) {
    if upstream.rests() || (starting::is_down(upstream) && is_remembered(upstream)) {
        return;
    }
    if upstream.era_for(Era::Legacy) == Ok(Era::Modern) {
        upstream.facts.introduced_within(PATIENCE).await;
    } else {
        upstream.facts.tried_within(PATIENCE).await;
    }
}

/// True once it has introduced itself, if only to the gateway of before a restart.
fn is_remembered(upstream: &Upstream) -> bool {
    let known = upstream.facts.known();
    let said = |fact: &Fact| fact.introduction().is_some_and(|said| said.result != EMPTY);
    said(&known.legacy) || said(&known.modern)
}

enum UpstreamIntroduction {
    InLegacy(Arc<EraIntroduction>),
    InModern(Arc<EraIntroduction>),
    Nothing,
}

impl UpstreamIntroduction {
    /// `None`: it cannot be reached in a legacy session.
    fn by(upstream: &Upstream) -> Option<Self> {
        let era = upstream.era_for(Era::Legacy).ok()?;
        let known = upstream.facts.known();
        Some(match (&known.legacy, &known.modern) {
            (Fact::Present(introduction), _) if era == Era::Legacy => {
                Self::InLegacy(Arc::clone(introduction))
            }
            (_, Fact::Present(introduction)) => Self::InModern(Arc::clone(introduction)),
            _ => Self::Nothing,
        })
    }

    fn result<'s>(&'s self, scratch: &'s mut Scratch, depth_max: usize) -> Option<Value<'s>> {
        let (Self::InLegacy(introduction) | Self::InModern(introduction)) = self else { return None };
        scratch.index(&introduction.result, depth_max).ok().map(Document::root)
    }
}

/// The version that the client asks for, if it is one and no newer than what the upstreams speak; else the newest.
fn negotiate<'s>(requested: &str, said: impl Iterator<Item = &'s UpstreamIntroduction>) -> LegacyVersion {
    // Every upstream was offered the newest.
    let spoken = said.filter_map(|said| match said {
        UpstreamIntroduction::InLegacy(introduction) => LegacyVersion::of(&introduction.version),
        UpstreamIntroduction::InModern(_) | UpstreamIntroduction::Nothing => None,
    });
    let newest = spoken.max().unwrap_or(LegacyVersion::NEWEST);
    LegacyVersion::of(requested).map_or(newest, |requested| requested.min(newest))
}

fn own(
    version: LegacyVersion,
    said: &UpstreamIntroduction,
    scratch: &mut Scratch,
    depth_max: usize,
) -> String {
    let result = said.result(scratch, depth_max);
    let capabilities = result.and_then(|result| result.get("capabilities"));
    let capabilities = if let Some(own) = capabilities.filter(|found| found.is_object()) {
        // Those of the modern era may have come with extensions that have no place here.
        let is_taken = |name: &str| {
            matches!(said, UpstreamIntroduction::InLegacy(_))
                || Capability::ALL.iter().any(|known| known.key() == name)
        };
        own.entries()
            .filter_map(|(key, value)| Some((key.decode(own.text())?.into_owned(), value)))
            .filter(|(name, _)| is_taken(name))
            .map(|(name, value)| {
                let settings = announced(&name, value);
                (name, settings)
            })
            .collect()
    } else {
        let mut unseen = Summary::default();
        unseen.assume();
        unseen.capabilities()
    };
    let mut members = members(version, &capabilities);
    match (said, result) {
        (UpstreamIntroduction::InLegacy(_), Some(result)) => {
            for (key, value) in result.entries() {
                let is_ours = ["protocolVersion", "capabilities"];
                if !is_ours.iter().any(|ours| key.equals(result.text(), ours))
                    && let Some(name) = key.decode(result.text())
                {
                    members.push((name.into_owned(), text(value)));
                }
            }
        }
        (_, result) => {
            let info = result
                .and_then(|result| result.get("_meta")?.get("io.modelcontextprotocol/serverInfo"))
                .filter(|info| info.is_object());
            members.push(("serverInfo".to_owned(), info.map_or_else(|| SERVER_INFO.to_owned(), text)));
            if let Some(instructions) = result.and_then(|result| result.get("instructions")) {
                members.push(("instructions".to_owned(), text(instructions)));
            }
        }
    }
    object(&members)
}

fn merged(
    version: LegacyVersion,
    endpoint: &Endpoint,
    said: &[(&Upstream, UpstreamIntroduction)],
    scratch: &mut Scratch,
    depth_max: usize,
) -> String {
    let mut summary = Summary::default();
    for (upstream, said) in said {
        let is_added = match said {
            UpstreamIntroduction::InLegacy(introduction) | UpstreamIntroduction::InModern(introduction) => {
                summary.add(&heading(endpoint, upstream), &introduction.result, scratch, depth_max)
            }
            UpstreamIntroduction::Nothing => false,
        };
        if !is_added {
            summary.assume();
        }
    }
    let mut capabilities = summary.capabilities();
    if version >= LegacyVersion::V2025_11_25
        && let Some(tasks) = summary.tasks()
    {
        capabilities.push(("tasks".to_owned(), tasks.to_owned()));
    }
    let mut members = members(version, &capabilities);
    members.push(("serverInfo".to_owned(), SERVER_INFO.to_owned()));
    if let Some(instructions) = summary.instructions(endpoint.config.instructions.as_deref()) {
        members.push(("instructions".to_owned(), quote(&instructions)));
    }
    object(&members)
}

/// The settings of a capability as the one upstream wrote them. That a list has changed is always told, as the gateway
/// notices it itself.
fn announced(capability: &str, settings: Value<'_>) -> String {
    if !has_list(capability) || settings.kind() != JsonKind::Object {
        return text(settings);
    }
    let others = settings
        .entries()
        .filter(|(key, _)| !key.equals(settings.text(), "listChanged"))
        .filter_map(|(key, value)| Some((key.decode(settings.text())?.into_owned(), text(value))));
    let mut members: Vec<(String, String)> = others.collect();
    members.push(("listChanged".to_owned(), "true".to_owned()));
    object(&members)
}

fn text(value: Value<'_>) -> String {
    String::from_utf8_lossy(value.raw()).into_owned()
}

/// The members of a result object that are the gateway's own in both cases.
fn members(version: LegacyVersion, capabilities: &[(String, String)]) -> Vec<(String, String)> {
    vec![
        ("protocolVersion".to_owned(), quote(version.as_str())),
        ("capabilities".to_owned(), object(capabilities)),
    ]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::facts::EraFacts;

    fn present(version: &str, result: &str) -> Fact {
        let result = result.to_owned().into();
        Fact::Present(Arc::new(EraIntroduction { version: version.into(), result }))
    }

    fn legacy(version: &str, result: &str) -> EraFacts {
        EraFacts { modern: Fact::Unknown, legacy: present(version, result), was_tried: true }
    }

    fn modern(result: &str) -> EraFacts {
        EraFacts { modern: present("2026-07-28", result), legacy: Fact::Unknown, was_tried: true }
    }

    fn nothing() -> EraFacts {
        EraFacts { was_tried: true, ..EraFacts::default() }
    }

    /// The result for an endpoint over upstreams of which this is known.
    async fn of(known: &[EraFacts], requested: &str) -> (LegacyVersion, String) {
        of_bridged(known, requested, true).await
    }

    async fn of_bridged(known: &[EraFacts], requested: &str, is_bridged: bool) -> (LegacyVersion, String) {
        let names: Vec<String> = (0..known.len()).map(|index| format!("\"u{index}\"")).collect();
        let mut text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/\"\nupstreams = [{}]\ninstructions = \"Own.\"\n",
            names.join(",")
        );
        for index in 0..known.len() {
            let url = format!("http://127.0.0.1:{}/", 9000 + index);
            let _ = writeln!(text, "[upstream.u{index}]\nurl = \"{url}\"\nbridge.enabled = {is_bridged}");
        }
        let config = config::parse(&text).expect("a configuration");
        let metrics = Metrics::new(10).expect("metrics");
        let snapshot = Snapshot::build(&config, &metrics, None).expect("a snapshot");
        for (upstream, known) in snapshot.upstreams.iter().zip(known) {
            upstream.facts.publish(known.clone());
        }
        let class = snapshot.endpoints[0].policy.class_of(&crate::identity::Principal::Anonymous);
        result(&snapshot, &snapshot.endpoints[0], &class, requested).await
    }

    const INFO: &str = SERVER_INFO;
    const CHANGES: &str = r#"{"listChanged":true}"#;

    #[tokio::test]
    async fn the_version_is_one_that_both_sides_speak() {
        let (new, old) = (legacy("2025-11-25", "{}"), legacy("2025-03-26", "{}"));
        for (known, requested, expected) in [
            (vec![new.clone()], "2025-11-25", "2025-11-25"),
            (vec![new.clone()], "2024-11-05", "2024-11-05"),
            (vec![new.clone()], "2026-07-28", "2025-11-25"),
            (vec![new.clone()], "", "2025-11-25"),
            (vec![old.clone()], "2025-11-25", "2025-03-26"),
            (vec![old.clone()], "1.0", "2025-03-26"),
            (vec![old.clone()], "2024-11-05", "2024-11-05"),
            (vec![old.clone(), new], "2025-06-18", "2025-06-18"),
            (vec![old, nothing()], "2025-11-25", "2025-03-26"),
            (vec![nothing()], "2025-06-18", "2025-06-18"),
            (vec![modern("{}")], "2025-11-25", "2025-11-25"),
        ] {
            let (version, result) = of(&known, requested).await;
            assert_eq!(version.as_str(), expected, "{requested}");
            assert!(result.starts_with(&format!(r#"{{"protocolVersion":"{expected}","#)), "{result}");
        }
    }

    #[tokio::test]
    async fn one_upstream_speaks_for_itself() {
        let own = r#"{"x":1e400,"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true,"a":[1]},"resources":{"subscribe":true},"tasks":{"list":{}},"logging":{}},"serverInfo":{"name":"é\u0041"},"instructions":"As is."}"#;
        let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"extensions":{"e":{}}},"instructions":"As is.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n"}},"ttlMs":1}"#;
        for (known, expected) in [
            (
                legacy("2025-11-25", own),
                r#""capabilities":{"tools":{"a":[1],"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"tasks":{"list":{}},"logging":{}},"x":1e400,"serverInfo":{"name":"é\u0041"},"instructions":"As is.""#.to_owned(),
            ),
            (
                modern(discovered),
                r#""capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"n"},"instructions":"As is.""#.to_owned(),
            ),
            (
                nothing(),
                format!(r#""capabilities":{{"tools":{CHANGES},"prompts":{CHANGES},"resources":{CHANGES}}},"serverInfo":{INFO}"#),
            ),
        ] {
            let (_, result) = of(&[known], "2025-06-18").await;
            assert_eq!(result, format!(r#"{{"protocolVersion":"2025-06-18",{expected}}}"#));
        }
    }

    #[tokio::test]
    async fn several_are_joined() {
        let first = legacy(
            "2025-11-25",
            r#"{"capabilities":{"prompts":{"listChanged":true},"logging":{},"experimental":{}},"instructions":"A \"quoted\""}"#,
        );
        let second = modern(r#"{"capabilities":{"tools":{},"completions":{}},"instructions":"B"}"#);
        let gone = EraFacts {
            legacy: Fact::Absent,
            ..modern(r#"{"capabilities":{"resources":{}},"instructions":"C"}"#)
        };
        let (_, result) = of_bridged(&[first.clone(), gone.clone()], "2025-11-25", true).await;
        let ends = r#""instructions":"Own.\n\n## u0 (names start with u0__)\n\nA \"quoted\"\n\n## u1 (names start with u1__)\n\nC"}"#;
        assert!(result.contains(r#""resources":{"listChanged":true}"#) && result.ends_with(ends), "{result}");
        let (_, result) = of_bridged(&[first.clone(), gone], "2025-11-25", false).await;
        assert!(!result.contains("resources") && !result.contains("u1"), "{result}");
        let (_, result) = of(&[first.clone(), second], "2025-11-25").await;
        let expected = format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{CHANGES},"prompts":{CHANGES},"completions":{{}},"logging":{{}}}},"serverInfo":{INFO},"instructions":"Own.\n\n## u0 (names start with u0__)\n\nA \"quoted\"\n\n## u1 (names start with u1__)\n\nB"}}"#
        );
        assert_eq!(result, expected);
        let (_, result) = of(&[first, nothing()], "2025-11-25").await;
        let capabilities =
            format!(r#"{{"tools":{CHANGES},"prompts":{CHANGES},"resources":{CHANGES},"logging":{{}}}}"#);
        assert!(result.contains(&capabilities), "{result}");
        let subscribing = modern(r#"{"capabilities":{"resources":{"subscribe":true}}}"#);
        let (_, result) = of(&[nothing(), subscribing], "2025-11-25").await;
        assert!(result.contains(r#""resources":{"subscribe":true,"listChanged":true}"#), "{result}");
    }

    #[tokio::test]
    async fn tasks_are_offered_where_the_revision_has_them() {
        let with_tasks = legacy("2025-11-25", r#"{"capabilities":{"tools":{},"tasks":{ "list":{} }}}"#);
        for (requested, is_offered) in [("2025-11-25", true), ("2025-06-18", false)] {
            let (_, result) = of(&[nothing(), with_tasks.clone()], requested).await;
            assert_eq!(result.contains(r#","tasks":{ "list":{} }}"#), is_offered, "{result}");
        }
    }

    #[tokio::test]
    async fn an_upstream_that_was_never_asked_is_waited_for_a_second() {
        let started = crate::clock::now();
        of(&[EraFacts::default(), EraFacts::default(), nothing()], "2025-11-25").await;
        let waited = crate::clock::since(started);
        assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
        let started = crate::clock::now();
        of(&[nothing()], "2025-11-25").await;
        assert!(crate::clock::since(started) < PATIENCE);
    }
}
