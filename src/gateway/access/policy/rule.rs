//! One rule as it holds at one endpoint: compiled, and with the upstreams it is about by their place there.

use std::borrow::Cow;
use std::sync::Arc;

use globset::GlobSet;

use crate::identity::Principal;
use config::{self, ArgumentFit, Effect, MissingArgument};
use protocol::arguments::CallArguments;
use protocol::hints::{Hints, RequiredHints};
use protocol::route::Kind;
use protocol::route::filter::{compile, compile_folded};

/// What a rule calls whoever has no credentials.
pub const ANONYMOUS: &str = "anonymous";

#[derive(Debug)]
pub struct Rule {
    pub name: Arc<str>,
    pub effect: Effect,
    /// Its scopes, with spaces between.
    pub scopes: Arc<str>,
    /// As it was written.
    pub source: config::RuleConfig,
    principals: Option<PrincipalMatcher>,
    /// For each upstream of the endpoint, whether the rule is about it.
    members: Box<[bool]>,
    tools: Option<GlobSet>,
    prompts: Option<GlobSet>,
    resources: Option<GlobSet>,
    annotations: Option<RequiredHints>,
}

#[derive(Debug)]
struct PrincipalMatcher {
    names: GlobSet,
    ids: GlobSet,
}

/// Whether a rule is about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applies {
    Yes,
    /// It would be, had the caller one of its scopes.
    WithScope,
    /// It is not.
    No,
}

/// A thing that a rule may be about.
#[derive(Debug)]
pub struct RuleTarget<'t> {
    pub kind: Kind,
    /// The upstream's place in the endpoint.
    pub member: usize,
    /// As the upstream spells it.
    pub inner: &'t str,
    /// Whatever a server or client may take it for, without capitals; for rules that deny.
    pub readings: &'t [Cow<'t, str>],
    pub hints: Hints,
}

impl<'t> RuleTarget<'t> {
    /// One that is known by its upstream's name for it alone.
    pub fn named(kind: Kind, member: usize, inner: &'t str, hints: Hints) -> Self {
        Self { kind, member, inner, readings: &[], hints }
    }
}

impl Rule {
    pub fn new(source: &config::RuleConfig, upstreams: &[&str]) -> Result<Self, globset::Error> {
        let denies = source.effect == Effect::Deny;
        let names = |globs: &Option<Vec<String>>| {
            let compile = if denies { compile_folded } else { compile };
            globs.as_ref().map(|globs| compile(globs)).transpose()
        };
        let of = names(&source.upstreams)?;
        let about = |name: &&str| of.as_ref().is_none_or(|of| of.is_match(name));
        Ok(Self {
            name: source.name.as_str().into(),
            effect: source.effect,
            scopes: source.scopes.as_ref().map(|scopes| scopes.join(" ")).unwrap_or_default().into(),
            principals: source
                .principals
                .as_ref()
                .map(|globs| PrincipalMatcher::new(globs, denies))
                .transpose()?,
            members: upstreams.iter().map(about).collect(),
            tools: names(&source.tools)?,
            prompts: names(&source.prompts)?,
            resources: names(&source.resources)?,
            annotations: (!source.annotations.is_empty()).then(|| RequiredHints::new(&source.annotations)),
            source: source.clone(),
        })
    }

    /// Whether it holds at this endpoint.
    pub fn covers(
        source: &config::RuleConfig,
        endpoint: &config::EndpointConfig,
    ) -> Result<bool, globset::Error> {
        let Some(globs) = &source.endpoints else { return Ok(true) };
        let globs = compile(globs)?;
        Ok(globs.is_match(&endpoint.path) || globs.is_match(&endpoint.name))
    }

    /// Whether it is about this caller.
    pub fn applies(&self, principal: &Principal) -> Applies {
        let is_named = |id: &str, name: &str| self.principals.as_ref().is_none_or(|all| all.name(id, name));
        let Principal::Known(identity) = principal else {
            let is_about_all = self.source.groups.is_none() && self.source.claims.is_empty();
            let applies = is_about_all && self.source.scopes.is_none() && is_named("", ANONYMOUS);
            return if applies { Applies::Yes } else { Applies::No };
        };
        let has = |wanted: &Option<Vec<String>>, had: &[Box<str>]| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| had.iter().any(|had| **had == **one)))
        };
        let says = |(claim, values): &(String, Vec<String>)| {
            let mut said = identity.claims.iter().filter(|(name, _)| **name == **claim);
            said.any(|(_, said)| values.iter().any(|value| **value == **said))
        };
        let is_meant = is_named(&identity.id, &identity.name)
            && has(&self.source.groups, &identity.groups)
            && self.source.claims.iter().all(says);
        match (is_meant, has(&self.source.scopes, &identity.scopes)) {
            (false, _) => Applies::No,
            (true, true) => Applies::Yes,
            (true, false) => Applies::WithScope,
        }
    }

    /// Whether it is about anything of this upstream.
    pub fn is_about(&self, member: usize) -> bool {
        self.members.get(member).copied().unwrap_or(false)
    }

    /// Whether it is about everything of its upstreams.
    pub fn is_about_everything(&self) -> bool {
        let has_names = self.tools.is_some() || self.prompts.is_some() || self.resources.is_some();
        !has_names && self.annotations.is_none() && !self.reads_arguments()
    }

    /// Whether it tells calls of tools from each other by their arguments.
    pub fn reads_arguments(&self) -> bool {
        !self.source.arguments.is_empty()
    }

    /// Whether it is about a call with these arguments. While they are not known, what it allows with some counts as
    /// allowed, and what it denies with some does not count as denied.
    pub fn fits(&self, arguments: Option<&CallArguments<'_>>) -> bool {
        let Some(arguments) = arguments else {
            return self.effect == Effect::Allow || !self.reads_arguments();
        };
        let is_refused = self.source.missing_arguments == MissingArgument::Refuse;
        self.source.arguments.iter().all(|condition| match condition.fit(arguments, self.effect) {
            ArgumentFit::Fits => true,
            ArgumentFit::Differs => false,
            ArgumentFit::Missing => (self.effect == Effect::Deny) == is_refused,
        })
    }

    /// Whether it tells things of this kind from each other by their names.
    pub fn names(&self, kind: Kind) -> bool {
        self.globs(kind).is_some()
    }

    /// Whether it tells tools from each other by their annotations.
    pub fn reads_annotations(&self) -> bool {
        self.annotations.is_some()
    }

    /// Whether it is about this.
    pub fn matches(&self, thing: &RuleTarget<'_>) -> bool {
        if !self.is_about(thing.member) {
            return false;
        }
        if self.is_about_everything() {
            return true;
        }
        let is_named = match self.globs(thing.kind) {
            Some(globs) if self.effect == Effect::Deny => {
                thing.readings.iter().any(|reading| globs.is_match(&**reading))
            }
            Some(globs) => globs.is_match(thing.inner),
            // What says nothing of names, but of annotations or arguments, is about tools.
            None => thing.kind == Kind::Tool && (self.annotations.is_some() || self.reads_arguments()),
        };
        is_named
            && (thing.kind != Kind::Tool
                || self.annotations.is_none_or(|wanted| wanted.is_said_by(thing.hints)))
    }

    fn globs(&self, kind: Kind) -> Option<&GlobSet> {
        match kind {
            Kind::Tool => self.tools.as_ref(),
            Kind::Prompt => self.prompts.as_ref(),
            Kind::Resource => self.resources.as_ref(),
            Kind::Task => None,
        }
    }
}

impl PrincipalMatcher {
    fn new(globs: &[String], denies: bool) -> Result<Self, globset::Error> {
        // A name may be of the caller's own choice and look like an id, which never is.
        let is_id = |glob: &str| glob.contains(':');
        let that = |fits: &dyn Fn(&String) -> bool| {
            compile(&globs.iter().filter(|glob| fits(glob)).cloned().collect::<Vec<_>>())
        };
        Ok(Self { names: that(&|glob| denies || !is_id(glob))?, ids: that(&|glob| denies || is_id(glob))? })
    }

    fn name(&self, id: &str, name: &str) -> bool {
        self.names.is_match(name) || self.ids.is_match(id)
    }
}
