//! Rules: who may call what.

use super::{Case, base_with, parsed};
use crate::{ArgumentCondition, Effect, MissingArgument, RuleConfig};
use protocol::arguments::{ArgumentPath, ArgumentValue};
use protocol::hints::Hint;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "a rule by arguments that mean nothing",
        replace: "[upstream.a]",
        by: r#"[[rule]]
name = "r"
effect = "allow"
arguments = { a = [], b = { c = 2026-01-01 }, d = {} }
[[rule]]
name = "s"
effect = "allow"
missing_arguments = "allow"
[upstream.a]"#,
        rendered: r#"
f.toml:9:19: error: no value: name at least one
  |
9 | arguments = { a = [], b = { c = ********** }, d = {} }
  |                   ^^

f.toml:13:21: error: `missing_arguments` is for rules with `arguments`
   |
13 | missing_arguments = "allow"
   |                     ^^^^^^^
"#,
    },
    Case {
        name: "a rule without name and effect",
        replace: "[upstream.a]",
        by: "[[rule]]
[upstream.a]",
        rendered: r#"
f.toml:6:1: error: [[rule]] has no `name`: the audit log names it
  |
6 | [[rule]]
  | ^^^^^^^^

f.toml:6:1: error: [[rule]] has no `effect`: write `effect = "allow"` or `effect = "deny"`
  |
6 | [[rule]]
  | ^^^^^^^^
"#,
    },
    Case {
        name: "a rule that is not what it seems",
        replace: "[upstream.a]",
        by: r#"[[rule]]
name = "r"
effect = "deny"
groups = []
upstreams = ["aa"]
endpoints = ["/mpc"]
tools = ["["]
scopes = ["a b"]
annotations = {}
[upstream.a]"#,
        rendered: r#"
f.toml:9:10: error: `groups` is empty: name at least one, or leave the key out
  |
9 | groups = []
  |          ^^

f.toml:10:14: error: no upstream is named `aa`
   |
10 | upstreams = ["aa"]
   |              ^^^^

f.toml:11:14: error: no endpoint has the path `/mpc`
   |
11 | endpoints = ["/mpc"]
   |              ^^^^^^ did you mean `/mcp`?

f.toml:12:10: error: not a glob: unclosed character class; missing ']'
   |
12 | tools = ["["]
   |          ^^^

f.toml:13:11: error: not a scope: 1 to 256 visible ASCII characters, without spaces, quotes and `\`; name each by itself
   |
13 | scopes = ["a b"]
   |           ^^^^^

f.toml:14:15: error: no annotation: leave the key out for no condition
   |
14 | annotations = {}
   |               ^^
"#,
    },
    Case {
        name: "two rules of one name",
        replace: "[upstream.a]",
        by: r#"[[rule]]
name = "r"
effect = "deny"
[[rule]]
name = "r"
effect = "allow"
[upstream.a]"#,
        rendered: r#"
f.toml:10:8: error: two rules are named `r`: choose another name
   |
10 | name = "r"
   |        ^^^
"#,
    },
];

#[test]
fn a_rule_is_read() {
    let text = base_with(
        "[upstream.a]",
        "[[rule]]\nname = \"r\"\neffect = \"allow\"\nprincipals = [\"ci\"]\nclaims = { team = \"x\", org = [\"a\", \"b\"] }\n\
         endpoints = [\"/m*\"]\ntools = [\"get_*\"]\nannotations = { readOnlyHint = true, destructiveHint = false }\n\
         arguments = { days = [1_000, 5e-1, \"2\"], at.home = true }\n[upstream.a]",
    );
    let path = |text| ArgumentPath::read(text).unwrap();
    let number = |text| ArgumentValue::number(text).unwrap();
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let expected = RuleConfig {
        name: "r".into(),
        effect: Effect::Allow,
        enabled: true,
        principals: Some(own(&["ci"])),
        groups: None,
        scopes: None,
        claims: vec![("org".into(), own(&["a", "b"])), ("team".into(), own(&["x"]))],
        endpoints: Some(own(&["/m*"])),
        upstreams: None,
        tools: Some(own(&["get_*"])),
        prompts: None,
        resources: None,
        annotations: vec![(Hint::ReadOnly, true), (Hint::Destructive, false)],
        arguments: vec![
            ArgumentCondition { path: path("at.home"), values: vec![ArgumentValue::Boolean(true)] },
            ArgumentCondition {
                path: path("days"),
                values: vec![number("1000"), number("0.5"), ArgumentValue::Text("2".into())],
            },
        ],
        missing_arguments: MissingArgument::Refuse,
    };
    assert_eq!(parsed(&text).rules, [expected]);
}

#[test]
fn a_name_that_only_clients_use_is_a_warning() {
    let text = base_with(
        "[upstream.a]",
        "[[rule]]\nname = \"r\"\neffect = \"deny\"\ntools = [\"a__x\"]\nresources = [\"b+file:*\"]\n[upstream.a]",
    );
    let config = parsed(&text);
    let said: Vec<&str> = config.warnings.iter().map(|warning| &*warning.message).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("write `upstreams = [\"a\"]` and `x`"), "{said:?}");
}
