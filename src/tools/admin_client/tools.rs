//! Tools: `/status/tools`, a page at a time. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use super::json::{count, each, flag, known_count, known_text, number, text};

/// Which tools are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Query {
    /// Only of this upstream.
    pub upstream: Option<String>,
    /// Only those with this text in them.
    pub text: String,
    /// What they are sorted by.
    pub sort: Sort,
    /// How many are left out at the beginning.
    pub offset: usize,
    /// How many at most.
    pub count: usize,
}

/// What tools are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sort {
    /// Most calls first.
    #[default]
    Calls,
    /// Most errors first.
    Errors,
    /// Slowest first.
    P99,
    /// By name.
    Name,
}

impl Sort {
    fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::P99 => "p99",
            Self::Name => "name",
        }
    }
}

impl Query {
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

/// A page of tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolsPage {
    /// All tools there are.
    pub total: u64,
    /// How many of them fit the question.
    pub matched: u64,
    /// How many are left out at the beginning.
    pub offset: usize,
    /// Those on this page.
    pub tools: Vec<Tool>,
}

/// A tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    /// Whose it is.
    pub upstream: String,
    /// What its upstream calls it.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// The beginning of it.
    pub description: Option<String>,
    /// Whether it says that it changes nothing.
    pub read_only: Option<bool>,
    /// Whether it says that it may destroy.
    pub destructive: Option<bool>,
    /// How long its definition is.
    pub definition_bytes: Option<u64>,
    /// Calls since the start.
    pub calls: u64,
    /// Those that failed.
    pub errors: u64,
    /// Median latency.
    pub p50_s: Option<f64>,
    /// Latency that one in a hundred calls exceeds.
    pub p99_s: Option<f64>,
    /// In the latest interval.
    pub calls_per_s: Option<f64>,
    /// `pinned`, `changed` or `new`.
    pub pin: Option<String>,
    /// Why no client sees it.
    pub left_out: Option<String>,
    /// Endpoint and name for clients.
    pub public: Vec<(String, String)>,
}

impl ToolsPage {
    /// What the answer says.
    pub fn read(answer: &Value) -> Self {
        let tools = each(answer, "tools", Tool::read);
        Self {
            total: count(answer, "total"),
            matched: known_count(answer, "matched").unwrap_or(tools.len() as u64),
            offset: known_count(answer, "offset").and_then(|at| at.try_into().ok()).unwrap_or_default(),
            tools,
        }
    }
}

impl Tool {
    /// What an entry says.
    pub fn read(of: &Value) -> Self {
        Self {
            upstream: text(of, "upstream"),
            name: text(of, "name"),
            title: known_text(of, "title"),
            description: known_text(of, "description"),
            read_only: flag(of, "read_only"),
            destructive: flag(of, "destructive"),
            definition_bytes: known_count(of, "definition_bytes"),
            calls: count(of, "calls"),
            errors: count(of, "errors"),
            p50_s: number(of, "p50_s"),
            p99_s: number(of, "p99_s"),
            calls_per_s: number(of, "calls_per_s"),
            pin: known_text(of, "pin"),
            left_out: known_text(of, "left_out"),
            public: each(of, "public", |one| (text(one, "endpoint"), text(one, "name"))),
        }
    }
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_cannot_break_out_of_its_value() {
        let query =
            Query { upstream: Some("a&b=c".into()), text: "ü %#\n".into(), count: 50, ..Query::default() };
        let target = query.target();
        assert_eq!(
            target,
            "/status/tools?sort=calls&offset=0&count=50&upstream=a%26b%3Dc&q=%C3%BC%20%25%23%0A"
        );
        assert!(target.parse::<http::Uri>().is_ok());
        assert!(!Query::default().target().contains("q="));
    }

    #[test]
    fn a_page_is_read_whatever_is_in_it() {
        assert_eq!(ToolsPage::read(&json!({})), ToolsPage::default());
        let page = ToolsPage::read(
            &json!({"total": 9, "tools": [7, {"name": "a", "public": [{"name": "b"}], "p99_s": "x"}]}),
        );
        assert_eq!((page.total, page.matched, page.tools.len()), (9, 2, 2));
        assert_eq!(page.tools[1].public, [(String::new(), "b".to_owned())]);
    }
}
