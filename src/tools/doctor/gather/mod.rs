//! Asking a server, within limits: requests as they should be and as they should not, its lists, and what it
//! does besides answering. No tool is called unless somebody asks for it.
//!
//! A request that fails is a fact like any other; only what makes an inspection pointless ends it.

mod call;
mod door;
mod events;
mod http;
mod legacy;
mod lists;
mod modern;
mod over_http;
mod over_pipe;
mod over_sse;
mod pipe;
mod wire;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};

use self::lists::Tongue;
use self::wire::{Budget, Wire};
use super::ask::{Ask, Body};
use super::facts::{Answer, Facts, Probe};
use super::report::Report;
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
pub struct Settings {
    /// How long an answer may take.
    pub timeout: Duration,
    /// A tool to call, with its arguments, and how often.
    pub call: Option<(String, Value, u32)>,
}

/// What is under way.
struct Inquiry<'a> {
    facts: Facts,
    budget: &'a Budget,
    told: &'a dyn Fn(&str),
}

impl Inquiry<'_> {
    /// Asks something once, and keeps what comes.
    async fn probe(&mut self, wire: &Wire<'_>, probe: Probe, ask: &Ask) {
        if let Some(exchange) = wire.ask(self.budget, ask).await {
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
    settings: &Settings,
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
async fn gather(server: &Server, settings: &Settings, tasks: &Tasks, told: &dyn Fn(&str)) -> Facts {
    let budget = Budget::new(settings.timeout);
    let mut inquiry = Inquiry { facts: Facts::default(), budget: &budget, told };
    match server {
        Server::Http(address) => over_http::inspect(&mut inquiry, address, tasks).await,
        Server::Program(program) => over_pipe::inspect(&mut inquiry, program, tasks).await,
    }
    if let Some((tool, arguments, times)) = &settings.call
        && inquiry.facts.not_inspected.is_none()
    {
        inquiry.say("calling the tool");
        inquiry.facts.calls = call::call(server, tool, arguments, *times, settings.timeout).await;
    }
    let mut facts = inquiry.facts;
    facts.requests = budget.requests();
    facts.cut_short = budget.spent();
    facts
}

/// Takes the time of requests that do nothing.
async fn time(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, tongue: Option<&Tongue>) {
    let Some(tongue) = tongue else { return };
    inquiry.say("taking the time");
    let ask = legacy::idle_ask(tongue);
    for number in 0..LATENCIES {
        let Some(exchange) = wire.ask(inquiry.budget, &ask).await else { return };
        if !matches!(exchange.answer, Answer::Result(_)) {
            return;
        }
        inquiry.facts.latencies.push(exchange.took);
        if exchange.took > LONG && number + 1 >= LATENCIES_OF_SLOW {
            return;
        }
    }
}

/// Something that is no message, and whether it still answers afterwards.
async fn garbage(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>, tongue: Option<&Tongue>) {
    let garbage = Ask::of(Body::Raw("{\"jsonrpc\": \"2.0\", \"id\": 1,"));
    inquiry.probe(wire, Probe::Garbage, &garbage).await;
    let after = match tongue {
        Some(tongue) => tongue.ask("after-garbage", "ping", json!({})),
        None => Ask::modern("after-garbage", "server/discover", json!({})),
    };
    inquiry.probe(wire, Probe::AfterGarbage, &after).await;
}

/// What tells a server of the modern era from others.
fn discover() -> Ask {
    Ask::modern("discover", "server/discover", json!({}))
}
