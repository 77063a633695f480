//! `[[rule]]`: who may call what.
//!
//! A rule that means less than its author thinks is worse than none, so that an empty list, an endpoint or upstream that
//! does not exist, and a name that only a client would use are reported.

use std::collections::{BTreeMap, BTreeSet};

use globset::{Glob, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::{ConfigError, Warning, nearest};
use super::file::{File, Words};
use super::resolve::Findings;
use super::value::{At, Key};
use super::{Endpoint, Upstream};
use protocol::hints::Hint;

const NAME_BYTES_MAX: usize = 64;

/// What a rule does with what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It may be used. Where any rule allows something, whatever none allows may not be used.
    Allow,
    /// It may not be used, whatever other rules allow.
    Deny,
}

/// `[[rule]]`: who may call what. `None` of a list is no condition; a list is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique.
    pub name: String,
    /// What it does.
    pub effect: Effect,
    /// Globs over ids and names of principals.
    pub principals: Option<Vec<String>>,
    /// Groups; one suffices.
    pub groups: Option<Vec<String>>,
    /// Scopes; one suffices.
    pub scopes: Option<Vec<String>>,
    /// Claims, each with its values, of which one suffices.
    pub claims: Vec<(String, Vec<String>)>,
    /// Globs over paths of endpoints.
    pub endpoints: Option<Vec<String>>,
    /// Globs over names of upstreams.
    pub upstreams: Option<Vec<String>>,
    /// Globs over names of tools, as upstreams spell them.
    pub tools: Option<Vec<String>>,
    /// Globs over names of prompts, as upstreams spell them.
    pub prompts: Option<Vec<String>>,
    /// Globs over URIs and URI templates, as upstreams spell them.
    pub resources: Option<Vec<String>>,
    /// What the annotations of a tool say.
    pub annotations: Vec<(Hint, bool)>,
}

/// Who may call what, or may not.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Rule", extend("required" = ["name", "effect"]))]
pub(super) struct RuleFile {
    /// Its name, for the audit log and `trunkline check`.
    #[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(super) name: Key<String>,
    /// `allow` or `deny`. A rule that denies goes before all that allow. Where any rule allows something at an endpoint,
    /// whatever no rule allows there is denied; without such a rule everything else is allowed.
    pub(super) effect: Key<Effect>,
    /// Whom it is about: globs over names of principals, such as `ci`, or, where they hold a colon, over ids, such as
    /// `key:ci`. Callers without credentials are `anonymous`. Default: everybody.
    pub(super) principals: Key<Vec<At<String>>>,
    /// Whom it is about: members of one of these groups.
    pub(super) groups: Key<Vec<At<String>>>,
    /// Whom it is about: who was granted one of these scopes.
    pub(super) scopes: Key<Vec<At<String>>>,
    /// Whom it is about: whose token has each of these claims with this value, or one of these.
    pub(super) claims: Key<BTreeMap<At<String>, At<Words>>>,
    /// Where it holds: globs over paths of endpoints. Default: at all.
    pub(super) endpoints: Key<Vec<At<String>>>,
    /// What it is about: globs over names of upstreams. Default: all.
    pub(super) upstreams: Key<Vec<At<String>>>,
    /// What it is about: globs over names of tools, as their upstreams spell them. A rule without `tools`, `prompts`,
    /// `resources` and `annotations` is about everything of its upstreams.
    pub(super) tools: Key<Vec<At<String>>>,
    /// What it is about: globs over names of prompts, as their upstreams spell them.
    pub(super) prompts: Key<Vec<At<String>>>,
    /// What it is about: globs over URIs and URI templates of resources, as their upstreams spell them.
    pub(super) resources: Key<Vec<At<String>>>,
    /// What it is about: tools whose annotations say all of this.
    pub(super) annotations: Key<AnnotationsFile>,
}

/// What the annotations of a tool say. Of a tool without them the specification's defaults hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RuleAnnotations")]
pub(super) struct AnnotationsFile {
    /// The tool changes nothing. Of one that does not say: false.
    #[serde(rename = "readOnlyHint")]
    read_only: Key<bool>,
    /// The tool may destroy something. Of one that does not say: true.
    #[serde(rename = "destructiveHint")]
    destructive: Key<bool>,
    /// Calling the tool twice does no more than once. Of one that does not say: false.
    #[serde(rename = "idempotentHint")]
    idempotent: Key<bool>,
    /// The tool reaches beyond what is known. Of one that does not say: true.
    #[serde(rename = "openWorldHint")]
    open_world: Key<bool>,
}

/// All rules, in the order of the text.
pub(super) fn resolve(
    file: &File,
    endpoints: &[Endpoint],
    upstreams: &[Upstream],
    findings: &mut Findings,
) -> Vec<Rule> {
    let mut names = BTreeSet::new();
    let mut rules = Vec::new();
    for written in &file.rule {
        let At { value: rule, span } = written;
        let name = findings.required(&rule.name, span, "the rule has no `name`: the audit log names it");
        if let Some(At { value: name, span }) = name {
            if !is_rule_name(name) {
                findings
                    .error(span.clone(), "not a rule name: use 1 to 64 letters, digits and `.`, `_`, `-`");
            } else if !names.insert(name.clone()) {
                findings.error(span.clone(), format!("two rules are named `{name}`: choose another name"));
            }
        }
        let message = "the rule has no `effect`: write `effect = \"allow\"` or `effect = \"deny\"`";
        let effect = findings.required(&rule.effect, span, message).map(|effect| effect.value);
        let paths = endpoints.iter().map(|endpoint| endpoint.path.as_str());
        let upstream_names = upstreams.iter().map(|upstream| upstream.name.as_str());
        rules.push(Rule {
            name: name.map(|name| name.value.clone()).unwrap_or_default(),
            effect: effect.unwrap_or(Effect::Deny),
            principals: globs(&rule.principals, findings),
            groups: words(&rule.groups, findings),
            scopes: scopes(&rule.scopes, findings),
            claims: claims(&rule.claims, findings),
            endpoints: existing(&rule.endpoints, &paths, "endpoint has the path", findings),
            upstreams: existing(&rule.upstreams, &upstream_names, "upstream is named", findings),
            tools: names_of(&rule.tools, "__", upstreams, findings),
            prompts: names_of(&rule.prompts, "__", upstreams, findings),
            resources: names_of(&rule.resources, "+", upstreams, findings),
            annotations: annotations(&rule.annotations, findings),
        });
    }
    rules
}

fn is_rule_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The values of a list. An empty one would be read as everybody by one, and as nobody by another.
fn words(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Option<Vec<String>> {
    let At { value: list, span } = written.0.as_ref()?;
    if list.is_empty() {
        findings.error(span.clone(), "an empty list: leave the key out for no condition");
    }
    Some(list.iter().map(|word| word.value.clone()).collect())
}

fn scopes(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Option<Vec<String>> {
    for At { value: scope, span } in written.value().into_iter().flatten() {
        let is_scope = !scope.is_empty()
            && scope.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
        if !is_scope {
            findings.error(span.clone(), "not a scope: visible ASCII without spaces, quotes and backslashes");
        }
    }
    words(written, findings)
}

fn globs(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Option<Vec<String>> {
    for At { value: glob, span } in written.value().into_iter().flatten() {
        if let Err(error) = Glob::new(glob) {
            findings.error(span.clone(), format!("not a glob: {}", error.kind()));
        }
    }
    words(written, findings)
}

/// Globs over what is configured. What matches none of it was not meant: a rule that denies would deny nothing.
fn existing<'e>(
    written: &Key<Vec<At<String>>>,
    there: &(impl Iterator<Item = &'e str> + Clone),
    what: &str,
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let globs = globs(written, findings);
    for At { value, span } in written.value().into_iter().flatten() {
        let Some(matcher) = matcher(value) else { continue };
        if !there.clone().any(|name| matcher.is_match(name)) && !findings.damaged.root() {
            let suggestion = nearest(value, there.clone());
            let error = ConfigError::new(span.clone(), format!("no {what} `{value}`"));
            findings.errors.push(error.suggest(suggestion));
        }
    }
    globs
}

/// Globs over names as upstreams spell them, which have no prefix.
fn names_of(
    written: &Key<Vec<At<String>>>,
    separator: &str,
    upstreams: &[Upstream],
    findings: &mut Findings,
) -> Option<Vec<String>> {
    for At { value, span } in written.value().into_iter().flatten() {
        let Some((prefix, inner)) = value.split_once(separator) else { continue };
        if let Some(upstream) = upstreams.iter().find(|upstream| upstream.prefix == prefix) {
            let message = format!(
                "rules are about names as upstreams spell them, which have no prefix: write \
                 `upstreams = [\"{}\"]` and `{inner}`",
                upstream.name
            );
            findings.warnings.push(Warning::new(span.clone(), message));
        }
    }
    globs(written, findings)
}

fn claims(
    written: &Key<BTreeMap<At<String>, At<Words>>>,
    findings: &mut Findings,
) -> Vec<(String, Vec<String>)> {
    let Some(At { value: claims, span }) = &written.0 else { return Vec::new() };
    if claims.is_empty() {
        findings.error(span.clone(), "no claim: leave the key out for no condition");
    }
    let claims = claims.iter().map(|(claim, At { value: words, span })| {
        let words = match words {
            Words::One(word) => vec![word.clone()],
            Words::Many(words) => words.clone(),
        };
        if words.is_empty() {
            findings.error(span.clone(), "an empty list: name the values of which the claim has one");
        }
        (claim.value.clone(), words)
    });
    claims.collect()
}

fn annotations(written: &Key<AnnotationsFile>, findings: &mut Findings) -> Vec<(Hint, bool)> {
    let Some(At { value, span }) = &written.0 else { return Vec::new() };
    let keys = [
        (Hint::ReadOnly, &value.read_only),
        (Hint::Destructive, &value.destructive),
        (Hint::Idempotent, &value.idempotent),
        (Hint::OpenWorld, &value.open_world),
    ];
    let said: Vec<(Hint, bool)> =
        keys.into_iter().filter_map(|(hint, key)| Some((hint, *key.value()?))).collect();
    if said.is_empty() {
        findings.error(span.clone(), "no annotation: leave the key out for no condition");
    }
    said
}

fn matcher(glob: &str) -> Option<GlobMatcher> {
    Some(Glob::new(glob).ok()?.compile_matcher())
}
