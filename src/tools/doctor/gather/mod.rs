//! Asking a server, within limits: requests as they should be and as they should not, its lists, and what it
//! does besides answering. No tool is called unless somebody asks for it.
//!
//! A request that fails is a fact like any other; only what makes an inspection pointless ends it.

mod access;
mod call;
mod http;
mod legacy;
mod lists;
mod modern;
mod over_http;
mod over_sse;
mod over_stdio;
mod search;
mod sse;
mod stdio;
mod transport;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};

use self::lists::Dialect;
use self::transport::{Budget, ProbeTransport};
use super::facts::{Answer, Facts, Probe};
use super::report::Report;
use super::request::{Body, ProbeRequest};
use super::rule::Rule;
use crate::terminal::progress::Progress;
use client::server::Server;
use net::tasks::Tasks;

/// How often the time is taken.
const LATENCIES: usize = 10;
/// Where a request takes longer than this, it is taken less often.
const LONG: Duration = Duration::from_millis(500);
const LATENCIES_OF_SLOW: usize = 3;

/// How a server is inspected.
#[derive(Clone, Debug)]
pub struct InspectSettings {
    /// How long an answer may take.
    pub timeout: Duration,
    /// A tool to call, with its arguments, and how often.
    pub call: Option<(String, Value, u32)>,
}

/// What is under way.
struct Inspection<'a> {
    facts: Facts,
    budget: &'a Budget,
    told: &'a dyn Fn(&str),
}

impl Inspection<'_> {
    /// Asks something once, and keeps what comes.
    async fn probe(&mut self, transport: &ProbeTransport<'_>, probe: Probe, ask: &ProbeRequest) {
        if let Some(exchange) = transport.ask(self.budget, ask).await {
            self.facts.exchanges.insert(probe, exchange);
        }
    }

    fn say(&self, what: &str) {
        (self.told)(what);
    }
}

/// Inspects a server that is called `name` in the report, and shows meanwhile what is going on. `None`: a signal came.
pub fn inspect(
    server: &Server,
    name: &str,
    settings: &InspectSettings,
    ignored: &[&'static Rule],
) -> anyhow::Result<Option<Report>> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let facts = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let tasks = Tasks::default();
        let progress = Progress::start("inspecting the server");
        let told = |what: &str| progress.say(what);
        tokio::select! {
            facts = gather(server, settings, &tasks, &told) => anyhow::Ok(Some(facts)),
            _ = terminate.recv() => Ok(None),
            _ = interrupt.recv() => Ok(None),
        }
    })?;
    Ok(facts.map(|facts| Report::of(name, &facts, ignored)))
}

/// Asks a server for everything; `told` hears what is going on.
async fn gather(server: &Server, settings: &InspectSettings, tasks: &Tasks, told: &dyn Fn(&str)) -> Facts {
    let budget = Budget::new(settings.timeout);
    let mut inspection = Inspection { facts: Facts::default(), budget: &budget, told };
    match server {
        Server::Http(address) => over_http::inspect(&mut inspection, address, tasks).await,
        Server::Stdio(program) => over_stdio::inspect(&mut inspection, program, tasks).await,
    }
    if let Some((tool, arguments, times)) = &settings.call
        && inspection.facts.not_inspected.is_none()
    {
        inspection.say("calling the tool");
        inspection.facts.calls = call::call(server, tool, arguments, *times, settings.timeout).await;
    }
    let mut facts = inspection.facts;
    facts.requests = budget.requests();
    facts.cut_short = budget.spent();
    facts
}

/// Takes the time of requests that do nothing.
async fn time(inspection: &mut Inspection<'_>, transport: &ProbeTransport<'_>, dialect: Option<&Dialect>) {
    let Some(dialect) = dialect else { return };
    inspection.say("taking the time");
    let ask = legacy::idle_ask(dialect);
    for number in 0..LATENCIES {
        let Some(exchange) = transport.ask(inspection.budget, &ask).await else { return };
        if !matches!(exchange.answer, Answer::Result(_)) {
            return;
        }
        inspection.facts.latencies.push(exchange.took);
        if exchange.took > LONG && number + 1 >= LATENCIES_OF_SLOW {
            return;
        }
    }
}

/// Something that is no message, and whether it still answers afterwards.
async fn garbage(inspection: &mut Inspection<'_>, transport: &ProbeTransport<'_>, dialect: Option<&Dialect>) {
    let garbage = ProbeRequest::of(Body::Raw("{\"jsonrpc\": \"2.0\", \"id\": 1,"));
    inspection.probe(transport, Probe::Garbage, &garbage).await;
    let after = match dialect {
        Some(dialect) => dialect.ask("after-garbage", "ping", json!({})),
        None => ProbeRequest::modern("after-garbage", "server/discover", json!({})),
    };
    inspection.probe(transport, Probe::AfterGarbage, &after).await;
}

/// What tells a server of the modern era from others.
fn discover() -> ProbeRequest {
    ProbeRequest::modern("discover", "server/discover", json!({}))
}
