//! What the annotations of a tool say about it: `readOnlyHint` and its like.
//!
//! They are hints of the server that offers the tool, and as good as that server. Where one is missing, is no truth
//! value or stands there twice, the specification's default holds, which is always the one that promises least.

use super::json::{JsonKind, Value};

crate::words! {
    /// One of the annotations, with its key.
    pub enum Hint reads of, says key {
        /// The tool changes nothing.
        ReadOnly = "readOnlyHint",
        /// The tool may destroy something.
        Destructive = "destructiveHint",
        /// Calling it twice does no more than once.
        Idempotent = "idempotentHint",
        /// The tool reaches beyond what is known.
        OpenWorld = "openWorldHint",
    }
}

/// What all annotations of a tool say. By default, what the specification says of a tool without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// A bit for each hint that differs from its default.
    promises: u8,
}

/// What a tool's annotations have to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequiredHints {
    mask: u8,
    promises: u8,
}

impl Hint {
    fn default(self) -> bool {
        matches!(self, Self::Destructive | Self::OpenWorld)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Hints {
    /// Reads a tool's definition.
    pub fn of(tool: Value<'_>) -> Self {
        let mut hints = Self::default();
        let Some(annotations) = tool.only("annotations") else { return hints };
        for hint in Hint::ALL {
            let said = match annotations.only(hint.key()).map(Value::kind) {
                Some(JsonKind::True) => true,
                Some(JsonKind::False) => false,
                _ => continue,
            };
            if said != hint.default() {
                hints.promises |= hint.bit();
            }
        }
        hints
    }

    /// What two definitions of one tool both promise.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { promises: self.promises & other.promises }
    }
}

impl RequiredHints {
    /// All of `said`.
    pub fn new(said: &[(Hint, bool)]) -> Self {
        said.iter().fold(Self::default(), |wanted, (hint, value)| Self {
            mask: wanted.mask | hint.bit(),
            promises: wanted.promises | if *value == hint.default() { 0 } else { hint.bit() },
        })
    }

    /// Whether a tool with these annotations is meant.
    pub fn is_said_by(self, hints: Hints) -> bool {
        hints.promises & self.mask == self.promises
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::Scratch;
    use super::*;

    #[test]
    fn annotations_are_read_as_the_least_they_can_mean() {
        let read_only = RequiredHints::new(&[(Hint::ReadOnly, true)]);
        let harmless = RequiredHints::new(&[(Hint::Destructive, false), (Hint::OpenWorld, false)]);
        for (tool, is_read_only, is_harmless) in [
            ("{}", false, false),
            ("[]", false, false),
            (r#"{"annotations":null}"#, false, false),
            (r#"{"annotations":{"readOnlyHint":true}}"#, true, false),
            (r#"{"annotations":{"readOnly\u0048int":true}}"#, true, false),
            (r#"{"annotations":{"readOnlyHint":"true"}}"#, false, false),
            (r#"{"annotations":{"ReadOnlyHint":true}}"#, false, false),
            (r#"{"annotations":{"readOnlyHint":true,"readOnlyHint":false}}"#, false, false),
            (r#"{"annotations":{"readOnlyHint":true},"annotations":{}}"#, false, false),
            (r#"{"annotations":{"destructiveHint":false}}"#, false, false),
            (r#"{"annotations":{"destructiveHint":false,"openWorldHint":false}}"#, false, true),
        ] {
            let mut scratch = Scratch::default();
            let hints = Hints::of(scratch.index(tool.as_bytes(), 16).expect("JSON").root());
            let said = (read_only.is_said_by(hints), harmless.is_said_by(hints));
            assert_eq!(said, (is_read_only, is_harmless), "{tool}");
        }
        let default = RequiredHints::new(&[(Hint::Destructive, true), (Hint::ReadOnly, false)]);
        assert!(default.is_said_by(Hints::default()));
    }
}
