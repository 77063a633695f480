//! The rules, by what they are about.

pub(super) mod access;
pub(super) mod lists;
pub(super) mod process;
pub(super) mod requests;
pub(super) mod sessions;
pub(super) mod tools;
pub(super) mod versions;

use super::rule::InspectionRule;

/// How much a name must be like a rule's for that to be suggested.
const SIMILARITY_MIN: f64 = 0.7;

fn all() -> impl Iterator<Item = &'static InspectionRule> {
    [access::ALL, versions::ALL, requests::ALL, sessions::ALL, process::ALL, lists::ALL, tools::ALL]
        .into_iter()
        .flatten()
        .copied()
}

/// The rule with this id; else which is meant, as far as that can be guessed.
pub fn find(id: &str) -> Result<&'static InspectionRule, String> {
    all().find(|rule| rule.id == id).ok_or_else(|| {
        let similarity = |rule: &InspectionRule| strsim::jaro_winkler(id, rule.id);
        let nearest = all().map(|rule| (similarity(rule), rule.id)).max_by(|a, b| a.0.total_cmp(&b.0));
        match nearest.filter(|(similarity, _)| *similarity > SIMILARITY_MIN) {
            Some((_, nearest)) => format!("there is no such rule; did you mean {nearest}?"),
            None => "there is no such rule; a report names each by its id".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_can_be_named_understood_and_looked_up() {
        let mut ids = HashSet::new();
        for rule in all() {
            assert!(ids.insert(rule.id), "{} stands twice", rule.id);
            assert!(rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", rule.id);
            for text in [rule.good, rule.bad, rule.why, rule.fix] {
                assert!(!text.is_empty() && !text.contains("  "), "{}: {text:?}", rule.id);
            }
            for (text, is_sentence) in
                [(rule.good, false), (rule.bad, false), (rule.why, true), (rule.fix, true)]
            {
                assert_eq!(text.ends_with('.'), is_sentence, "{}: {text:?}", rule.id);
            }
            assert!(!rule.section.starts_with('/'), "{}", rule.id);
            assert!(std::ptr::eq(find(rule.id).unwrap(), rule));
        }
        assert!(find("no-such-rule").is_err());
    }
}
