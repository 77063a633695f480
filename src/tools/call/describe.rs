//! Tools in words. Pure: the text that is printed, with colours that `anstream` takes away where they are not wanted.

use std::fmt::Write as _;

use crate::terminal::paint::{FAINT, STRONG, USE, WARNING, painted};
use crate::terminal::width;
use client::Introduction;
use client::tool::flags::{self, ArgKind, Flag};
use client::tool::words::said;
use client::tool::{Tool, fit};
use protocol::text::{columns, fit as cut, shown, shown_lines, wrapped};

/// How much of a description stands in a list.
const SUMMARY_COLUMNS_MAX: usize = 200;
/// How many values of a flag are shown in a line.
const CHOICES_SHOWN: usize = 6;
/// How many are listed below it.
const CHOICES_LISTED: usize = 50;

/// The tools of a server, each with its first line and its flags.
pub(super) fn list(server: &Introduction, tools: &[Tool]) -> String {
    let mut text = String::new();
    let name = server.title.as_deref().or(server.name.as_deref()).unwrap_or("a server without a name");
    let version = server.server_version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
    let count = match tools.len() {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    let line = format!("{}, MCP {}, {count}", shown(&version), server.version);
    push(&mut text, &format!("{}{}", painted(STRONG, shown(name)), line));
    for tool in tools {
        push(&mut text, "");
        push(&mut text, &painted(USE, shown(&tool.name)));
        if let Some(summary) = summary(tool) {
            for line in wrapped(&cut(&summary, SUMMARY_COLUMNS_MAX), width() - 4) {
                push(&mut text, &format!("    {line}"));
            }
        }
        let usage: Vec<String> = tool.flags.iter().map(usage).collect();
        for line in filled(&usage, width() - 4) {
            push(&mut text, &format!("    {}", painted(FAINT, line)));
        }
    }
    text
}

pub(super) fn tool(tool: &Tool, address: &str) -> String {
    let mut text = String::new();
    let title = tool.title.as_deref().filter(|title| *title != tool.name);
    let title = title.map(|title| format!("  {}", shown(title))).unwrap_or_default();
    push(&mut text, &format!("{}{title}", painted(STRONG, shown(&tool.name))));
    if let Some(description) = &tool.description {
        paragraph(&mut text, &shown_lines(description));
    }
    push(&mut text, "");
    heading(&mut text, "Arguments");
    if tool.flags.is_empty() {
        push(&mut text, "  none");
    }
    for flag in &tool.flags {
        describe(&mut text, flag);
    }
    let effects = tool.effects();
    if !effects.is_empty() {
        push(&mut text, "");
        heading(&mut text, "Effects, by its own word");
        push(&mut text, &format!("  {}", effects.join(", ")));
    }
    if let Some(schema) = tool.output_schema() {
        push(&mut text, "");
        heading(&mut text, "Structured result");
        let fields = flags::of(schema);
        if fields.is_empty() {
            push(&mut text, &format!("  {}", shown(&schema.to_string())));
        }
        for field in &fields {
            let kind = words(&field.kind);
            let about = field.description.as_deref().map(|about| format!("  {}", shown(about)));
            let line = format!("  {}  {kind}{}", shown(&field.name()), about.unwrap_or_default());
            push(&mut text, &cut(&line, width()));
        }
    }
    if let Some(schema) = tool.input_schema()
        && let Some(unusable) = fit::unusable(schema)
    {
        push(&mut text, "");
        push(&mut text, &painted(WARNING, format!("warning: {}", shown(&unusable.to_string()))));
    }
    push(&mut text, "");
    heading(&mut text, "Try");
    push(&mut text, &format!("  {}", painted(USE, example(tool, address))));
    text
}

/// A call with all that is required.
fn example(tool: &Tool, address: &str) -> String {
    let required = tool.flags.iter().filter(|flag| flag.is_required).map(typed);
    let words: Vec<String> = std::iter::once(word(&tool.name)).chain(required).collect();
    match address.strip_prefix("-- ") {
        Some(program) => format!("trunkline call {} -- {}", words.join(" "), shown(program)),
        None => format!("trunkline call {} {}", shown(address), words.join(" ")),
    }
}

fn describe(text: &mut String, flag: &Flag) {
    let mut about = Vec::new();
    if flag.is_required {
        about.push("required".to_owned());
    }
    if matches!(flag.kind, ArgKind::Many(_)) {
        about.push("may be given more than once".to_owned());
    }
    about.extend(flag.default.as_ref().map(|default| format!("default {}", cut(&shown(&said(default)), 40))));
    about.extend(flag.bounds.iter().map(|bound| cut(&shown(bound), 60).into_owned()));
    if flag.choices.len() > CHOICES_SHOWN {
        let mut choices: Vec<String> =
            flag.choices.iter().map(|choice| shown(&said(choice))).take(CHOICES_LISTED).collect();
        if flag.choices.len() > CHOICES_LISTED {
            choices.push(format!("and {} more", flag.choices.len() - CHOICES_LISTED));
        }
        about.push(format!("one of {}", choices.join(", ")));
    }
    let about = about.join("; ");
    let typed = typed(flag);
    let gap = 28_usize.saturating_sub(columns(&typed)).max(2);
    let lines = wrapped(&about, width().saturating_sub(30).max(10));
    let mut lines = lines.iter();
    let first = lines.next().map(String::as_str).unwrap_or_default();
    let gap = if first.is_empty() { String::new() } else { " ".repeat(gap) };
    push(text, &format!("  {}{gap}{}", painted(USE, &typed), painted(FAINT, first)));
    for line in lines {
        push(text, &format!("{}{}", " ".repeat(30), painted(FAINT, line)));
    }
    if let Some(description) = &flag.description {
        for line in wrapped(&shown_lines(description), width() - 6) {
            push(text, &format!("      {line}"));
        }
    }
}

/// A flag as it is typed, with what stands for its value.
fn typed(flag: &Flag) -> String {
    let name = word(&flag.name());
    let few = !flag.choices.is_empty() && flag.choices.len() <= CHOICES_SHOWN;
    let value = if few {
        let choices: Vec<String> = flag.choices.iter().map(|choice| word(&said(choice))).collect();
        Some(choices.join("|"))
    } else {
        flag.placeholder().map(str::to_owned)
    };
    match value {
        Some(value) => format!("--{name} {value}"),
        None => format!("--{name}"),
    }
}

/// The same for a list: what may be left out stands in brackets.
fn usage(flag: &Flag) -> String {
    let typed = typed(flag);
    let more = if matches!(flag.kind, ArgKind::Many(_)) { "…" } else { "" };
    if flag.is_required { format!("{typed}{more}") } else { format!("[{typed}{more}]") }
}

/// Pieces side by side, in lines of at most so many columns unless one is longer.
fn filled(pieces: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if columns(line) + 2 + columns(piece) <= width => {
                line.push_str("  ");
                line.push_str(piece);
            }
            _ => lines.push(cut(piece, width).into_owned()),
        }
    }
    lines
}

/// A name as one word of a shell.
fn word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", shown(name).replace('\'', r"'\''"))
    }
}

fn words(kind: &ArgKind) -> String {
    match kind {
        ArgKind::Text => "text".to_owned(),
        ArgKind::Number => "number".to_owned(),
        ArgKind::Integer => "integer".to_owned(),
        ArgKind::Boolean => "true or false".to_owned(),
        ArgKind::Many(item) => match &**item {
            ArgKind::Json | ArgKind::Any | ArgKind::Many(_) => "list".to_owned(),
            item => format!("list of {}", words(item)),
        },
        ArgKind::Json => "object".to_owned(),
        ArgKind::Any => "any".to_owned(),
    }
}

fn summary(tool: &Tool) -> Option<String> {
    let description = tool.description.as_deref().or(tool.title.as_deref())?;
    description.lines().map(str::trim).find(|line| !line.is_empty()).map(shown)
}

fn heading(text: &mut String, heading: &str) {
    push(text, &painted(STRONG, heading));
}

fn paragraph(text: &mut String, paragraph: &str) {
    for line in wrapped(paragraph, width() - 2) {
        push(text, format!("  {line}").trim_end());
    }
}

fn push(text: &mut String, line: &str) {
    let _ = writeln!(text, "{line}"); // writing to a string cannot fail
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_tool_is_described_in_full() {
        let forecast = Tool::read(&json!({
            "name": "forecast",
            "title": "Forecast",
            "description": "The weather\nof some days.",
            "inputSchema": {"properties": {
                "city": {"type": "string", "description": "Where"},
                "days": {"type": "integer", "default": 3, "minimum": 1},
                "units": {"enum": ["metric", "imperial"]},
                "odd name": {"type": "array"},
            }, "required": ["city"]},
            "annotations": {"readOnlyHint": true},
            "outputSchema": {"properties": {"days": {"type": "array", "items": {"type": "object"}}}},
        }));
        let text = plain(&tool(&forecast.unwrap(), "http://a/mcp"));
        let expected = "\
forecast  Forecast
  The weather
  of some days.

Arguments
  --city TEXT                 required
      Where
  --days INTEGER              default 3; at least 1
  --units metric|imperial
  --'odd name' VALUE          may be given more than once

Effects, by its own word
  reads only

Structured result
  days  list

Try
  trunkline call http://a/mcp forecast --city TEXT
";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_hostile_reaches_the_terminal() {
        let hostile = "a\u{1b}[2J\u{202e}\n\rb";
        let tool = Tool::read(&json!({
            "name": hostile, "title": hostile, "description": hostile,
            "inputSchema": {"properties": {hostile: {"description": hostile, "default": hostile,
                "enum": [hostile], "pattern": hostile}}, "required": [hostile]},
            "outputSchema": {"properties": {hostile: {"type": "string", "title": hostile}}},
        }));
        let tool = tool.unwrap();
        let introduction = Introduction {
            era: protocol::version::Era::Modern,
            version: "2026-07-28".into(),
            supported: vec![],
            name: Some(hostile.into()),
            title: None,
            server_version: Some(hostile.into()),
            capabilities: json!({}),
            instructions: None,
            result: json!({}),
        };
        for text in [super::tool(&tool, "http://a/mcp"), list(&introduction, &[tool])] {
            let text = plain(&text);
            assert_eq!(shown_lines(&text), text);
            assert!(text.contains("\\u{1b}"), "{text}");
        }
    }
}
