//! Where the text names a file, an address to listen at or another source of a secret: what cannot be used is told with the
//! line of its key.
//!
//! An error of what is read with a configuration names the file, and comes from whoever read it: what it is about is found
//! in its words.

use std::cmp::Reverse;
use std::ops::Range;

use super::error::Diagnostic;
use super::source::ConfigSource;

/// Each of these as errors say it, and where it is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedPlaces(pub(super) Vec<(String, Range<usize>)>);

impl NamedPlaces {
    /// An error, behind the file and the line that name what it is about.
    pub fn located(&self, source: &ConfigSource, error: String) -> String {
        match self.of(&error) {
            Some(span) => format!("{}: {error}", source.line_of(span)),
            None => error,
        }
    }

    /// An error as a finding about the text, if that names what it is about. The rest of its line may be a password.
    pub fn finding(&self, error: &str) -> Option<Diagnostic> {
        self.of(error).map(|span| Diagnostic::error(span.clone(), error).beside_secret())
    }

    /// Of what lies in a directory that is named, that is the place; of what is named itself, the first that names it.
    fn of(&self, error: &str) -> Option<&Range<usize>> {
        let named = self.0.iter().filter(|(name, _)| is_named_in(error, name));
        named.max_by_key(|(name, span)| (name.len(), Reverse(span.start))).map(|(_, span)| span)
    }
}

/// Whether `name` stands in `error`, and is not a part of another name.
fn is_named_in(error: &str, name: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || "._-".contains(c);
    error.match_indices(name).any(|(at, _)| {
        let (before, after) = (&error[..at], &error[at + name.len()..]);
        !before.ends_with(|c| is_of_name(c) || c == '/')
            && (name.ends_with('/') || !after.starts_with(is_of_name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_the_line_that_names_what_it_is_about() {
        let source = ConfigSource::new("f.toml", "a\nb\nc\nd\n");
        let named = [
            ("/etc/a/", 0),
            ("/etc/a/b.pem", 4),
            ("/etc/a/b.pem", 2),
            ("the credential x", 4),
            ("/b.pem", 6),
        ];
        let places = NamedPlaces(named.map(|(name, at)| (name.to_owned(), at..at + 1)).to_vec());
        for (error, line) in [
            ("cannot read /etc/a/b.pem: no", Some(2)),
            ("cannot read a secret from the file /etc/a/b.pem", Some(2)),
            ("session key /etc/a/session.key: no", Some(1)),
            ("the credential x is not a key", Some(3)),
            ("the credential xy is not a key", None),
            ("/etc/a.pem: no", None),
            ("/etc/c/b.pem: no", None),
            ("nothing", None),
        ] {
            let expected = line.map_or_else(|| error.to_owned(), |line| format!("f.toml:{line}: {error}"));
            assert_eq!(places.located(&source, error.to_owned()), expected);
            assert_eq!(places.finding(error).is_some(), line.is_some(), "{error}");
        }
    }
}
