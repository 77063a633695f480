//! Series of calls, as a scrape shows them.

use super::*;
use crate::clock;
use crate::telemetry::calls::{CallLabels, Outcome, Spoken};
use crate::telemetry::tools::ToolId;
use protocol::error::Reason;
use protocol::method::Method;
use protocol::version::LegacyVersion;

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.render()).expect("utf-8")
}

#[test]
fn series_appear_with_their_first_call() {
    let metrics = Metrics::new(10).expect("metrics");
    let tools = metrics.tools.of("weather");
    tools.publish(["forecast".into(), "today".into()].into_iter());
    let series = metrics.endpoint("/mcp", 2);
    assert!(!text(&metrics).contains("mcp_server_operation_duration_seconds_count"));
    let forecast = tools.find("forecast");
    series.note_tool(forecast, || "weather__forecast".to_owned());
    let legacy = Spoken::Legacy(LegacyVersion::V2025_06_18);
    for (method, spoken, tool, reason) in [
        (Method::ToolsCall, Spoken::Modern, Some(forecast), None),
        (Method::ToolsCall, legacy, Some(forecast), None),
        (Method::ToolsCall, Spoken::Modern, Some(tools.find("made up")), None),
        (Method::ToolsCall, legacy, Some(forecast), Some(Reason::UpstreamTimeout)),
        (Method::ToolsList, legacy, None, None),
        (Method::Other, Spoken::Unknown, None, Some(Reason::NoEndpoint)),
    ] {
        series.observe(&Outcome { method, spoken, tool, reason, seconds: 0.002 });
    }
    for line in [
        r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="weather__forecast",mcp_method_name="tools/call",mcp_protocol_version=""} 2"#,
        r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="_other",mcp_method_name="tools/call",mcp_protocol_version=""} 1"#,
        r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="",mcp_method_name="tools/list",mcp_protocol_version="2025-06-18"} 1"#,
        r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="upstream_timeout",gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version=""} 1"#,
        r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="no_endpoint",gen_ai_tool_name="",mcp_method_name="_other",mcp_protocol_version=""} 1"#,
        r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="2026-07-28",outcome="answered",reason=""} 2"#,
        r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="2025-06-18",outcome="failed",reason="upstream_timeout"} 1"#,
        r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="",outcome="refused",reason="no_endpoint"} 1"#,
        r#"trunkline_tool_failures_total{endpoint="/mcp",gen_ai_tool_name="weather__forecast"} 1"#,
        r#"trunkline_endpoint_upstreams{endpoint="/mcp"} 2"#,
    ] {
        assert!(text(&metrics).contains(line), "{line}\n{}", text(&metrics));
    }
    let text = text(&metrics);
    assert!(!text.contains("made up") && !text.contains("today"), "{text}");
}

#[test]
fn requests_to_upstreams_are_told_by_method_and_tool() {
    let metrics = Metrics::new(1).expect("metrics");
    let tools = metrics.tools.of("weather");
    let durations = metrics.upstream_durations("weather");
    tools.publish(["forecast".into(), "today".into()].into_iter());
    let found = ["forecast", "today"].map(|name| (name, tools.find(name)));
    for (name, tool) in found {
        durations.note_tool(tool, name);
        durations.observe(Some(CallLabels { method: Method::ToolsCall, tool: Some(tool) }), None, 0.1);
    }
    assert_eq!(found[1].1, ToolId::OTHER);
    durations.observe(Some(CallLabels { method: Method::ResourcesRead, tool: None }), None, 0.1);
    durations.observe(None, None, 0.1);
    durations.observe(None, Some(Reason::UpstreamReset), 0.1);
    for (method, tool, error_type) in [
        ("tools/call", "forecast", ""),
        ("tools/call", "_other", ""),
        ("resources/read", "", ""),
        ("", "", ""),
        ("", "", "upstream_reset"),
    ] {
        let line = format!(
            r#"mcp_client_operation_duration_seconds_count{{error_type="{error_type}",gen_ai_tool_name="{tool}",mcp_method_name="{method}",upstream="weather"}} 1"#
        );
        assert!(text(&metrics).contains(&line), "{line}\n{}", text(&metrics));
    }
}

#[test]
fn a_name_stays_within_its_label() {
    let metrics = Metrics::new(1).expect("metrics");
    let tools = metrics.tools.of("weather");
    let durations = metrics.upstream_durations("weather");
    let name = "x\"} 1\nforged 7\n\\";
    tools.publish([name.into()].into_iter());
    let tool = tools.find(name);
    durations.note_tool(tool, name);
    durations.observe(Some(CallLabels { method: Method::ToolsCall, tool: Some(tool) }), None, 0.1);
    let text = text(&metrics);
    assert!(text.contains(r#"gen_ai_tool_name="x\"} 1\nforged 7\n\\","#), "{text}");
    assert!(text.lines().all(|line| !line.starts_with("forged")), "{text}");
}

#[test]
fn series_of_tools_outlive_a_reload() {
    let metrics = Metrics::new(10).expect("metrics");
    for _ in 0..2 {
        let (series, tools) = (metrics.endpoint("/mcp", 1), metrics.tools.of("u"));
        tools.publish(["t".into()].into_iter());
        let tool = tools.find("t");
        series.note_tool(tool, || "t".to_owned());
        let (method, tool) = (Method::ToolsCall, Some(tool));
        let outcome = Outcome { method, spoken: Spoken::Modern, tool, reason: None, seconds: 0.1 };
        series.observe(&outcome);
    }
    let line = r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="t",mcp_method_name="tools/call",mcp_protocol_version=""} 2"#;
    assert!(text(&metrics).contains(line), "{}", text(&metrics));
}

#[test]
fn a_scrape_at_the_cap_is_quick() {
    let metrics = Metrics::new(1000).expect("metrics");
    let endpoint = metrics.endpoint("/mcp", 500);
    for upstream in 0..500 {
        let name = format!("upstream-{upstream}");
        let (tools, durations) = (metrics.tools.of(&name), metrics.upstream_durations(&name));
        let names = (0..4).map(|tool| format!("tool_with_a_name_{tool}"));
        tools.publish(names.clone().map(Into::into));
        for name in names {
            let tool = tools.find(&name);
            endpoint.note_tool(tool, || format!("upstream-{upstream}__{name}"));
            durations.note_tool(tool, &name);
            let (method, tool) = (Method::ToolsCall, Some(tool));
            endpoint.observe(&Outcome { method, spoken: Spoken::Modern, tool, reason: None, seconds: 0.1 });
            durations.observe(Some(CallLabels { method, tool }), None, 0.1);
        }
        durations.observe(None, None, 0.1);
    }
    let started = crate::clock::now();
    let text = text(&metrics);
    let took = clock::since(started);
    let tools = text.matches("mcp_server_operation_duration_seconds_count{").count();
    assert_eq!(tools, 1001, "a thousand, and the rest as one");
    // A hundred times what a build with optimisation may take: this one has none, and the machine may be busy.
    assert!(took < std::time::Duration::from_secs(10), "{took:?} for {} bytes", text.len());
}
