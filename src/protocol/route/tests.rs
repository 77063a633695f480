use super::directory::MemberNames;
use super::*;

fn naming(style: Style, accept_unprefixed: bool, allow: &[&str], deny: &[&str]) -> Naming {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let alias = MemberAlias { public: "today".into(), member: 0, inner: "forecast".into() };
    let prefixes = own(&["wx", "files"]);
    Naming::new(
        style,
        accept_unprefixed,
        &prefixes,
        &[alias],
        NameFilter::new(&own(allow), &own(deny)).expect("globs"),
    )
}

fn directory() -> Directory {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    Directory::build(
        &[
            Some(MemberNames {
                tools: own(&["forecast", "search"]),
                resources: own(&["https://w/1", "test://a"]),
                ..MemberNames::default()
            }),
            Some(MemberNames { tools: own(&["read", "search"]), ..MemberNames::default() }),
        ],
        true,
    )
}

#[test]
fn routes_by_style() {
    use NoRoute::{NotYetLearned, Unknown};
    let prefixed = naming(Style::Prefixed, true, &["*"], &[]);
    let strict = naming(Style::Prefixed, false, &["*"], &[]);
    let bare = naming(Style::Bare, true, &["*"], &[]);
    let transparent = naming(Style::Transparent, true, &["*"], &[]);
    let known = directory();
    let unknown = Directory::default();
    let names = MemberNames { tools: vec!["search".to_owned()], ..MemberNames::default() };
    let tried = Directory::build(&[Some(names), None], true);
    let names = MemberNames { tools: vec!["read".to_owned()], ..MemberNames::default() };
    let tried_second = Directory::build(&[None, Some(names)], true);
    for (naming, names, kind, public, expected) in [
        (&prefixed, &known, Kind::Tool, "wx__forecast", Ok((0, "forecast"))),
        (&prefixed, &known, Kind::Tool, "wx__a__b", Ok((0, "a__b"))),
        (&prefixed, &known, Kind::Tool, "nope__a", Err(Unknown)),
        (&prefixed, &known, Kind::Tool, "read", Ok((1, "read"))),
        (&prefixed, &known, Kind::Tool, "search", Err(Unknown)),
        (&prefixed, &known, Kind::Prompt, "read", Err(Unknown)),
        (&prefixed, &known, Kind::Tool, "today", Ok((0, "forecast"))),
        (&strict, &known, Kind::Tool, "read", Err(Unknown)),
        (&bare, &known, Kind::Tool, "search", Ok((0, "search"))),
        (&bare, &known, Kind::Tool, "files__search", Ok((1, "search"))),
        (&bare, &known, Kind::Tool, "nope", Err(Unknown)),
        (&bare, &unknown, Kind::Tool, "search", Err(NotYetLearned)),
        (&prefixed, &unknown, Kind::Tool, "search", Err(NotYetLearned)),
        (&prefixed, &unknown, Kind::Resource, "test://a", Err(NotYetLearned)),
        (&prefixed, &unknown, Kind::Tool, "wx__search", Ok((0, "search"))),
        (&prefixed, &unknown, Kind::Tool, "nope__search", Err(Unknown)),
        (&prefixed, &tried, Kind::Tool, "nope", Err(Unknown)),
        (&prefixed, &tried, Kind::Tool, "search", Err(NotYetLearned)),
        (&prefixed, &tried, Kind::Tool, "files__nope", Ok((1, "nope"))),
        (&prefixed, &tried, Kind::Resource, "test://nope", Err(Unknown)),
        (&prefixed, &tried, Kind::Resource, "https://nope/1", Err(Unknown)),
        (&bare, &tried, Kind::Tool, "nope", Err(Unknown)),
        (&bare, &tried, Kind::Tool, "nope__search", Err(Unknown)),
        (&bare, &tried, Kind::Prompt, "nope", Err(Unknown)),
        (&bare, &tried, Kind::Resource, "test://nope", Err(Unknown)),
        (&bare, &unknown, Kind::Tool, "nope__search", Err(NotYetLearned)),
        (&bare, &tried, Kind::Tool, "search", Ok((0, "search"))),
        (&bare, &tried_second, Kind::Tool, "read", Err(NotYetLearned)),
        (&strict, &unknown, Kind::Tool, "search", Err(Unknown)),
        (&transparent, &unknown, Kind::Tool, "wx__forecast", Ok((0, "wx__forecast"))),
        (&prefixed, &known, Kind::Resource, "wx+test://a", Ok((0, "test://a"))),
        (&prefixed, &known, Kind::Resource, "files+{path}", Ok((1, "{path}"))),
        (&prefixed, &known, Kind::Resource, "files+a+b", Ok((1, "a+b"))),
        (&prefixed, &known, Kind::Resource, "ui://wx+board", Ok((0, "ui://board"))),
        (&prefixed, &known, Kind::Resource, "https://w/1", Ok((0, "https://w/1"))),
        (&prefixed, &known, Kind::Resource, "https://nope/1", Err(Unknown)),
        (&prefixed, &known, Kind::Resource, "test://a", Ok((0, "test://a"))),
        (&strict, &known, Kind::Resource, "test://a", Err(Unknown)),
        (&prefixed, &known, Kind::Task, "files+t1", Ok((1, "t1"))),
        (&prefixed, &known, Kind::Task, "t1", Err(Unknown)),
    ] {
        let route = naming.route(kind, public, names);
        let route = route.as_ref().map(|route| (route.member, &*route.inner)).map_err(|why| *why);
        assert_eq!(route, expected, "{kind:?} {public}");
    }
}

#[test]
fn public_names_lead_back() {
    let naming = naming(Style::Prefixed, true, &["*"], &[]);
    let known = directory();
    for (kind, member, inner) in [
        (Kind::Tool, 0, "forecast"),
        (Kind::Tool, 1, "a__b"),
        (Kind::Prompt, 1, "p"),
        (Kind::Resource, 1, "urn:x"),
        (Kind::Resource, 0, "ui://board/a+b"),
        (Kind::Resource, 0, "https://w/1"),
        (Kind::Task, 1, "a+b"),
    ] {
        let public = naming.public(kind, member, inner).expect("visible");
        let route = naming.route(kind, &public, &known).expect("route");
        assert_eq!((route.member, &*route.inner), (member, inner), "{public}");
    }
    assert_eq!(naming.public(Kind::Tool, 0, "forecast").as_deref(), Some("today"));
}

#[test]
fn disguised_uris_are_told() {
    for (uri, is_it) in [
        ("file:///a/b", false),
        ("a+file:///a/%20b", false),
        ("a+file:///a/../b", true),
        ("file:///a/%2e%2e/b", true),
        ("file:///%73ecret", true),
        ("file:///a%2Fb", true),
        ("FILE:///a", true),
        ("file:///a/%zz", true),
        ("urn:x:..", false),
        ("file://localhost/a", true),
        ("file:/a", true),
        ("file:////a", true),
        ("file:///a//b", true),
        ("file:///{path}", false),
        ("file:///a%252e", true),
        ("file:///a%00", true),
        ("file:///a%c0%ae", true),
        ("file:///%C3%A9", false),
        ("file:///a\tb", true),
        (" file:///a", true),
        ("file:///a b", false),
        ("https://h/a", false),
        ("https://H/a", true),
        ("https://h:443/a", true),
        ("https://u@h/a", true),
        ("https://h./a", true),
        ("https:/h/a", true),
    ] {
        assert_eq!(is_disguised(uri), is_it, "{uri}");
    }
}

#[test]
fn every_alias_is_judged() {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let alias = |public: &str| MemberAlias { public: public.into(), member: 0, inner: "x".into() };
    let aliases = [alias("one"), alias("two")];
    let naming = |allow: &[&str], deny: &[&str]| {
        let filter = NameFilter::new(&own(allow), &own(deny)).expect("globs");
        Naming::new(Style::Prefixed, true, &own(&["a"]), &aliases, filter)
    };
    let known = directory();
    assert_eq!(naming(&["*"], &["two"]).route(Kind::Tool, "two", &known), Err(NoRoute::Unknown));
    assert!(naming(&["two"], &[]).route(Kind::Tool, "two", &known).is_ok());
    let denied = naming(&["*"], &["two"]);
    for public in ["a__x", "a__X", "a__x "] {
        assert_eq!(denied.route(Kind::Tool, public, &known), Err(NoRoute::Unknown), "{public}");
    }
    assert!(!denied.shows(Kind::Tool, 0, "X ") && !denied.shows(Kind::Prompt, 0, "X"));
    assert!(denied.shows(Kind::Tool, 0, "y") && denied.shows(Kind::Resource, 0, "X"));
    let allowed = naming(&["two"], &[]);
    assert_eq!(allowed.route(Kind::Tool, "a__X", &known), Err(NoRoute::Unknown), "allow goes by the letter");
    let denied = naming(&["*"], &["a+*"]);
    assert_eq!(denied.route(Kind::Resource, "https://w/1", &known), Err(NoRoute::Unknown));
}

#[test]
fn a_hidden_thing_is_hidden_under_every_name() {
    let known = directory();
    let denied = naming(Style::Prefixed, true, &["*"], &["wx__forecast", "files__read", "wx+test:*"]);
    for (kind, public) in [
        (Kind::Tool, "wx__forecast"),
        (Kind::Tool, "today"),
        (Kind::Tool, "forecast"),
        (Kind::Tool, "read"),
        (Kind::Resource, "wx+test://a"),
        (Kind::Resource, "test://a"),
    ] {
        assert_eq!(denied.route(kind, public, &known), Err(NoRoute::Unknown), "{public}");
    }
    assert_eq!(denied.public(Kind::Tool, 0, "forecast"), None);
    assert!(denied.route(Kind::Tool, "wx__search", &known).is_ok());
    let allowed = naming(Style::Prefixed, true, &["files__*"], &[]);
    assert!(allowed.route(Kind::Tool, "read", &known).is_ok());
    assert_eq!(allowed.route(Kind::Tool, "today", &known), Err(NoRoute::Unknown));
}
