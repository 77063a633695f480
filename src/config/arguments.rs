//! Arguments of tools, as rules and limits name them.

use serde_json::{Value as Json, json};
use toml::de::{DeFloat, DeInteger, DeValue};

use super::findings::{Findings, Node};
use super::policy::Effect;
use super::schema::Definitions;
use super::table::Table;
use super::value::{Setting, choice};
use protocol::arguments::{ArgumentPath, ArgumentValue, CallArguments};

choice! {
    /// What becomes of a call that lacks an argument which decides, or has it in another type.
    pub enum MissingArgument {
        /// It is refused.
        Refuse = "refuse",
        /// It passes as if the argument decided nothing.
        Allow = "allow",
    }
}

/// What an argument must be: any of these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentCondition {
    /// Where it stands.
    pub path: ArgumentPath,
    /// At least one.
    pub values: Vec<ArgumentValue>,
}

/// Whether arguments are what a condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentFit {
    /// They are.
    Fits,
    /// They are something else.
    Differs,
    /// There is no such argument, or it has another type.
    Missing,
}

impl ArgumentCondition {
    /// Whether these arguments are what it says. To what is denied belongs what some reader may take for it.
    pub fn fit(&self, arguments: &CallArguments<'_>, effect: Effect) -> ArgumentFit {
        let Some(value) = arguments.at(&self.path) else { return ArgumentFit::Missing };
        let fits = |wanted: &ArgumentValue| match effect {
            Effect::Allow => wanted == value,
            Effect::Deny => wanted.may_be(value),
        };
        match self.values.iter().any(fits) {
            true => ArgumentFit::Fits,
            false if self.values.iter().any(|wanted| wanted.is_like(value)) => ArgumentFit::Differs,
            false => ArgumentFit::Missing,
        }
    }
}

/// Conditions as a table: the names of arguments, one within the other, with a value or an array of them.
#[derive(Debug)]
pub struct ArgumentConditions;

impl Setting for ArgumentConditions {
    type Out = Vec<ArgumentCondition>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        let mut conditions = Vec::new();
        read_table(node, &mut Vec::new(), &mut conditions, findings)?;
        conditions.sort_by(|one, other| one.path.cmp(&other.path));
        Some(conditions)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let value = json!({ "type": ["string", "number", "boolean"] });
        let values = json!({ "type": "array", "items": value, "minItems": 1 });
        let nested = json!({ "$ref": "#/$defs/Arguments" });
        let any = json!({ "anyOf": [value, values, nested] });
        definitions
            .named("Arguments", json!({ "type": "object", "minProperties": 1, "additionalProperties": any }))
    }
}

fn read_table(
    node: &Node<'_>,
    names: &mut Vec<String>,
    conditions: &mut Vec<ArgumentCondition>,
    findings: &mut Findings,
) -> Option<()> {
    let Some(table) = Table::of(node) else {
        findings.is_not(node, "a table of arguments");
        return None;
    };
    if table.entries().next().is_none() {
        findings.error(node.span(), "no argument: leave the key out for no condition");
        return None;
    }
    for (key, node) in table.entries() {
        names.push(key.get_ref().to_string());
        if matches!(node.get_ref(), DeValue::Table(_)) {
            read_table(node, names, conditions, findings)?;
        } else {
            let values = values(node, findings)?;
            let path = ArgumentPath::new(names.iter().map(String::as_str))?;
            conditions.push(ArgumentCondition { path, values });
        }
        names.pop();
    }
    Some(())
}

fn values(node: &Node<'_>, findings: &mut Findings) -> Option<Vec<ArgumentValue>> {
    match node.get_ref() {
        DeValue::Array(elements) if elements.is_empty() => {
            findings.error(node.span(), "no value: name at least one");
            None
        }
        DeValue::Array(elements) => elements.iter().map(|element| value(element, findings)).collect(),
        _ => value(node, findings).map(|value| vec![value]),
    }
}

fn value(node: &Node<'_>, findings: &mut Findings) -> Option<ArgumentValue> {
    let value = match node.get_ref() {
        DeValue::String(text) => Some(ArgumentValue::Text(text.as_ref().into())),
        DeValue::Boolean(value) => Some(ArgumentValue::Boolean(*value)),
        DeValue::Integer(number) => integer(number),
        DeValue::Float(number) => float(number),
        _ => None,
    };
    if value.is_none() {
        findings.is_not(node, "a string, a number, `true` or `false`");
    }
    value
}

fn integer(number: &DeInteger<'_>) -> Option<ArgumentValue> {
    let value = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
    ArgumentValue::number(&value.to_string())
}

/// As it was written, not as a float has it.
fn float(number: &DeFloat<'_>) -> Option<ArgumentValue> {
    ArgumentValue::number(number.as_str().trim_start_matches('+'))
}
