//! Claims that a person needs to sign in: all of them must hold.

use std::collections::BTreeMap;

/// Claim → the values of which a person has to have one.
#[derive(Clone, Debug, Default)]
pub struct Require(BTreeMap<String, Vec<String>>);

impl Require {
    /// The `require` of the configuration.
    pub fn new(claims: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self(claims.into_iter().collect())
    }

    /// The first claim that does not hold of these, each a name and a value. `None`: the person may sign in.
    pub fn unmet(&self, claims: &[(impl AsRef<str>, impl AsRef<str>)]) -> Option<&str> {
        let holds = |name: &str, allowed: &[String]| {
            claims.iter().any(|(claim, value)| {
                claim.as_ref() == name && allowed.iter().any(|allowed| allowed == value.as_ref())
            })
        };
        self.0.iter().find(|(name, allowed)| !holds(name, allowed)).map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_claims_must_hold_and_one_value_of_each_is_enough() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let require = Require::new([
            ("groups".to_owned(), texts(&["staff", "ops"])),
            ("hd".to_owned(), texts(&["example.com"])),
        ]);
        for (claims, expected) in [
            (&[("groups", "ops"), ("groups", "x"), ("hd", "example.com")][..], None),
            (&[("groups", "ops")], Some("hd")),
            (&[("hd", "example.com")], Some("groups")),
            (&[("groups", "Ops"), ("hd", "example.com")], Some("groups")),
            (&[("groups", "example.com"), ("hd", "ops")], Some("groups")),
            (&[], Some("groups")),
        ] {
            assert_eq!(require.unmet(claims), expected, "{claims:?}");
        }
        assert_eq!(Require::default().unmet(&[("a", "b")]), None);
        let nobody = Require::new([("groups".to_owned(), Vec::new())]);
        assert_eq!(nobody.unmet(&[("groups", "a")]), Some("groups"));
    }
}
