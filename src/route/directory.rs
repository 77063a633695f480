//! Which upstream offers which names: what bare names and `http:` resources are routed by.
//!
//! Plain data built from the upstreams' lists; fetching them is the catalog's business. Invariant: members
//! are indexes into the endpoint's upstreams, in configured order.

use std::collections::HashMap;

/// The names one upstream offers, as it spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberNames {
    /// Names of tools.
    pub tools: Vec<String>,
    /// Names of prompts.
    pub prompts: Vec<String>,
    /// URIs of resources.
    pub resources: Vec<String>,
    /// URI templates.
    pub templates: Vec<String>,
}

/// The names of all upstreams of an endpoint.
#[derive(Debug, Default)]
pub struct Directory {
    tools: HashMap<Box<str>, Offer>,
    prompts: HashMap<Box<str>, Offer>,
    resources: HashMap<Box<str>, Offer>,
    /// The text before a template's first `{`, longest first.
    templates: Vec<(Box<str>, usize)>,
    is_complete: bool,
    is_settled: bool,
}

/// Who offers a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The first member, in configured order, that offers it.
    pub first: usize,
    /// True if no other member does.
    pub is_only: bool,
}

impl Directory {
    /// Builds the directory; a member that was never listed is `None`. `is_settled` if each was tried.
    pub fn build(members: &[Option<MemberNames>], is_settled: bool) -> Self {
        let is_complete = members.iter().all(Option::is_some);
        let mut directory = Self { is_complete, is_settled, ..Self::default() };
        for (member, names) in members.iter().enumerate() {
            let Some(names) = names else { continue };
            offer(&mut directory.tools, &names.tools, member);
            offer(&mut directory.prompts, &names.prompts, member);
            offer(&mut directory.resources, &names.resources, member);
            for template in &names.templates {
                let literal = template.split('{').next().unwrap_or_default();
                if !literal.is_empty() {
                    directory.templates.push((literal.into(), member));
                }
            }
        }
        directory.templates.sort_by_key(|(literal, member)| (usize::MAX - literal.len(), *member));
        directory
    }

    /// True once every member was listed.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// True once every member was tried, whether it answered or not.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Who offers this tool.
    pub fn tool(&self, name: &str) -> Option<Offer> {
        self.tools.get(name).copied()
    }

    /// Who offers this prompt.
    pub fn prompt(&self, name: &str) -> Option<Offer> {
        self.prompts.get(name).copied()
    }

    /// Who offers this resource: by its exact URI, else by the longest literal start of a template.
    pub fn resource(&self, uri: &str) -> Option<Offer> {
        self.resources.get(uri).copied().or_else(|| {
            let (start, first) = self.templates.iter().find(|(start, _)| uri.starts_with(&**start))?;
            let is_only = self.templates.iter().all(|(other, member)| other != start || member == first);
            Some(Offer { first: *first, is_only })
        })
    }
}

fn offer(table: &mut HashMap<Box<str>, Offer>, names: &[String], member: usize) {
    for name in names {
        table
            .entry(name.as_str().into())
            .and_modify(|offer| offer.is_only &= offer.first == member)
            .or_insert(Offer { first: member, is_only: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &[&str], resources: &[&str], templates: &[&str]) -> MemberNames {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        MemberNames {
            tools: own(tools),
            prompts: Vec::new(),
            resources: own(resources),
            templates: own(templates),
        }
    }

    #[test]
    fn the_first_in_order_wins_and_knows_whether_it_is_alone() {
        let directory = Directory::build(
            &[Some(names(&["a", "b", "b"], &[], &[])), Some(names(&["b", "c"], &[], &[]))],
            true,
        );
        assert_eq!(directory.tool("a"), Some(Offer { first: 0, is_only: true }));
        assert_eq!(directory.tool("b"), Some(Offer { first: 0, is_only: false }));
        assert_eq!(directory.tool("c"), Some(Offer { first: 1, is_only: true }));
        assert_eq!(directory.tool("d"), None);
        assert!(directory.is_complete());
        assert!(!Directory::build(&[None], true).is_complete());
    }

    #[test]
    fn templates_match_by_their_longest_literal_start() {
        let directory = Directory::build(
            &[
                Some(names(&[], &["https://x/exact"], &["https://x/{id}", "{anything}"])),
                Some(names(&[], &[], &["https://x/deep/{id}", "https://y/{id}"])),
                Some(names(&[], &[], &["https://y/{other}"])),
            ],
            true,
        );
        for (uri, expected) in [
            ("https://x/exact", Some((0, true))),
            ("https://x/1", Some((0, true))),
            ("https://x/deep/1", Some((1, true))),
            ("https://y/1", Some((1, false))),
            ("https://z/1", None),
        ] {
            let offer = directory.resource(uri).map(|offer| (offer.first, offer.is_only));
            assert_eq!(offer, expected, "{uri}");
        }
    }
}
