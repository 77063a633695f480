//! How JSON that may be anything becomes one of our objects, and how the objects are described. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Entries of one list that are read.
const ENTRIES_MAX: usize = 10_000;
/// Characters of a text that are kept.
const TEXT_CHARS_MAX: usize = 2000;

/// What is read from JSON whatever that holds.
pub trait Object: Sized {
    /// The object; `None` if the value is of another type. What it does not say is left at its default.
    fn read(value: &Value) -> Option<Self>;

    /// Its JSON Schema, as `OpenAPI` 3.1 has it; objects are described in `definitions` and referred to.
    fn schema(definitions: &mut Map<String, Value>) -> Value;
}

/// The object that a text is; `None` if it is no JSON object.
pub fn parse<T: Object>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok().and_then(|value| T::read(&value))
}

/// Declares objects: structs with public members that serde writes and [`Object`] reads. What the book says of a member
/// is not repeated. `..member` stands for an object whose members are written among those of this one, or not at all
/// while nothing is measured.
macro_rules! objects {
    ($($(#[doc = $about:literal])+ struct $name:ident {
        $($(#[doc = $note:literal])* $(#[serde($($serde:tt)+)])? $member:ident: $type:ty,)*
        $(..$figures:ident: $inner:ty,)?
    })*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($member), "`, see the book.")]
                $(#[doc = $note])*
                $(#[serde($($serde)+)])?
                pub $member: $type,
            )*
            $(
                /// Its calls.
                #[serde(flatten, skip_serializing_if = "Figures::is_unmeasured")]
                pub $figures: $inner,
            )?
        }

        impl $crate::object::Object for $name {
            fn read(value: &serde_json::Value) -> Option<Self> {
                use $crate::object::Object;
                let members = value.as_object()?;
                Some(Self {
                    $($member: members.get(stringify!($member)).and_then(Object::read).unwrap_or_default(),)*
                    $($figures: Object::read(value).unwrap_or_default(),)?
                })
            }

            fn schema(definitions: &mut serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
                $crate::object::described(stringify!($name), concat!($($about),+), definitions, |_members, _definitions| {
                    $(
                        let is_always_there = true $(&& { let _ = stringify!($($serde)+); false })?;
                        let schema = <$type as $crate::object::Object>::schema(_definitions);
                        _members.add(stringify!($member), concat!("" $(, $note)*), is_always_there, schema);
                    )*
                    $(
                        let schema = <$inner as $crate::object::Object>::schema(_definitions);
                        _members.include(&schema, _definitions);
                    )?
                })
            }
        }
    )*};
}

/// The members of an object that is described.
#[derive(Debug, Default)]
pub(crate) struct Members {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Members {
    pub(crate) fn add(&mut self, name: &str, about: &str, is_always_there: bool, mut schema: Value) {
        if !about.trim().is_empty() {
            schema["description"] = about.trim().into();
        }
        self.properties.insert(name.to_owned(), schema);
        if is_always_there {
            self.required.push(name.into());
        }
    }

    /// Adds the members of another object, which are written among these or not at all.
    pub(crate) fn include(&mut self, schema: &Value, definitions: &Map<String, Value>) {
        let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let members = definitions.get(name).and_then(|inner| inner["properties"].as_object());
        self.properties.extend(members.cloned().unwrap_or_default());
    }
}

/// A reference to an object, which is described unless it is already.
pub(crate) fn described(
    name: &str,
    about: &str,
    definitions: &mut Map<String, Value>,
    describe: impl FnOnce(&mut Members, &mut Map<String, Value>),
) -> Value {
    if !definitions.contains_key(name) {
        // What it refers to may refer to it.
        definitions.insert(name.to_owned(), Value::Null);
        let mut members = Members::default();
        describe(&mut members, definitions);
        let Members { properties, required } = members;
        let about = about.trim();
        let object =
            json!({ "type": "object", "description": about, "properties": properties, "required": required });
        definitions.insert(name.to_owned(), object);
    }
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Object for u64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_u64()
    }

    fn schema(_: &mut Map<String, Value>) -> Value {
        json!({ "type": "integer", "minimum": 0 })
    }
}

/// No figure of a gateway is below zero.
impl Object for f64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
    }

    fn schema(_: &mut Map<String, Value>) -> Value {
        json!({ "type": "number", "minimum": 0 })
    }
}

impl Object for bool {
    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn schema(_: &mut Map<String, Value>) -> Value {
        json!({ "type": "boolean" })
    }
}

/// Cut where it is too long.
impl Object for String {
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(cut)
    }

    fn schema(_: &mut Map<String, Value>) -> Value {
        json!({ "type": "string" })
    }
}

impl<T: Object> Object for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        Some(T::read(value))
    }

    fn schema(definitions: &mut Map<String, Value>) -> Value {
        let mut schema = T::schema(definitions);
        match schema["type"].as_str() {
            Some(one) => {
                schema["type"] = json!([one, "null"]);
                schema
            }
            None => json!({ "oneOf": [schema, { "type": "null" }] }),
        }
    }
}

/// Entries of another type are left out.
impl<T: Object> Object for Vec<T> {
    fn read(value: &Value) -> Option<Self> {
        Some(value.as_array()?.iter().take(ENTRIES_MAX).filter_map(T::read).collect())
    }

    fn schema(definitions: &mut Map<String, Value>) -> Value {
        json!({ "type": "array", "items": T::schema(definitions) })
    }
}

impl<T: Object> Object for BTreeMap<String, T> {
    fn read(value: &Value) -> Option<Self> {
        let entries = value.as_object()?.iter().take(ENTRIES_MAX);
        Some(entries.filter_map(|(name, one)| Some((cut(name), T::read(one)?))).collect())
    }

    fn schema(definitions: &mut Map<String, Value>) -> Value {
        json!({ "type": "object", "additionalProperties": T::schema(definitions) })
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_of_another_type_is_unknown() {
        for value in [
            json!(null),
            json!(7),
            json!("x"),
            json!([1]),
            json!({}),
            json!({"a": null}),
            json!({"a": {"b": [{}]}}),
        ] {
            let a = &value["a"];
            assert_eq!((f64::read(a), u64::read(a), bool::read(a)), (None, None, None), "{value}");
            assert_eq!((String::read(a), Vec::<String>::read(a)), (None, None), "{value}");
            assert_eq!(Option::<u64>::read(a), Some(None), "{value}");
        }
        let counted = BTreeMap::<String, u64>::read(&json!({"x": 1, "y": 2, "z": "3"}));
        assert_eq!(counted, Some([("x".to_owned(), 1), ("y".to_owned(), 2)].into()));
        assert_eq!(
            (u64::read(&json!(-1)), u64::read(&json!(1.5)), f64::read(&json!(-0.5))),
            (None, None, None)
        );
        assert_eq!(Vec::<String>::read(&json!(["x", 1, null, "y"])).unwrap_or_default(), ["x", "y"]);
        let long = String::read(&json!("é".repeat(5000))).unwrap_or_default();
        assert_eq!(long.chars().count(), TEXT_CHARS_MAX);
        let many = Vec::<u64>::read(&json!(vec![1; ENTRIES_MAX + 1]));
        assert_eq!(many.map(|all| all.len()), Some(ENTRIES_MAX));
    }
}
