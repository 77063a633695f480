//! Several values behind a key: arrays, tables of tables, and the value that may be left out.
//!
//! Whatever is wrong with one of them, the others are read as well.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::findings::{Findings, Node};
use super::outline::is_shown_text;
use super::schema::Definitions;
use super::table::Table;
use super::value::Setting;

/// An array of at least `MIN` values, which become an `All`.
#[derive(Debug)]
pub struct Array<V: Setting, const MIN: usize = 0, All = Vec<<V as Setting>::Out>>(PhantomData<(V, All)>);

/// An [`Array`] of words, each of them once.
#[derive(Debug)]
pub struct Distinct<V: Setting, const MIN: usize = 0, All = Vec<<V as Setting>::Out>>(PhantomData<(V, All)>);

/// An array of tables, of which `MIN` must be there.
#[derive(Debug)]
pub struct Tables<V, const MIN: usize = 0>(PhantomData<V>);

/// One table, or an array of tables; one must be there. Whoever checks the file says so.
#[derive(Debug)]
pub struct OneOrMany<V>(PhantomData<V>);

/// A table with keys of the operator's choice, sorted by them.
#[derive(Debug)]
pub struct Map<V>(PhantomData<V>);

/// Reads every element, whatever is wrong with the others.
fn each<V: Setting, All: FromIterator<V::Out>>(nodes: &[Node<'_>], findings: &mut Findings) -> Option<All> {
    findings.is_element = true;
    let values: Vec<_> = nodes.iter().map(|node| V::read(node, findings)).collect();
    findings.is_element = false;
    values.into_iter().collect()
}

impl<V: Setting> Setting for Option<V> {
    type Out = Option<V::Out>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        V::read(node, findings).map(Some)
    }

    fn absent(_: &mut Findings) -> Option<Self::Out> {
        Some(None)
    }

    const IS_OPTIONAL: bool = true;

    fn schema(definitions: &mut Definitions) -> Json {
        V::schema(definitions)
    }

    fn range() -> Option<String> {
        V::range()
    }
}

impl<V: Setting, const MIN: usize, All: FromIterator<V::Out>> Setting for Array<V, MIN, All> {
    type Out = All;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        let DeValue::Array(elements) = node.get_ref() else {
            findings.is_not(node, "an array");
            if let Some(text) = node.get_ref().as_str().filter(|text| is_shown_text(&findings.path, text)) {
                findings.suggest(Some(format!("write [{text:?}]")));
            }
            return None;
        };
        if elements.len() < MIN {
            let key = findings.path.last().cloned().unwrap_or_default();
            let or_none = if findings.may_be_absent { ", or leave the key out" } else { "" };
            findings.error(node.span(), format!("`{key}` is empty: name at least one{or_none}"));
            return None;
        }
        each::<V, All>(elements, findings)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let items = V::schema(definitions);
        match MIN {
            0 => json!({ "type": "array", "items": items }),
            _ => json!({ "type": "array", "items": items, "minItems": MIN }),
        }
    }
}

impl<V: Setting, const MIN: usize, All: FromIterator<V::Out>> Setting for Distinct<V, MIN, All> {
    type Out = All;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<All> {
        let words = node.get_ref().as_array().into_iter().flatten();
        let mut earlier = BTreeSet::new();
        for (word, node) in words.filter_map(|node| Some((node.get_ref().as_str()?, node))) {
            if !earlier.insert(word.to_ascii_lowercase()) {
                findings.error(node.span(), format!("`{word}` is named twice"));
            }
        }
        Array::<V, MIN, All>::read(node, findings)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let mut schema = Array::<V, MIN>::schema(definitions);
        schema["uniqueItems"] = true.into();
        schema
    }
}

impl<V: Setting, const MIN: usize> Setting for Tables<V, MIN> {
    type Out = Vec<V::Out>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        let heading = findings.heading();
        match node.get_ref() {
            DeValue::Array(elements) => return each::<V, _>(elements, findings),
            // Its keys are right or wrong all the same.
            DeValue::Table(_) => {
                let message = format!("write [{heading}] instead of {heading}: there may be several");
                findings.error(node.span(), message);
                findings.is_element = true;
                V::read(node, findings);
                findings.is_element = false;
            }
            _ => findings.error(node.span(), format!("expected [{heading}], followed by its keys")),
        }
        None
    }

    fn absent(_: &mut Findings) -> Option<Self::Out> {
        Some(Vec::new())
    }

    const IS_OPTIONAL: bool = MIN == 0;

    fn schema(definitions: &mut Definitions) -> Json {
        Array::<V, MIN>::schema(definitions)
    }
}

impl<V: Setting> Setting for OneOrMany<V> {
    type Out = Vec<V::Out>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        match node.get_ref() {
            DeValue::Array(elements) => elements.iter().map(|element| V::read(element, findings)).collect(),
            _ => V::read(node, findings).map(|value| vec![value]),
        }
    }

    fn absent(_: &mut Findings) -> Option<Self::Out> {
        Some(Vec::new())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let one = V::schema(definitions);
        json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl<V: Setting> Setting for Map<V> {
    type Out = Vec<(String, V::Out)>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out> {
        let Some(table) = Table::of(node) else {
            findings.is_not(node, "a table");
            return None;
        };
        let mut values = Vec::new();
        for (key, node) in table.entries() {
            findings.path.push(key.get_ref().to_string());
            values.push(V::read(node, findings).map(|value| (key.get_ref().to_string(), value)));
            findings.path.pop();
        }
        let mut values = values.into_iter().collect::<Option<Vec<_>>>()?;
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(values)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "type": "object", "additionalProperties": V::schema(definitions) })
    }
}
