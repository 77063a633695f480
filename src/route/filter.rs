//! Allow and deny patterns of an endpoint over its public names and URIs. Deny wins.
//!
//! `*` matches any run of characters, `/` and `.` included; names are compared with case.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Compiled patterns.
#[derive(Clone, Debug)]
pub struct Filter {
    allow: Option<GlobSet>,
    deny: Option<GlobSet>,
}

impl Filter {
    /// Compiles the patterns. An `allow` of only `*` is the same as none.
    pub fn new(allow: &[String], deny: &[String]) -> Result<Self, globset::Error> {
        let allows_all = allow.iter().any(|pattern| pattern == "*");
        Ok(Self {
            allow: if allows_all { None } else { Some(compile(allow)?) },
            deny: if deny.is_empty() { None } else { Some(compile(deny)?) },
        })
    }

    /// True if nothing is ever hidden.
    pub fn allows_everything(&self) -> bool {
        self.allow.is_none() && self.deny.is_none()
    }

    /// True if this very name is denied.
    pub fn denies(&self, name: &str) -> bool {
        self.deny.as_ref().is_some_and(|deny| deny.is_match(name))
    }

    /// True if something known under all of `names` may be used: none is denied, at least one is allowed.
    pub fn allows(&self, names: &[&str]) -> bool {
        let is_denied = self.deny.as_ref().is_some_and(|deny| names.iter().any(|name| deny.is_match(name)));
        let is_allowed =
            self.allow.as_ref().is_none_or(|allow| names.iter().any(|name| allow.is_match(name)));
        is_allowed && !is_denied
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

/// Reads one pattern over names.
pub fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let filter = Filter::new(&own(allow), &own(deny)).expect("patterns");
            assert_eq!(filter.allows(names), allowed, "{allow:?} {deny:?} {names:?}");
        }
    }
}
