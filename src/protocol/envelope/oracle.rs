//! The rules of the envelope once more, written without regard to speed, on what `serde_json` sees.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::*;

type Raw<'a> = &'a RawValue;

struct Pairs<'a>(Vec<(Raw<'a>, Raw<'a>)>);

impl<'de> serde::Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct Object<'a> {
    pairs: Vec<(Option<String>, Raw<'a>)>,
}

impl<'a> Object<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let Pairs(pairs) = serde_json::from_str(text).ok()?;
        let pairs = pairs.into_iter().map(|(key, value)| (serde_json::from_str(key.get()).ok(), value));
        Some(Self { pairs: pairs.collect() })
    }

    fn alike(&self, key: &str) -> Vec<(&str, Raw<'a>)> {
        let fold =
            |key: &str| key.replace('\0', "").replace('ſ', "s").replace('\u{212a}', "k").to_ascii_lowercase();
        let named = self.pairs.iter().filter_map(|(name, value)| Some((name.as_deref()?, *value)));
        named.filter(|(name, _)| fold(name) == fold(key)).collect()
    }

    fn get(&self, key: &str) -> Option<Raw<'a>> {
        match self.alike(key)[..] {
            [(name, value)] if name == key => Some(value),
            _ => None,
        }
    }

    fn is_clear(&self, keys: &[&str]) -> bool {
        let clear = |key: &&str| self.alike(key).is_empty() || self.get(key).is_some();
        self.pairs.iter().all(|(name, _)| name.is_some()) && keys.iter().all(clear)
    }
}

fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for char in text.chars() {
        match char {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '[' | '{' if !in_string => depth += 1,
            ']' | '}' if !in_string => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// What [`Envelope::parse`] must make of a body, but for the words of a refusal.
pub fn parse(body: &[u8], depth_max: usize) -> Result<Envelope, EnvelopeError> {
    let refusal = |id| Err(EnvelopeError::NotJsonRpc { id, why: "" });
    let Ok(text) = std::str::from_utf8(body) else { return Err(JsonError::NotJson.into()) };
    let Ok(root) = serde_json::from_str::<Raw<'_>>(text) else { return Err(JsonError::NotJson.into()) };
    if depth(text) > depth_max {
        return Err(JsonError::TooDeep.into());
    }
    if root.get().starts_with('[') {
        return Err(EnvelopeError::Batch);
    }
    let span = |raw: Raw<'_>| {
        let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        start..start + raw.get().len()
    };
    let literal = |raw: Option<Raw<'_>>| {
        let raw = raw.filter(|raw| raw.get().starts_with('"'))?;
        Some(Literal { span: span(raw), escaped: raw.get().contains('\\') })
    };
    let is = |raw: Option<Raw<'_>>, value: &str| {
        raw.is_some_and(|raw| serde_json::from_str::<String>(raw.get()).is_ok_and(|raw| raw == value))
    };
    let whole = |raw: &str| raw.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let named = |raw: &str| raw.len() <= 1024 && (whole(raw) || serde_json::from_str::<String>(raw).is_ok());

    let Some(top) = Object::read(root.get()) else { return refusal(None) };
    let id = top.get("id").filter(|id| named(id.get())).map(span);
    let (method, params) = (top.get("method"), top.get("params"));
    let answered = top.get("result").is_some() || top.get("error").is_some();
    let kind = match (literal(method), &id) {
        (Some(_), Some(_)) => MessageKind::Request,
        (Some(_), None) => MessageKind::Notification,
        (None, _) => MessageKind::Response,
    };
    let good = top.is_clear(&["jsonrpc", "id", "method", "params", "result", "error"])
        && is(top.get("jsonrpc"), "2.0")
        && top.get("id").is_some() == id.is_some()
        && method.is_some() == literal(method).is_some()
        && method.is_some() != answered
        && params.is_none_or(|params| params.get().starts_with('{') || params.get() == "null");
    if !good {
        return refusal(id);
    }
    let params = params.filter(|params| params.get().starts_with('{'));
    let empty = Object { pairs: Vec::new() };
    let inner = params.and_then(|params| Object::read(params.get())).unwrap_or(empty);
    let (reference, meta) = (inner.get("ref"), inner.get("_meta"));
    let reference = reference.and_then(|raw| Object::read(raw.get()));
    let meta = meta.and_then(|raw| Some((Object::read(raw.get())?, span(raw))));
    let prefix = "io.modelcontextprotocol/";
    let meta_keys = ["protocolVersion", "clientInfo", "clientCapabilities", "logLevel"]
        .map(|key| format!("{prefix}{key}"));
    let meta_keys: Vec<&str> = meta_keys.iter().map(String::as_str).chain(["progressToken"]).collect();
    let params_keys = "name uri taskId cursor ref _meta arguments notifications requestState inputResponses";
    let good = inner.is_clear(&params_keys.split(' ').collect::<Vec<_>>())
        && reference.as_ref().is_none_or(|reference| reference.is_clear(&["type", "name", "uri"]))
        && meta.as_ref().is_none_or(|(meta, _)| meta.is_clear(&meta_keys));
    if !good {
        return refusal(id);
    }
    let object = |raw: Option<Raw<'_>>| raw.filter(|raw| raw.get().starts_with('{')).map(span);
    let has_others = |object: &Object<'_>, known: &[&str]| {
        object.pairs.iter().any(|(key, _)| key.as_deref().is_some_and(|key| !known.contains(&key)))
    };
    let has_filter = inner.get("notifications").or(inner.get("inputResponses")).is_some();
    Ok(Envelope {
        kind,
        id,
        method: literal(method),
        params: params.map(span),
        name: literal(inner.get("name")),
        uri: literal(inner.get("uri")),
        task_id: literal(inner.get("taskId")),
        cursor: literal(inner.get("cursor")),
        reference: reference.and_then(|reference| {
            if is(reference.get("type"), "ref/prompt") {
                return literal(reference.get("name")).map(Reference::Prompt);
            }
            let uri = literal(reference.get("uri")).filter(|_| is(reference.get("type"), "ref/resource"));
            uri.map(Reference::Resource)
        }),
        has_bad_state: inner.get("requestState").is_some_and(|state| !state.get().starts_with('"')),
        is_continued: inner.get("requestState").or(inner.get("inputResponses")).is_some(),
        has_other_params: has_others(&inner, &params_keys.split(' ').collect::<Vec<_>>()),
        has_other_names: has_filter || meta.as_ref().is_some_and(|(meta, _)| has_others(meta, &meta_keys)),
        meta: meta.map(|(meta, span_of_meta)| Meta {
            span: span_of_meta,
            protocol_version: literal(meta.get(meta_keys[0])),
            client_info: object(meta.get(meta_keys[1])),
            client_capabilities: object(meta.get(meta_keys[2])),
            progress_token: meta
                .get("progressToken")
                .filter(|token| {
                    token.get().starts_with(['"', '-'])
                        || token.get().starts_with(|c: char| c.is_ascii_digit())
                })
                .map(span),
        }),
    })
}
