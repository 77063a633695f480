//! What somebody may do at an endpoint, in words: by the rules of a configuration alone. No server is asked, so that of
//! annotations nothing is known.

use std::fmt::Write as _;
use std::sync::Arc;

use super::naming::naming;
use super::rule::Rule;
use super::{Class, NameScope, Policy, PolicyVerdict, Reach};
use crate::identity::Principal;
use config::{Config, EndpointConfig};
use protocol::route::directory::{Directory, MemberNames};
use protocol::route::{Kind, Naming, NoRoute};

/// One endpoint as far as its rules are concerned.
#[derive(Debug)]
pub struct EndpointRules<'c> {
    endpoint: &'c EndpointConfig,
    policy: Policy,
    naming: Naming,
}

impl<'c> EndpointRules<'c> {
    /// The rules of an endpoint of this configuration.
    pub fn new(config: &'c Config, endpoint: &'c EndpointConfig) -> Result<Self, globset::Error> {
        let members: Vec<(&str, Arc<_>)> =
            endpoint.upstreams.iter().map(|name| (name.as_str(), Arc::default())).collect();
        let prefixes = endpoint.upstreams.iter().map(|name| {
            let upstream = config.upstreams.iter().find(|upstream| upstream.name == *name);
            upstream.map_or_else(|| name.clone(), |upstream| upstream.prefix.clone())
        });
        Ok(Self {
            endpoint,
            policy: Policy::new(&config.rules, endpoint, &members)?,
            naming: naming(endpoint, &prefixes.collect::<Vec<_>>())?,
        })
    }

    /// What callers are to this endpoint.
    pub fn class_of(&self, principal: &Principal) -> Arc<Class> {
        self.policy.class_of(principal)
    }

    /// Writes the rules that apply to callers of a class.
    pub fn describe(&self, class: &Class, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", self.endpoint.name);
        if self.policy.is_trivial() {
            let _ = writeln!(text, "  no rule is about this endpoint: everything is allowed");
        }
        for rule in class.rules() {
            let _ = writeln!(text, "  {}", shown(rule));
        }
        for rule in class.rules_beyond() {
            let _ = writeln!(
                text,
                "  with scope {}: {}",
                rule.source.scopes.iter().flatten().cloned().collect::<Vec<_>>().join(" or "),
                shown(rule)
            );
        }
        if !self.policy.is_trivial() {
            let default = if self.policy.denies_by_default() { "denied" } else { "allowed" };
            let _ = writeln!(text, "  everything else is {default}");
        }
        for (member, upstream) in self.endpoint.upstreams.iter().enumerate() {
            let reach = match class.reach(member) {
                Reach::Nothing => "nothing",
                Reach::Some => "some, by these rules",
                Reach::Everything => "everything",
            };
            let _ = writeln!(text, "  {upstream}: {reach}");
        }
        if !self.naming.hides_nothing() {
            let _ = writeln!(text, "  for everybody, the endpoint's own `allow` and `deny` hold as well");
        }
    }

    /// Writes whether a thing may be used, and returns it. As clients name it, if that leads to an upstream; else as every upstream might.
    pub fn decide(&self, class: &Class, kind: Kind, name: &str, text: &mut String) -> bool {
        // As if every upstream had been listed, and had nothing.
        let none = vec![Some(MemberNames::default()); self.endpoint.upstreams.len()];
        let directory = Arc::new(Directory::build(&none, true));
        let place = NameScope { naming: &self.naming, directory: &directory };
        let targets: Vec<(usize, String)> = match self.naming.route(kind, name, &directory) {
            Ok(route) => vec![(route.member, route.inner.into_owned())],
            Err(NoRoute::Unknown | NoRoute::NotYetLearned) => {
                (0..self.endpoint.upstreams.len()).map(|member| (member, name.to_owned())).collect()
            }
        };
        let mut is_allowed = false;
        for (member, inner) in targets {
            let is_public = self.naming.public(kind, member, &inner).is_some();
            let verdict = class.judge(place, kind, member, &inner);
            is_allowed |= is_public && matches!(verdict, PolicyVerdict::Allowed(_));
            let verdict = match &verdict {
                _ if !is_public => "no, by the endpoint's own `allow` and `deny`".to_owned(),
                PolicyVerdict::Allowed(Some(rule)) => {
                    format!("yes, by {rule}{}", with_arguments(class, place, (kind, member, &inner)))
                }
                PolicyVerdict::Allowed(None) => {
                    format!(
                        "yes, as no rule denies it{}",
                        with_arguments(class, place, (kind, member, &inner))
                    )
                }
                PolicyVerdict::Hidden(Some(rule)) => format!("no, by {rule}"),
                PolicyVerdict::Hidden(None) => "no, as no rule allows it".to_owned(),
                PolicyVerdict::Scope { rule, required } => {
                    format!("no, without one of the scopes of {rule}: {required}")
                }
                PolicyVerdict::NotYetLearned => "not known".to_owned(),
            };
            let upstream = &self.endpoint.upstreams[member];
            let _ = writeln!(text, "  {} {inner} of {upstream}: {verdict}", kind.word());
        }
        is_allowed
    }
}

/// Where what it is called with decides as well.
fn with_arguments(
    class: &Class,
    place: NameScope<'_>,
    (kind, member, inner): (Kind, usize, &str),
) -> &'static str {
    let decide = kind == Kind::Tool && class.reads_arguments(place, member, inner);
    if decide { ", if its arguments are as the rules want them" } else { "" }
}

fn shown(rule: &Rule) -> String {
    let source = &rule.source;
    let effect = format!("{:?}", source.effect).to_lowercase();
    let mut parts = Vec::new();
    for (key, globs) in
        [("tools", &source.tools), ("prompts", &source.prompts), ("resources", &source.resources)]
    {
        parts.extend(globs.iter().map(|globs| format!("{key} {}", globs.join(" "))));
    }
    parts.extend(source.annotations.iter().map(|(hint, value)| format!("{} = {value}", hint.key())));
    parts.extend(source.arguments.iter().map(|condition| {
        let values: Vec<String> = condition.values.iter().map(ToString::to_string).collect();
        format!("argument {} = {}", condition.path, values.join(" or "))
    }));
    let what = if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") };
    let of = source.upstreams.as_ref().map(|globs| format!(" of {}", globs.join(" "))).unwrap_or_default();
    format!("{effect} {what}{of} ({})", rule.name)
}
