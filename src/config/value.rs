//! The values a configuration is made of: a value with its place in the text, a key that may be absent, and numbers,
//! sizes and durations with the range they must lie in.
//!
//! Each type says both how it is read and how its JSON Schema looks, so that the two cannot drift apart.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use toml::Spanned;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;
pub(super) const SECOND_MS: u64 = 1000;
pub(super) const MINUTE_MS: u64 = 60 * SECOND_MS;
pub(super) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;

const DURATION_UNITS_MS: [(&str, u64); 4] = [("ms", 1), ("s", SECOND_MS), ("m", MINUTE_MS), ("h", HOUR_MS)];
const SIZE_UNITS: [(&str, u64); 5] = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];

/// A value and the bytes of the text it was written in.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Range<usize>,
}

/// A key that may be left out. Unlike an `Option` it is never `null` in the schema, as TOML has no null.
#[derive(Debug, Clone)]
pub(super) struct Key<T>(pub(super) Option<At<T>>);

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count<const MIN: u64, const MAX: u64>(u64);

/// A number of bytes from `MIN` to `MAX`: `"64KiB"`, or an integer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size<const MIN: u64, const MAX: u64>(u64);

/// A duration from `MIN_MS` to `MAX_MS` milliseconds: `"250ms"`, `"5s"`, `"10m"`, `"1h"`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period<const MIN_MS: u64, const MAX_MS: u64>(Duration);

/// A share, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

// It is never NaN.
impl Eq for Ratio {}

impl Ratio {
    /// All.
    pub const ONE: Self = Self(1.0);

    /// This share, if it is one.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<T> Key<T> {
    pub(super) fn value(&self) -> Option<&T> {
        self.0.as_ref().map(|at| &at.value)
    }

    pub(super) fn span(&self) -> Option<Range<usize>> {
        self.0.as_ref().map(|at| at.span.clone())
    }
}

impl<const MIN: u64, const MAX: u64> Key<Count<MIN, MAX>> {
    pub(super) fn or(&self, default: usize) -> usize {
        self.value().map_or(default, |count| to_usize(count.0))
    }
}

impl<const MIN: u64, const MAX: u64> Key<Size<MIN, MAX>> {
    pub(super) fn or(&self, default: usize) -> usize {
        self.value().map_or(default, |size| to_usize(size.0))
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> Key<Period<MIN_MS, MAX_MS>> {
    pub(super) fn or(&self, default: Duration) -> Duration {
        self.value().map_or(default, |period| period.0)
    }
}

/// On a 32-bit machine a bound beyond its memory is no bound, and neither is the largest number.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Milliseconds as they would be written: `90000` is `90s`, `3600000` is `1h`.
fn duration_text(milliseconds: u64) -> String {
    in_largest_unit(milliseconds, DURATION_UNITS_MS.iter().rev().copied(), "ms")
}

/// Bytes as they would be written: `65536` is `64KiB`.
fn size_text(bytes: u64) -> String {
    in_largest_unit(bytes, SIZE_UNITS.iter().copied(), "B")
}

fn in_largest_unit(
    number: u64,
    largest_first: impl Iterator<Item = (&'static str, u64)>,
    smallest: &str,
) -> String {
    let mut largest_first = largest_first;
    largest_first
        .find(|(_, factor)| number != 0 && number.is_multiple_of(*factor))
        .map_or_else(|| format!("{number}{smallest}"), |(unit, factor)| format!("{}{unit}", number / factor))
}

/// `<digits><unit>`, without sign, fraction or space.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits_end = text.find(|character: char| !character.is_ascii_digit())?;
    let (digits, unit) = text.split_at(digits_end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = format!("a whole number from {MIN} to {MAX}");
        let number =
            deserializer.deserialize_any(Number { expecting: &expecting, bare: true, units: &[] })?;
        in_range(number, MIN, MAX).ok_or_else(|| D::Error::custom(format!("must be {expecting}"))).map(Self)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a size such as \"64KiB\", \"4MiB\" or \"1GiB\", or a number of bytes";
        let number = deserializer.deserialize_any(Number { expecting, bare: true, units: &SIZE_UNITS })?;
        in_range(number, MIN, MAX)
            .ok_or_else(|| D::Error::custom(format!("must be from {} to {}", size_text(MIN), size_text(MAX))))
            .map(Self)
    }
}

impl<'de, const MIN_MS: u64, const MAX_MS: u64> Deserialize<'de> for Period<MIN_MS, MAX_MS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a duration such as \"250ms\", \"5s\", \"10m\" or \"1h\"";
        let number =
            deserializer.deserialize_any(Number { expecting, bare: false, units: &DURATION_UNITS_MS })?;
        in_range(number, MIN_MS, MAX_MS)
            .ok_or_else(|| {
                D::Error::custom(format!(
                    "must be from {} to {}",
                    duration_text(MIN_MS),
                    duration_text(MAX_MS)
                ))
            })
            .map(|milliseconds| Self(Duration::from_millis(milliseconds)))
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(D::Error::custom("must be from 0 to 1"))
        }
    }
}

fn in_range(number: Option<u64>, min: u64, max: u64) -> Option<u64> {
    number.filter(|number| (min..=max).contains(number))
}

/// Reads a bare number, or one with a unit; `None` is a number beyond the range of `u64`.
struct Number<'a> {
    expecting: &'a str,
    bare: bool,
    units: &'a [(&'a str, u64)],
}

impl Visitor<'_> for Number<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        if self.bare {
            return Ok(u64::try_from(number).ok());
        }
        Err(E::custom(format!("a unit is missing: expected {}", self.expecting)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        if self.bare {
            return Ok(Some(number));
        }
        Err(E::custom(format!("a unit is missing: expected {}", self.expecting)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match parse_with_unit(text, self.units) {
            Some(number) => Ok(Some(number)),
            None => Err(E::custom(format!("expected {}", self.expecting))),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Key<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        At::deserialize(deserializer).map(|at| Self(Some(at)))
    }
}

impl<T> Default for Key<T> {
    fn default() -> Self {
        Self(None)
    }
}

// A key of a map is the same wherever it was written.
impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: PartialOrd> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for At<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

/// A wrapper that looks in the schema like what it wraps.
macro_rules! same_schema {
    ($wrapper:ident) => {
        impl<T: JsonSchema> JsonSchema for $wrapper<T> {
            fn inline_schema() -> bool {
                T::inline_schema()
            }
            fn schema_name() -> Cow<'static, str> {
                T::schema_name()
            }
            fn schema_id() -> Cow<'static, str> {
                T::schema_id()
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        }
    };
}

same_schema!(At);
same_schema!(Key);

impl<const MIN: u64, const MAX: u64> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

impl JsonSchema for Ratio {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Size<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|TiB)$" },
                { "type": "integer", "minimum": MIN, "maximum": MAX }
            ]
        })
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> JsonSchema for Period<MIN_MS, MAX_MS> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" })
    }
}
