//! Who may call what.
//!
//! The rules that apply to a caller make up its [`Class`]. Callers of one class may use the same things, so whatever is
//! compiled for a class is compiled once: what it may see is a set of names, and a decision is a lookup. Lists are merged
//! and kept for each class.
//!
//! A rule is about things as their upstream spells them, whatever their names are at an endpoint, so that no alias,
//! prefix or bare name leads around it. A rule that denies goes before all others, and is about every name that the
//! thing has and all that a lenient server may take for it; a rule that allows is taken by the letter.
//!
//! Deliberately absent: the `allow` and `deny` of endpoints, which are the same for everybody ([`protocol::route::filter`])
//! and read names in the same ways ([`protocol::route::spelling`]), and whoever writes the audit log. Invariant: a class never outlives the meaning of its rules; it belongs to the
//! endpoint it was made for.

pub(crate) mod class;
pub(crate) mod hints;
pub(crate) mod naming;
pub(crate) mod permissions;
pub(crate) mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::rule::{Applies, Rule};
use crate::access::policy::hints::HintCell;
use crate::identity::Principal;
use config::{self, Effect};

pub(crate) use self::class::{Class, NameScope, PolicyVerdict, Reach};

/// Classes that are remembered. Whoever is of a forgotten one keeps it.
const CLASSES_MAX: usize = 1024;
/// Classes for which names are looked through at a time.
const LEARNED_AT_ONCE_MAX: usize = 16;

/// The rules of one endpoint.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Arc<Rule>>,
    compiled: Arc<PolicyBase>,
    everybody: Arc<Class>,
    classes: Mutex<HashMap<Box<[Applies]>, Arc<Class>>>,
    next_id: AtomicU64,
}

/// What all classes of an endpoint share.
#[derive(Debug, Default)]
pub(crate) struct PolicyBase {
    /// Whatever no rule allows is denied.
    denies_by_default: bool,
    /// The annotations of each upstream's tools.
    hints: Box<[Arc<HintCell>]>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::of(Vec::new(), PolicyBase::default())
    }
}

impl PartialEq for Policy {
    /// Whether the same is allowed to the same callers.
    fn eq(&self, other: &Self) -> bool {
        let sources = |policy: &Self| policy.rules.iter().map(|rule| rule.source.clone()).collect::<Vec<_>>();
        sources(self) == sources(other)
    }
}

impl Policy {
    /// Of all rules, those that hold at the endpoint with this path and these upstreams.
    pub(crate) fn new(
        rules: &[config::RuleConfig],
        endpoint: &config::EndpointConfig,
        upstreams: &[(&str, Arc<HintCell>)],
    ) -> Result<Self, globset::Error> {
        let names: Vec<&str> = upstreams.iter().map(|(name, _)| *name).collect();
        let mut held = Vec::new();
        for source in rules {
            if Rule::covers(source, endpoint)? {
                held.push(Arc::new(Rule::new(source, &names)?));
            }
        }
        let denies_by_default = held.iter().any(|rule| rule.effect == Effect::Allow);
        let hints = upstreams.iter().map(|(_, hints)| Arc::clone(hints)).collect();
        Ok(Self::of(held, PolicyBase { denies_by_default, hints }))
    }

    fn of(rules: Vec<Arc<Rule>>, compiled: PolicyBase) -> Self {
        let compiled = Arc::new(compiled);
        let everybody = Arc::new(Class::new(0, Vec::new(), Vec::new(), Arc::clone(&compiled)));
        Self { rules, compiled, everybody, classes: Mutex::default(), next_id: AtomicU64::new(1) }
    }

    /// True if there are no rules: everybody may use everything.
    pub(crate) fn is_trivial(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if whatever no rule allows is denied.
    pub(crate) fn denies_by_default(&self) -> bool {
        self.compiled.denies_by_default
    }

    /// Whether a class is one of these rules, and not of those of another configuration.
    pub(crate) fn is_of(&self, class: &Class) -> bool {
        class.is_of(&self.compiled)
    }

    /// The class of a caller.
    pub(crate) fn class_of(&self, principal: &Principal) -> Arc<Class> {
        if self.is_trivial() {
            return Arc::clone(&self.everybody);
        }
        let key: Box<[Applies]> = self.rules.iter().map(|rule| rule.applies(principal)).collect();
        let mut classes = self.classes.lock();
        if let Some(class) = classes.get(&key) {
            return Arc::clone(class);
        }
        if classes.len() >= CLASSES_MAX {
            classes.clear();
        }
        let class = Arc::new(self.class(&key));
        classes.insert(key, Arc::clone(&class));
        class
    }

    fn class(&self, applies: &[Applies]) -> Class {
        let that = |wanted: Applies| {
            let rules = self.rules.iter().zip(applies).filter(move |(_, applies)| **applies == wanted);
            rules.map(|(rule, _)| Arc::clone(rule))
        };
        let beyond = that(Applies::WithScope).filter(|rule| rule.effect == Effect::Allow).collect();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Class::new(id, that(Applies::Yes).collect(), beyond, Arc::clone(&self.compiled))
    }

    /// Finds out what the classes may use of the names that are known now. True if there may be more to do.
    pub(crate) fn learn(&self, place: NameScope<'_>) -> bool {
        if self.is_trivial() {
            return false;
        }
        let classes: Vec<Arc<Class>> = {
            let classes = self.classes.lock();
            classes.values().cloned().collect()
        };
        let learned = classes.iter().filter(|class| class.learn(place)).take(LEARNED_AT_ONCE_MAX);
        learned.count() == LEARNED_AT_ONCE_MAX
    }
}
