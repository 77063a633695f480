//! What is asked of a list of tools: the query of a URL in, a question or what is wrong with it out. Pure.

use std::borrow::Cow;

/// Tools in one answer, at most.
const COUNT_MAX: usize = 200;
/// Tools in one answer where nothing is said.
const COUNT_DEFAULT: usize = 50;
/// The longest text that is searched for, in characters.
const TEXT_CHARS_MAX: usize = 200;
const PARAMETERS: &str = "there is upstream, q, sort, offset and count";
const SORTS: &str = "sort is calls, errors, p99 or name";

/// Which tools are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Those of this upstream alone.
    pub(super) upstream: Option<String>,
    /// Those with this text in them, in small letters; empty: all.
    pub(super) text: String,
    /// Which come first.
    pub(super) sort: Sort,
    /// How many to leave out.
    pub(super) offset: usize,
    /// How many to tell of.
    pub(super) count: usize,
}

/// Which tools come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
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

impl Query {
    /// Reads what stands behind the question mark. The error is a line for whoever wrote it.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut read = Self {
            upstream: None,
            text: String::new(),
            sort: Sort::default(),
            offset: 0,
            count: COUNT_DEFAULT,
        };
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
                "sort" => read.sort = Sort::read(&value).ok_or(SORTS)?,
                "offset" => read.offset = number(&value).ok_or("offset is a number from 0 on")?,
                "count" => {
                    let count = number(&value).filter(|count| (1..=COUNT_MAX).contains(count));
                    read.count = count.ok_or_else(|| format!("count is a number from 1 to {COUNT_MAX}"))?;
                }
                _ => return Err(format!("{PARAMETERS}, but no {}", shown(&name))),
            }
            if seen.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            seen.push(name);
        }
        Ok(read)
    }
}

impl Sort {
    fn read(text: &str) -> Option<Self> {
        match text {
            "calls" => Some(Self::Calls),
            "errors" => Some(Self::Errors),
            "p99" => Some(Self::P99),
            "name" => Some(Self::Name),
            _ => None,
        }
    }
}

/// A stranger's text in an answer: short, and nothing in it but what can be seen.
pub(super) fn shown(text: &str) -> String {
    let short: String = text.chars().take(64).collect();
    format!("\"{}\"", short.escape_debug())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain() -> Query {
        Query { upstream: None, text: String::new(), sort: Sort::Calls, offset: 0, count: 50 }
    }

    #[test]
    fn questions_are_read() {
        for (query, expected) in [
            ("", plain()),
            ("&&", plain()),
            ("upstream=a", Query { upstream: Some("a".to_owned()), ..plain() }),
            ("q=New+Y%6Frk%3D%C3%A4", Query { text: "new york=ä".to_owned(), ..plain() }),
            ("q=a=b&sort=name", Query { text: "a=b".to_owned(), sort: Sort::Name, ..plain() }),
            ("q=", plain()),
            ("offset=7&count=200&sort=p99", Query { offset: 7, count: 200, sort: Sort::P99, ..plain() }),
            ("sort=errors", Query { sort: Sort::Errors, ..plain() }),
        ] {
            assert_eq!(Query::read(query), Ok(expected), "{query}");
        }
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
            assert_eq!(Query::read(query), Err(expected.to_owned()), "{query}");
        }
    }

    proptest! {
        #[test]
        fn nothing_harms(query in "[a-z=&%+0-9A-F]{0,60}|\\PC{0,40}") {
            if let Ok(read) = Query::read(&query) {
                prop_assert!((1..=COUNT_MAX).contains(&read.count));
            }
        }

        #[test]
        fn what_is_encoded_comes_back(text in "\\PC{0,40}") {
            let encoded = text.bytes().fold(String::new(), |encoded, byte| encoded + &format!("%{byte:02x}"));
            let query = Query::read(&format!("upstream={encoded}")).expect("it is well written");
            prop_assert_eq!(query.upstream, Some(text));
        }
    }
}
