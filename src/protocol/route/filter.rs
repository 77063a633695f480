//! Allow and deny patterns of an endpoint over its public names and URIs. Deny wins.
//!
//! `*` matches any run of characters, `/` and `.` included. What is allowed is compared with case; what is denied, as
//! rules do, in every way that a server may read it ([`super::spelling`]).

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::Kind;
use super::spelling::{fold, readings};

/// Compiled patterns.
#[derive(Clone, Debug)]
pub struct NameFilter {
    allow: Option<GlobSet>,
    deny: Option<GlobSet>,
}

impl NameFilter {
    /// Compiles the patterns. An `allow` of only `*` is the same as none.
    pub fn new(allow: &[String], deny: &[String]) -> Result<Self, globset::Error> {
        let allows_all = allow.iter().any(|pattern| pattern == "*");
        Ok(Self {
            allow: if allows_all { None } else { Some(compile(allow)?) },
            deny: if deny.is_empty() { None } else { Some(compile_folded(deny)?) },
        })
    }

    /// True if nothing is ever hidden.
    pub fn allows_everything(&self) -> bool {
        self.allow.is_none() && self.deny.is_none()
    }

    /// True if something is denied by name.
    pub fn denies_some(&self) -> bool {
        self.deny.is_some()
    }

    /// True if this name is denied.
    pub fn denies(&self, kind: Kind, name: &str) -> bool {
        self.deny.as_ref().is_some_and(|deny| readings(kind, name).iter().any(|read| deny.is_match(&**read)))
    }

    /// True if something known under all of `names` may be used: none is denied, at least one is allowed.
    pub fn allows(&self, kind: Kind, names: &[&str]) -> bool {
        let is_allowed =
            self.allow.as_ref().is_none_or(|allow| names.iter().any(|name| allow.is_match(name)));
        is_allowed && !names.iter().any(|name| self.denies(kind, name))
    }
}

/// Compiles patterns over names.
pub fn compile(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(glob(pattern)?);
    }
    set.build()
}

/// Compiles patterns over names without capitals ([`fold`]).
pub fn compile_folded(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    compile(&patterns.iter().map(|pattern| fold(pattern).into_owned()).collect::<Vec<_>>())
}

/// Reads one pattern over names.
pub fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build()
}

/// The pattern of this text alone.
pub fn literal(text: &str) -> String {
    // Outside brackets a backslash takes what follows for itself, and at the end it is no pattern.
    text.split('\\').map(globset::escape).collect::<Vec<_>>().join(r"[\]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_literal_pattern_is_that_of_its_text_alone(text in r"[a*?\[\]{},!\\/é-]{0,8}", other in r"[a*\\\[]{0,8}") {
            let pattern = glob(&literal(&text)).expect("a pattern").compile_matcher();
            prop_assert!(pattern.is_match(&text), "{}", literal(&text));
            prop_assert_eq!(pattern.is_match(&other), text == other, "{}", literal(&text));
        }
    }

    #[test]
    fn deny_wins_and_any_allowed_name_will_do() {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (allow, deny, names, allowed) in [
            (&["*"][..], &[][..], &["x"][..], true),
            (&["w__*"], &[], &["w__a"], true),
            (&["w__*"], &[], &["f__a"], false),
            (&["*"], &["w__*"], &["w__a"], false),
            (&["*"], &["w__*"], &["today", "w__a"], false),
            (&["today"], &[], &["today", "w__a"], true),
            (&[], &[], &["x"], false),
            (&["file:*"], &["*secret*"], &["file:///a/secret/b"], false),
            (&["*"], &["delete_*"], &["Delete_All"], false),
            (&["*"], &["DELETE_*"], &["delete_all"], false),
            (&["*"], &["delete_*"], &["a", "de\u{212a}ete", "DELETE_x"], false),
            (&["*"], &["kill"], &[" \u{212a}ill\n"], false),
            (&["W__*"], &[], &["w__a"], false),
            (&["*"], &["file:///secret"], &["file:///Secret"], false),
            (&["*"], &["file:///secret"], &["file:///secret?x"], false),
            (&["*"], &["file:///secret"], &["file:///secret/"], false),
            (&["*"], &["file:///secret"], &["file:///secret%21"], true),
            (&["*"], &["file:///secret!"], &["file:///secret%21"], false),
        ] {
            let filter = NameFilter::new(&own(allow), &own(deny)).expect("patterns");
            let kind = if names[0].contains(':') { Kind::Resource } else { Kind::Tool };
            assert_eq!(filter.allows(kind, names), allowed, "{allow:?} {deny:?} {names:?}");
        }
    }
}
