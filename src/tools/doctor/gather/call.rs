//! Calls of a tool that somebody asked for.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::doctor::facts::{ToolCall, clip};
use client::server::Server;
use client::{self, Client, EraChoice, NoUser};

/// Calls a tool so many times, as any client would. The first failure is the last call. None takes longer than it
/// may on average, whatever the server does to keep it going.
pub(super) async fn call(
    server: &Server,
    tool: &str,
    arguments: &Value,
    times: u32,
    timeout: Duration,
) -> Vec<ToolCall> {
    // Opening, listing and closing count as calls.
    let all = timeout.saturating_mul(times.saturating_add(4));
    let called = tokio::time::timeout(all, call_all(server, tool, arguments, times, timeout)).await;
    called.unwrap_or_else(|_| failed(tool, "no result in time"))
}

fn failed(tool: &str, why: &str) -> Vec<ToolCall> {
    vec![ToolCall { tool: tool.to_owned(), outcome: Err(clip(why, 400)), took: Duration::ZERO }]
}

async fn call_all(
    server: &Server,
    tool: &str,
    arguments: &Value,
    times: u32,
    timeout: Duration,
) -> Vec<ToolCall> {
    let settings = client::ClientSettings { timeout, log_level: None };
    let client = match Client::open(server, EraChoice::Auto, Rc::new(NoUser), settings).await {
        Ok(client) => client,
        Err(failure) => return failed(tool, &failure.to_string()),
    };
    // The client learns from the list which arguments headers mirror.
    let listed = client.list("tools/list", "tools").await;
    let mut calls = Vec::new();
    if let Err(failure) = listed {
        calls = failed(tool, &failure.to_string());
    } else {
        for _ in 0..times {
            let started = Instant::now();
            let outcome = client.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
            let is_failure = outcome.is_err();
            let outcome = outcome.map_err(|failure| clip(&failure.to_string(), 400));
            calls.push(ToolCall { tool: tool.to_owned(), outcome, took: started.elapsed() });
            if is_failure {
                break;
            }
        }
    }
    client.close().await;
    calls
}
