//! Asking a server, within limits: requests as they should be and as they should not, its lists, and what it
//! does besides answering. No tool is called unless somebody asks for it.
//!
//! A request that fails is a fact like any other; only what makes an inspection pointless ends it.

mod call;
mod door;
mod http;
mod legacy;
mod lists;
mod modern;
mod pipe;
mod wire;

use std::time::Duration;

use serde_json::{Value, json};

use self::http::HttpWire;
use self::lists::Tongue;
use self::pipe::{EXIT_TIMEOUT, Pipe};
use self::wire::{Budget, Wire};
use super::ask::{Ask, Body, Until};
use super::facts::{Answer, Facts, Kind, Probe, Process, Reached};
use super::introduction;
use crate::client::http::Http;
use crate::client::server::{Address, Program, Server};
use crate::protocol::version::LEGACY;
use crate::tasks::Tasks;

/// A host name that is nobody's.
const FOREIGN_HOST: &str = "page.example";
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

/// Asks a server for everything; `told` hears what is going on.
pub async fn gather(server: &Server, settings: &Settings, tasks: &Tasks, told: &dyn Fn(&str)) -> Facts {
    let budget = Budget::new(settings.timeout);
    let mut inquiry = Inquiry { facts: Facts::default(), budget: &budget, told };
    match server {
        Server::Http(address) => over_http(&mut inquiry, address, tasks).await,
        Server::Program(program) => over_pipe(&mut inquiry, program, tasks).await,
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

async fn over_http(inquiry: &mut Inquiry<'_>, address: &Address, tasks: &Tasks) {
    inquiry.facts.reached =
        Reached::Http { is_tls: address.url.is_tls, is_loopback: is_loopback(&address.url.host) };
    inquiry.facts.url = Some(address.url.clone());
    inquiry.say("asking which revisions it speaks");
    let http = match Http::new(address, tasks.clone()) {
        Ok(http) => HttpWire::new(http),
        Err(error) => {
            inquiry.facts.not_inspected = Some(error.to_string());
            return;
        }
    };
    let wire = Wire::Http(&http);
    inquiry.probe(&wire, Probe::Discover, &discover()).await;
    if let Some(why) = why_not(&inquiry.facts, inquiry.budget) {
        inquiry.facts.not_inspected = Some(why);
        let refusal = inquiry.facts.answer(Probe::Discover).filter(|exchange| exchange.status == Some(401));
        if let Some(refusal) = refusal.cloned() {
            inquiry.facts.door = Some(door::read(address, &refusal, inquiry.budget, tasks).await);
        }
        return;
    }
    inquiry.facts.modern = inquiry.facts.answer(Probe::Discover).and_then(introduction::modern);
    let newest = legacy::open(inquiry, &wire, LEGACY[0]).await;
    if inquiry.facts.modern.is_none() && newest.is_none() {
        find_out_why(inquiry, &wire).await;
        return;
    }
    without_key(inquiry, address, tasks).await;
    foreign_host(inquiry, address, tasks).await;
    let others = if newest.is_some() { legacy::other_versions(inquiry, &wire).await } else { Vec::new() };
    if inquiry.facts.modern.is_some() {
        inquiry.say("asking by the rules of 2026");
        modern::inquire(inquiry, &wire).await;
    }
    if let Some(tongue) = &newest {
        inquiry.say("asking by the rules of before 2026");
        legacy::begin(inquiry, &wire, tongue).await;
        legacy::inquire(inquiry, &wire, tongue).await;
    }
    let tongue = if inquiry.facts.modern.is_some() { Some(Tongue::Modern) } else { newest.clone() };
    time(inquiry, &wire, tongue.as_ref()).await;
    if let Some(tongue) = &newest {
        legacy::inquire_http(inquiry, &wire, tongue).await;
        legacy::inquire_elsewhere(inquiry, &wire, &others).await;
        legacy::end(inquiry, &wire, &others).await;
    }
}

/// Whether the key that was given is needed at all, and what those are told who have none.
async fn without_key(inquiry: &mut Inquiry<'_>, address: &Address, tasks: &Tasks) {
    if !address.headers.contains_key(::http::header::AUTHORIZATION) {
        return;
    }
    let mut stranger = address.clone();
    stranger.headers.remove(::http::header::AUTHORIZATION);
    let Ok(http) = Http::new(&stranger, tasks.clone()) else { return };
    let http = HttpWire::new(http);
    let ask = if inquiry.facts.modern.is_some() { discover() } else { Ask::initialize(LEGACY[0]) };
    inquiry.probe(&Wire::Http(&http), Probe::WithoutKey, &ask).await;
    let refusal = inquiry.facts.answer(Probe::WithoutKey).filter(|exchange| exchange.status == Some(401));
    if let Some(refusal) = refusal.cloned() {
        inquiry.facts.door = Some(door::read(address, &refusal, inquiry.budget, tasks).await);
    }
}

/// What a server of this machine says to a page whose host name was made to lead here.
async fn foreign_host(inquiry: &mut Inquiry<'_>, address: &Address, tasks: &Tasks) {
    if inquiry.facts.reached != (Reached::Http { is_tls: false, is_loopback: true }) {
        return;
    }
    let mut rebound = address.clone();
    FOREIGN_HOST.clone_into(&mut rebound.url.authority);
    let Ok(http) = Http::new(&rebound, tasks.clone()) else { return };
    let ask = if inquiry.facts.modern.is_some() { discover() } else { Ask::initialize(LEGACY[0]) };
    inquiry.probe(&Wire::Http(&HttpWire::new(http)), Probe::ForeignHost, &ask).await;
}

/// Why a server cannot be inspected that gave this first answer.
fn why_not(facts: &Facts, budget: &Budget) -> Option<String> {
    let Some(exchange) = facts.answer(Probe::Discover) else { return budget.spent() };
    match (&exchange.answer, exchange.status) {
        (_, Some(401)) => Some("it lets nobody in without a key, or not with this one (HTTP 401)".to_owned()),
        (_, Some(403)) => Some("it refuses access (HTTP 403)".to_owned()),
        (_, Some(status @ 300..=399)) => Some(format!(
            "it redirects (HTTP {status}), which is not followed: give the URL that it leads to"
        )),
        (_, Some(status @ (429 | 502..=504))) => {
            Some(format!("it is not able to answer now (HTTP {status})"))
        }
        (Answer::Failed(why), None) => Some(why.clone()),
        (Answer::Failed(why), Some(status)) => Some(format!("{why} (HTTP {status})")),
        // Servers of before 2026 may wait in silence for what they know.
        _ => None,
    }
}

/// A server that speaks neither era over Streamable HTTP may speak HTTP+SSE, or is something else.
async fn find_out_why(inquiry: &mut Inquiry<'_>, wire: &Wire<'_>) {
    let get = Ask::bare(::http::Method::GET).until(Until::Head);
    inquiry.probe(wire, Probe::HttpSse, &get).await;
    let is_stream = inquiry
        .facts
        .answer(Probe::HttpSse)
        .is_some_and(|exchange| exchange.status == Some(200) && exchange.media == "text/event-stream");
    if is_stream {
        return;
    }
    let words =
        |probe| inquiry.facts.answer(probe).map_or("nothing".to_owned(), super::facts::Exchange::words);
    inquiry.facts.not_inspected = Some(format!(
        "it is no MCP server: server/discover got {}, initialize {}; is this the whole URL?",
        words(Probe::Discover),
        words(Probe::Initialize(LEGACY[0]))
    ));
}

async fn over_pipe(inquiry: &mut Inquiry<'_>, program: &Program, tasks: &Tasks) {
    inquiry.facts.reached = Reached::Program;
    inquiry.say("starting the program");
    let pipe = match Pipe::start(program, true, tasks) {
        Ok(pipe) => pipe,
        Err(error) => {
            let name = program.name.to_string_lossy();
            inquiry.facts.not_inspected = Some(format!("{name:?} cannot be started: {error}"));
            return;
        }
    };
    let wire = Wire::Pipe(&pipe);
    inquiry.probe(&wire, Probe::Discover, &discover()).await;
    inquiry.facts.modern = inquiry.facts.answer(Probe::Discover).and_then(introduction::modern);
    let mut newest = None;
    if inquiry.facts.modern.is_some() {
        inquiry.say("asking by the rules of 2026");
        pipe.count_remarks().await;
        modern::inquire(inquiry, &wire).await;
        time(inquiry, &wire, Some(&Tongue::Modern)).await;
    } else {
        pipe.set_modern(false);
        newest = legacy::open(inquiry, &wire, LEGACY[0]).await;
        if let Some(tongue) = &newest {
            inquiry.say("asking by the rules of before 2026");
            legacy::begin(inquiry, &wire, tongue).await;
            legacy::inquire(inquiry, &wire, tongue).await;
            time(inquiry, &wire, newest.as_ref()).await;
        }
    }
    if inquiry.facts.modern.is_none() && newest.is_none() {
        inquiry.facts.not_inspected = Some(mute(&pipe, &inquiry.facts).await);
        return;
    }
    garbage(inquiry, &wire, newest.as_ref()).await;
    inquiry.say("ending its input");
    let mut process = pipe.close(EXIT_TIMEOUT).await;
    other_processes(inquiry, program, tasks, &mut process).await;
    inquiry.facts.process = Some(process);
}

/// Every other version needs a process of its own: the first `initialize` settles what it speaks.
async fn other_processes(inquiry: &mut Inquiry<'_>, program: &Program, tasks: &Tasks, process: &mut Process) {
    let is_newest_done = inquiry.facts.answer(Probe::Initialize(LEGACY[0])).is_some();
    let versions = LEGACY.iter().skip(usize::from(is_newest_done));
    for (version, session) in versions.zip(2..) {
        inquiry.say(&format!("starting it again for {version}"));
        let Ok(pipe) = Pipe::start(program, false, tasks) else { return };
        let wire = Wire::Pipe(&pipe);
        let tongue = legacy::open(inquiry, &wire, version).await;
        if session == 2
            && let Some(tongue) = &tongue
        {
            legacy::begin(inquiry, &wire, tongue).await;
            pipe.count_remarks().await;
            if inquiry.facts.modern.is_some() {
                legacy::inquire(inquiry, &wire, tongue).await;
            } else if lists::again(&inquiry.facts, 1) > 0 {
                let listing = lists::read(&wire, inquiry.budget, tongue, Kind::Tools, session).await;
                inquiry.facts.listings.extend(listing);
            }
        }
        // One that did not exit the first time is not waited for again.
        let ended = pipe.close(if process.exit.is_some() { EXIT_TIMEOUT } else { Duration::ZERO }).await;
        process.noise.total += ended.noise.total;
        // The first was asked by the rules of 2026, which is wrong for a server of before.
        if session == 2 && inquiry.facts.modern.is_none() {
            process.remarks = ended.remarks;
        }
        if tongue.is_none() {
            // One that does not know the newest does not know the others in another way.
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

/// Why a program that was started is not heard of.
async fn mute(pipe: &Pipe, facts: &Facts) -> String {
    let (words, ended) = tokio::join!(pipe.last_words(), pipe.ended());
    let mut said = if words.is_empty() { String::new() } else { format!("; the last it said: {words}") };
    if let Some(line) = pipe.noise() {
        said = format!("{said}; on standard output it wrote {line:?}");
    }
    if let Some(status) = ended {
        return format!("the program ended ({status}){said}");
    }
    let answer = facts.answer(Probe::Initialize(LEGACY[0]));
    let answer = answer.map_or("nothing".to_owned(), super::facts::Exchange::words);
    format!("the program is no MCP server: initialize got {answer}{said}")
}

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

fn discover() -> Ask {
    Ask::modern("discover", "server/discover", json!({}))
}

/// Whether what is sent there stays on the machine.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
