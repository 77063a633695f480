//! The names of upstreams: short, since they stand before the name of each tool; the same whatever else is in the file; and
//! valid.

use std::collections::BTreeMap;

use super::sensitive::looks_like_secret;

/// Bytes of an upstream's name.
pub(super) const NAME_BYTES_MAX: usize = 32;

/// The number of servers that would have each short name.
#[derive(Debug, Default)]
pub(super) struct ShortNames(BTreeMap<String, usize>);

impl ShortNames {
    pub(super) fn of<'n>(originals: impl Iterator<Item = &'n str>) -> Self {
        let mut wanted = BTreeMap::new();
        for original in originals {
            *wanted.entry(short(&valid(original))).or_default() += 1;
        }
        Self(wanted)
    }

    /// The name for an entry: the short one, unless another entry could have it as well.
    pub(super) fn name(&self, original: &str) -> String {
        let long = valid(original);
        let short = short(&long);
        if self.0.get(&short).is_none_or(|wanted| *wanted <= 1) { short } else { long }
    }
}

/// Without the words that say what all of them are.
fn short(name: &str) -> String {
    let mut words: Vec<&str> = name.split('-').collect();
    let is_common = |word: &&&str| ["mcp", "server", "servers"].contains(*word);
    let last = words.iter().rev().take_while(is_common).count();
    if last < words.len() && words[words.len() - last..].contains(&"mcp") {
        words.truncate(words.len() - last);
    }
    let first = words.iter().take_while(is_common).count();
    if first < words.len() {
        words.drain(..first);
    }
    let short = words.join("-");
    if short.starts_with(|c: char| c.is_ascii_lowercase()) { short } else { name.to_owned() }
}

/// A valid name: a lower-case letter, then up to 31 of a-z, 0-9 and -. Of `scope/name`, as packages are called, the scope
/// is left out.
fn valid(original: &str) -> String {
    let mut name = String::new();
    let shown = if looks_like_secret(original) { "" } else { original };
    let shown =
        shown.rsplit('/').find(|part| part.contains(|c: char| c.is_ascii_alphanumeric())).unwrap_or(shown);
    for c in shown.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => name.push(c),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let name = name.trim_matches('-');
    let name = if name.is_empty() {
        "server".to_owned()
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("server-{name}")
    } else {
        name.to_owned()
    };
    name[..name.len().min(NAME_BYTES_MAX)].trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_no_two_are_the_same() {
        for (originals, expected) in [
            (&["azure-mcp-server"][..], &["azure"][..]),
            (&["mcp-server-azure", "GitHub MCP Server"], &["azure", "github"]),
            (&["@upstash/context7-mcp", "io.github.getsentry/sentry-mcp"], &["context7", "sentry"]),
            (&["@modelcontextprotocol/server-filesystem"], &["filesystem"]),
            (&["mcp-server-for-notes", "notes-mcp-2"], &["for-notes", "notes-mcp-2"]),
            (
                &["my-server", "mcp", "mcp-server", "server", "servers/"],
                &["my-server", "mcp", "mcp-server", "server", "servers"],
            ),
            (&["mcp-9lives"], &["mcp-9lives"]),
            // Whatever their order, one of these has the short name.
            (&["azure-mcp-server", "azure"], &["azure-mcp-server", "azure"]),
            (&["azure", "azure-mcp-server"], &["azure", "azure-mcp-server"]),
            (&["azure-mcp", "mcp-azure"], &["azure-mcp", "mcp-azure"]),
        ] {
            let names = ShortNames::of(originals.iter().copied());
            let found: Vec<String> = originals.iter().map(|original| names.name(original)).collect();
            assert_eq!(found, expected, "{originals:?}");
        }
    }
}
