//! What Prometheus sees of the gateway.

use std::path::Path;

use serde_json::json;

use crate::harness::{
    Config, Daemon, Folder, Gate, Http2, LEGACY_VERSION, Legacy, Offer, Prometheus, Reply, Upstream, call,
    eventually, in_session, legacy, list, modern, open_session, promtool, result_body,
};

/// The text of a scrape, once it holds `line`.
fn scrape_with(daemon: &Daemon, line: &str) -> String {
    eventually(line, || {
        let text = daemon.get_admin("/metrics").text();
        text.contains(line).then_some(text)
    })
}

fn samples<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

#[test]
fn tools_are_told_apart_by_what_upstreams_list() {
    let upstream = Upstream::with_tools(&["echo", "add", "never_called"]);
    let other = Upstream::with_tools(&["echo"]);
    let config = Config::prefixed(&upstream, &other).admin().section("[metrics]\ntools_max = 2");
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    for tool in ["files__echo", "files__echo", "weather__echo", "files__add", "files__made_up"] {
        daemon.send(&call("2", tool));
    }
    let text = scrape_with(&daemon, "gen_ai_tool_name=\"_other\",mcp_method_name=\"tools/call\"");
    let text = text + &scrape_with(&daemon, "weather__echo");
    for (tool, count) in [("files__echo", 2), ("weather__echo", 1)] {
        let line = format!(
            "mcp_server_operation_duration_seconds_count{{endpoint=\"/mcp\",error_type=\"\",gen_ai_tool_name=\"{tool}\",mcp_method_name=\"tools/call\",mcp_protocol_version=\"\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    let line = "mcp_client_operation_duration_seconds_count{error_type=\"\",gen_ai_tool_name=\"echo\",mcp_method_name=\"tools/call\",upstream=\"files\"} 2\n";
    assert!(text.contains(line), "{text}");
    for hidden in ["made_up", "\"add\"", "\"files__add", "never_called"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
}

#[test]
fn series_of_tools_live_through_a_reload() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin();
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    daemon.send(&call("2", "echo")).assert_ok();
    let lines = daemon.log().len();
    daemon.reload(&config.clone().limits("headers_max = 77"));
    daemon.wait_for_log(lines, "reloaded", |line| line.contains("reloaded"));
    daemon.send(&call("3", "echo")).assert_ok();
    let text = scrape_with(
        &daemon,
        "mcp_server_operation_duration_seconds_count{endpoint=\"/mcp\",error_type=\"\",gen_ai_tool_name=\"echo\",mcp_method_name=\"tools/call\",mcp_protocol_version=\"\"} 2\n",
    );
    assert_eq!(samples(&text, "trunkline_reloads_total").len(), 2, "{text}");
    assert!(text.contains("\ntrunkline_config_last_load_successful 1\n"), "{text}");
}

#[test]
fn durations_need_not_be_measured() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin().section("[metrics]\ndurations = false");
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    daemon.send(&call("2", "echo")).assert_ok();
    let text = scrape_with(
        &daemon,
        "trunkline_requests_total{endpoint=\"/mcp\",mcp_protocol_version=\"2026-07-28\",outcome=\"answered\",reason=\"\"} 2\n",
    );
    assert!(!text.contains("mcp_server_operation") && !text.contains("mcp_client_operation"), "{text}");
    let status = daemon.get_admin("/status").text();
    assert!(status.contains("\"/mcp\"") && !status.contains("p50_s"), "{status}");
}

#[test]
fn a_refused_reload_and_what_is_removed_show() {
    let (upstream, other) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::prefixed(&upstream, &other).admin());
    daemon.send(&list("1", "tools/list")).assert_ok();
    let of_weather = "trunkline_upstream_connections{upstream=\"weather\"}";
    scrape_with(&daemon, of_weather);
    daemon.reload(&"nonsense = 1");
    scrape_with(&daemon, "\ntrunkline_config_last_load_successful 0\n");
    daemon.reload(&Config::new().upstream("files", upstream.address, "").admin());
    let text = scrape_with(&daemon, "\ntrunkline_config_last_load_successful 1\n");
    assert!(!text.contains(of_weather), "{text}");
    assert!(text.contains("\ntrunkline_reloads_total{result=\"error\"} 1\n"), "{text}");
}

#[test]
fn requests_are_told_by_version_and_outcome() {
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern().start();
    let daemon = Daemon::start(&Config::new().probed("up", server.address, "").admin());
    let (session, _) = open_session(daemon.address(), "2025-06-18");
    daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))).assert_ok();
    daemon
        .send(&in_session(&session, legacy("2", "tools/call", r#"{"name":"echo","arguments":{}}"#)))
        .assert_ok();
    daemon.send(&list("3", "tools/list")).assert_ok();
    daemon.send(&call("4", "nobody").with("Mcp-Name", "other"));
    daemon.send(&modern("tools/list", None, "{"));
    for (version, outcome, reason, count) in [
        ("2025-06-18", "answered", "", 4),
        ("2026-07-28", "answered", "", 1),
        ("2026-07-28", "refused", "header_mismatch", 1),
        ("2026-07-28", "refused", "not_json", 1),
    ] {
        let line = format!(
            "trunkline_requests_total{{endpoint=\"/mcp\",mcp_protocol_version=\"{version}\",outcome=\"{outcome}\",reason=\"{reason}\"}} {count}\n"
        );
        scrape_with(&daemon, &line);
    }
    let text = daemon.get_admin("/metrics").text();
    assert!(
        text.contains("mcp_method_name=\"tools/list\",mcp_protocol_version=\"2025-06-18\"} 1\n"),
        "{text}"
    );
    let bytes: usize = samples(&text, "trunkline_list_bytes")[0].rsplit(' ').next().unwrap().parse().unwrap();
    let tokens: usize =
        samples(&text, "trunkline_list_tokens")[0].rsplit(' ').next().unwrap().parse().unwrap();
    assert!(bytes > 50 && tokens == bytes / 4, "{bytes} {tokens}");
}

#[test]
fn a_call_is_answered_once_its_client_has_the_answer() {
    let gate = Gate::default();
    let (door, server) = (gate.clone(), Legacy::new(Offer::tools(&["echo"])).and_modern());
    let result = r#"{"content":[],"resultType":"complete"}"#;
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().event(&result_body(request, result)).wait(&door).end(),
        _ => server.answer(request),
    });
    let folder = Folder::new();
    let log = folder.path().join("access.log");
    let access = format!("[log.access]\nformat = \"json\"\nfile = \"{}\"", log.display());
    let config = Config::new().upstream("up", upstream.address, "eras = [\"modern\", \"legacy\"]").admin();
    let daemon = Daemon::start(&config.section(&access));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let calls = [
        in_session(&session, legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#)),
        call("2", "echo"),
    ];
    for request in &calls {
        // A client that has its answer need not wait for the end of the stream.
        let mut leaving = daemon.begin(request);
        assert_eq!(leaving.head().status, 200);
        assert!(leaving.event().is_some_and(|event| event.contains("result")));
        drop(leaving);
        let mut leaving = Http2::connect(daemon.address());
        let (head, mut body) = leaving.open(request);
        assert_eq!(head.status, 200);
        assert!(leaving.next(&mut body).is_some());
        drop((body, leaving));
    }
    let count = 2 * calls.len() as u64;
    daemon.wait_metric(
        "mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/call\",error_type=\"\"}",
        count,
    );
    assert_eq!(daemon.metric("trunkline_requests_total{outcome=\"cancelled\"}"), 0);
    let status = daemon.get_admin("/status").json();
    assert_eq!(status["recent_errors"], json!([]), "{status}");
    let lines = eventually("the calls are in the access log", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let calls: Vec<String> =
            text.lines().filter(|line| line.contains("tools/call")).map(Into::into).collect();
        (calls.len() as u64 == count).then_some(calls)
    });
    assert!(lines.iter().all(|line| line.contains("\"error\":null")), "{lines:?}");
    gate.open();
}

#[test]
fn promtool_finds_nothing_wrong() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    daemon.send(&list("1", "tools/list")).assert_ok();
    daemon.send(&call("2", "echo")).assert_ok();
    let text = scrape_with(&daemon, "gen_ai_tool_name=\"echo\"");
    let output = promtool(Path::new("."), &["check", "metrics"], &text);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
    let output = promtool(Path::new("."), &["check", "metrics"], "# TYPE a counter\na 1\n");
    assert!(!output.status.success(), "it would complain");
}

#[test]
fn a_real_prometheus_scrapes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    daemon.send(&list("1", "tools/list")).assert_ok();
    for _ in 0..3 {
        daemon.send(&call("2", "echo")).assert_ok();
    }
    let prometheus = Prometheus::start(daemon.admin(), &[]);
    prometheus.wait_for("up", |up| up > 0.5);
    let calls = "mcp_server_operation_duration_seconds_count{gen_ai_tool_name=\"echo\"}";
    prometheus.wait_for(calls, |calls| (calls - 3.0).abs() < 0.1);
    prometheus.wait_for("trunkline_build_info", |info| info > 0.5);
    prometheus.wait_for("process_resident_memory_bytes", |bytes| bytes > 1.0e6);
}

#[test]
fn names_that_are_the_same_text_strung_together_are_counted_apart() {
    let offer = Offer::tools(&["2x", "x"]);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().reset(),
        _ => offer.answer(request),
    });
    let config = Config::transparent(&upstream)
        .section("[[endpoint]]\npath = \"/mcp2\"\nupstreams = [\"up\"]")
        .admin();
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    assert_eq!(daemon.send(&call("2", "2x")).status, 502);
    for _ in 0..2 {
        assert_eq!(daemon.send(&call("3", "x").target("/mcp2")).status, 502);
    }
    for (endpoint, tool, count) in [("/mcp", "2x", 1), ("/mcp2", "x", 2)] {
        let line = format!(
            r#"trunkline_tool_failures_total{{endpoint="{endpoint}",gen_ai_tool_name="{tool}"}} {count}"#
        );
        eventually(&line, || {
            daemon.get_admin("/metrics").text().lines().any(|found| found == line).then_some(())
        });
    }
}
