//! `[[rule]]`: who may call what.
//!
//! A rule that means less than its author thinks is worse than none, so that an empty list, an endpoint or upstream that
//! does not exist, and a name that only a client would use are reported.

use std::collections::BTreeSet;

use globset::Glob as Pattern;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::arguments::{ArgumentConditions, MissingArgument};
use super::array::{Array, Map};
use super::error::{Diagnostic, nearest};
use super::findings::{Findings, Node};
use super::schema::Definitions;
use super::section::section;
use super::table::Table;
use super::text::{Any, Glob, RuleName, Scope};
use super::value::{Setting, choice};
use super::{Config, EndpointConfig};
use protocol::hints::Hint;
use protocol::route::filter::literal;

section! {
    /// Who may call what, or may not. What is left out is no condition; of different keys all hold, of the values of one
    /// any. A rule that denies goes before all that allow. Where any rule allows something at an endpoint, whatever no rule
    /// allows there is denied; without such a rule everything else is allowed.
    pub struct RuleConfig {
        /// Its name, for the audit log and `trunkline check --as`.
        #[example("readers")]
        #[missing("the audit log names it")]
        name: RuleName,
        /// `allow` or `deny`.
        #[example("allow")]
        #[missing("write `effect = \"allow\"` or `effect = \"deny\"`")]
        effect: Effect,
        /// Whether it holds: with `false`, everything is as if it were not written.
        enabled: bool = true,
        /// Whom it is about: globs over names of principals, such as `ci`, or, where they hold a colon, over ids, such as
        /// `key:ci`. Callers without credentials are `anonymous`. Default: everybody.
        #[example(["ci", "key:laptop-*"])]
        principals: Option<Array<Glob, 1>>,
        /// Whom it is about: members of one of these groups.
        #[example(["engineering"])]
        groups: Option<Array<Any, 1>>,
        /// Whom it is about: who was granted one of these scopes.
        #[example(["mcp:read"])]
        scopes: Option<Array<Scope, 1>>,
        /// Whom it is about: whose token has each of these claims with this value, or one of these.
        #[example({ team = ["platform", "data"] })]
        claims: Map<Words> => Vec::new(),
        /// Where it holds: globs over paths of endpoints, or over a host and path where endpoints share a path. What is the
        /// name of an endpoint is that one alone. Default: at all.
        #[example(["/mcp"])]
        endpoints: Option<Array<Glob, 1>>,
        /// What it is about: globs over names of upstreams. Default: all.
        #[example(["weather"])]
        upstreams: Option<Array<Glob, 1>>,
        /// What it is about: globs over names of tools, as their upstreams spell them, without prefix. A rule without
        /// `tools`, `prompts`, `resources`, `annotations` and `arguments` is about everything of its upstreams.
        #[example(["get_*", "forecast"])]
        tools: Option<Array<Glob, 1>>,
        /// What it is about: globs over names of prompts, as their upstreams spell them.
        #[example(["*"])]
        prompts: Option<Array<Glob, 1>>,
        /// What it is about: globs over URIs and URI templates of resources, as their upstreams spell them.
        #[example(["file:///public/*"])]
        resources: Option<Array<Glob, 1>>,
        /// What it is about: tools whose annotations, as their upstream last listed them, say all of this.
        #[example({ readOnlyHint = true })]
        annotations: RuleAnnotations => Vec::new(),
        /// What it is about: calls of tools whose arguments have each of these values, or one of these. Strings, numbers
        /// and `true` or `false` are compared by type and value, and a table within leads to an argument within an
        /// object. Callers see a tool that they may call with some arguments. Prompts and resources have none:
        /// for them this is no condition.
        #[example({ environment = "staging", target.region = ["eu", "us"] })]
        arguments: ArgumentConditions => Vec::new(),
        /// With `arguments`: whether it does without one that a call lacks or has in another type. `refuse`: a rule that
        /// allows does not allow such a call, one that denies denies it. `allow`: the other way round.
        missing_arguments: MissingArgument = "refuse",
    }
    check check_rule;
}

section! {
    /// What the annotations of a tool say. Of a tool without them the specification's defaults hold.
    #[derive(Copy)]
    pub struct RuleAnnotations {
        /// The tool changes nothing. Of one that does not say: false.
        read_only as "readOnlyHint": Option<bool>,
        /// The tool may destroy something. Of one that does not say: true.
        destructive as "destructiveHint": Option<bool>,
        /// Calling the tool twice does no more than once. Of one that does not say: false.
        idempotent as "idempotentHint": Option<bool>,
        /// The tool reaches beyond what is known. Of one that does not say: true.
        open_world as "openWorldHint": Option<bool>,
    }
    check annotation_hints => Vec<(Hint, bool)>;
}

choice! {
    /// What a rule does with what it is about.
    pub enum Effect {
        /// It may be used. Where any rule allows something, whatever none allows may not be used.
        Allow = "allow",
        /// It may not be used, whatever other rules allow.
        Deny = "deny",
    }
}

/// A string, or an array of strings.
#[derive(Debug)]
pub struct Words;

impl Setting for Words {
    type Out = Vec<String>;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Vec<String>> {
        match node.get_ref() {
            DeValue::String(word) => Some(vec![word.to_string()]),
            DeValue::Array(_) => Array::<Any, 1>::read(node, findings),
            _ => {
                findings.is_not(node, "a string, or an array of strings");
                None
            }
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let words = json!({ "anyOf": [Any::schema(definitions), Array::<Any, 1>::schema(definitions)] });
        definitions.named("Words", words)
    }
}

fn check_rule(rule: RuleConfig, table: Table<'_>, findings: &mut Findings) -> RuleConfig {
    if rule.claims.is_empty() {
        findings.error_at(table, "claims", "no claim: leave the key out for no condition");
    }
    if !table.has("arguments") && rule.missing_arguments == MissingArgument::Allow {
        let message = "`missing_arguments` is for rules with `arguments`";
        findings.error_at(table, "missing_arguments", message);
    }
    rule
}

fn annotation_hints(
    written: RuleAnnotations,
    table: Table<'_>,
    findings: &mut Findings,
) -> Vec<(Hint, bool)> {
    if table.entries().next().is_none() {
        findings.error(table.span(), "no annotation: leave the key out for no condition");
    }
    let hints = [
        (Hint::ReadOnly, written.read_only),
        (Hint::Destructive, written.destructive),
        (Hint::Idempotent, written.idempotent),
        (Hint::OpenWorld, written.open_world),
    ];
    hints.into_iter().filter_map(|(hint, value)| Some((hint, value?))).collect()
}

/// Names are distinct, and what a rule names exists.
pub(super) fn check(config: &Config, root: Table<'_>, findings: &mut Findings) {
    let mut names = BTreeSet::new();
    let endpoints =
        config.endpoints.iter().flat_map(|endpoint| [endpoint.path.as_str(), endpoint.name.as_str()]);
    let upstreams = config.upstreams.iter().map(|upstream| upstream.name.as_str());
    let is_damaged = findings.is_damaged(root);
    for (rule, table) in config.rules.iter().zip(root.tables("rule")) {
        let message = format!("two rules are named `{}`: choose another name", rule.name);
        findings.unique(table, "name", &rule.name, &mut names, message);
        if !is_damaged {
            check_existing(table, "endpoints", &endpoints, "endpoint has the path", findings);
            check_existing(table, "upstreams", &upstreams, "upstream is named", findings);
        }
        for (key, separator) in [("tools", "__"), ("prompts", "__"), ("resources", "+")] {
            warn_of_prefixes(config, table, key, separator, findings);
        }
    }
}

/// `*.example.com/mcp` is one endpoint where one is called that, and not all whose hosts it would match.
pub(super) fn take_names_literally(rules: &mut [RuleConfig], endpoints: &[EndpointConfig]) {
    for pattern in rules.iter_mut().flat_map(|rule| rule.endpoints.iter_mut().flatten()) {
        if endpoints.iter().any(|endpoint| endpoint.name == *pattern) {
            *pattern = literal(pattern);
        }
    }
}

/// What matches nothing that is configured was not meant: a rule that denies would deny nothing.
fn check_existing<'e>(
    rule: Table<'_>,
    key: &str,
    existing: &(impl Iterator<Item = &'e str> + Clone),
    what: &str,
    findings: &mut Findings,
) {
    for (glob, span) in rule.texts(key) {
        let Ok(matcher) = Pattern::new(glob).map(|glob| glob.compile_matcher()) else { continue };
        if !existing.clone().any(|name| matcher.is_match(name)) {
            let error = Diagnostic::error(span, format!("no {what} `{glob}`"));
            findings.errors.push(error.suggest(nearest(glob, existing.clone())));
        }
    }
}

/// Names as upstreams spell them have no prefix.
fn warn_of_prefixes(config: &Config, rule: Table<'_>, key: &str, separator: &str, findings: &mut Findings) {
    for (glob, span) in rule.texts(key) {
        let Some((prefix, inner)) = glob.split_once(separator) else { continue };
        if let Some(upstream) = config.upstreams.iter().find(|upstream| upstream.prefix == prefix) {
            let message = format!(
                "rules are about names as upstreams spell them, which have no prefix: write \
                 `upstreams = [\"{}\"]` and `{inner}`",
                upstream.name
            );
            findings.warning(span, message);
        }
    }
}
