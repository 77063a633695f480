//! What the callers of one class may use.
//!
//! The first question is always which part of an upstream they may use: all, some or nothing of it. Only for some of it
//! names matter, and of the names that upstreams list it is known beforehand which may be used (`VisibleNames`); other names
//! are judged by the rules when they come.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use super::PolicyBase;
use super::rule::{Rule, RuleTarget};
use crate::access::policy::hints::ToolHints;
use config::Effect;
use protocol::arguments::{AmbiguousArgument, ArgumentPath, CallArguments};
use protocol::hints::Hints;
use protocol::route::directory::Directory;
use protocol::route::spelling::{is_odd_name, readings};
use protocol::route::{Kind, Naming, is_disguised};

/// Callers to whom the same rules apply at one endpoint.
#[derive(Debug)]
pub struct Class {
    /// The same for callers of one class at one endpoint, and for no others there.
    pub id: u64,
    /// Those that deny first.
    rules: Vec<Arc<Rule>>,
    /// Those that allow, had the callers one of their scopes.
    beyond: Vec<Arc<Rule>>,
    compiled: Arc<PolicyBase>,
    reach: Box<[Reach]>,
    is_unrestricted: bool,
    reads_annotations: bool,
    /// All arguments that the rules read.
    arguments: Arc<[ArgumentPath]>,
    seen: ArcSwapOption<VisibleNames>,
    /// Somebody asked for a name while [`VisibleNames`] was out of date.
    is_awaited: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Nothing,
    Some,
    /// Everything, also what has no name.
    Everything,
}

/// What the rules say of a thing, and the rule that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyVerdict {
    /// It may be used. `None`: no rule denies it, and none would have to allow it.
    Allowed(Option<Arc<str>>),
    /// It does not exist for the caller. `None`: no rule allows it.
    Hidden(Option<Arc<str>>),
    /// One of these scopes would let the caller use it.
    Scope {
        rule: Arc<str>,
        /// Its scopes, with spaces between.
        required: Arc<str>,
    },
    /// It depends on annotations, and the tools were not listed yet.
    NotYetLearned,
}

#[derive(Clone, Copy, Debug)]
pub struct NameScope<'p> {
    pub naming: &'p Naming,
    /// What its upstreams list.
    pub directory: &'p Arc<Directory>,
}

/// A thing of an upstream, with the annotations it has.
#[derive(Clone, Copy, Debug)]
struct NamedThing<'t> {
    kind: Kind,
    member: usize,
    inner: &'t str,
    hints: Hints,
}

/// Which of the names in a directory may be used.
#[derive(Debug)]
struct VisibleNames {
    directory: Weak<Directory>,
    /// The annotations it goes by, of each upstream.
    hints: Box<[Weak<ToolHints>]>,
    bits: Box<[u64]>,
}

impl Class {
    pub(super) fn new(
        id: u64,
        mut rules: Vec<Arc<Rule>>,
        beyond: Vec<Arc<Rule>>,
        compiled: Arc<PolicyBase>,
    ) -> Self {
        rules.sort_by_key(|rule| rule.effect == Effect::Allow);
        let members = compiled.hints.len();
        let conditions = rules.iter().chain(&beyond).flat_map(|rule| &rule.source.arguments);
        let arguments: BTreeSet<&ArgumentPath> = conditions.map(|condition| &condition.path).collect();
        let arguments = arguments.into_iter().cloned().collect();
        let reach: Box<[Reach]> = (0..members).map(|member| reach(&rules, &compiled, member)).collect();
        Self {
            id,
            is_unrestricted: !compiled.denies_by_default && rules.is_empty()
                || members > 0 && reach.iter().all(|reach| *reach == Reach::Everything),
            reads_annotations: rules.iter().any(|rule| rule.reads_annotations()),
            rules,
            beyond,
            compiled,
            reach,
            arguments,
            seen: ArcSwapOption::empty(),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Whether `other`, of another configuration of the endpoint, allows the same.
    pub fn is_like(&self, other: &Self) -> bool {
        let are_alike = |ours: &[Arc<Rule>], theirs: &[Arc<Rule>]| {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.source == b.source)
        };
        self.compiled.denies_by_default == other.compiled.denies_by_default
            && are_alike(&self.rules, &other.rules)
            && are_alike(&self.beyond, &other.beyond)
    }

    pub(super) fn is_of(&self, compiled: &Arc<PolicyBase>) -> bool {
        Arc::ptr_eq(&self.compiled, compiled)
    }

    /// The rules that apply, those that deny first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &**rule)
    }

    /// The rules that would apply to callers with more scopes.
    pub fn rules_beyond(&self) -> impl Iterator<Item = &Rule> {
        self.beyond.iter().map(|rule| &**rule)
    }

    /// True if everything at the endpoint may be used.
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// How much of an upstream may be used.
    pub fn reach(&self, member: usize) -> Reach {
        let unknown = if self.is_unrestricted { Reach::Everything } else { Reach::Nothing };
        self.reach.get(member).copied().unwrap_or(unknown)
    }

    pub fn reaches(&self, member: usize) -> bool {
        self.reach(member) != Reach::Nothing
    }

    /// All arguments that the rules read.
    pub fn arguments(&self) -> &Arc<[ArgumentPath]> {
        &self.arguments
    }

    /// Whether what it is called with decides whether a tool may be.
    pub fn reads_arguments(&self, place: NameScope<'_>, member: usize, tool: &str) -> bool {
        if self.arguments.is_empty() {
            return false;
        }
        let thing = self.thing(Kind::Tool, member, tool);
        // What allows goes by the one name that the upstream has for it.
        let by_name = RuleTarget::named(Kind::Tool, member, tool, thing.hints);
        let rules = self.rules.iter().chain(&self.beyond).filter(|rule| rule.reads_arguments());
        let (mut allowing, mut denying) = (
            rules.clone().filter(|rule| rule.effect == Effect::Allow),
            rules.filter(|rule| rule.effect == Effect::Deny),
        );
        allowing.any(|rule| rule.matches(&by_name))
            || denying.any(|rule| rule.is_about(member))
                && self.with_target(place.naming, &thing, |target| self.readers_of(target).next().is_some())
    }

    /// The rules about a thing that read arguments.
    fn readers_of<'c>(&'c self, target: &'c RuleTarget<'_>) -> impl Iterator<Item = &'c Arc<Rule>> {
        let rules = self.rules.iter().chain(&self.beyond);
        rules.filter(|rule| rule.reads_arguments() && rule.matches(target))
    }

    /// Whether a thing of an upstream may be used: looked up where its upstream lists it.
    pub fn allows(&self, place: NameScope<'_>, kind: Kind, member: usize, inner: &str) -> bool {
        match (self.reach(member), kind) {
            (Reach::Everything, _) | (Reach::Some, Kind::Task) => true,
            (Reach::Nothing, _) => false,
            (Reach::Some, _) => match self.known(place.directory, kind, member, inner) {
                Some(known) => known,
                None => matches!(self.judge(place, kind, member, inner), PolicyVerdict::Allowed(_)),
            },
        }
    }

    /// Whether an entry of a list may be shown. `hints`: the annotations in that very entry.
    pub fn shows(&self, naming: &Naming, kind: Kind, member: usize, inner: &str, hints: Hints) -> bool {
        match self.reach(member) {
            Reach::Everything => true,
            Reach::Nothing => false,
            Reach::Some => {
                let thing = NamedThing { kind, member, inner, hints };
                matches!(self.weigh(naming, &thing, None), PolicyVerdict::Allowed(_))
            }
        }
    }

    /// What the rules say of a thing, by the rules. Of a tool: whether it may be called with some arguments.
    pub fn judge(&self, place: NameScope<'_>, kind: Kind, member: usize, inner: &str) -> PolicyVerdict {
        self.decide(place, (kind, member, inner), None)
    }

    /// What the rules say of a call with these arguments of a tool that may be called with some. An error: readers could
    /// take differently what decides.
    pub fn judge_call(
        &self,
        place: NameScope<'_>,
        (member, tool): (usize, &str),
        arguments: &CallArguments<'_>,
    ) -> Result<PolicyVerdict, AmbiguousArgument> {
        if arguments.are_ambiguous() {
            self.with_target(place.naming, &self.thing(Kind::Tool, member, tool), |target| {
                let conditions = self.readers_of(target).flat_map(|rule| &rule.source.arguments);
                arguments.check(conditions.map(|condition| &condition.path))
            })?;
        }
        Ok(self.decide(place, (Kind::Tool, member, tool), Some(arguments)))
    }

    fn decide(
        &self,
        place: NameScope<'_>,
        (kind, member, inner): (Kind, usize, &str),
        arguments: Option<&CallArguments<'_>>,
    ) -> PolicyVerdict {
        let is_tool = kind == Kind::Tool;
        if is_tool && self.reads_annotations && !place.directory.is_settled() {
            return PolicyVerdict::NotYetLearned;
        }
        let denies_names = || {
            self.rules
                .iter()
                .any(|rule| rule.effect == Effect::Deny && rule.names(kind) && rule.is_about(member))
        };
        if matches!(kind, Kind::Tool | Kind::Prompt)
            && is_odd_name(inner)
            && place.directory.index(kind, member, inner).is_none()
            && denies_names()
        {
            return PolicyVerdict::Hidden(None);
        }
        self.weigh(place.naming, &self.thing(kind, member, inner), arguments)
    }

    /// A thing with the annotations that its upstream lists.
    fn thing<'t>(&self, kind: Kind, member: usize, inner: &'t str) -> NamedThing<'t> {
        let hints = self.compiled.hints.get(member).filter(|_| kind == Kind::Tool);
        let hints = hints.map(|hints| hints.of(inner)).unwrap_or_default();
        NamedThing { kind, member, inner, hints }
    }

    fn weigh(
        &self,
        naming: &Naming,
        thing: &NamedThing<'_>,
        arguments: Option<&CallArguments<'_>>,
    ) -> PolicyVerdict {
        let NamedThing { kind, member, inner, .. } = *thing;
        let judges_uris = || self.rules.iter().any(|rule| rule.names(kind) && rule.is_about(member));
        if kind == Kind::Resource && is_disguised(inner) && judges_uris() {
            return PolicyVerdict::Hidden(None);
        }
        if kind == Kind::Task && self.reaches(member) {
            return PolicyVerdict::Allowed(None);
        }
        self.with_target(naming, thing, |target| self.find_rule(target, arguments))
    }

    /// A thing as rules look at it.
    fn with_target<R>(
        &self,
        naming: &Naming,
        thing: &NamedThing<'_>,
        look: impl FnOnce(&RuleTarget<'_>) -> R,
    ) -> R {
        let NamedThing { kind, member, inner, hints } = *thing;
        let denies = self.rules.first().is_some_and(|rule| rule.effect == Effect::Deny);
        let names = if denies { naming.names(kind, member, inner) } else { Vec::new() };
        // Under every name it has here or may be taken for by its server, and as its upstream spells it.
        let alike = denies.then(|| naming.aliases_of_alike(kind, member, inner)).into_iter().flatten();
        let names = names.iter().map(|name| &**name).chain(alike).chain(denies.then_some(inner));
        let names: Vec<&str> = names.collect();
        let readings: Vec<_> = names.iter().flat_map(|name| readings(kind, name)).collect();
        look(&RuleTarget { kind, member, inner, readings: &readings, hints })
    }

    fn find_rule(&self, thing: &RuleTarget<'_>, arguments: Option<&CallArguments<'_>>) -> PolicyVerdict {
        let fits = |rule: &Rule| thing.kind != Kind::Tool || rule.fits(arguments);
        // Those that deny come first.
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(thing) && fits(rule)) {
            let name = Some(Arc::clone(&rule.name));
            return if rule.effect == Effect::Deny {
                PolicyVerdict::Hidden(name)
            } else {
                PolicyVerdict::Allowed(name)
            };
        }
        if !self.compiled.denies_by_default {
            return PolicyVerdict::Allowed(None);
        }
        match self.beyond.iter().find(|rule| rule.matches(thing) && fits(rule)) {
            Some(rule) => {
                PolicyVerdict::Scope { rule: Arc::clone(&rule.name), required: Arc::clone(&rule.scopes) }
            }
            None => PolicyVerdict::Hidden(None),
        }
    }

    /// What is known of a name beforehand.
    fn known(&self, directory: &Arc<Directory>, kind: Kind, member: usize, inner: &str) -> Option<bool> {
        let index = directory.index(kind, member, inner)?;
        let seen = self.seen.load();
        let seen = seen
            .as_ref()
            .filter(|seen| seen.goes_by(self, directory, (kind == Kind::Tool).then_some(member)));
        let Some(seen) = seen else {
            if !self.is_awaited.load(Ordering::Relaxed) {
                self.is_awaited.store(true, Ordering::Relaxed);
            }
            return None;
        };
        Some(seen.bits.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1))
    }

    /// Finds out of every name in the directory whether it may be used, if somebody waits for it. True if there was
    /// anything to do.
    pub(super) fn learn(&self, place: NameScope<'_>) -> bool {
        if self.is_unrestricted || !self.is_awaited.swap(false, Ordering::Relaxed) {
            return false;
        }
        let hints = self.compiled.hints.iter().map(|hints| Arc::downgrade(&hints.now())).collect();
        let mut bits = vec![0_u64; place.directory.names().div_ceil(64)];
        place.directory.each(|index, kind, member, inner| {
            if self.reaches(member)
                && matches!(self.judge(place, kind, member, inner), PolicyVerdict::Allowed(_))
                && let Some(bits) = bits.get_mut(index / 64)
            {
                *bits |= 1 << (index % 64);
            }
        });
        // While tools were not listed, nothing is known of them.
        if !self.reads_annotations || place.directory.is_settled() {
            let directory = Arc::downgrade(place.directory);
            self.seen.store(Some(Arc::new(VisibleNames { directory, hints, bits: bits.into() })));
        }
        true
    }
}

impl VisibleNames {
    fn goes_by(&self, class: &Class, directory: &Arc<Directory>, tools_of: Option<usize>) -> bool {
        if !std::ptr::eq(self.directory.as_ptr(), Arc::as_ptr(directory)) {
            return false;
        }
        let Some(member) = tools_of.filter(|_| class.reads_annotations) else { return true };
        match (self.hints.get(member), class.compiled.hints.get(member)) {
            (Some(then), Some(now)) => std::ptr::eq(then.as_ptr(), Arc::as_ptr(&now.now())),
            _ => false,
        }
    }
}

fn reach(rules: &[Arc<Rule>], compiled: &PolicyBase, member: usize) -> Reach {
    let mut about = rules.iter().filter(|rule| rule.is_about(member)).peekable();
    let is_denied = |rule: &Arc<Rule>| rule.effect == Effect::Deny;
    let denies_some = about.peek().is_some_and(|rule| is_denied(rule));
    let (mut allows_some, mut allows_all) = (!compiled.denies_by_default, !compiled.denies_by_default);
    for rule in about {
        if is_denied(rule) && rule.is_about_everything() {
            return Reach::Nothing;
        }
        if !is_denied(rule) {
            allows_some = true;
            allows_all |= rule.is_about_everything();
        }
    }
    match (allows_some, allows_all && !denies_some) {
        (false, _) => Reach::Nothing,
        (true, false) => Reach::Some,
        (true, true) => Reach::Everything,
    }
}
