//! The definitions of tools.

use serde_json::Value;

use super::{names, schemas};
use crate::doctor::facts::{Facts, ListKind, Listing, clip};
use crate::doctor::rules::tools as rules;
use crate::doctor::sheet::Sheet;
use client::tool::fit;
use protocol::json::{Document, Scratch};
use protocol::param_headers::annotations;

/// Longer descriptions are paid for with every request; some APIs stop at 1024.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Nesting of a definition, which its reader limits.
const DEPTH_MAX: usize = 128;

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    hidden(facts, sheet);
    calls(facts, sheet);
    let tools: Vec<&Value> = facts.tools().filter(|tool| tool.is_object()).collect();
    if tools.is_empty() {
        return;
    }
    let each = |fault: &dyn Fn(&Value) -> Option<String>| -> Vec<String> {
        tools.iter().filter_map(|tool| Some(format!("{}: {}", name(tool), fault(tool)?))).collect()
    };
    let texts = |fault: &dyn Fn(&str) -> Option<String>| -> Vec<String> {
        tools.iter().filter_map(|tool| fault(tool.get("name")?.as_str()?)).collect()
    };
    sheet.judge(&rules::NAME, texts(&|name| (!names::is_specified(name)).then(|| clip(name, 150))));
    let refused = |name: &str| names::refused_by(name).map(|why| format!("{} {why}", clip(name, 150)));
    sheet.judge(&rules::MODEL_NAME, texts(&refused));
    of_schemas(&tools, sheet);
    sheet.judge(&rules::PARAM_HEADERS, each(&header_fault));
    let described = |tool: &Value| {
        let text = tool.get("description").and_then(Value::as_str).unwrap_or_default();
        text.trim().is_empty().then(|| "no description".to_owned())
    };
    sheet.judge(&rules::DESCRIPTION, each(&described));
    sheet.judge(&rules::DESCRIPTION_LONG, each(&long));
    sheet.judge(&rules::PARAMETERS, each(&undescribed));
    sheet.judge(&rules::ANNOTATIONS, each(&unannotated));
}

/// How a tool is called in a report.
pub(super) fn name(tool: &Value) -> String {
    clip(tool.get("name").and_then(Value::as_str).unwrap_or("a tool without name"), 100)
}

/// Looks at every schema once.
fn of_schemas(tools: &[&Value], sheet: &mut Sheet) {
    let (mut inputs, mut outputs, mut references, mut sizes) = (vec![], vec![], vec![], vec![]);
    for tool in tools {
        let name = name(tool);
        if tool.get("inputSchema").is_none() {
            inputs.push(format!("{name}: no inputSchema"));
        }
        for member in ["inputSchema", "outputSchema"] {
            let Some(schema) = tool.get(member) else { continue };
            let faults = schemas::faults(schema);
            let is_input = member == "inputSchema";
            let not_of_object = || is_input.then(|| schemas::not_of_object(schema)).flatten();
            let seen = if is_input { &mut inputs } else { &mut outputs };
            seen.extend(faults.invalid.or_else(not_of_object).map(|fault| format!("{name}: {fault}")));
            references.extend(faults.reference.map(|fault| format!("{name}: {member} has {fault}")));
            sizes.extend(faults.size.map(|fault| format!("{name}: {member} has {fault}")));
        }
    }
    sheet.judge(&rules::INPUT_SCHEMA, inputs);
    sheet.judge(&rules::OUTPUT_SCHEMA, outputs);
    sheet.judge(&rules::REFERENCES, references);
    sheet.judge(&rules::SCHEMA_SIZE, sizes);
}

/// By the same reading as the gateway's.
fn header_fault(tool: &Value) -> Option<String> {
    let text = tool.to_string();
    let mut scratch = Scratch::default();
    let document = scratch.index(text.as_bytes(), DEPTH_MAX).ok()?;
    annotations(Document::root(document)).err().map(|fault| fault.to_string())
}

fn long(tool: &Value) -> Option<String> {
    let chars = tool.get("description")?.as_str()?.chars().count();
    (chars > DESCRIPTION_CHARS_MAX).then(|| format!("{chars} characters"))
}

fn undescribed(tool: &Value) -> Option<String> {
    let properties = tool.get("inputSchema")?.get("properties")?.as_object()?;
    let is_bare = |property: &Value| {
        let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
        // What a reference leads to may say it.
        text.trim().is_empty() && property.get("$ref").is_none()
    };
    let bare: Vec<_> = properties.iter().filter(|(_, property)| is_bare(property)).collect();
    let shown: Vec<_> = bare.iter().take(5).map(|(name, _)| clip(name, 40)).collect();
    let more = if bare.len() > 5 { ", …" } else { "" };
    (!bare.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

fn unannotated(tool: &Value) -> Option<String> {
    let annotations = tool.get("annotations").filter(|annotations| annotations.is_object());
    let hint = |key: &str| annotations.and_then(|annotations| annotations.get(key)?.as_bool());
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (None, None) => Some("no hints".to_owned()),
        (Some(false), None) => Some("writes, and does not say whether it destroys".to_owned()),
        _ => None,
    }
}

/// In what people review and models read.
fn hidden(facts: &Facts, sheet: &mut Sheet) {
    let mut seen = Vec::new();
    let mut is_judged = false;
    if let Some(instructions) =
        facts.introduction().and_then(|introduction| introduction.instructions.as_deref())
    {
        is_judged = true;
        let found = names::hidden(instructions);
        if !found.is_empty() {
            seen.push(format!("the server's instructions: {}", found.join(", ")));
        }
    }
    for kind in ListKind::ALL {
        for item in facts.listing(kind).into_iter().flat_map(Listing::items) {
            is_judged = true;
            let mut found = Vec::new();
            strings(item, &mut |text| found.extend(names::hidden(text)));
            found.sort();
            found.dedup();
            found.truncate(4);
            if !found.is_empty() {
                let key = item.get(kind.key()).and_then(Value::as_str).unwrap_or_default();
                seen.push(format!("{} {}: {}", kind.member(), clip(key, 100), found.join(", ")));
            }
        }
    }
    if is_judged {
        sheet.judge(&rules::HIDDEN, seen);
    }
}

fn strings(value: &Value, take: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => take(text),
        Value::Array(values) => values.iter().for_each(|value| strings(value, take)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            take(key);
            strings(value, take);
        }),
        _ => {}
    }
}

fn calls(facts: &Facts, sheet: &mut Sheet) {
    if facts.called.calls.is_empty() {
        return;
    }
    let (mut failures, mut misfits) = (Vec::new(), Vec::new());
    for call in &facts.called.calls {
        match &call.outcome {
            Err(why) => failures.push(format!("{}: {why}", clip(&call.tool, 100))),
            Ok(result) if result.get("isError") == Some(&Value::Bool(true)) => {
                let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
                failures.push(format!("{}: isError: {}", clip(&call.tool, 100), clip(text, 200)));
            }
            Ok(result) => misfits.extend(misfit(facts, &call.tool, result)),
        }
    }
    failures.dedup();
    misfits.dedup();
    sheet.judge(&rules::CALL, failures);
    sheet.judge(&rules::CALL_SCHEMA, misfits);
}

fn misfit(facts: &Facts, tool: &str, result: &Value) -> Option<String> {
    let schema = facts.tools().find(|entry| entry.get("name").and_then(Value::as_str) == Some(tool))?;
    let schema = schema.get("outputSchema")?;
    let Some(content) = result.get("structuredContent") else {
        return Some(format!("{tool}: there is an outputSchema, but no structuredContent"));
    };
    // One that is no schema has a rule of its own.
    let faults = fit::faults(schema, content).ok()?;
    Some(format!("{tool}: {}", clip(faults.first()?, 240)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::doctor::facts::{CalledTools, ListEnd, ListPage, ToolCall};
    use protocol::version::Era;

    fn broken(tools: &Value, calls: Vec<ToolCall>) -> Vec<&'static str> {
        let items = tools.as_array().cloned().unwrap_or_default();
        let pages = vec![ListPage { items, ttl_ms: None, scope: None }];
        let listing =
            Listing { kind: ListKind::Tools, era: Era::Modern, session: 0, pages, end: ListEnd::Complete };
        let called = CalledTools { calls, ..CalledTools::default() };
        let facts = Facts { listings: vec![listing], called, ..Facts::default() };
        let mut sheet = Sheet::default();
        check(&facts, &mut sheet);
        sheet.outcomes.iter().filter(|outcome| !outcome.is_kept).map(|outcome| outcome.rule.id).collect()
    }

    fn tool(change: &Value) -> Value {
        let mut tool = json!({
            "name": "get_weather", "description": "Says the weather.",
            "inputSchema": {"type": "object", "properties": {"city": {"type": "string", "description": "Where."}}},
            "annotations": {"readOnlyHint": true},
        });
        for (key, value) in change.as_object().unwrap() {
            tool[key] = value.clone();
        }
        tool
    }

    #[test]
    fn each_fault_of_a_definition_breaks_its_rule() {
        let annotated = |kind: &str| {
            json!({"inputSchema": {"type": "object", "properties": {
                "a": {"type": kind, "description": "A.", "x-mcp-header": "Region"}}}})
        };
        for (change, expected) in [
            (json!({}), vec![]),
            (json!({"name": "get weather"}), vec!["name", "model-name"]),
            (json!({"name": "a.b"}), vec!["model-name"]),
            (json!({"description": " "}), vec!["description"]),
            (json!({"description": "x".repeat(2000)}), vec!["long-description"]),
            (json!({"description": "a\u{e0041}"}), vec!["hidden-characters"]),
            (json!({"annotations": {"readOnlyHint": false}}), vec!["annotations"]),
            (json!({"annotations": 7}), vec!["annotations"]),
            (json!({"inputSchema": {"type": "array"}}), vec!["input-schema"]),
            (json!({"inputSchema": null}), vec!["input-schema"]),
            (json!({"outputSchema": {"type": 7}}), vec!["output-schema"]),
            (json!({"outputSchema": {"$ref": "https://example.com/s"}}), vec!["remote-references"]),
            (json!({"inputSchema": {"type": "object", "properties": {"a": {}}}}), vec!["parameters"]),
            (annotated("string"), vec![]),
            (annotated("number"), vec!["x-mcp-header"]),
        ] {
            assert_eq!(broken(&json!([tool(&change)]), vec![]), expected, "{change}");
        }
    }

    #[test]
    fn a_call_is_judged_by_its_result() {
        let tools = json!([tool(&json!({"outputSchema": {"type": "object", "required": ["c"]}}))]);
        let call = |outcome: Result<Value, &str>| {
            let outcome = outcome.map_err(str::to_owned);
            vec![ToolCall { tool: "get_weather".to_owned(), outcome, took: Duration::ZERO }]
        };
        for (outcome, expected) in [
            (Ok(json!({"structuredContent": {"c": 7}})), vec![]),
            (Ok(json!({"structuredContent": {}})), vec!["call-schema"]),
            (Ok(json!({"content": []})), vec!["call-schema"]),
            (Ok(json!({"isError": true})), vec!["call"]),
            (Err("the connection broke"), vec!["call"]),
        ] {
            assert_eq!(broken(&tools, call(outcome.clone())), expected, "{outcome:?}");
        }
    }
}
