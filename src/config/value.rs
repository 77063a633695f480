//! What can stand behind a key: each type says how it is read, and how its JSON Schema looks.
//!
//! A type is named where its key is declared, with its bounds: `Count<1, 256>`, `Option<Period<1, HOUR_MS>>`,
//! `Array<Glob>`. What the rest of the program gets is its [`Setting::Out`]. Everything that is wrong with a value is
//! reported at once, in each element of an array and each entry of a table.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::error::nearest;
use super::findings::{Findings, Node};
use super::schema::Definitions;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;
pub(super) const SECOND_MS: u64 = 1000;
pub(super) const MINUTE_MS: u64 = 60 * SECOND_MS;
pub(super) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;

/// Something that can stand behind a key.
pub trait Setting {
    /// What it becomes.
    type Out;

    /// Reads it; `None`: what is wrong has been reported.
    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self::Out>;

    /// What holds where the key is left out; `None`: it must not be.
    fn absent(_: &mut Findings) -> Option<Self::Out> {
        None
    }

    /// Whether the key may be left out although no default is written.
    const IS_OPTIONAL: bool = false;
    /// The default of a key of this type, where none is written.
    const DEFAULT: Option<&'static str> = None;

    /// Its JSON Schema.
    fn schema(definitions: &mut Definitions) -> Json;

    /// Its bounds, where the schema cannot say them.
    fn range() -> Option<String> {
        None
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug)]
pub struct Count<const MIN: u64, const MAX: u64, N = usize>(std::marker::PhantomData<N>);

/// A number with a unit, from `MIN` to `MAX` of the smallest one.
#[derive(Debug)]
pub struct Quantity<U, const MIN: u64, const MAX: u64>(std::marker::PhantomData<U>);

/// A number of bytes: `"64KiB"`, or an integer.
pub(super) type Size<const MIN: u64, const MAX: u64> = Quantity<Bytes, MIN, MAX>;

/// A duration, in milliseconds: `"250ms"`, `"5s"`, `"10m"`, `"1h"`, `"30d"`.
pub(super) type Period<const MIN_MS: u64, const MAX_MS: u64> = Quantity<Time, MIN_MS, MAX_MS>;

/// What quantities are of.
pub trait Units {
    /// What a quantity becomes.
    type Out;
    /// The units, the smallest first, with how many of the smallest each is.
    const UNITS: &'static [(&'static str, u64)];
    /// What is to be written.
    const EXPECTED: &'static str;
    /// Whether an integer is a number of the smallest.
    const TAKES_INTEGERS: bool;

    /// What so many of the smallest become.
    fn of(number: u64) -> Option<Self::Out>;
}

/// The units of sizes.
#[derive(Debug)]
pub struct Bytes;

impl Units for Bytes {
    type Out = usize;
    const UNITS: &'static [(&'static str, u64)] =
        &[("B", 1), ("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", TIB)];
    const EXPECTED: &'static str =
        "expected a size such as \"64KiB\", \"4MiB\" or \"1GiB\", or a number of bytes";
    const TAKES_INTEGERS: bool = true;

    fn of(number: u64) -> Option<usize> {
        <usize as Number>::of(number)
    }
}

/// The units of durations.
#[derive(Debug)]
pub struct Time;

impl Units for Time {
    type Out = Duration;
    const UNITS: &'static [(&'static str, u64)] =
        &[("ms", 1), ("s", SECOND_MS), ("m", MINUTE_MS), ("h", HOUR_MS), ("d", DAY_MS)];
    const EXPECTED: &'static str =
        "expected a duration such as \"250ms\", \"5s\", \"10m\", \"1h\" or \"30d\"";
    const TAKES_INTEGERS: bool = false;

    fn of(number: u64) -> Option<Duration> {
        Some(Duration::from_millis(number))
    }
}

/// A share, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

// It is never NaN.
impl Eq for Ratio {}

impl Ratio {
    /// This share, if it is one.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The numbers that a count can become.
pub trait Number: Sized {
    /// The number, which lies within the bounds of the key.
    fn of(number: u64) -> Option<Self>;
}

/// On a 32-bit machine a bound beyond its memory is no bound, and neither is the largest number.
impl Number for usize {
    fn of(number: u64) -> Option<Self> {
        Some(Self::try_from(number).unwrap_or(Self::MAX))
    }
}

impl Number for u32 {
    fn of(number: u64) -> Option<Self> {
        Self::try_from(number).ok()
    }
}

impl Number for NonZeroUsize {
    fn of(number: u64) -> Option<Self> {
        usize::of(number).and_then(Self::new)
    }
}

impl<const MIN: u64, const MAX: u64, N: Number> Setting for Count<MIN, MAX, N> {
    type Out = N;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<N> {
        let DeValue::Integer(_) = node.get_ref() else {
            findings.is_not(node, &format!("a whole number from {MIN} to {MAX}"));
            return None;
        };
        let number = integer(node).filter(|number| (MIN..=MAX).contains(number)).and_then(N::of);
        if number.is_none() {
            findings.value_error(node, &format!("must be a whole number from {MIN} to {MAX}"));
        }
        number
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

impl<U: Units, const MIN: u64, const MAX: u64> Setting for Quantity<U, MIN, MAX> {
    type Out = U::Out;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<U::Out> {
        let number = match node.get_ref() {
            DeValue::Integer(_) if U::TAKES_INTEGERS => integer(node),
            DeValue::Integer(_) => {
                findings.value_error(node, &format!("a unit is missing: {}", U::EXPECTED));
                return None;
            }
            DeValue::String(text) if let Some((digits, factor)) = split_unit(text, U::UNITS) => {
                digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor))
            }
            _ => {
                findings.value_error(node, U::EXPECTED);
                return None;
            }
        };
        let number = number.filter(|number| (MIN..=MAX).contains(number));
        if number.is_none() {
            findings.value_error(node, &format!("must be from {}", Self::range().unwrap_or_default()));
        }
        number.and_then(U::of)
    }

    fn schema(_: &mut Definitions) -> Json {
        let units: Vec<&str> = U::UNITS.iter().map(|(unit, _)| *unit).collect();
        let text = json!({ "type": "string", "pattern": format!("^[0-9]+({})$", units.join("|")) });
        if U::TAKES_INTEGERS {
            json!({ "anyOf": [text, { "type": "integer", "minimum": MIN, "maximum": MAX }] })
        } else {
            text
        }
    }

    fn range() -> Option<String> {
        let [min, max] = [MIN, MAX].map(|bound| in_largest_unit(bound, U::UNITS));
        Some(format!("{min} to {max}"))
    }
}

impl Setting for Ratio {
    type Out = Self;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self> {
        let ratio = match node.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            _ => {
                findings.is_not(node, "a number from 0 to 1");
                return None;
            }
        };
        let ratio = ratio.and_then(Self::new);
        if ratio.is_none() {
            findings.value_error(node, "must be from 0 to 1");
        }
        ratio
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl Setting for bool {
    type Out = Self;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self> {
        let value = node.get_ref().as_bool();
        if value.is_none() {
            findings.is_not(node, "`true` or `false`");
        }
        value
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "boolean" })
    }
}

/// A word of a few, and what it means.
pub(super) type Choice<E> = (E, &'static str, &'static str);

/// Declares an enum of the words that a key takes: `Variant = "word"`, each with what it means.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        pub enum $name:ident {
            $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal ),+ $(,)?
        }
    ) => {
        protocol::words! {
            $(#[doc = $about])+
            $(#[derive($($derive),+)])?
            pub enum $name reads of, says label {
                $( $(#[doc = $doc])+ $variant = $word ),+
            }
        }

        $crate::value::choice!($name, [$((Self::$variant, $word, concat!($($doc),+))),+]);
    };
    ($name:ident, $choices:expr) => {
        impl $crate::value::Setting for $name {
            type Out = Self;

            fn read(node: &$crate::findings::Node<'_>, findings: &mut $crate::findings::Findings) -> Option<Self> {
                $crate::value::read_choice(&$choices, node, findings)
            }

            fn schema(definitions: &mut $crate::schema::Definitions) -> serde_json::Value {
                definitions.choice::<Self>(stringify!($name), &$choices)
            }
        }
    };
}
pub(super) use choice;

/// What others write → what is written here, the first that is one of the choices.
const SYNONYMS: [(&[&str], &str); 18] = [
    (&["permit", "accept", "pass", "grant"], "allow"),
    (&["block", "reject", "refuse", "forbid", "drop", "disallow"], "deny"),
    (&["ip", "client_ip", "source_ip", "remote_addr", "remote_ip", "remote_host", "src", "peer"], "address"),
    (
        &["user", "key", "api_key", "client", "caller", "consumer", "subject", "identity", "token"],
        "principal",
    ),
    (&["path", "route", "location", "uri"], "endpoint"),
    (&["server", "backend", "service", "cluster"], "upstream"),
    (&["tool_name", "name", "method"], "tool"),
    (&["key", "keys", "apikey", "api-key", "api_keys", "bearer"], "api_key"),
    (&["token", "oauth", "oauth2", "oidc", "openid", "jwks"], "jwt"),
    (&["login", "signin", "sign-in", "sso"], "sign_in"),
    (&["mtls", "tls", "cert", "certificate", "client_cert", "x509"], "client_certificate"),
    (&["warning"], "warn"),
    (&["err", "critical", "crit", "fatal", "alert", "emerg"], "error"),
    (&["notice", "information"], "info"),
    (&["verbose"], "debug"),
    (&["plain", "human", "console", "logfmt"], "text"),
    (&["require", "require_and_verify", "on", "always", "verify"], "required"),
    (&["off", "never", "no"], "none"),
];

/// The one of `choices` that is written at `node`.
pub(super) fn read_choice<E: Copy>(
    choices: &[Choice<E>],
    node: &Node<'_>,
    findings: &mut Findings,
) -> Option<E> {
    let Some(text) = node.get_ref().as_str() else {
        findings.is_not(node, "a string");
        return None;
    };
    let choice = choices.iter().find(|(_, word, _)| *word == text).map(|(choice, ..)| *choice);
    if choice.is_none() {
        let words: Vec<String> = choices.iter().map(|(_, word, _)| format!("`{word}`")).collect();
        findings.value_error(node, &format!("must be one of {}", words.join(", ")));
        let words: Vec<&str> = choices.iter().map(|(_, word, _)| *word).collect();
        findings.suggest(meant(text, &words));
    }
    choice
}

/// Which of `words` may have been meant.
pub(super) fn meant(text: &str, words: &[&str]) -> Option<String> {
    let is_meant = |(theirs, ours): &&(&[&str], &str)| theirs.contains(&text) && words.contains(ours);
    let said = SYNONYMS.iter().find(is_meant).map(|(_, ours)| format!("did you mean `{ours}`?"));
    said.or_else(|| nearest(text, words.iter().copied()))
}

/// The number that is written at `node`, if it is not negative.
fn integer(node: &Node<'_>) -> Option<u64> {
    let integer = node.get_ref().as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A number as it would be written: `90000` milliseconds are `90s`, `65536` bytes are `64KiB`.
fn in_largest_unit(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| *factor == 1 || number != 0 && number.is_multiple_of(*factor);
    let largest = units.iter().rfind(fits);
    largest.map(|(unit, factor)| format!("{}{unit}", number / factor)).unwrap_or_default()
}

/// `<digits><unit>`, without sign, fraction or space.
fn split_unit<'t>(text: &'t str, units: &[(&str, u64)]) -> Option<(&'t str, u64)> {
    let digits_end = text.find(|character: char| !character.is_ascii_digit()).filter(|end| *end > 0)?;
    let (digits, unit) = text.split_at(digits_end);
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| (digits, *factor))
}
