//! Which upstream offers which names: what bare names and `http:` resources are routed by.
//!
//! Plain data built from the upstreams' lists; fetching them is the catalog's business. Invariant: members
//! are indexes into the endpoint's upstreams, in configured order.

use std::collections::HashMap;

use super::Kind;

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

/// Something for each name of tools, prompts and resources.
#[derive(Debug)]
struct ByName<V>([HashMap<Box<str>, V>; 3]);

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<V> ByName<V> {
    /// The names of a kind; tasks are not listed.
    fn of(&self, kind: Kind) -> Option<&HashMap<Box<str>, V>> {
        self.0.get(kind as usize)
    }
}

/// The names of all upstreams of an endpoint.
#[derive(Debug, Default)]
pub struct Directory {
    offers: ByName<Offer>,
    /// The text before a template's first `{`, longest first.
    templates: Vec<(Box<str>, usize)>,
    /// Of names that several members offer, the numbers of those of all but the first.
    others: HashMap<usize, ByName<usize>>,
    names: usize,
    /// The members that were listed, by their numbers.
    listed: Vec<bool>,
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
    /// The number of the name as that member offers it, below [`Directory::names`].
    index: usize,
}

impl Directory {
    /// Builds the directory; a member that was never listed is `None`. `is_settled` if each was tried.
    pub fn build(members: &[Option<MemberNames>], is_settled: bool) -> Self {
        let listed: Vec<bool> = members.iter().map(Option::is_some).collect();
        let is_complete = listed.iter().all(|is_listed| *is_listed);
        let mut directory = Self { listed, is_complete, is_settled, ..Self::default() };
        for (member, names) in members.iter().enumerate() {
            let Some(names) = names else { continue };
            let others = directory.others.entry(member).or_default();
            for (kind, names) in [&names.tools, &names.prompts, &names.resources].into_iter().enumerate() {
                let offers = &mut directory.offers.0[kind];
                for name in names {
                    let index = directory.names;
                    let offered = Offer { first: member, is_only: true, index };
                    let offer = offers.entry(name.as_str().into()).or_insert(offered);
                    if offer.first != member {
                        offer.is_only = false;
                        others.0[kind].insert(name.as_str().into(), index);
                    }
                    directory.names += 1;
                }
            }
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

    /// True once this member was listed.
    pub fn was_listed(&self, member: usize) -> bool {
        self.listed.get(member).copied().unwrap_or_default()
    }

    /// True once every member was tried, whether it answered or not.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Who offers what has this name: of resources by the exact URI, else by the longest literal start of a template.
    pub fn offer(&self, kind: Kind, name: &str) -> Option<Offer> {
        let listed = self.offers.of(kind)?.get(name).copied();
        listed.or_else(|| (kind == Kind::Resource).then(|| self.template(name)).flatten())
    }

    fn template(&self, uri: &str) -> Option<Offer> {
        let (start, first) = self.templates.iter().find(|(start, _)| uri.starts_with(&**start))?;
        let is_only = self.templates.iter().all(|(other, member)| other != start || member == first);
        Some(Offer { first: *first, is_only, index: usize::MAX })
    }

    /// How many names are listed, each counted once for each member that offers it.
    pub fn names(&self) -> usize {
        self.names
    }

    /// The number of a listed name of a member. Templates have none.
    pub fn index(&self, kind: Kind, member: usize, name: &str) -> Option<usize> {
        let offer = self.offers.of(kind)?.get(name)?;
        if offer.first == member {
            return Some(offer.index);
        }
        self.others.get(&member)?.of(kind)?.get(name).copied()
    }

    /// Every listed name of every member, with its number.
    pub fn each(&self, mut visit: impl FnMut(usize, Kind, usize, &str)) {
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource] {
            for (name, offer) in self.offers.of(kind).into_iter().flatten() {
                visit(offer.index, kind, offer.first, name);
            }
            for (member, others) in &self.others {
                for (name, index) in others.of(kind).into_iter().flatten() {
                    visit(*index, kind, *member, name);
                }
            }
        }
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
        let offer = |name| directory.offer(Kind::Tool, name).map(|offer| (offer.first, offer.is_only));
        assert_eq!(offer("a"), Some((0, true)));
        assert_eq!(offer("b"), Some((0, false)));
        assert_eq!(offer("c"), Some((1, true)));
        assert_eq!(directory.offer(Kind::Tool, "d"), None);
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
            let offer = directory.offer(Kind::Resource, uri).map(|offer| (offer.first, offer.is_only));
            assert_eq!(offer, expected, "{uri}");
        }
    }
}
