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
mod spoken_era;
mod sse;
mod stdio;
mod transport;

use std::time::Duration;

use serde_json::Value;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};

use self::spoken_era::SpokenEra;
use self::transport::{Budget, ProbeTransport};
use super::facts::{Answer, Exchange, Facts, Probe};
use super::report::Report;
use super::request::{Body, ProbeRequest};
use super::rule::InspectionRule;
use crate::terminal::progress::Progress;
use client::server::Server;
use net::tasks::Tasks;

/// How often the time is taken.
const LATENCIES: usize = 10;
/// Where a request takes longer than this, it is taken less often.
const LONG: Duration = Duration::from_millis(500);
const LATENCIES_OF_SLOW: usize = 3;
/// What is no message.
const HALF_AN_OBJECT: &str = "{\"jsonrpc\": \"2.0\", \"id\": 1, ";

/// How a server is inspected.
#[derive(Clone, Debug)]
pub struct InspectSettings {
    /// How long an answer may take.
    pub timeout: Duration,
    /// A tool to call, with its arguments, and how often.
    pub call: Option<(String, Value, u32)>,
}

struct Inspection<'a> {
    facts: Facts,
    budget: Budget,
    tasks: Tasks,
    told: &'a dyn Fn(&str),
}

impl Inspection<'_> {
    /// Sends a request and takes what comes; `None` if no more may be sent.
    async fn ask(&mut self, transport: &mut impl ProbeTransport, ask: &ProbeRequest) -> Option<Exchange> {
        let deadline = self.budget.begin()?;
        let exchange = transport.ask(ask, deadline).await;
        self.budget.count(&exchange);
        Some(exchange)
    }

    /// Asks something once, and keeps what comes.
    async fn probe(&mut self, transport: &mut impl ProbeTransport, probe: Probe, ask: &ProbeRequest) {
        if let Some(exchange) = self.ask(transport, ask).await {
            self.facts.exchanges.insert(probe, exchange);
        }
    }

    async fn probe_all(&mut self, transport: &mut impl ProbeTransport, requests: Vec<(Probe, ProbeRequest)>) {
        for (probe, ask) in requests {
            self.probe(transport, probe, &ask).await;
        }
    }

    fn say(&self, what: &str) {
        (self.told)(what);
    }

    /// Takes the time of requests that do nothing.
    async fn time(&mut self, transport: &mut impl ProbeTransport, dialect: &SpokenEra) {
        self.say("taking the time");
        let ask = dialect.idle("latency");
        for number in 0..LATENCIES {
            let Some(exchange) = self.ask(transport, &ask).await else { return };
            if !matches!(exchange.answer, Answer::Result(_)) {
                return;
            }
            self.facts.latencies.push(exchange.took);
            if exchange.took > LONG && number + 1 >= LATENCIES_OF_SLOW {
                return;
            }
        }
    }

    /// Something that is no message, and whether it still answers afterwards.
    async fn garbage(&mut self, transport: &mut impl ProbeTransport, dialect: &SpokenEra) {
        self.probe(transport, Probe::Garbage, &ProbeRequest::of(Body::Raw(HALF_AN_OBJECT))).await;
        self.probe(transport, Probe::AfterGarbage, &dialect.idle("after-garbage")).await;
    }
}

/// Inspects a server that is called `name` in the report, and shows meanwhile what is going on. `None`: a signal came.
pub fn inspect(
    server: &Server,
    name: &str,
    settings: &InspectSettings,
    ignored: &[&'static InspectionRule],
) -> anyhow::Result<Option<Report>> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let facts = runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let progress = Progress::start("inspecting the server");
        let told = |what: &str| progress.say(what);
        tokio::select! {
            facts = gather(server, settings, &told) => anyhow::Ok(Some(facts)),
            _ = terminate.recv() => Ok(None),
            _ = interrupt.recv() => Ok(None),
        }
    })?;
    Ok(facts.map(|facts| Report::of(name, facts, ignored)))
}

/// Asks a server for everything; `told` hears what is going on.
async fn gather(server: &Server, settings: &InspectSettings, told: &dyn Fn(&str)) -> Facts {
    let mut inspection = Inspection {
        facts: Facts::default(),
        budget: Budget::new(settings.timeout),
        tasks: Tasks::default(),
        told,
    };
    match server {
        Server::Http(address) => inspection.inspect_http(address).await,
        Server::Stdio(program) => inspection.inspect_stdio(program).await,
    }
    if let Some((tool, arguments, times)) = &settings.call
        && inspection.facts.not_inspected.is_none()
    {
        inspection.say("calling the tool");
        inspection.facts.called = call::call(server, tool, arguments, *times, settings.timeout).await;
    }
    let Budget { requests, spent, .. } = inspection.budget;
    Facts { requests, cut_short: spent, ..inspection.facts }
}
