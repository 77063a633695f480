//! What an endpoint over several upstreams offers: the union of how they introduced themselves, in either era.
//!
//! A capability is offered if an upstream has it. Of the extensions only those survive that an aggregating endpoint
//! can route. Instructions stand one after another, each under a heading, and are bounded together. Changes of lists
//! are always announced, as the gateway notices them itself.

use protocol::json::{Scratch, Value, quote};

/// The `_meta` of results that the gateway makes itself.
pub(crate) const SERVER_INFO: &str = concat!(
    r#"{"io.modelcontextprotocol/serverInfo":{"name":"trunkline","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// Extensions whose names and ids an aggregating endpoint can route.
const EXTENSIONS: [&str; 2] = ["io.modelcontextprotocol/tasks", "io.modelcontextprotocol/ui"];

/// Together the instructions may be this long.
const INSTRUCTIONS_BYTES_MAX: usize = 64 * 1024;

/// The capabilities of a server, in the order they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Tools,
    Prompts,
    Resources,
    Completions,
    Logging,
}

impl Capability {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Completions, Self::Logging];

    /// The member of `capabilities` that declares it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Completions => "completions",
            Self::Logging => "logging",
        }
    }
}

/// What the upstreams that were added offer together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    offered: [bool; Capability::ALL.len()],
    can_subscribe: bool,
    /// Index into [`EXTENSIONS`], and the settings of the first that has it, as it wrote them.
    extensions: Vec<(usize, String)>,
    tasks: Option<String>,
    instructions: Vec<String>,
}

impl Summary {
    /// Adds an upstream by its result object of `server/discover` or `initialize`. False, and nothing added, if that
    /// is not one.
    pub(crate) fn add(
        &mut self,
        heading: &str,
        result: &[u8],
        scratch: &mut Scratch,
        depth_max: usize,
    ) -> bool {
        let Ok(document) = scratch.index(result, depth_max) else { return false };
        let Some(capabilities) = document.root().get("capabilities") else { return false };
        for (key, value) in capabilities.entries() {
            let known = Capability::ALL.into_iter().find(|known| key.equals(result, known.key()));
            if let Some(known) = known {
                self.offered[known as usize] = true;
            }
            if known == Some(Capability::Resources) {
                self.can_subscribe |= value.get("subscribe").is_some_and(|value| value.raw() == b"true");
            }
        }
        let tasks =
            || capabilities.get("tasks").map(|tasks| String::from_utf8_lossy(tasks.raw()).into_owned());
        self.tasks = self.tasks.take().or_else(tasks);
        if let Some(extensions) = capabilities.get("extensions") {
            self.add_extensions(extensions);
        }
        let instructions = document.root().get("instructions").and_then(Value::as_literal);
        let text = instructions.and_then(|literal| literal.decode(result).map(String::from));
        self.instructions.extend(text.filter(|text| !text.is_empty()).map(|text| format!("{heading}{text}")));
        true
    }

    /// Adds an upstream that was never heard of: it counts as one with tools, prompts and resources.
    pub(crate) fn assume(&mut self) {
        for capability in [Capability::Tools, Capability::Prompts, Capability::Resources] {
            self.offered[capability as usize] = true;
        }
    }

    pub(crate) fn offers(&self, capability: Capability) -> bool {
        self.offered[capability as usize]
    }

    /// What the first upstream that has tasks (2025-11-25) says of them, as it wrote it.
    pub(crate) fn tasks(&self) -> Option<&str> {
        self.tasks.as_deref()
    }

    /// The endpoint's own instructions, then those of the upstreams; bounded.
    pub(crate) fn instructions(&self, own: Option<&str>) -> Option<String> {
        let mut all: Vec<&str> = own.into_iter().collect();
        all.extend(self.instructions.iter().map(String::as_str));
        let mut all = all.join("\n\n");
        all.truncate(all.floor_char_boundary(INSTRUCTIONS_BYTES_MAX));
        Some(all).filter(|all| !all.is_empty())
    }

    pub(crate) fn capabilities(&self) -> Vec<(String, String)> {
        let offered = Capability::ALL.into_iter().filter(|capability| self.offers(*capability));
        let settings = |capability: Capability| match capability {
            Capability::Resources if self.can_subscribe => r#"{"subscribe":true,"listChanged":true}"#,
            _ if has_list(capability.key()) => r#"{"listChanged":true}"#,
            _ => "{}",
        };
        offered.map(|capability| (capability.key().to_owned(), settings(capability).to_owned())).collect()
    }

    fn modern_capabilities(&self) -> String {
        let mut members = self.capabilities();
        if !self.extensions.is_empty() {
            let extensions = self.extensions.iter();
            let extensions =
                extensions.map(|(known, settings)| (EXTENSIONS[*known].to_owned(), settings.clone()));
            members.push(("extensions".to_owned(), object(&extensions.collect::<Vec<_>>())));
        }
        object(&members)
    }

    /// The members of a modern result object that come after `ttlMs`, without the braces around them.
    pub(crate) fn write_modern(
        &self,
        own_instructions: Option<&str>,
        supported: &[&str],
        is_public: bool,
    ) -> String {
        let instructions = self.instructions(own_instructions);
        let instructions =
            instructions.map(|text| format!(r#""instructions":{},"#, quote(&text))).unwrap_or_default();
        format!(
            r#""supportedVersions":{},"capabilities":{},{instructions}"cacheScope":"{}","_meta":{SERVER_INFO}"#,
            versions(supported),
            self.modern_capabilities(),
            if is_public { "public" } else { "private" },
        )
    }

    fn add_extensions(&mut self, extensions: Value<'_>) {
        for (key, settings) in extensions.entries() {
            let known = EXTENSIONS.iter().position(|known| key.equals(extensions.text(), known));
            let known = known.filter(|known| self.extensions.iter().all(|(present, _)| present != known));
            let settings = || String::from_utf8_lossy(settings.raw()).into_owned();
            self.extensions.extend(known.map(|known| (known, settings())));
        }
        self.extensions.sort();
    }
}

/// Whether a capability is that of a list, whose changes are told.
pub(super) fn has_list(capability: &str) -> bool {
    matches!(capability, "tools" | "prompts" | "resources")
}

/// A JSON object with these members, whose values are JSON.
pub(super) fn object(members: &[(String, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", quote(name))).collect();
    format!("{{{}}}", members.join(","))
}

pub(crate) fn versions(versions: &[&str]) -> String {
    let quoted: Vec<String> = versions.iter().map(|version| quote(version)).collect();
    format!("[{}]", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(results: &[(&str, &str)]) -> Summary {
        let mut summary = Summary::default();
        for (heading, result) in results {
            assert!(summary.add(heading, result.as_bytes(), &mut Scratch::default(), 128), "{result}");
        }
        summary
    }

    #[test]
    fn several_are_joined() {
        let joined = summary(&[
            (
                "## a\n\n",
                r#"{"capabilities":{"prompts":{"listChanged":true},"tools":{}},"instructions":"A"}"#,
            ),
            (
                "## b\n\n",
                r#"{"capabilities":{"resources":{"subscribe":true},"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{"x":1},"other":{}}}}"#,
            ),
            ("## c\n\n", r#"{"capabilities":{"resources":{"subscribe":false}},"instructions":""}"#),
        ]);
        let expected = format!(
            r#""supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"extensions":{{"io.modelcontextprotocol/tasks":{{"x":1}}}}}},"instructions":"Own\n\n## a\n\nA","cacheScope":"private","_meta":{SERVER_INFO}"#
        );
        assert_eq!(joined.write_modern(Some("Own"), &["2026-07-28"], false), expected);
        assert!(joined.offers(Capability::Tools) && !joined.offers(Capability::Logging));
    }

    #[test]
    fn what_is_no_introduction_adds_nothing() {
        let mut summary = Summary::default();
        for text in ["", "{}", "[]", r#"{"capabilities":"#] {
            assert!(!summary.add("", text.as_bytes(), &mut Scratch::default(), 128), "{text}");
        }
        assert_eq!(summary.instructions(None), None);
        assert_eq!(summary.modern_capabilities(), "{}");
        summary.assume();
        assert!(summary.offers(Capability::Resources) && !summary.can_subscribe);
    }

    #[test]
    fn instructions_are_bounded() {
        let long =
            format!(r#"{{"capabilities":{{}},"instructions":"{}"}}"#, "é".repeat(INSTRUCTIONS_BYTES_MAX));
        let text = summary(&[("", &long)]).instructions(Some("Own")).expect("instructions");
        assert!(text.starts_with("Own\n\né") && text.len() <= INSTRUCTIONS_BYTES_MAX);
    }
}
