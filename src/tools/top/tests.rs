//! The screen from keys and answers, on terminals of all sizes.

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};
use status::{History, Object, Status, ToolsPage};

use super::app::{App, SideEffect};
use super::feed::News;
use super::key::{Key, KeyInput};
use super::palette::Palette;
use super::tab::Tab;
use super::view;

fn read<T: Object>(answer: &Value) -> T {
    T::read(answer).unwrap()
}

const NOW_S: u64 = 1_800_000_000;

fn upstream(name: &str, is_fit: bool, calls_per_s: f64) -> Value {
    json!({
        "name": name, "transport": "http", "eras": ["modern"], "healthy": is_fit, "tools": 3, "calls": 7, "errors": 1,
        "replicas": [{"address": "http://a:1/", "breaker": if is_fit { "closed" } else { "open" }, "resolved": true}],
        "recent": {"calls_per_s": calls_per_s, "errors_per_s": 0.0, "p50_s": 0.002, "p99_s": 0.025},
    })
}

fn state(upstreams: &[Value]) -> News {
    let status = json!({
        "version": "1.2.3", "uptime_s": 61,
        "calls": {"recent": {"calls_per_s": 42.0, "errors_per_s": 0.0, "p99_s": 0.025}},
        "connections": {"open": 3, "max": 10},
        "endpoints": [{"path": "/mcp", "healthy": true, "upstreams": ["alpha", "beta"]}],
        "limits": [{"name": "each", "calls": 5, "period_s": 60.0, "refused": 2}],
        "upstreams": upstreams,
    });
    let lines = json!({"calls_per_s": vec![1.0; 60], "p99_s": vec![0.1; 60]});
    let history = json!({"interval_s": 5, "all": lines, "upstreams": {"alpha": lines}});
    News::State(Box::new(read::<Status>(&status)), Some(Box::new(read::<History>(&history))))
}

fn app() -> App {
    let mut app = App::new("127.0.0.1:9090", NOW_S);
    app.resize((100, 24));
    app.hear(state(&[
        upstream("alpha", true, 1.0),
        upstream("beta", true, 9.0),
        upstream("gamma", false, 0.0),
    ]));
    app
}

fn press(app: &mut App, keys: &[Key]) {
    for key in keys {
        assert_eq!(app.input(KeyInput::Key(*key)), SideEffect::None, "{key:?}");
    }
}

fn typed(app: &mut App, text: &str) {
    text.chars().for_each(|c| press(app, &[Key::Char(c)]));
}

fn drawn(app: &App, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view::draw(frame, app, Palette::new(true))).unwrap();
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(columns).max(1));
    rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned())
        .collect()
}

fn screen(app: &App) -> String {
    drawn(app, 100, 24).join("\n")
}

/// The name in the row that is chosen.
fn chosen(app: &App) -> String {
    app.listing().row(app.look().cursor).map(|row| row.id.clone()).unwrap_or_default()
}

#[test]
fn what_is_wrong_stands_first_and_then_what_is_busy() {
    let app = app();
    let lines = drawn(&app, 100, 24);
    assert!(lines[0].starts_with("trunkline 1.2.3  127.0.0.1:9090  up 1 min"), "{lines:#?}");
    assert!(lines[1].starts_with("✗ 1 problem: upstream gamma"), "{lines:#?}");
    let order: Vec<_> = app.listing().rows.iter().map(|row| row.id.clone()).collect();
    assert_eq!(order, ["gamma", "beta", "alpha"]);
    let row = |name| lines.iter().position(|line| line.contains(name)).unwrap();
    assert!(row("✗ down") < row("beta") && row("beta") < row("alpha"), "{lines:#?}");
}

#[test]
fn the_chosen_row_stays_chosen_wherever_it_goes() {
    let mut app = app();
    press(&mut app, &[Key::Down]);
    assert_eq!(chosen(&app), "beta");
    app.hear(state(&[
        upstream("alpha", true, 9.0),
        upstream("beta", true, 1.0),
        upstream("gamma", true, 20.0),
    ]));
    assert_eq!((chosen(&app).as_str(), app.look().cursor), ("beta", 2));
    app.hear(state(&[upstream("alpha", true, 1.0)]));
    assert_eq!(chosen(&app), "alpha");
    app.hear(state(&[]));
    assert_eq!(chosen(&app), "");
    assert!(screen(&app).contains("there are none"));
}

#[test]
fn a_filter_leaves_what_has_it_and_esc_takes_it_away() {
    let mut app = app();
    typed(&mut app, "/BET");
    assert_eq!(app.listing().total, 1);
    assert!(drawn(&app, 100, 24)[23].starts_with("/BET"));
    press(&mut app, &[Key::Enter, Key::Char('j')]);
    assert_eq!(chosen(&app), "beta");
    press(&mut app, &[Key::Esc]);
    assert_eq!(app.listing().total, 3);
    typed(&mut app, "/nothing\u{1b}q");
    assert_eq!(app.listing().total, 0, "no key of a filter ends anything");
    assert!(screen(&app).contains("Esc shows all"), "{}", screen(&app));
    press(&mut app, &[Key::Control('u')]);
    assert_eq!(app.listing().total, 3);
}

#[test]
fn enter_shows_one_thing_in_full_and_esc_goes_back() {
    for (tab, expected) in
        [('1', "upstream gamma"), ('2', "endpoint /mcp"), ('4', "connections"), ('5', "upstream gamma")]
    {
        let mut app = app();
        press(&mut app, &[Key::Char(tab), Key::Enter]);
        let text = screen(&app);
        assert!(text.lines().any(|line| line == expected), "{tab}: {text}");
        press(&mut app, &[Key::Esc]);
        assert!(app.has_table());
    }
    let mut app = app();
    press(&mut app, &[Key::Char('8')]);
    assert!(screen(&app).contains("1.2.3, up 1 min"));
    press(&mut app, &[Key::Char('?')]);
    assert!(screen(&app).contains("Ctrl-C"));
}

#[test]
fn problems_errors_and_callers_are_told() {
    let mut app = app();
    let down = json!({
        "name": "gamma", "healthy": false, "down_since_s": NOW_S - 240, "reasons": {"upstream_timeout": 9, "upstream_reset": 2},
        "replicas": [{"address": "b:1/mcp", "url": "http://b:1/mcp", "breaker": "open", "down_since_s": NOW_S - 240}],
        "calls": 11, "errors": 11,
    });
    let error = json!({
        "at_s": NOW_S - 3, "first_s": NOW_S - 90, "calls": 31, "endpoint": "/mcp", "upstream": "gamma",
        "method": "tools/call", "name": "forecast", "outcome": "failed", "reason": "upstream_timeout",
        "principal": "ci", "request_id": "ab-1",
    });
    let status = json!({
        "upstreams": [down],
        "recent_errors": [error],
        "callers": {
            "known": 2,
            "busiest": [{"principal": "ci", "calls": 900, "errors": 31, "refused": 4}],
            "most_refused": [{"principal": "ci", "calls": 900}, {"principal": null, "calls": 7, "errors": 7, "refused": 7}],
        },
    });
    app.hear(News::State(Box::new(read::<Status>(&status)), None));
    let text = drawn(&app, 140, 24).join("\n");
    assert!(text.contains("down: its circuit breaker is open, for 4 min"), "{text}");
    for (keys, expected) in [
        (&[Key::Char('1'), Key::Enter][..], "✗ down b:1/mcp 0 in flight, 0 answered, for 4 min"),
        (&[Key::Char('1'), Key::Enter], "→ trunkline doctor http://b:1/mcp"),
        (&[Key::Char('1'), Key::Enter], "docs/operate/runbook.md#trunklineupstreamdown"),
        (&[Key::Char('5')], "4 min"),
        (&[Key::Char('6')], "failed forecast upstream_timeout 31 3 s ago gamma ci"),
        (&[Key::Char('6'), Key::Enter], "request id ab-1"),
        (&[Key::Char('7')], "ci 900 31 3.4 % 4"),
        (&[Key::Char('7')], "anonymous 7 7"),
    ] {
        press(&mut app, &[Key::Esc]);
        press(&mut app, keys);
        let text = drawn(&app, 120, 40).join(" ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn tables_are_sorted_by_the_column_that_is_asked_for() {
    let mut app = app();
    let order = |app: &App| app.listing().rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    press(&mut app, &[Key::Char('s')]);
    assert_eq!(order(&app), ["alpha", "beta", "gamma"]);
    press(&mut app, &[Key::Char('r')]);
    assert_eq!(order(&app), ["gamma", "beta", "alpha"]);
    press(&mut app, &[Key::Char('s')]);
    assert_eq!(order(&app), ["beta", "alpha", "gamma"]);
    assert!(screen(&app).contains("CALLS/S▼"), "{}", screen(&app));
    press(&mut app, &[Key::Char('S'), Key::Char('S')]);
    assert_eq!(order(&app), ["gamma", "beta", "alpha"], "by state again");
}

#[test]
fn tools_are_asked_for_page_by_page() {
    let mut app = app();
    assert_eq!(app.wanted(), None);
    press(&mut app, &[Key::Char('t')]);
    let query = app.wanted().unwrap().query().into_owned();
    assert_eq!((query.upstream.as_deref(), query.offset), (Some("gamma"), 0));
    press(&mut app, &[Key::Esc]);
    assert_eq!(app.wanted().unwrap().query().upstream, None);
    let page = |offset: usize| {
        let tools: Vec<_> = (offset..offset + 200)
            .map(|n| json!({"upstream": "alpha", "name": format!("tool-{n}")}))
            .collect();
        read::<ToolsPage>(&json!({"total": 50_000, "matched": 50_000, "offset": offset, "tools": tools}))
    };
    app.hear(News::Tools(app.wanted().unwrap(), Ok(page(0))));
    assert!(screen(&app).contains("tool-0"));
    press(&mut app, &[Key::End]);
    let wanted = app.wanted().unwrap();
    let query = wanted.query().into_owned();
    assert!(query.offset > 49_800 && query.offset + query.count >= 50_000, "{query:?}");
    assert!(screen(&app).contains('…'), "not there yet");
    app.hear(News::Tools(wanted.clone(), Ok(page(query.offset))));
    assert_eq!(chosen(&app), "alpha\ntool-49999");
    press(&mut app, &[Key::Enter]);
    assert!(screen(&app).contains("tool tool-49999"));
    app.hear(News::Tools(wanted, Err("broken".to_owned())));
    press(&mut app, &[Key::Esc]);
    assert!(screen(&app).contains("no tools: broken"));
    typed(&mut app, "/x");
    let query = app.wanted().unwrap().query().into_owned();
    assert_eq!((query.text, query.offset), ("x".to_owned(), 0));
}

#[test]
fn a_pause_holds_for_tools_that_are_shown_and_not_for_others() {
    let mut app = app();
    let page = |name: &str| {
        read::<ToolsPage>(&json!({"matched": 1, "tools": [{"upstream": "alpha", "name": name}]}))
    };
    press(&mut app, &[Key::Char('3')]);
    app.hear(News::Tools(app.wanted().unwrap(), Ok(page("first"))));
    press(&mut app, &[Key::Char('p')]);
    app.hear(News::Tools(app.wanted().unwrap(), Ok(page("later"))));
    assert!(screen(&app).contains("first"));
    typed(&mut app, "/x");
    app.hear(News::Tools(app.wanted().unwrap(), Ok(page("other"))));
    assert!(screen(&app).contains("other"));
    press(&mut app, &[Key::Enter, Key::Esc, Key::Char('p')]);
    app.hear(News::Tools(app.wanted().unwrap(), Ok(page("later"))));
    assert!(screen(&app).contains("later"));
}

#[test]
fn a_gateway_that_is_gone_is_said_to_be() {
    let mut app = app();
    app.hear(News::Gone("connection refused\u{1b}[2J".to_owned()));
    app.tick(NOW_S + 12);
    app.hear(News::Gone("timed out".to_owned()));
    let text = screen(&app);
    assert!(text.contains("✗ unreachable for 12 s: timed out"), "{text}");
    assert!(text.contains("beta"), "what was known stays: {text}");
    app.hear(state(&[upstream("alpha", true, 1.0)]));
    assert!(screen(&app).contains("● healthy"));
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut app = app();
    press(&mut app, &[Key::Char('p')]);
    app.hear(state(&[]));
    assert!(screen(&app).contains("PAUSED") && screen(&app).contains("beta"));
    press(&mut app, &[Key::Char('p')]);
    app.hear(state(&[]));
    assert!(!screen(&app).contains("beta"));
}

#[test]
fn a_tiny_terminal_shows_what_matters() {
    let app = app();
    let lines = drawn(&app, 20, 5);
    assert!(lines[0].starts_with("✗ 1 problem"), "{lines:#?}");
    assert!(lines[1].contains("1 Upstreams 3"), "{lines:#?}");
    assert!(lines[3].starts_with("✗") && lines[3].contains("gamma"), "{lines:#?}");
    assert!(drawn(&app, 20, 1)[0].contains("gamma"));
}

#[test]
fn only_some_keys_end_it() {
    for (key, expected) in [
        (Key::Char('q'), SideEffect::Quit),
        (Key::Control('c'), SideEffect::Quit),
        (Key::Control('z'), SideEffect::Suspend),
        (Key::Control('l'), SideEffect::Redraw),
        (Key::Esc, SideEffect::None),
        (Key::Char('x'), SideEffect::None),
    ] {
        assert_eq!(app().input(KeyInput::Key(key)), expected, "{key:?}");
    }
    let mut app = app();
    typed(&mut app, "/q");
    assert_eq!(app.input(KeyInput::Key(Key::Control('c'))), SideEffect::Quit, "even while a filter is typed");
}

/// Names that would do something to a terminal, or that are wide, or of nothing.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\u{1b}[2J\u{1b}]0;x\u{7}\r\n\t\u{9b}31m".to_owned()),
        Just("\u{202e}\u{2066}\u{200b}\u{feff}".to_owned()),
        Just("天気予報サーバー👨‍👩‍👧e\u{301}\u{fe0f}".to_owned()),
        Just(String::new()),
        "\\PC{0,60}",
        "[a-z-]{1,200}",
    ]
}

fn any_status() -> impl Strategy<Value = Value> {
    let number = prop_oneof![Just(0.0), Just(f64::MAX), Just(-1.0), 0.0..1e9];
    let upstream = (hostile(), any::<Option<bool>>(), number.clone(), any::<u64>()).prop_map(
        |(name, fit, rate, count)| {
            json!({
                "name": name, "healthy": fit, "eras": [name], "transport": name, "tools": count, "calls": count,
                "errors": count, "connections": count,
                "recent": {"calls_per_s": rate, "errors_per_s": rate, "p50_s": rate, "p99_s": rate},
                "replicas": [{"address": name, "breaker": name}, {"breaker": "open", "in_flight": count}],
                "pins": {"changed": count, "waiting": [name]}, "concurrency": {"max": count},
                "children": {"running": count, "crash_loop": true},
            })
        },
    );
    (prop::collection::vec(upstream, 0..40), hostile(), any::<u64>()).prop_map(|(upstreams, name, count)| {
        json!({
            "version": name, "uptime_s": count, "upstreams": upstreams,
            "config": {"file": name, "last_reload": {"ok": false, "error": name, "at_s": count}},
            "endpoints": [{"path": name, "upstreams": [name], "healthy": false, "auth": [name]}],
            "limits": [{"name": name, "calls": count, "period_s": 1e300, "refused": count}],
            "certificates": [{"file": name, "expires_s": count}], "connections": {"open": count, "max": count},
            "recent_errors": [{"name": name, "method": name, "outcome": name, "reason": name, "at_s": count, "calls": count}],
            "callers": {"known": count, "busiest": [{"principal": name, "calls": count, "errors": count}]},
        })
    })
}

fn any_input() -> impl Strategy<Value = KeyInput> {
    const KEYS: [Key; 13] = [
        Key::Enter,
        Key::Esc,
        Key::Up,
        Key::Down,
        Key::Left,
        Key::Right,
        Key::PageUp,
        Key::PageDown,
        Key::Home,
        Key::End,
        Key::Tab,
        Key::BackTab,
        Key::Backspace,
    ];
    prop_oneof![
        prop::sample::select(&KEYS[..]).prop_map(KeyInput::Key),
        prop::sample::select("12345678/sSrtp?jkgG hlx天".chars().collect::<Vec<_>>())
            .prop_map(|c| KeyInput::Key(Key::Char(c))),
        (0u16..200, 0u16..60).prop_map(|(columns, rows)| KeyInput::Resize(columns, rows)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_name_key_or_size_breaks_the_screen(
        status in any_status(),
        tools in prop::collection::vec(hostile(), 0..20),
        matched in prop_oneof![Just(0u64), Just(20), Just(u64::MAX)],
        inputs in prop::collection::vec(any_input(), 0..60),
        columns in 1u16..220,
        rows in 1u16..60,
    ) {
        let mut app = App::new("place", NOW_S);
        app.resize((columns, rows));
        let lines = json!({"calls_per_s": [1.0, null, 1e300, 0.0], "p99_s": [1e300]});
        let history = json!({"interval_s": 1e300, "all": lines});
        let tools: Vec<_> = tools.iter().map(|name| json!({"name": name, "upstream": name, "description": name}))
            .collect();
        let page = read::<ToolsPage>(&json!({"matched": matched, "tools": tools}));
        app.hear(News::State(Box::new(read::<Status>(&status)), Some(Box::new(read::<History>(&history)))));
        for input in inputs {
            app.input(input);
            if let Some(query) = app.wanted() {
                app.hear(News::Tools(query, Ok(page.clone())));
            }
            for line in drawn(&app, columns, rows) {
                let is_quiet = |c: char| !c.is_control() && !matches!(c, '\u{202e}' | '\u{2066}' | '\u{200b}');
                prop_assert!(line.chars().all(is_quiet), "{line:?}");
            }
        }
        prop_assert!(Tab::ALL.contains(&app.tab));
    }
}
