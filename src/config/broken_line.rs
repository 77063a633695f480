//! The part that may be shown of a line in a text that is no TOML. No rule says there where a value ends, so a line is
//! shown as far as its keys and its punctuation go, and the values that are a number, a date, a truth value or a word
//! of the schema. From the first other value on, nothing is.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde_json::Value as Json;

use super::outline::{FREE_NAMES, HIDDEN, is_among, is_quantity, is_shown};
use super::schema::json_schema;

/// Bytes of a key that somebody chose.
const NAME_BYTES_MAX: usize = 32;

/// The number of bytes of the line at `begin` that are shown.
pub(super) fn shown_bytes(text: &str, begin: usize, line: &str) -> usize {
    let before = text.get(..begin).unwrap_or_default();
    let is_open = |quotes: &str| before.matches(quotes).count() % 2 == 1;
    if is_open("\"\"\"") || is_open("'''") {
        return 0;
    }
    let indent = line.len() - line.trim_start().len();
    let said = &line[indent..];
    indent + if said.starts_with('[') { heading(said) } else { Scan { text: said, at: 0 }.run() }
}

/// A heading, of which a name is shown where one may be chosen.
fn heading(line: &str) -> usize {
    let brackets = line.len() - line.trim_start_matches('[').len();
    let path = line[brackets..].split([']', '#']).next().unwrap_or_default();
    if !is_known_path(path.trim_end()) {
        return brackets;
    }
    let rest = &line[brackets + path.len()..];
    line.len() - rest.trim_start_matches(']').trim_start().len()
}

/// A line that is read from its front.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl Scan<'_> {
    /// The line may be shown up to here.
    fn run(mut self) -> usize {
        // For each bracket that is open: whether it is a table, and whether its values are hidden.
        let mut open: Vec<(bool, bool)> = Vec::new();
        let mut is_hidden = false;
        loop {
            let (in_table, hidden_here) = open.last().copied().unwrap_or((true, false));
            if in_table {
                let begin = self.at;
                let Some(hides) = self.key() else { return begin };
                is_hidden = hidden_here || hides;
            }
            match self.next() {
                Some(bracket @ ('{' | '[')) => {
                    self.at += 1;
                    open.push((bracket == '{', is_hidden));
                    self.blanks();
                    continue;
                }
                Some('}' | ']') if !in_table => {}
                Some(_) if self.value(is_hidden) => {}
                _ => return self.at,
            }
            while matches!(self.next(), Some('}' | ']')) && open.pop().is_some() {
                self.at += 1;
                self.blanks();
            }
            if open.is_empty() || self.next() != Some(',') {
                return self.at;
            }
            self.at += 1;
            self.blanks();
            if self.next().is_none() {
                return self.at;
            }
            is_hidden = open.last().is_some_and(|(_, hidden)| *hidden);
        }
    }

    fn next(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Goes past a key that exists and its `=`, and says whether its values are hidden.
    fn key(&mut self) -> Option<bool> {
        let rest = &self.text[self.at..];
        let (key, _) = rest.split_once('=')?;
        let path = key.trim();
        let is_known = is_known_path(path);
        is_known.then_some(())?;
        self.at += key.len() + 1;
        self.blanks();
        Some(path.split('.').any(|key| is_among(key, HIDDEN)))
    }

    /// Goes past a value that may be shown. Of another, past the quote that begins it.
    fn value(&mut self, is_hidden: bool) -> bool {
        let rest = &self.text[self.at..];
        let token = &rest[..rest.find([',', ']', '}', ' ', '\t', '#']).unwrap_or(rest.len())];
        if !is_hidden && is_plain(token) {
            self.at += token.len();
            self.blanks();
            return true;
        }
        self.at += usize::from(token.starts_with(['"', '\'']));
        false
    }
}

/// True if a value, with all or some of its quotes, is a number, a date, a truth value or a word of the schema.
fn is_plain(token: &str) -> bool {
    let quote = ['"', '\''];
    let inner = token.strip_prefix(quote).unwrap_or(token);
    let inner = inner.strip_suffix(quote).unwrap_or(inner);
    let is_of_number = |byte: u8| byte.is_ascii_digit() || b"+-._:TZ".contains(&byte);
    let is_number = inner.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c));
    inner.is_empty() && !token.is_empty()
        || is_number && inner.bytes().all(is_of_number)
        || is_quantity(inner)
        || ["true", "false"].contains(&inner)
        || words().contains(inner)
}

/// The words that values can be.
fn words() -> &'static BTreeSet<String> {
    static WORDS: OnceLock<BTreeSet<String>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words = BTreeSet::new();
        if let Ok(schema) = json_schema().parse() {
            collect(&schema, &mut words);
        }
        words
    })
}

fn collect(json: &Json, words: &mut BTreeSet<String>) {
    match json {
        Json::Object(members) => {
            words.extend(members.get("const").and_then(Json::as_str).map(str::to_owned));
            let listed = members.get("enum").and_then(Json::as_array).into_iter().flatten();
            words.extend(listed.filter_map(Json::as_str).map(str::to_owned));
            members.values().for_each(|member| collect(member, words));
        }
        Json::Array(elements) => elements.iter().for_each(|element| collect(element, words)),
        _ => {}
    }
}

/// True if a path consists of keys that exist, and of names where you choose them.
fn is_known_path(path: &str) -> bool {
    let (mut is_free, mut is_hidden) = (false, false);
    !path.is_empty()
        && path.split('.').all(|key| {
            let is_name = key.len() <= NAME_BYTES_MAX
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            let is_known = !is_hidden && is_name && (is_free || is_shown(key) || is_among(key, HIDDEN));
            // Names below such a key are not those of the schema.
            is_hidden = !is_free && is_among(key, HIDDEN) && !["basic"].contains(&key);
            is_free = !is_free && is_among(key, FREE_NAMES);
            is_known
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_as_far_as_nothing_can_be_a_secret() {
        for (line, shown) in [
            ("bearer = \"hunter2", "bearer = \""),
            ("bearer = hunter2\"", "bearer = "),
            ("bearer = 7355608 x", "bearer = "),
            ("  level = \"warn", "  level = \"warn"),
            ("level = warn\"  # hunter2", "level = warn\"  "),
            ("level = hunter2 warn", "level = "),
            ("workers = 4 x", "workers = 4 "),
            ("address = \"127.0.0.1:80", "address = \"127.0.0.1:80"),
            ("period = 30s", "period = 30s"),
            ("expires = 2027-12-31T00:00:00Z x", "expires = 2027-12-31T00:00:00Z "),
            ("sse = true, hunter2", "sse = true"),
            ("password = true", "password = "),
            ("auth = [\"jwt\", \"api_key]", "auth = [\"jwt\", \"api_key]"),
            ("auth = [jwt, hunter2, jwt]", "auth = [jwt, "),
            ("basic = { user = \"u\", password = \"hunter2 }", "basic = { user = \""),
            ("retry = { ratio = 0.5, tools = [hunter2", "retry = { ratio = 0.5, tools = ["),
            ("certificates = [{ chain = \"/a", "certificates = [{ chain = \""),
            ("hunter2 = 5", ""),
            ("hunter2", ""),
            ("\"hunter2", ""),
            ("# hunter2", ""),
            ("upstream.a.url = \"https://u:hunter2@h", "upstream.a.url = \""),
            ("env.hunter2 = 5", ""),
            ("[upstream.weather", "[upstream.weather"),
            ("[[endpoint] # hunter2", "[[endpoint] "),
            ("[hunter2]", "["),
            ("[upstream.a.env.hunter2]", "["),
            ("", ""),
            ("= 5", ""),
            ("level =", "level ="),
            ("limits = {", "limits = {"),
            ("limits = {}", "limits = {"),
            ("tools = []", "tools = []"),
            ("tools = \"\"", "tools = \"\""),
        ] {
            assert_eq!(&line[..shown_bytes(line, 0, line)], shown, "{line}");
        }
        let text = "instructions = \"\"\"\nlevel = \"warn\"\n";
        assert_eq!(shown_bytes(text, 19, "level = \"warn\""), 0);
    }
}
