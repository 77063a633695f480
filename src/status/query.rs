//! What is asked of a list of tools: the query of a URL in, a question or what is wrong with it out. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Tools in one answer, at most.
const COUNT_MAX: usize = 200;
/// Tools in one answer where nothing is said.
const COUNT_DEFAULT: usize = 50;
/// The longest text that is searched for, in characters.
const TEXT_CHARS_MAX: usize = 200;
/// Characters of an unknown parameter that an error shows.
const NAME_CHARS_MAX: usize = 64;
const PARAMETERS: &str = "there is upstream, q, sort, offset and count";
const SORTS: &str = "sort is calls, errors, p99 or name";

/// Which tools are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsQuery {
    /// Those of this upstream alone.
    pub upstream: Option<String>,
    /// Those with this text in them, whatever the case of its letters; empty: all.
    pub text: String,
    /// Which come first.
    pub sort: ToolsSort,
    /// How many to leave out at the beginning.
    pub offset: usize,
    /// How many at most.
    pub count: usize,
}

/// Which tools come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolsSort {
    /// Those most called.
    #[default]
    Calls,
    /// Those that failed most often.
    Errors,
    /// The slowest.
    P99,
    /// By the names of upstream and tool.
    Name,
}

impl ToolsQuery {
    /// Reads what stands behind the question mark. The error is a line for whoever wrote it.
    pub fn read(query: &str) -> Result<Self, String> {
        let mut read = Self { count: COUNT_DEFAULT, ..Self::default() };
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            match &*name {
                "upstream" => read.upstream = Some(value.into_owned()),
                "q" if value.chars().count() > TEXT_CHARS_MAX => {
                    return Err(format!("q has at most {TEXT_CHARS_MAX} characters"));
                }
                "q" => read.text = value.to_lowercase(),
                "sort" => read.sort = ToolsSort::read(&value).ok_or(SORTS)?,
                "offset" => read.offset = number(&value).ok_or("offset is a number from 0 on")?,
                "count" => {
                    let count = number(&value).filter(|count| (1..=COUNT_MAX).contains(count));
                    read.count = count.ok_or_else(|| format!("count is a number from 1 to {COUNT_MAX}"))?;
                }
                _ => {
                    let short: String = name.chars().take(NAME_CHARS_MAX).collect();
                    return Err(format!("{PARAMETERS}, but no {short:?}"));
                }
            }
            if seen.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            seen.push(name);
        }
        Ok(read)
    }

    /// What to GET.
    pub fn target(&self) -> String {
        let sort = self.sort.word();
        let mut target = format!("/status/tools?sort={sort}&offset={}&count={}", self.offset, self.count);
        for (name, value) in [("upstream", self.upstream.as_deref()), ("q", Some(self.text.as_str()))] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = write!(target, "&{name}={}", encoded(value));
            }
        }
        target
    }
}

impl ToolsSort {
    /// Every way to sort.
    pub const ALL: [Self; 4] = [Self::Calls, Self::Errors, Self::P99, Self::Name];

    fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }

    fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.word() == word)
    }
}

/// Digits alone: no sign.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// As forms write it: `%20`, and `+` for a space.
fn decoded(text: &str) -> Result<Cow<'_, str>, String> {
    if !text.contains(['%', '+']) {
        return Ok(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digit = |at: usize| rest.get(at).and_then(|digit| char::from(*digit).to_digit(16));
                let (high, low) = digit(0).zip(digit(1)).ok_or("% begins two hexadecimal digits")?;
                rest = rest.get(2..).unwrap_or_default();
                u8::try_from(high * 16 + low).unwrap_or_default()
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| "it is not UTF-8".to_owned())
}

/// `text` as a value in a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain() -> ToolsQuery {
        ToolsQuery { count: 50, ..ToolsQuery::default() }
    }

    #[test]
    fn questions_are_read() {
        for (query, expected) in [
            ("", plain()),
            ("&&", plain()),
            ("upstream=a", ToolsQuery { upstream: Some("a".to_owned()), ..plain() }),
            ("q=New+Y%6Frk%3D%C3%A4", ToolsQuery { text: "new york=ä".to_owned(), ..plain() }),
            ("q=a=b&sort=name", ToolsQuery { text: "a=b".to_owned(), sort: ToolsSort::Name, ..plain() }),
            ("q=", plain()),
            (
                "offset=7&count=200&sort=p99",
                ToolsQuery { offset: 7, count: 200, sort: ToolsSort::P99, ..plain() },
            ),
            ("sort=errors", ToolsQuery { sort: ToolsSort::Errors, ..plain() }),
        ] {
            assert_eq!(ToolsQuery::read(query), Ok(expected), "{query}");
        }
    }

    #[test]
    fn a_question_cannot_break_out_of_its_value() {
        let query =
            ToolsQuery { upstream: Some("a&b=c".into()), text: "ü %#\n".into(), count: 50, ..plain() };
        let expected = "/status/tools?sort=calls&offset=0&count=50&upstream=a%26b%3Dc&q=%C3%BC%20%25%23%0A";
        assert_eq!(query.target(), expected);
        assert!(!plain().target().contains("q="));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("q={}", "x".repeat(201));
        for (query, expected) in [
            ("limit=5", "there is upstream, q, sort, offset and count, but no \"limit\""),
            ("%1b%5b31m=5", "there is upstream, q, sort, offset and count, but no \"\\u{1b}[31m\""),
            ("sort=speed", "sort is calls, errors, p99 or name"),
            ("sort", "sort is calls, errors, p99 or name"),
            ("count=0", "count is a number from 1 to 200"),
            ("count=201", "count is a number from 1 to 200"),
            ("count=%2B5", "count is a number from 1 to 200"),
            ("count=5&count=6", "count is there twice"),
            ("offset=-1", "offset is a number from 0 on"),
            ("offset=", "offset is a number from 0 on"),
            ("offset=99999999999999999999999", "offset is a number from 0 on"),
            ("q=%", "% begins two hexadecimal digits"),
            ("q=%4", "% begins two hexadecimal digits"),
            ("q=%+1", "% begins two hexadecimal digits"),
            ("q=%ff", "it is not UTF-8"),
            (&*long, "q has at most 200 characters"),
        ] {
            assert_eq!(ToolsQuery::read(query), Err(expected.to_owned()), "{query}");
        }
    }

    proptest! {
        #[test]
        fn nothing_harms(query in "[a-z=&%+0-9A-F]{0,60}|\\PC{0,40}") {
            if let Ok(read) = ToolsQuery::read(&query) {
                prop_assert!((1..=COUNT_MAX).contains(&read.count));
            }
        }

        #[test]
        fn what_is_written_is_read(
            upstream in prop::option::of("\\PC{1,40}"),
            text in "\\PC{0,40}",
            sort in prop::sample::select(&ToolsSort::ALL[..]),
            offset in any::<usize>(),
            count in 1..=COUNT_MAX,
        ) {
            let written = ToolsQuery { upstream, text: text.to_lowercase(), sort, offset, count };
            let target = written.target();
            prop_assert!(target.bytes().all(|byte| byte.is_ascii_graphic()), "{}", target);
            let (_, query) = target.split_once('?').expect("there is a query");
            prop_assert_eq!(ToolsQuery::read(query), Ok(written));
        }
    }
}
