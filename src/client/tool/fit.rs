//! Whether a value fits a JSON Schema. Nothing is fetched, and patterns take time that grows with the text alone.
//!
//! Both are a stranger's: schemas whose references multiply or do not end are refused, and what takes too long is given
//! up.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use boon::{CompileError, Compiler, Draft, ErrorKind, Format, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// How many faults are told.
const FAULTS_MAX: usize = 8;
/// How deep references may lead.
const REFERENCES_DEPTH_MAX: usize = 64;
/// How many schemas may apply to one value.
const SCHEMAS_MAX: u64 = 10_000;
/// How many references a schema may hold.
const REFERENCES_MAX: usize = 2000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The stack for it: schemas may be nested.
const STACK_BYTES: usize = 256 << 20;
/// What the schema is called while it is looked at. Nobody shows it.
const NAME: &str = "schema:///";
/// The dialects, and the address of what describes each.
const DIALECTS: &[(Draft, &str)] = &[
    (Draft::V2020_12, "https://json-schema.org/draft/2020-12/schema"),
    (Draft::V2019_09, "https://json-schema.org/draft/2019-09/schema"),
    (Draft::V7, "http://json-schema.org/draft-07/schema"),
    (Draft::V6, "http://json-schema.org/draft-06/schema"),
    (Draft::V4, "http://json-schema.org/draft-04/schema"),
];
/// The formats that drafts up to 7 ask for.
const FORMATS: &[&str] = &[
    "ipv4",
    "ipv6",
    "hostname",
    "idn-hostname",
    "email",
    "idn-email",
    "date",
    "time",
    "date-time",
    "json-pointer",
    "relative-json-pointer",
    "uri",
    "iri",
    "uri-reference",
    "iri-reference",
    "uri-template",
];

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be used: {0}")]
pub struct Unusable(pub String);

/// Where a value does not fit, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer.
    pub place: String,
    /// A sentence about the value there.
    pub why: String,
}

/// What does not fit, a line each; at most a few.
pub fn faults(schema: &Value, value: &Value) -> Result<Vec<String>, Unusable> {
    told(schema, value, false)
}

/// The same for what a person typed into a form, where a `format` is meant.
pub fn faults_of_field(schema: &Value, value: &Value) -> Result<Vec<String>, Unusable> {
    told(schema, value, true)
}

/// Why a schema is of no use, if it is not.
pub fn unusable(schema: &Value) -> Option<Unusable> {
    told(schema, &Value::Null, false).err()
}

/// The dialect of a schema, if it is known: the newest unless it says another.
pub fn dialect_of(schema: &Value) -> Option<Draft> {
    match schema.get("$schema") {
        None => Some(Draft::V2020_12),
        Some(dialect) => dialect.as_str().filter(|dialect| dialect.contains("://")).and_then(Draft::from_url),
    }
}

/// What is wrong with a schema by the rules of a dialect, if anything. Its references are not followed.
pub fn fault_of_schema(schema: &Value, dialect: Draft) -> Option<Violation> {
    let address = DIALECTS.iter().find(|(known, _)| *known == dialect).map(|(_, address)| *address)?;
    let schema = schema.clone();
    let fault = with_room(move || {
        let mut schemas = Schemas::new();
        let index = compiler(false).compile(address, &mut schemas).map_err(unusable_by)?;
        Ok(schemas.validate(&schema, index).err().and_then(|error| all(&error).into_iter().next()))
    });
    fault.unwrap_or_else(|unusable| Some(Violation { place: String::new(), why: unusable.to_string() }))
}

fn told(schema: &Value, value: &Value, with_formats: bool) -> Result<Vec<String>, Unusable> {
    ends(schema)?;
    let (schema, value) = (schema.clone(), value.clone());
    with_room(move || checked(schema, &value, with_formats))
}

/// Answers within the time and the stack that there are for it.
fn with_room<T: Send + 'static>(
    check: impl FnOnce() -> Result<T, Unusable> + Send + 'static,
) -> Result<T, Unusable> {
    let (sender, outcome) = mpsc::sync_channel(1);
    // Nothing ends a check from outside: one that takes too long is left behind, and ends with the process.
    std::thread::Builder::new()
        .name("schema".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || sender.send(check()))
        .map_err(|error| Unusable(error.to_string()))?;
    outcome.recv_timeout(PATIENCE).unwrap_or_else(|error| {
        Err(Unusable(match error {
            RecvTimeoutError::Timeout => "checking against it takes too long".to_owned(),
            RecvTimeoutError::Disconnected => "checking against it failed".to_owned(),
        }))
    })
}

fn checked(schema: Value, value: &Value, with_formats: bool) -> Result<Vec<String>, Unusable> {
    let mut compiler = compiler(with_formats);
    let mut schemas = Schemas::new();
    compiler.add_resource(NAME, schema).map_err(unusable_by)?;
    let index = compiler.compile(NAME, &mut schemas).map_err(unusable_by)?;
    let faults = schemas.validate(value, index).err().map(|error| all(&error)).unwrap_or_default();
    Ok(faults.iter().take(FAULTS_MAX).map(Violation::to_string).collect())
}

fn unusable_by(error: CompileError) -> Unusable {
    match error {
        CompileError::ValidationError { src, .. } => {
            Unusable(all(&src).first().map(Violation::to_string).unwrap_or_default())
        }
        CompileError::InvalidRegex { regex, src, .. } => Unusable(format!("{regex:?} is no pattern: {src}")),
        error => Unusable(error.to_string()),
    }
}

fn compiler(with_formats: bool) -> Compiler {
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(Nothing));
    if with_formats {
        compiler.enable_format_assertions();
    } else {
        for name in FORMATS {
            compiler.register_format(Format { name, func: |_| Ok(()) });
        }
    }
    compiler
}

struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, _url: &str) -> Result<Value, Box<dyn Error>> {
        Err("nothing is fetched".into())
    }
}

/// All that does not fit, one after the other.
fn all(error: &ValidationError<'_, '_>) -> Vec<Violation> {
    let inner = || error.causes.iter().flat_map(all);
    let why = match &error.kind {
        ErrorKind::Schema { .. } | ErrorKind::Group | ErrorKind::Reference { .. } | ErrorKind::AllOf
            if !error.causes.is_empty() =>
        {
            return inner().collect();
        }
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => {
            let alternatives: Vec<_> = inner().take(FAULTS_MAX).map(|fault| fault.to_string()).collect();
            format!("it fits none of what it may be ({})", alternatives.join("; "))
        }
        kind => kind.to_string(),
    };
    vec![Violation { place: error.instance_location.to_string(), why }]
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.trim_start_matches('/').replace('/', ".").as_str() {
            "" => out.write_str(&self.why),
            place => write!(out, "{place}: {}", self.why),
        }
    }
}

/// Refuses schemas whose references lead back to themselves without a value in between, which have no end, and those
/// where this cannot be told.
fn ends(root: &Value) -> Result<(), Unusable> {
    let refused = |why: &str| Err(Unusable(why.to_owned()));
    let mut applied = Applied { root, counts: HashMap::new() };
    let mut references = 0;
    let mut has_inner_id = false;
    let mut waiting = vec![root];
    while let Some(schema) = waiting.pop() {
        match schema {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            _ => continue,
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        has_inner_id |= text("$id").is_some() && !std::ptr::eq(schema, root);
        if text("$dynamicRef").is_some() || schema.get("$recursiveRef").is_some() {
            return refused("it has references that depend on where they are used");
        }
        let Some(reference) = text("$ref") else { continue };
        references += 1;
        let is_pointer = reference == "#" || reference.starts_with("#/");
        if !is_pointer || reference.contains('%') {
            return refused("it has references other than to a place in itself, such as #/$defs/name");
        }
        if references > REFERENCES_MAX {
            return refused("it has too many references");
        }
        match applied.count(schema, 0) {
            None => return refused("references in it lead back to where they began, or on too far"),
            Some(count) if count > SCHEMAS_MAX => return refused("its references multiply"),
            Some(_) => {}
        }
    }
    if has_inner_id && references > 0 {
        return refused("it has references and is made of several documents");
    }
    Ok(())
}

/// How many schemas apply to the same value, for each schema that was asked about.
struct Applied<'a> {
    root: &'a Value,
    counts: HashMap<*const Value, u64>,
}

impl<'a> Applied<'a> {
    /// The schemas that apply to what `schema` applies to; `None`: there is no end.
    fn count(&mut self, schema: &'a Value, depth: usize) -> Option<u64> {
        if depth > REFERENCES_DEPTH_MAX {
            return None;
        }
        let key = std::ptr::from_ref(schema);
        if let Some(count) = self.counts.get(&key) {
            return Some(*count);
        }
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        let target = reference.and_then(|pointer| self.root.pointer(pointer));
        let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array());
        let single = ["not", "if", "then", "else"].iter().filter_map(|key| schema.get(*key));
        let named =
            ["dependentSchemas", "dependencies"].iter().filter_map(|key| schema.get(*key)?.as_object());
        let inner =
            target.into_iter().chain(lists.flatten()).chain(single).chain(named.flat_map(|all| all.values()));
        let mut count: u64 = 1;
        for schema in inner {
            count = count.saturating_add(self.count(schema, depth + 1)?);
        }
        self.counts.insert(key, count);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_name_the_place() {
        let schema = json!({
            "type": "object",
            "properties": {"days": {"type": "integer", "maximum": 7}, "at": {"properties": {"x": {"type": "number"}}}},
            "additionalProperties": false,
        });
        assert_eq!(faults(&schema, &json!({"days": 2})), Ok(vec![]));
        let faults = faults(&schema, &json!({"days": 9, "at": {"x": "1"}, "b": 1})).unwrap();
        assert!(faults.iter().any(|fault| fault == "days: must be <=7, but got 9"), "{faults:?}");
        assert!(faults.iter().any(|fault| fault == "at.x: want number, but got string"), "{faults:?}");
        assert_eq!(faults.len(), 3);
    }

    #[test]
    fn alternatives_say_what_each_of_them_wants() {
        let schema = json!({"properties": {"at": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        let faults = faults(&schema, &json!({"at": 1})).unwrap();
        let expected = "at: it fits none of what it may be (at: want string, but got number; at: want null, but got number)";
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn formats_count_only_where_a_person_fills_in_a_form() {
        for dialect in
            ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        {
            let schema = json!({"$schema": dialect, "type": "string", "format": "date"});
            assert_eq!(faults(&schema, &json!("soon")), Ok(vec![]), "{dialect}");
            assert_eq!(faults_of_field(&schema, &json!("soon")).unwrap().len(), 1, "{dialect}");
            assert_eq!(faults_of_field(&schema, &json!("2026-02-28")), Ok(vec![]), "{dialect}");
        }
    }

    #[test]
    fn nothing_is_fetched() {
        for (key, place) in [("$schema", "http://127.0.0.1:1/x"), ("$schema", "file:///etc/hostname")] {
            assert!(unusable(&json!({key: place})).is_some(), "{place}");
        }
        assert!(unusable(&json!({"$ref": "file:///etc/hostname"})).is_some());
        assert!(unusable(&json!({"$id": "file:///etc/hostname", "type": "object"})).is_none());
    }

    #[test]
    fn hostile_schemas_are_refused_or_end() {
        let refused = |schema: Value| assert!(faults(&schema, &json!({})).is_err(), "{schema}");
        refused(json!({"$ref": "http://127.0.0.1:1/schema"}));
        refused(json!({"$ref": "#"}));
        refused(json!({"$ref": "#a", "$anchor": "a"}));
        refused(json!({"$dynamicRef": "#a", "$dynamicAnchor": "a"}));
        refused(json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}));
        refused(json!({"$ref": "#/%24defs/a", "$defs": {"a": {"$ref": "#/%24defs/a"}}}));
        refused(json!({"properties": {"a": {"$id": "x:a", "$ref": "#"}}}));
        refused(json!({"dependentSchemas": {"a": {"$ref": "#"}}}));
        let (a, b) = (json!({"$ref": "#/$defs/b"}), json!({"allOf": [{"$ref": "#/$defs/a"}]}));
        refused(json!({"$defs": {"a": a, "b": b}, "$ref": "#/$defs/a"}));
        refused(json!({"type": 7}));
        let tree = json!({"properties": {"child": {"$ref": "#"}}, "type": "object"});
        assert_eq!(faults(&tree, &json!({"child": {"child": {}}})), Ok(vec![]));
        let slow = json!({"pattern": "^(a+)+$"});
        assert!(!faults(&slow, &json!("a".repeat(50_000) + "b")).unwrap().is_empty());
    }

    fn chained(length: usize, link: impl Fn(Value) -> Value) -> Value {
        let definition = |n: usize| (n.to_string(), link(json!({"$ref": format!("#/$defs/{}", n + 1)})));
        let mut definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
        definitions.insert(length.to_string(), json!({"type": "string"}));
        json!({"$defs": definitions, "$ref": "#/$defs/0"})
    }

    #[test]
    fn references_that_multiply_are_given_up() {
        let started = std::time::Instant::now();
        let twice = chained(20, |next| json!({"allOf": [next, next]}));
        assert_eq!(faults(&twice, &json!({})), Err(Unusable("its references multiply".to_owned())));
        let long = chained(1900, |next| json!({"properties": {"a": next}}));
        assert_eq!(faults(&long, &json!({"a": {}})), Ok(vec![]));
        let wide = chained(30, |next| json!({"properties": {"a": next, "b": next}}));
        assert_eq!(faults(&wide, &json!({"a": {}})), Ok(vec![]));
        let endless = chained(100_000, |next| json!({"properties": {"a": next}}));
        assert_eq!(faults(&endless, &json!({})), Err(Unusable("it has too many references".to_owned())));
        let again =
            json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        let deep = (0..60).fold(json!({}), |inner, _| json!({"a": inner}));
        // However it ends, it does.
        let _ = faults(&again, &deep);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}
