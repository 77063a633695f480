//! Which names are tried next after an upstream refused several at once.
//!
//! A group that is refused is halved until the name that is at fault stands alone: first between those who asked, then
//! between the names of one. Those who asked for few come first, and newcomers before all that is being searched: nobody waits
//! for the search in the names of another, as long as their own are good.

use std::collections::HashMap;

use crate::listen::feed::Suspect;

/// The groups that wait, the next one last.
#[derive(Debug, Default)]
pub(super) struct Bisection {
    groups: Vec<Vec<Suspect>>,
}

impl Bisection {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// How many groups wait.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn clear(&mut self) {
        self.groups.clear();
    }

    /// The group that is to be tried.
    pub(super) fn next(&mut self) -> Option<Vec<Suspect>> {
        self.groups.pop()
    }

    /// The group is the next.
    pub(super) fn add(&mut self, group: Vec<Suspect>) {
        if !group.is_empty() {
            self.groups.push(group);
        }
    }

    /// The group is the last.
    pub(super) fn add_last(&mut self, group: Vec<Suspect>) {
        self.groups.insert(0, group);
    }

    /// The group was refused: each half of it is tried.
    pub(super) fn halve(&mut self, mut group: Vec<Suspect>) {
        let mut names_of = HashMap::<u64, usize>::new();
        for suspect in &group {
            *names_of.entry(suspect.source).or_default() += 1;
        }
        let mut sources: Vec<(usize, u64)> =
            names_of.iter().map(|(source, names)| (*names, *source)).collect();
        sources.sort_unstable();
        group.sort_by_key(|suspect| (names_of.get(&suspect.source).copied(), suspect.source));
        let middle = match sources.len() {
            0 | 1 => group.len() / 2,
            count => sources.iter().take(count / 2).map(|(names, _)| names).sum(),
        };
        let rest = group.split_off(middle.min(group.len()));
        self.add(rest);
        self.add(group);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn suspects(source: u64, names: std::ops::Range<u32>) -> impl Iterator<Item = Suspect> {
        names.map(move |name| Suspect { is_task: false, inner: Arc::from(name.to_string()), source })
    }

    /// Searches where only these names are refused. Returns what was found and how often was asked.
    fn search(group: Vec<Suspect>, bad: &[&str]) -> (Vec<String>, usize) {
        let (mut bisection, mut found, mut asked) = (Bisection::default(), Vec::new(), 0);
        bisection.add(group);
        while let Some(group) = bisection.next() {
            asked += 1;
            let is_refused = group.iter().any(|suspect| bad.contains(&&*suspect.inner));
            match &*group {
                _ if !is_refused => {}
                [alone] => found.push(alone.inner.to_string()),
                _ => bisection.halve(group),
            }
        }
        found.sort();
        (found, asked)
    }

    #[test]
    fn finds_what_is_refused_in_few_steps() {
        let (found, asked) = search(suspects(1, 0..1000).collect(), &["17", "901"]);
        assert_eq!(found, ["17", "901"]);
        assert!(asked <= 41, "{asked}");
        let all: Vec<String> = (0..8).map(|name| name.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(
            search(suspects(1, 0..8).collect(), &all),
            (all.iter().map(ToString::to_string).collect(), 15)
        );
    }

    #[test]
    fn those_who_asked_are_parted_before_their_names() {
        let mut bisection = Bisection::default();
        let group = suspects(1, 0..90).chain(suspects(2, 100..101)).chain(suspects(3, 200..202));
        bisection.halve(group.collect());
        let sources = |group: &[Suspect]| group.iter().map(|suspect| suspect.source).collect::<Vec<_>>();
        assert_eq!(bisection.next().map(|group| sources(&group)), Some(vec![2]));
        let rest = bisection.next().expect("the others");
        assert_eq!(rest.len(), 92);
        bisection.halve(rest);
        assert_eq!(bisection.next().map(|group| sources(&group)), Some(vec![3, 3]));
        assert_eq!(bisection.next().map(|group| group.len()), Some(90));
        assert!(bisection.is_empty());
    }
}
