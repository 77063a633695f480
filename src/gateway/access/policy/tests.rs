//! What rules come to, for callers of every kind.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::*;
use crate::identity::VerifiedIdentity;
use protocol::hints::Hints;
use protocol::json::Scratch;
use protocol::route::directory::{Directory, MemberNames};
use protocol::route::filter::NameFilter;
use protocol::route::{Kind, MemberAlias, Naming, Style};

/// What rules come to over the upstreams `a` and `b`, at `/mcp`.
struct Bed {
    policy: Policy,
    naming: Naming,
    directory: Arc<Directory>,
    hinted: [Arc<HintCell>; 2],
}

fn own(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Bed {
    fn new(rules: &str) -> Self {
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"a\", \"b\"]\n\
             [[endpoint]]\npath = \"/other\"\nupstreams = [\"a\"]\n\
             [upstream.a]\nurl = \"http://127.0.0.1:1/\"\n[upstream.b]\nurl = \"http://127.0.0.1:2/\"\n{rules}"
        );
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
        let hinted: [Arc<HintCell>; 2] = Default::default();
        let members = [("a", Arc::clone(&hinted[0])), ("b", Arc::clone(&hinted[1]))];
        let alias = MemberAlias { public: "today".into(), member: 0, inner: "x".into() };
        let filter = NameFilter::new(&own(&["*"]), &[]).unwrap();
        let naming = Naming::new(Style::Prefixed, true, &own(&["a", "b"]), &[alias], filter);
        let tools = |tools: &[&str]| Some(MemberNames { tools: own(tools), ..MemberNames::default() });
        let listed = [tools(&["x", "y", "caf\u{e9}"]), tools(&["x", "z"])];
        let directory = Arc::new(Directory::build(&listed, true));
        Self {
            policy: Policy::new(&config.rules, &config.endpoints[0], &members).unwrap(),
            naming,
            directory,
            hinted,
        }
    }

    fn place(&self) -> NameScope<'_> {
        NameScope { naming: &self.naming, directory: &self.directory }
    }

    /// Whether a thing may be used, which must be the same before and after names were looked through.
    fn may(&self, who: &Principal, kind: Kind, member: usize, inner: &str) -> bool {
        let class = self.policy.class_of(who);
        let before = class.allows(self.place(), kind, member, inner);
        while self.policy.learn(self.place()) {}
        assert_eq!(class.allows(self.place(), kind, member, inner), before, "{kind:?} {inner}");
        before
    }
}

fn somebody(id: &str, name: &str, change: impl FnOnce(&mut VerifiedIdentity)) -> Principal {
    let mut identity = VerifiedIdentity { id: id.into(), name: name.into(), ..VerifiedIdentity::default() };
    change(&mut identity);
    Principal::Known(Arc::new(identity))
}

fn hints(annotations: &str) -> Hints {
    let tool = format!(r#"{{"annotations":{annotations}}}"#);
    Hints::of(Scratch::default().index(tool.as_bytes(), 16).unwrap().root())
}

#[test]
fn subjects_are_all_of_their_kinds_and_any_of_each() {
    let ci = || somebody("key:ci", "ci", |_| {});
    let grouped = || somebody("jwt:1", "eve", |who| who.groups = vec!["dev".into(), "ops".into()]);
    let scoped = || somebody("jwt:2", "key:ci", |who| who.scopes = vec!["mcp:read".into()]);
    let claiming = || {
        somebody("jwt:3", "bob", |who| {
            who.claims =
                vec![("team".into(), "x".into()), ("team".into(), "y".into()), ("org".into(), "o".into())];
        })
    };
    for (subject, who, expected) in [
        ("", Principal::Anonymous, true),
        ("", ci(), true),
        (r#"principals = ["c*"]"#, ci(), true),
        (r#"principals = ["key:ci"]"#, ci(), true),
        (r#"principals = ["CI"]"#, ci(), false),
        // A name that looks like an id is no id.
        (r#"principals = ["key:ci"]"#, scoped(), false),
        (r#"principals = ["key:*"]"#, scoped(), false),
        (r#"principals = ["anonymous"]"#, Principal::Anonymous, true),
        (r#"principals = ["*"]"#, Principal::Anonymous, true),
        (r#"groups = ["ops", "none"]"#, grouped(), true),
        (r#"groups = ["op*"]"#, grouped(), false),
        (r#"groups = ["ops"]"#, Principal::Anonymous, false),
        (r#"groups = ["ops"]"#, ci(), false),
        (r#"scopes = ["mcp:read", "mcp:write"]"#, scoped(), true),
        (r#"scopes = ["mcp:write"]"#, scoped(), false),
        (r#"claims = { team = "y" }"#, claiming(), true),
        (r#"claims = { team = ["z", "x"], org = "o" }"#, claiming(), true),
        (r#"claims = { team = "x", org = "p" }"#, claiming(), false),
        ("groups = [\"ops\"]\nscopes = [\"mcp:read\"]", grouped(), false),
        ("groups = [\"ops\"]\nprincipals = [\"eve\"]", grouped(), true),
    ] {
        let bed = Bed::new(&format!("[[rule]]\nname = \"r\"\neffect = \"allow\"\n{subject}"));
        assert_eq!(bed.may(&who, Kind::Tool, 0, "x"), expected, "{subject} {who:?}");
        if !subject.contains("\"key:") {
            let bed = Bed::new(&format!("[[rule]]\nname = \"r\"\neffect = \"deny\"\n{subject}"));
            assert_eq!(bed.may(&who, Kind::Tool, 0, "x"), !expected, "deny: {subject} {who:?}");
        }
    }
    let denied = Bed::new("[[rule]]\nname = \"r\"\neffect = \"deny\"\nprincipals = [\"key:ci\"]");
    assert!(!denied.may(&scoped(), Kind::Tool, 0, "x"), "who may be meant is denied");
}

#[test]
fn objects_are_as_the_upstream_spells_them() {
    for (object, kind, member, inner, expected) in [
        ("", Kind::Tool, 0, "x", true),
        ("", Kind::Task, 1, "t", true),
        (r#"upstreams = ["b"]"#, Kind::Tool, 0, "x", false),
        (r#"upstreams = ["b"]"#, Kind::Tool, 1, "x", true),
        (r#"upstreams = ["b"]"#, Kind::Task, 0, "t", false),
        (r#"endpoints = ["/other"]"#, Kind::Tool, 0, "x", true),
        (r#"endpoints = ["/m*"]"#, Kind::Tool, 0, "x", true),
        (r#"tools = ["x"]"#, Kind::Tool, 1, "x", true),
        (r#"tools = ["x"]"#, Kind::Tool, 0, "X", false),
        (r#"tools = ["today"]"#, Kind::Tool, 0, "x", false),
        (r#"tools = ["x"]"#, Kind::Prompt, 0, "x", false),
        (r#"tools = ["x"]"#, Kind::Resource, 0, "x:", false),
        (r#"tools = ["x"]"#, Kind::Task, 0, "t", true),
        (r#"resources = ["file:///p/*"]"#, Kind::Resource, 0, "file:///p/{name}", true),
        (r#"resources = ["file:///p/*"]"#, Kind::Resource, 0, "file:///p/../q", false),
        (r#"resources = ["file:///p/*"]"#, Kind::Tool, 0, "file:///p/x", false),
    ] {
        let bed = Bed::new(&format!("[[rule]]\nname = \"r\"\neffect = \"allow\"\n{object}"));
        assert_eq!(bed.may(&Principal::Anonymous, kind, member, inner), expected, "{object} {inner}");
    }
}

#[test]
fn a_rule_that_denies_is_about_whatever_the_thing_may_be_taken_for() {
    for (object, kind, inner) in [
        (r#"tools = ["x"]"#, Kind::Tool, "X"),
        (r#"tools = ["X"]"#, Kind::Tool, "x"),
        (r#"tools = ["x"]"#, Kind::Tool, "x "),
        (r#"tools = ["today"]"#, Kind::Tool, "x"),
        (r#"tools = ["today"]"#, Kind::Tool, "X"),
        (r#"tools = ["a__*"]"#, Kind::Tool, "never_listed"),
        (r#"tools = ["kill"]"#, Kind::Tool, "\u{212a}ill"),
        (r#"tools = ["other"]"#, Kind::Tool, "not listed"),
        (r#"prompts = ["p"]"#, Kind::Prompt, "P"),
        (r#"resources = ["file:///s*"]"#, Kind::Resource, "file:///S"),
        (r#"resources = ["file:///s"]"#, Kind::Resource, "file:///s?x"),
        (r#"resources = ["file:///é"]"#, Kind::Resource, "file:///%C3%A9"),
        (r#"resources = ["a+file:*"]"#, Kind::Resource, "file:///x"),
    ] {
        let bed = Bed::new(&format!("[[rule]]\nname = \"r\"\neffect = \"deny\"\n{object}"));
        assert!(!bed.may(&Principal::Anonymous, kind, 0, inner), "{object} {inner}");
    }
    let bed = Bed::new("[[rule]]\nname = \"r\"\neffect = \"deny\"\ntools = [\"other\"]");
    assert!(bed.may(&Principal::Anonymous, Kind::Tool, 0, "caf\u{e9}"), "a listed name is what it is");
}

#[test]
fn denial_wins_and_a_scope_may_help() {
    let rules = "[[rule]]\nname = \"a\"\neffect = \"allow\"\nscopes = [\"s\", \"t\"]\ntools = [\"x\", \"y\"]\n\
                 [[rule]]\nname = \"d\"\neffect = \"deny\"\ntools = [\"y\"]";
    let bed = Bed::new(rules);
    let judge = |who: &Principal, inner| bed.policy.class_of(who).judge(bed.place(), Kind::Tool, 0, inner);
    let (with, without) =
        (somebody("i", "n", |who| who.scopes = vec!["t".into()]), somebody("i", "n", |_| {}));
    let required = PolicyVerdict::Scope { rule: "a".into(), required: "s t".into() };
    for (who, inner, expected) in [
        (&with, "x", PolicyVerdict::Allowed(Some("a".into()))),
        (&with, "y", PolicyVerdict::Hidden(Some("d".into()))),
        (&with, "z", PolicyVerdict::Hidden(None)),
        (&without, "x", required),
        (&without, "y", PolicyVerdict::Hidden(Some("d".into()))),
        (&without, "z", PolicyVerdict::Hidden(None)),
        (&Principal::Anonymous, "x", PolicyVerdict::Hidden(None)),
    ] {
        assert_eq!(judge(who, inner), expected, "{inner}");
    }
}

#[test]
fn annotations_count_as_they_were_last_listed() {
    let bed = Bed::new("[[rule]]\nname = \"r\"\neffect = \"allow\"\nannotations = { readOnlyHint = true }");
    let may = |name| bed.may(&Principal::Anonymous, Kind::Tool, 0, name);
    let list = |annotations| bed.hinted[0].publish([(Cow::Borrowed("x"), hints(annotations))].into_iter());
    assert!(!may("x"));
    list(r#"{"readOnlyHint":true}"#);
    assert!(may("x") && !may("y") && !may("renamed"));
    assert!(!bed.may(&Principal::Anonymous, Kind::Tool, 1, "x"), "another upstream's tool");
    assert!(!bed.may(&Principal::Anonymous, Kind::Prompt, 0, "x"));
    list(r#"{"readOnlyHint":false}"#);
    assert!(!may("x"));
    let destructive =
        Bed::new("[[rule]]\nname = \"r\"\neffect = \"deny\"\nannotations = { destructiveHint = true }");
    assert!(!destructive.may(&Principal::Anonymous, Kind::Tool, 0, "x"), "the default");
    destructive.hinted[0].publish([(Cow::Borrowed("x"), hints(r#"{"destructiveHint":false}"#))].into_iter());
    assert!(destructive.may(&Principal::Anonymous, Kind::Tool, 0, "x"));
}

#[test]
fn what_depends_on_annotations_waits_for_the_first_list() {
    let mut bed =
        Bed::new("[[rule]]\nname = \"r\"\neffect = \"allow\"\nannotations = { readOnlyHint = true }");
    bed.directory = Arc::default();
    let class = bed.policy.class_of(&Principal::Anonymous);
    assert_eq!(class.judge(bed.place(), Kind::Tool, 0, "x"), PolicyVerdict::NotYetLearned);
    assert_eq!(class.judge(bed.place(), Kind::Prompt, 0, "x"), PolicyVerdict::Hidden(None));
}

#[test]
fn callers_of_one_class_share_it_and_classes_are_bounded() {
    let bed = Bed::new("[[rule]]\nname = \"r\"\neffect = \"allow\"\nprincipals = [\"n*\"]");
    let class = |name: &str| bed.policy.class_of(&somebody("i", name, |_| {}));
    assert!(Arc::ptr_eq(&class("n1"), &class("n2")));
    assert_ne!(class("n1").id, class("m").id);
    let mut rules = String::new();
    for index in 0..12 {
        let _ = writeln!(rules, "[[rule]]\nname = \"r{index}\"\neffect = \"allow\"\ngroups = [\"g{index}\"]");
    }
    let bed = Bed::new(&rules);
    for set in 0_u32..1 << 12 {
        let groups = (0..12).filter(|bit| set >> bit & 1 == 1).map(|bit| format!("g{bit}").into());
        bed.policy.class_of(&somebody("i", "n", |who| who.groups = groups.collect()));
    }
    assert!(bed.policy.classes.lock().len() <= CLASSES_MAX);
}

#[test]
fn a_list_is_shown_by_the_annotations_in_it() {
    let bed = Bed::new("[[rule]]\nname = \"r\"\neffect = \"allow\"\nannotations = { readOnlyHint = true }");
    let class = bed.policy.class_of(&Principal::Anonymous);
    let shows = |annotations| class.shows(&bed.naming, Kind::Tool, 0, "x", hints(annotations));
    assert!(shows(r#"{"readOnlyHint":true}"#) && !shows("{}"));
}
