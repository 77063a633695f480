//! The groups and claims that rules name: those alone stand in a token, so that it stays small.
//!
//! Their fingerprint stands in each token. After a reload whose rules name others, a token says too little, and is brought up to
//! date from the record of its account.

use std::collections::BTreeSet;

use config::Config;
use identity::sealed::fingerprint::Fingerprint;

/// The groups and claims that the configuration names.
#[derive(Debug)]
pub(crate) struct NamedFacts {
    groups: BTreeSet<Box<str>>,
    claims: BTreeSet<Box<str>>,
    fingerprint: u64,
}

impl NamedFacts {
    pub(crate) fn of(config: &Config) -> Self {
        let (mut groups, mut claims) = (BTreeSet::new(), BTreeSet::new());
        for rule in &config.rules {
            groups.extend(rule.groups.iter().flatten().map(|group| group.as_str().into()));
            claims.extend(rule.claims.iter().map(|(claim, _)| claim.as_str().into()));
        }
        let limits = config.rate_limits.iter().flat_map(|limit| &limit.groups);
        groups.extend(limits.map(|group| group.as_str().into()));
        // A 403 tells without asking the provider whether a visit would grant a scope.
        let scopes = config.sign_in.iter().flat_map(|sign_in| &sign_in.scopes);
        groups.extend(scopes.flat_map(|(_, groups)| groups).map(|group| group.as_str().into()));
        // Tokens that other scopes or requirements were judged by are judged anew.
        let judged =
            config.sign_in.iter().map(|sign_in| format!("{:?} {:?}", sign_in.scopes, sign_in.require));
        Self::new(groups, claims, &judged.collect::<String>())
    }

    fn new(groups: BTreeSet<Box<str>>, claims: BTreeSet<Box<str>>, judged: &str) -> Self {
        let texts: Vec<&str> = groups
            .iter()
            .map(|group| &**group)
            .chain(["\0"])
            .chain(claims.iter().map(|claim| &**claim))
            .chain(["\0", judged])
            .collect();
        let digest = Fingerprint::of(&texts).0;
        let fingerprint = digest.first_chunk().copied().map_or(0, u64::from_be_bytes);
        Self { groups, claims, fingerprint }
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    pub(crate) fn has_claim(&self, claim: &str) -> bool {
        self.claims.contains(claim)
    }

    /// The same for the same names alone.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_have_another_fingerprint() {
        let set = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<BTreeSet<_>>();
        let of =
            |groups: &[&str], claims: &[&str]| NamedFacts::new(set(groups), set(claims), "").fingerprint();
        assert_eq!(of(&["a", "b"], &["c"]), of(&["b", "a"], &["c"]));
        for other in [of(&["a"], &["c"]), of(&["a", "b", "c"], &[]), of(&["a"], &["b", "c"]), of(&[], &[])] {
            assert_ne!(of(&["a", "b"], &["c"]), other);
        }
    }
}
