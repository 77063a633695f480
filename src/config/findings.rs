//! What is found while a text is read and checked, and where the reader stands.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::error::Diagnostic;
use super::places::NamedPlaces;
use super::table::Table;

/// A value of the text.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Everything that is wrong or odd.
#[derive(Debug, Default)]
pub struct Findings {
    pub(super) errors: Vec<Diagnostic>,
    pub(super) warnings: Vec<Diagnostic>,
    /// What errors may name, and where.
    pub(super) named: NamedPlaces,
    /// The tables and keys that lead to what is being read.
    pub(super) path: Vec<String>,
    /// Whether what is being read is an element of an array.
    pub(super) is_element: bool,
    /// Whether somebody may have written a secret into what is being read.
    pub(super) may_hold_secret: bool,
    /// Whether the key that is being read may be left out.
    pub(super) may_be_absent: bool,
    /// Where values begin that could not be read.
    unreadable: BTreeSet<usize>,
    /// Tables with a key that is unknown or could not be read.
    damaged: BTreeSet<(usize, usize)>,
    /// Of these, tables with a key that is unknown.
    misspelt: BTreeSet<(usize, usize)>,
}

impl Findings {
    pub(super) fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        let error = Diagnostic::error(span, message);
        self.errors.push(if self.may_hold_secret { error.secret() } else { error });
    }

    /// An error of which the line may show a secret.
    pub(super) fn secret_error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.errors.push(Diagnostic::error(span, message).secret());
    }

    /// A warning of which the line may show a secret.
    pub(super) fn secret_warning(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.warnings.push(Diagnostic::warning(span, message).secret());
    }

    pub(super) fn warning(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.warnings.push(Diagnostic::warning(span, message));
    }

    /// An error about the value of a key, if the text has the key and it could be read.
    pub(super) fn error_at(&mut self, table: Table<'_>, key: &str, message: impl Into<String>) {
        if let Some(span) = self.span(table, key) {
            self.error(span, message);
        }
    }

    /// Reports the value of a key that is among those `taken` by others, if it could be read.
    pub(super) fn unique<T: Ord>(
        &mut self,
        table: Table<'_>,
        key: &str,
        value: T,
        taken: &mut BTreeSet<T>,
        message: impl Into<String>,
    ) {
        if self.span(table, key).is_some() && !taken.insert(value) {
            self.error_at(table, key, message);
        }
    }

    /// Where the value of a key stands, unless it could not be read.
    pub(super) fn span(&self, table: Table<'_>, key: &str) -> Option<Range<usize>> {
        let span = table.get(key)?.span();
        (!self.unreadable.contains(&span.start)).then_some(span)
    }

    /// The value of the key that is being read is not what it should be: `expected` says what.
    pub(super) fn is_not(&mut self, node: &Node<'_>, expected: &str) {
        let found = match node.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.value_error(node, &format!("expected {expected}, found {found}"));
    }

    /// An error about the value of the key that is being read.
    pub(super) fn value_error(&mut self, node: &Node<'_>, message: &str) {
        let key = self.path.last().cloned().unwrap_or_default();
        self.error(node.span(), format!("`{key}`: {message}"));
    }

    /// What to write instead of what the last error is about.
    pub(super) fn suggest(&mut self, suggestion: Option<String>) {
        if let Some(error) = self.errors.last_mut() {
            error.suggestion = suggestion;
        }
    }

    /// The heading of the table that is being read.
    pub(super) fn heading(&self) -> String {
        let path = self.path.join(".");
        if self.is_element { format!("[[{path}]]") } else { format!("[{path}]") }
    }

    pub(super) fn unreadable(&mut self, table: Table<'_>, span: &Range<usize>) {
        self.unreadable.insert(span.start);
        self.damaged.insert(table.bounds());
    }

    pub(super) fn misspelt(&mut self, table: Table<'_>) {
        self.damaged.insert(table.bounds());
        self.misspelt.insert(table.bounds());
    }

    /// Whether a key of the table is unknown: one that seems to be missing may be that.
    pub(super) fn is_misspelt(&self, table: Table<'_>) -> bool {
        self.misspelt.contains(&table.bounds())
    }

    /// Whether a key of the table is unknown or could not be read: what follows from its absence may not hold.
    pub(super) fn is_damaged(&self, table: Table<'_>) -> bool {
        self.damaged.contains(&table.bounds())
    }
}
