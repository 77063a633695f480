//! `trunkline check --as PRINCIPAL`: what somebody may do, by the rules of a configuration alone. No server is asked, so
//! that of annotations nothing is known.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use config::{Config, Endpoint, Names, nearest};
use gateway::access::policy::rule::{ANONYMOUS, Rule};
use gateway::access::policy::{Class, NameScope, Policy, PolicyVerdict, Reach};
use gateway::identity::{Principal, VerifiedIdentity};
use protocol::route::directory::Directory;
use protocol::route::filter::Filter;
use protocol::route::{Alias, Kind, Naming, NoRoute, Style};
use protocol::text;
use tools::terminal::put_text;

/// Whose permissions are shown, and which.
#[derive(Debug, Args)]
pub(super) struct PermissionArgs {
    /// Show what this principal may do: a name such as `ci`, an id such as `key:ci`, or `anonymous`
    #[arg(long = "as", value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// A group the principal is in
    #[arg(long = "group", value_name = "GROUP", requires = "principal")]
    groups: Vec<String>,
    /// A scope the principal was granted
    #[arg(long = "scope", value_name = "SCOPE", requires = "principal")]
    scopes: Vec<String>,
    /// A claim of the principal's token
    #[arg(long = "claim", value_name = "CLAIM=VALUE", requires = "principal", value_parser = claim)]
    claims: Vec<(String, String)>,
    /// Show this endpoint only
    #[arg(long, value_name = "PATH", requires = "principal")]
    endpoint: Option<String>,
    /// Say whether this tool may be called: as clients call it, or as upstreams do
    #[arg(long = "tool", value_name = "NAME", requires = "principal")]
    tools: Vec<String>,
    /// Say whether this prompt may be had
    #[arg(long = "prompt", value_name = "NAME", requires = "principal")]
    prompts: Vec<String>,
    /// Say whether this resource may be read
    #[arg(long = "resource", value_name = "URI", requires = "principal")]
    resources: Vec<String>,
}

fn claim(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or("write CLAIM=VALUE")?;
    Ok((claim.to_owned(), value.to_owned()))
}

impl PermissionArgs {
    /// True if nobody's permissions are asked for.
    pub(super) fn is_nothing(&self) -> bool {
        self.principal.is_none()
    }

    /// Prints the permissions. Fails if something that was asked for may not be used at any of the endpoints.
    pub(super) fn answer(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let principal = self.who(config);
        let is_shown =
            |endpoint: &&Endpoint| self.endpoint.as_ref().is_none_or(|path| *path == endpoint.path);
        let endpoints: Vec<&Endpoint> = config.endpoints.iter().filter(is_shown).collect();
        if endpoints.is_empty() {
            let path = self.endpoint.as_deref().unwrap_or_default();
            let near = nearest(path, config.endpoints.iter().map(|endpoint| endpoint.path.as_str()));
            let near = near.map(|near| format!(": {near}")).unwrap_or_default();
            anyhow::bail!("there is no endpoint {}{near}", text::shown(path));
        }
        let things = self.things();
        let mut is_allowed = vec![false; things.len()];
        let mut text = format!("{} (id {})\n", principal.name(), or_dash(principal.id()));
        for endpoint in endpoints {
            let there = EndpointRules::new(config, endpoint)?;
            let class = there.policy.class_of(&principal);
            there.describe(&class, &mut text);
            for ((kind, name), is_allowed) in things.iter().zip(&mut is_allowed) {
                *is_allowed |= there.say(&class, *kind, name, &mut text);
            }
        }
        put_text(text::shown_lines(&text));
        Ok(if is_allowed.iter().all(|allowed| *allowed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn who(&self, config: &Config) -> Principal {
        let written = self.principal.as_deref().unwrap_or_default();
        if written == ANONYMOUS {
            return Principal::Anonymous;
        }
        let name = written.strip_prefix("key:").unwrap_or(written);
        let mut identity = match config.api_keys.iter().find(|key| key.name == name) {
            Some(key) => VerifiedIdentity {
                id: format!("key:{name}").into(),
                name: name.into(),
                groups: key.groups.iter().map(|group| group.as_str().into()).collect(),
                scopes: key.scopes.iter().map(|scope| scope.as_str().into()).collect(),
                ..VerifiedIdentity::default()
            },
            None => {
                VerifiedIdentity { id: written.into(), name: written.into(), ..VerifiedIdentity::default() }
            }
        };
        identity.groups.extend(self.groups.iter().map(|group| group.as_str().into()));
        identity.scopes.extend(self.scopes.iter().map(|scope| scope.as_str().into()));
        let claims = self.claims.iter().map(|(claim, value)| (claim.as_str().into(), value.as_str().into()));
        identity.claims.extend(claims);
        Principal::Known(Arc::new(identity))
    }

    fn things(&self) -> Vec<(Kind, &str)> {
        let kinds =
            [(Kind::Tool, &self.tools), (Kind::Prompt, &self.prompts), (Kind::Resource, &self.resources)];
        kinds
            .into_iter()
            .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())))
            .collect()
    }
}

/// One endpoint as far as its rules are concerned.
struct EndpointRules<'c> {
    endpoint: &'c Endpoint,
    policy: Policy,
    naming: Naming,
}

impl<'c> EndpointRules<'c> {
    fn new(config: &'c Config, endpoint: &'c Endpoint) -> Result<Self, globset::Error> {
        let members: Vec<(&str, Arc<_>)> =
            endpoint.upstreams.iter().map(|name| (name.as_str(), Arc::default())).collect();
        let prefixes = endpoint.upstreams.iter().map(|name| {
            let upstream = config.upstreams.iter().find(|upstream| upstream.name == *name);
            upstream.map_or_else(|| name.clone(), |upstream| upstream.prefix.clone())
        });
        let aliases = endpoint.aliases.iter().filter_map(|alias| {
            let member = endpoint.upstreams.iter().position(|name| *name == alias.upstream)?;
            Some(Alias { public: alias.public.clone(), member, inner: alias.inner.clone() })
        });
        let style = match endpoint.names {
            Names::Transparent => Style::Transparent,
            Names::Prefixed => Style::Prefixed,
            Names::Bare => Style::Bare,
        };
        let (prefixes, aliases): (Vec<_>, Vec<_>) = (prefixes.collect(), aliases.collect());
        let filter = Filter::new(&endpoint.allow, &endpoint.deny)?;
        Ok(Self {
            endpoint,
            policy: Policy::new(&config.rules, &endpoint.path, &members)?,
            naming: Naming::new(style, endpoint.accept_bare, &prefixes, &aliases, filter),
        })
    }

    fn describe(&self, class: &Class, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", self.endpoint.path);
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

    /// Says whether a thing may be used. As clients name it, if that leads to an upstream; else as every upstream might.
    fn say(&self, class: &Class, kind: Kind, name: &str, text: &mut String) -> bool {
        // As if every upstream had been listed, and had nothing.
        let none =
            vec![Some(protocol::route::directory::MemberNames::default()); self.endpoint.upstreams.len()];
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
            let said = match &verdict {
                _ if !is_public => "no, by the endpoint's own `allow` and `deny`".to_owned(),
                PolicyVerdict::Allowed(Some(rule)) => format!("yes, by {rule}"),
                PolicyVerdict::Allowed(None) => "yes, as no rule denies it".to_owned(),
                PolicyVerdict::Hidden(Some(rule)) => format!("no, by {rule}"),
                PolicyVerdict::Hidden(None) => "no, as no rule allows it".to_owned(),
                PolicyVerdict::Scope { rule, required } => {
                    format!("no, without one of the scopes of {rule}: {required}")
                }
                PolicyVerdict::NotYetLearned => "not known".to_owned(),
            };
            is_allowed |= is_public && matches!(verdict, PolicyVerdict::Allowed(_));
            let upstream = &self.endpoint.upstreams[member];
            let _ = writeln!(text, "  {} {inner} of {upstream}: {said}", kind.word());
        }
        is_allowed
    }
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
    let what = if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") };
    let of = source.upstreams.as_ref().map(|globs| format!(" of {}", globs.join(" "))).unwrap_or_default();
    format!("{effect} {what}{of} ({})", rule.name)
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
