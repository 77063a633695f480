//! Which names are tried next after an upstream refused several at once.
//!
//! A group that is refused is halved until the name that is at fault stands alone: first between those who asked, then
//! between the names of one. Those who asked for few come first, and newcomers before all that is being searched: nobody
//! waits for the search in the names of another, as long as their own are good. While newcomers keep coming, every second
//! trial is of the oldest group, so that they starve nobody. Groups at which the upstream failed come when nothing else waits.

use std::collections::{HashMap, VecDeque};

use crate::tables::subscriptions::feed::Suspect;

#[derive(Debug, Default)]
pub(super) struct Bisection {
    /// The oldest first.
    groups: VecDeque<Vec<Suspect>>,
    /// Those at which the upstream failed, the next one first.
    failed: VecDeque<Vec<Suspect>>,
    /// Newcomers were added since the oldest group had its turn.
    has_newcomers: bool,
    is_oldest_due: bool,
    /// The group that was tried last was the oldest. Its halves are the oldest, too.
    was_oldest: bool,
}

impl Bisection {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.failed.is_empty()
    }

    /// Whether a group waits at which the upstream has not failed.
    pub(super) fn has_untried(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.failed.clear();
    }

    pub(super) fn next(&mut self) -> Option<Vec<Suspect>> {
        self.was_oldest = std::mem::take(&mut self.is_oldest_due);
        self.is_oldest_due = !self.was_oldest && std::mem::take(&mut self.has_newcomers);
        let group = if self.was_oldest { self.groups.pop_front() } else { self.groups.pop_back() };
        group.or_else(|| self.failed.pop_front())
    }

    /// The group is the newest.
    pub(super) fn add(&mut self, group: Vec<Suspect>) {
        if !group.is_empty() {
            self.groups.push_back(group);
            self.has_newcomers = true;
        }
    }

    /// The upstream failed at the group: it is tried again after all others.
    pub(super) fn add_failed(&mut self, group: Vec<Suspect>) {
        if !group.is_empty() {
            self.failed.push_back(group);
        }
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
        for half in [rest, group].into_iter().filter(|half| !half.is_empty()) {
            if self.was_oldest {
                self.groups.push_front(half);
            } else {
                self.groups.push_back(half);
            }
        }
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

    #[test]
    fn newcomers_starve_nobody() {
        let mut bisection = Bisection::default();
        bisection.add(suspects(1, 0..64).collect());
        for number in 0..16_u64 {
            // More come than are tried.
            bisection.add(suspects(100 + 2 * number, 100..101).collect());
            bisection.add(suspects(101 + 2 * number, 100..101).collect());
            let group = bisection.next().expect("a group");
            let has = |name: &str| group.iter().any(|suspect| &*suspect.inner == name);
            if has("0") && !has("63") {
                return;
            }
            if group.len() > 1 {
                bisection.halve(group);
            }
        }
        panic!("a good name waits for ever");
    }
}
