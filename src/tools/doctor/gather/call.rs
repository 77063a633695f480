//! Calls of a tool that somebody asked for.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::doctor::facts::{CalledTools, ListEnd, ListKind, ListPage, Listing, ToolCall, clip};
use client::server::Server;
use client::{self, Client, EraChoice, NoUser, RequestError};

/// Calls a tool so many times, as any client would. The first failure is the last call. None takes longer than it
/// may on average, whatever the server does to keep it going.
pub(super) async fn call(
    server: &Server,
    tool: &str,
    arguments: &Value,
    times: u32,
    timeout: Duration,
) -> CalledTools {
    // Opening, listing twice and closing count as calls.
    let all = timeout.saturating_mul(times.saturating_add(5));
    let called = tokio::time::timeout(all, call_all(server, tool, arguments, times, timeout)).await;
    called.unwrap_or_else(|_| failed(tool, "no result in time"))
}

fn failed(tool: &str, why: &str) -> CalledTools {
    let call = ToolCall { tool: tool.to_owned(), outcome: Err(clip(why, 400)), took: Duration::ZERO };
    CalledTools { calls: vec![call], listings: Vec::new() }
}

async fn call_all(
    server: &Server,
    tool: &str,
    arguments: &Value,
    times: u32,
    timeout: Duration,
) -> CalledTools {
    let settings = client::ClientSettings { timeout, log_level: None };
    let client = match Client::open(server, EraChoice::Auto, Rc::new(NoUser), settings).await {
        Ok(client) => client,
        Err(failure) => return failed(tool, &failure.to_string()),
    };
    // The client learns from the list which arguments headers mirror.
    let called = match listing(&client).await {
        Err(failure) => failed(tool, &failure.to_string()),
        Ok(before) => {
            let calls = call_so_often(&client, tool, arguments, times).await;
            let has_failed = calls.iter().any(|call| call.outcome.is_err());
            let after = if has_failed { None } else { listing(&client).await.ok() };
            let listings = after.map(|after| vec![before, after]).unwrap_or_default();
            CalledTools { calls, listings }
        }
    };
    client.close().await;
    called
}

async fn call_so_often(client: &Client, tool: &str, arguments: &Value, times: u32) -> Vec<ToolCall> {
    let mut calls = Vec::new();
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
    calls
}

/// The tools, as this client is shown them now.
async fn listing(client: &Client) -> Result<Listing, RequestError> {
    let kind = ListKind::Tools;
    let items = client.list(kind.method(), kind.member()).await?;
    let pages = vec![ListPage { items, ttl_ms: None, scope: None }];
    Ok(Listing { kind, era: client.introduction().era, session: 0, pages, end: ListEnd::Complete })
}
