//! The declaration of a table of the file: one place for each key.
//!
//! ```text
//! section! {
//!     /// How the process stops.                       the table's description
//!     pub struct Drain {
//!         /// Time in which connections are still …    the key's description
//!         quiet: Period<0, HOUR_MS> = "2s",            its type with bounds, and its default
//!         /// Time after which what is left is cut.
//!         #[example("30s")]                            for the reference, where there is no default
//!         max: Option<Period<1, HOUR_MS>>,             may be left out
//!         /// …
//!         share: Count<1, 9> => max.is_some().into(),  its default depends on the keys before it
//!         /// …
//!         #[example("a")]
//!         #[missing("every one has a name")]           what to do where it is missing, if the example says too little
//!         name: Any,
//!     }
//!     groups { … }      keys of this table that are declared elsewhere
//!     computed { … }    fields that are no keys; whoever checks the file fills them
//!     one_of a | b;     of these keys, one must be there
//!     check f;          what must hold between the keys; `check f => Out;` where they become something else
//! }
//! ```
//!
//! A key without default that is no `Option` must be written; its example stands in for it while the rest is checked.
//! From this come the struct that the program uses, its reader with all errors, the JSON Schema, and from the schema
//! the manual page and the reference file.

use toml::de::DeValue;

use super::error::Diagnostic;
use super::findings::{Findings, Node};
use super::schema::TableSchema;
use super::table::Table;
use super::unknown_key;
use super::value::Setting;

/// Keys of a table, and what they become.
pub trait Group {
    /// What they become.
    type Out;

    /// Their names.
    fn keys(names: &mut Vec<&'static str>);

    /// Reads them from a table; `None`: what is wrong has been reported.
    fn read(table: Table<'_>, findings: &mut Findings) -> Option<Self::Out>;

    /// Describes each of them.
    fn describe(object: &mut TableSchema<'_>);
}

/// What holds where a key is left out.
pub(super) enum Absent<'a, T> {
    /// The type knows.
    None,
    /// This TOML.
    Default(&'static str),
    /// What others say.
    Computed(&'a dyn Fn() -> T),
    /// An error, unless the type knows, with a help if there is one; the rest is checked with this TOML.
    Example(&'static str, Option<&'static str>),
}

/// Keys under which somebody may have written a secret.
const MAY_HOLD_SECRETS: [&str; 9] =
    ["basic", "bearer", "env", "forward_headers", "headers", "key", "oauth", "password", "tls"];

/// The value of the key `name`, or what holds without it. `None` only of a declaration that contradicts itself.
pub(super) fn key<V: Setting>(
    table: Table<'_>,
    name: &'static str,
    fallback: &Absent<'_, V::Out>,
    findings: &mut Findings,
) -> Option<V::Out> {
    let outside = (findings.is_element, findings.may_hold_secret);
    findings.path.push(name.to_owned());
    findings.is_element = false;
    findings.may_hold_secret |= MAY_HOLD_SECRETS.contains(&name);
    findings.may_be_absent = V::IS_OPTIONAL || !matches!(fallback, Absent::None | Absent::Example(..));
    let mut value = None;
    if let Some(node) = table.get(name) {
        value = V::read(node, findings);
        if value.is_none() {
            findings.unreadable(table, &node.span());
        }
    }
    if value.is_none() {
        value = match fallback {
            Absent::Computed(value) => Some(value()),
            Absent::Default(toml) => constant::<V>(toml),
            Absent::None | Absent::Example(..) => V::absent(findings),
        };
    }
    findings.path.pop();
    (findings.is_element, findings.may_hold_secret) = outside;
    if let (None, Absent::Example(example, help)) = (&value, fallback) {
        if !table.has(name) && !findings.is_misspelt(table) {
            let in_general = || format!("write for example `{name} = {}`", one_line(example));
            let help = help.map_or_else(in_general, str::to_owned);
            findings.error(table.span(), format!("{} has no `{name}`: {help}", findings.heading()));
        }
        value = constant::<V>(example);
    }
    value
}

/// TOML as `stringify!` makes it has more lines and spaces than a person would write.
fn one_line(toml: &str) -> String {
    let words: Vec<&str> = toml.split_whitespace().collect();
    words.join(" ").replace("[{", "[{ ").replace("}]", " }]").replace("{  ", "{ ").replace("  }", " }")
}

/// Whether `toml`, which is written in a declaration, is such a value.
pub(super) fn is_valid<V: Setting>(toml: &'static str) -> bool {
    constant::<V>(toml).is_some()
}

/// A value that is written in a declaration.
fn constant<V: Setting>(toml: &'static str) -> Option<V::Out> {
    V::read(&DeValue::parse(toml).ok()?, &mut Findings::default())
}

/// Reads a table, and reports the keys that it does not have.
pub(super) fn read<G: Group>(node: &Node<'_>, findings: &mut Findings) -> Option<G::Out> {
    let Some(table) = Table::of(node) else {
        let heading = findings.heading();
        findings.error(node.span(), format!("expected {heading}, followed by its keys"));
        return None;
    };
    read_table::<G>(table, findings)
}

pub(super) fn read_table<G: Group>(table: Table<'_>, findings: &mut Findings) -> Option<G::Out> {
    let mut known = Vec::new();
    G::keys(&mut known);
    refuse_unknown(table, &known, findings);
    G::read(table, findings)
}

/// Reports the keys of `table` that are not among the `known` ones.
pub(super) fn refuse_unknown(table: Table<'_>, known: &[&str], findings: &mut Findings) {
    for (name, _) in table.entries() {
        if !known.contains(&name.get_ref().as_ref()) {
            findings.misspelt(table);
            let error = is_unknown(name.get_ref(), name.span(), known, findings);
            findings.errors.push(error);
        }
    }
}

fn is_unknown(name: &str, span: std::ops::Range<usize>, known: &[&str], findings: &Findings) -> Diagnostic {
    let message = match findings.path.as_slice() {
        [] => format!("unknown key `{name}`"),
        _ => format!("unknown key `{name}` in {}", findings.heading()),
    };
    let mut of_file = Vec::new();
    super::Config::keys(&mut of_file);
    let suggestion = unknown_key::suggestion(name, known, &of_file);
    Diagnostic::error(span, message).suggest(Some(suggestion)).of_unknown_key()
}

macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[example($($example:tt)+)])?
                $(#[missing($missing:literal)])?
                $field:ident $(as $key:literal)? : $type:ty $(= $default:expr)? $(=> $computed:expr)?
            ),* $(,)?
        }
        $(groups { $( $(#[doc = $group_doc:literal])+ $group:ident: $group_type:ty ),+ $(,)? })?
        $(computed { $( $(#[doc = $own_doc:literal])+ $own:ident: $own_type:ty ),+ $(,)? })?
        $(one_of $($alternative:ident)|+;)?
        $(check $check:ident $(=> $out:ty)?;)?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq $(, $($derive),+)?)]
        $vis struct $name {
            $( $(#[doc = $doc])+ $vis $field: <$type as $crate::value::Setting>::Out, )*
            $($( $(#[doc = $group_doc])+ $vis $group: <$group_type as $crate::section::Group>::Out, )+)?
            $($( $(#[doc = $own_doc])+ $vis $own: $own_type, )+)?
        }

        impl $crate::section::Group for $name {
            type Out = $crate::section::section!(@out $($($out)?)?);

            fn keys(names: &mut Vec<&'static str>) {
                names.extend([$( $crate::section::section!(@key $field $($key)?) ),*]);
                $($( <$group_type as $crate::section::Group>::keys(names); )+)?
            }

            fn read(
                table: $crate::table::Table<'_>,
                findings: &mut $crate::findings::Findings,
            ) -> Option<Self::Out> {
                $(
                    let $field = $crate::section::key::<$type>(
                        table,
                        $crate::section::section!(@key $field $($key)?),
                        &$crate::section::section!(@fallback [$($default)?] [$($computed)?] [$($($example)+)?] [$($missing)?]),
                        findings,
                    )?;
                )*
                $($( let $group = <$group_type as $crate::section::Group>::read(table, findings)?; )+)?
                let section = Self {
                    $($field,)*
                    $($($group,)+)?
                    $($($own: Default::default(),)+)?
                };
                $( let section = $check(section, table, findings); )?
                Some(section)
            }

            fn describe(object: &mut $crate::schema::TableSchema<'_>) {
                $(
                    object.key::<$type>(
                        $crate::section::section!(@key $field $($key)?),
                        concat!($($doc),+),
                        $crate::section::section!(@text $($default)?),
                        $crate::section::section!(@text $($($example)+)?),
                        $crate::section::section!(@must_be_there $($default)? $($computed)?),
                    );
                )*
                $($( <$group_type as $crate::section::Group>::describe(object); )+)?
                $(object.one_of(&[$(stringify!($alternative)),+]);)?
            }
        }

        impl $crate::value::Setting for $name {
            type Out = <Self as $crate::section::Group>::Out;
            const IS_OPTIONAL: bool = true;
            const DEFAULT: Option<&'static str> = Some("{}");

            fn read(
                node: &$crate::findings::Node<'_>,
                findings: &mut $crate::findings::Findings,
            ) -> Option<Self::Out> {
                $crate::section::read::<Self>(node, findings)
            }

            fn absent(findings: &mut $crate::findings::Findings) -> Option<Self::Out> {
                <Self as $crate::section::Group>::read($crate::table::Table::ABSENT, findings)
            }

            fn schema(definitions: &mut $crate::schema::Definitions) -> serde_json::Value {
                definitions.table::<Self>(stringify!($name), concat!($($about),+))
            }
        }
    };
    (@out) => { Self };
    (@out $out:ty) => { $out };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@must_be_there) => { true };
    (@must_be_there $($fallback:tt)+) => { false };
    (@text) => { None };
    (@text $($toml:tt)+) => { Some(stringify!($($toml)+)) };
    (@fallback [] [] [] []) => { $crate::section::Absent::None };
    (@fallback [$default:expr] [] [$($example:tt)*] []) => {
        $crate::section::Absent::Default(stringify!($default))
    };
    (@fallback [] [$computed:expr] [$($example:tt)*] []) => { $crate::section::Absent::Computed(&|| $computed) };
    (@fallback [] [] [$($example:tt)+] []) => {
        $crate::section::Absent::Example(stringify!($($example)+), None)
    };
    (@fallback [] [] [$($example:tt)+] [$missing:literal]) => {
        $crate::section::Absent::Example(stringify!($($example)+), Some($missing))
    };
}
pub(super) use section;
