//! Scopes: which a principal may have, by groups, and which of those that a client asks for it gets.
//!
//! Invariant: a scope is never granted because a client asks for it. What a principal may not have is dropped, and the
//! answer tells which.

use std::collections::BTreeMap;

use crate::oauth_error::{ErrorCode, OAuthError};

/// More than any client asks for, and all travel in a cookie.
const SCOPES_MAX: usize = 32;
const SCOPES_BYTES_MAX: usize = 512;
/// The group of everybody.
const EVERYBODY: &str = "*";

/// Scope → the groups that may have it.
#[derive(Clone, Debug, Default)]
pub struct ScopeRules(BTreeMap<String, Vec<String>>);

/// The scopes that a principal gets, and those that it asked for and does not get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantedScopes {
    /// In the order in which they were asked for.
    pub granted: Vec<String>,
    /// Unknown ones, and those of groups that the principal is not in.
    pub dropped: Vec<String>,
}

impl ScopeRules {
    /// The rules of the configuration; `*` is the group of everybody.
    pub fn new(rules: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// True where a principal of these groups may have the scope.
    pub fn may_have(&self, scope: &str, groups: &[impl AsRef<str>]) -> bool {
        let is_in =
            |allowed: &String| allowed == EVERYBODY || groups.iter().any(|group| group.as_ref() == allowed);
        self.0.get(scope).is_some_and(|allowed| allowed.iter().any(is_in))
    }

    /// The scopes of `asked` that a principal of these groups gets.
    pub fn grant(&self, asked: &[impl AsRef<str>], groups: &[impl AsRef<str>]) -> GrantedScopes {
        let mut scopes = GrantedScopes::default();
        for scope in asked {
            let scope = scope.as_ref();
            let to = if self.may_have(scope, groups) { &mut scopes.granted } else { &mut scopes.dropped };
            to.push(scope.to_owned());
        }
        scopes
    }

    /// The scopes that a principal of these groups could have for the asking.
    pub fn obtainable(&self, groups: &[impl AsRef<str>]) -> Vec<String> {
        self.0.keys().filter(|scope| self.may_have(scope, groups)).cloned().collect()
    }
}

/// Reads the parameter `scope`: each scope once, in its order. Missing: none.
pub fn read(text: Option<&str>) -> Result<Vec<String>, OAuthError> {
    let text = text.unwrap_or_default();
    let refused = |why| Err(OAuthError::new(ErrorCode::InvalidScope, why));
    if text.len() > SCOPES_BYTES_MAX {
        return refused("scope is too long");
    }
    let mut scopes: Vec<String> = Vec::new();
    for scope in text.split(' ').filter(|scope| !scope.is_empty()) {
        if !scope.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') {
            return refused("scope holds a character that no scope has");
        }
        if scopes.len() >= SCOPES_MAX {
            return refused("scope names too many scopes");
        }
        if !scopes.iter().any(|present| present == scope) {
            scopes.push(scope.to_owned());
        }
    }
    Ok(scopes)
}

/// The scopes of a refreshed token: those of the grant, or of them only those that are asked for (RFC 6749 §6).
pub fn narrowed(asked: Option<&str>, granted: &[String]) -> Result<Vec<String>, OAuthError> {
    let asked = read(asked)?;
    if asked.is_empty() {
        return Ok(granted.to_vec());
    }
    let kept: Vec<String> = granted.iter().filter(|scope| asked.contains(scope)).cloned().collect();
    if kept.is_empty() {
        return Err(OAuthError::new(ErrorCode::InvalidScope, "none of these scopes was granted"));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOBODY: [&str; 0] = [];

    fn rules() -> ScopeRules {
        let rules = [("mcp:read", vec!["*"]), ("mcp:write", vec!["ops", "dev"]), ("mcp:none", vec![])];
        ScopeRules::new(
            rules.map(|(scope, groups)| (scope.to_owned(), groups.into_iter().map(str::to_owned).collect())),
        )
    }

    #[test]
    fn must_17_no_scope_is_granted_because_a_client_asks() {
        let asked = ["mcp:write", "mcp:read", "admin", "mcp:none", "*"];
        let found = rules().grant(&asked, &NOBODY);
        assert_eq!(found.granted, ["mcp:read"]);
        assert_eq!(found.dropped, ["mcp:write", "admin", "mcp:none", "*"]);
        assert_eq!(rules().grant(&asked, &["ops"]).granted, ["mcp:write", "mcp:read"]);
        assert_eq!(
            rules().grant(&NOBODY, &["ops"]).granted,
            NOBODY,
            "nothing is granted that was not asked for"
        );
    }

    #[test]
    fn a_visit_helps_where_a_group_may_have_the_scope() {
        assert_eq!(rules().obtainable(&NOBODY), ["mcp:read"]);
        assert_eq!(rules().obtainable(&["dev"]), ["mcp:read", "mcp:write"]);
        assert_eq!(rules().obtainable(&["staff"]), ["mcp:read"], "no group of theirs would get it");
    }

    #[test]
    fn bad_input_what_is_no_scope_is_refused() {
        let many = (0..33).map(|n| format!("s{n}")).collect::<Vec<_>>().join(" ");
        for text in ["a\tb", "a\"b", "a\\b", "\u{e4}", "a\0", &"a".repeat(513), &many] {
            assert_eq!(
                read(Some(text)).map_err(|error| error.code),
                Err(ErrorCode::InvalidScope),
                "{text:?}"
            );
        }
        assert_eq!(read(Some(" a  b a ")), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read(None), Ok(Vec::new()));
    }

    #[test]
    fn a_refresh_narrows_and_never_widens() {
        let granted = ["a".to_owned(), "b".to_owned()];
        assert_eq!(narrowed(None, &granted), Ok(granted.to_vec()));
        assert_eq!(narrowed(Some("b c"), &granted), Ok(vec!["b".to_owned()]));
        assert_eq!(narrowed(Some("c"), &granted).map_err(|error| error.code), Err(ErrorCode::InvalidScope));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            if let Ok(scopes) = read(Some(&text)) {
                let found = rules().grant(&scopes, &["ops"]);
                prop_assert!(found.granted.iter().all(|scope| scope == "mcp:read" || scope == "mcp:write"));
                prop_assert_eq!(found.granted.len() + found.dropped.len(), scopes.len());
            }
        }
    }
}
