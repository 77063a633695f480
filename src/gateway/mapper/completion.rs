//! `completion/complete` of a resource template, for callers who may not use everything: what completes it to a URI that
//! they may not use is not told.
//!
//! How many values there are in all (`total`, `hasMore`) is never told them: it would tell that there are others.
//! Invariant: what cannot be judged is left out, and whether something is left out does not show.

use std::rc::Rc;
use std::sync::Arc;

use crate::access::policy::Class;
use crate::snapshot::Endpoint;
use protocol::ambiguity::{folded, is_ambiguous};
use protocol::json::{JsonKind, Value};
use protocol::route::{Kind, template};
use protocol::splice::Edit;
use protocol::translation::members::Edits;

const NOTHING: &str = r#"{"values":[]}"#;

#[derive(Debug)]
pub(crate) struct Completion {
    endpoint: Rc<Arc<Endpoint>>,
    class: Arc<Class>,
    /// The upstream's place in the endpoint.
    member: usize,
    /// As the upstream spells it.
    template: Box<str>,
    variable: String,
    /// What is known of the others.
    others: Vec<(String, String)>,
}

impl Completion {
    /// Reads the request of a caller of this `class`. `Err`: what is wrong with it.
    pub(crate) fn new(
        (endpoint, class): (&Rc<Arc<Endpoint>>, &Arc<Class>),
        (member, template): (usize, &str),
        request: Value<'_>,
    ) -> Result<Self, &'static str> {
        let text = |value: Value<'_>| Some(value.as_literal()?.decode(value.text())?.into_owned());
        let params = request.get("params").ok_or("params are missing")?;
        let argument = params.get("argument").ok_or("params.argument is missing")?;
        let context = params.get("context");
        let arguments = context.and_then(|context| context.get("arguments"));
        let is_clear =
            |value: Option<Value<'_>>, known: &[&str]| value.is_none_or(|value| !is_ambiguous(value, known));
        let is_clear = is_clear(Some(params), &["argument", "context"])
            && is_clear(Some(argument), &["name", "value"])
            && is_clear(context, &["arguments"])
            && is_clear(arguments, &[]);
        if !is_clear {
            return Err("a key of what completion is asked for stands twice");
        }
        let others = arguments.into_iter().flat_map(Value::entries);
        let others = others
            .filter_map(|(name, value)| Some((name.decode(request.text())?.into_owned(), text(value)?)))
            .collect();
        Ok(Self {
            endpoint: Rc::clone(endpoint),
            class: Arc::clone(class),
            member,
            template: template.into(),
            variable: argument.get("name").and_then(text).ok_or("params.argument.name is missing")?,
            others,
        })
    }

    /// What is written otherwise in the reply, in order.
    pub(super) fn edits(&self, reply: Value<'_>) -> Vec<Edit> {
        let Some(result) = reply.get("result") else { return Vec::new() };
        let is_in_doubt = is_ambiguous(result, &["completion"]);
        let text = reply.text();
        let completions = result
            .entries()
            .filter(|(key, _)| key.decode(text).is_none_or(|key| folded(&key) == "completion"));
        let mut edits = Edits::default();
        for (_, completion) in completions {
            if is_in_doubt || is_ambiguous(completion, &["values", "total", "hasMore"]) {
                edits.rename(Some(completion), Some(NOTHING));
            } else {
                self.edit(completion, &mut edits);
            }
        }
        edits.sorted()
    }

    fn edit(&self, completion: Value<'_>, edits: &mut Edits) {
        edits.members(completion, |key| ["total", "hasMore"].contains(&key), "");
        let Some(values) = completion.get("values") else { return };
        let shown: Vec<&[u8]> = values.items().filter(|value| self.shows(*value)).map(Value::raw).collect();
        if values.kind() != JsonKind::Array || shown.len() < values.items().count() {
            edits.replace(values, [&b"["[..], &shown.join(&b","[..]), b"]"].concat());
        }
    }

    fn shows(&self, value: Value<'_>) -> bool {
        let uri = value
            .as_str()
            .and_then(|value| template::expand(&self.template, (&self.variable, &value), &self.others));
        uri.is_some_and(|uri| {
            self.endpoint.naming.shows(Kind::Resource, self.member, &uri)
                && self.endpoint.allows(&self.class, Kind::Resource, self.member, &uri)
        })
    }
}
