//! Servers over Streamable HTTP, by both eras; whoever speaks neither may speak HTTP+SSE.

use http::header::AUTHORIZATION;

use super::http::HttpTransport;
use super::lists::Dialect;
use super::transport::{Budget, ProbeTransport};
use super::{Inspection, access, discover, legacy, modern, over_sse, time};
use crate::doctor::facts::{Answer, Exchange, Facts, Probe, Reached};
use crate::doctor::introduction;
use crate::doctor::request::ProbeRequest;
use client::http_endpoint::HttpEndpoint;
use client::server::HttpServer;
use net::tasks::Tasks;
use protocol::version::LEGACY;

/// A host name that is nobody's.
pub(super) const FOREIGN_HOST: &str = "page.example";

/// Asks it everything.
pub(super) async fn inspect(inspection: &mut Inspection<'_>, address: &HttpServer, tasks: &Tasks) {
    inspection.facts.reached =
        Reached::Http { is_tls: address.url.is_tls, is_loopback: is_loopback(&address.url.host) };
    inspection.facts.url = Some(address.url.clone());
    inspection.say("asking which revisions it speaks");
    let http = match HttpEndpoint::new(address, tasks.clone()) {
        Ok(endpoint) => HttpTransport::new(endpoint),
        Err(error) => {
            inspection.facts.not_inspected = Some(error.to_string());
            return;
        }
    };
    let transport = ProbeTransport::Http(&http);
    inspection.probe(&transport, Probe::Discover, &discover()).await;
    if let Some(why) = why_not(&inspection.facts, inspection.budget) {
        inspection.facts.not_inspected = Some(why);
        let refusal =
            inspection.facts.answer(Probe::Discover).filter(|exchange| exchange.status == Some(401));
        if let Some(refusal) = refusal.cloned() {
            inspection.facts.door = Some(access::read(address, &refusal, inspection.budget, tasks).await);
        }
        return;
    }
    inspection.facts.modern = inspection.facts.answer(Probe::Discover).and_then(introduction::modern);
    let newest = legacy::open(inspection, &transport, LEGACY[0]).await;
    if inspection.facts.modern.is_none() && newest.is_none() {
        if !over_sse::inspect(inspection, &transport, address, tasks).await {
            inspection.facts.not_inspected = Some(no_server(&inspection.facts));
        }
        return;
    }
    without_key(inspection, address, tasks).await;
    foreign_host(inspection, address, tasks).await;
    let others =
        if newest.is_some() { legacy::other_versions(inspection, &transport).await } else { Vec::new() };
    if inspection.facts.modern.is_some() {
        inspection.say("asking by the rules of 2026");
        modern::inquire(inspection, &transport).await;
    }
    if let Some(dialect) = &newest {
        inspection.say("asking by the rules of before 2026");
        legacy::begin(inspection, &transport, dialect).await;
        legacy::inquire(inspection, &transport, dialect).await;
    }
    let dialect = if inspection.facts.modern.is_some() { Some(Dialect::Modern) } else { newest.clone() };
    time(inspection, &transport, dialect.as_ref()).await;
    if let Some(dialect) = &newest {
        legacy::inquire_http(inspection, &transport, dialect).await;
        legacy::inquire_elsewhere(inspection, &transport, &others).await;
        legacy::end(inspection, &transport, &others).await;
    }
}

/// Whether the key that was given is needed at all, and what those are told who have none.
async fn without_key(inspection: &mut Inspection<'_>, address: &HttpServer, tasks: &Tasks) {
    if !address.headers.contains_key(AUTHORIZATION) {
        return;
    }
    let mut stranger = address.clone();
    stranger.headers.remove(AUTHORIZATION);
    let Ok(endpoint) = HttpEndpoint::new(&stranger, tasks.clone()) else { return };
    let http = HttpTransport::new(endpoint);
    let ask =
        if inspection.facts.modern.is_some() { discover() } else { ProbeRequest::initialize(LEGACY[0]) };
    inspection.probe(&ProbeTransport::Http(&http), Probe::WithoutKey, &ask).await;
    let refusal = inspection.facts.answer(Probe::WithoutKey).filter(|exchange| exchange.status == Some(401));
    if let Some(refusal) = refusal.cloned() {
        inspection.facts.door = Some(access::read(address, &refusal, inspection.budget, tasks).await);
    }
}

/// What a server of this machine says to a page whose host name was made to lead here.
async fn foreign_host(inspection: &mut Inspection<'_>, address: &HttpServer, tasks: &Tasks) {
    if inspection.facts.reached != (Reached::Http { is_tls: false, is_loopback: true }) {
        return;
    }
    let mut rebound = address.clone();
    FOREIGN_HOST.clone_into(&mut rebound.url.authority);
    let Ok(endpoint) = HttpEndpoint::new(&rebound, tasks.clone()) else { return };
    let ask =
        if inspection.facts.modern.is_some() { discover() } else { ProbeRequest::initialize(LEGACY[0]) };
    inspection.probe(&ProbeTransport::Http(&HttpTransport::new(endpoint)), Probe::ForeignHost, &ask).await;
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

/// What a server is told that gave these answers.
fn no_server(facts: &Facts) -> String {
    let words = |probe| facts.answer(probe).map_or("nothing".to_owned(), Exchange::words);
    format!(
        "it is no MCP server: server/discover got {}, initialize {}; is this the whole URL?",
        words(Probe::Discover),
        words(Probe::Initialize(LEGACY[0]))
    )
}

/// Whether what is sent there stays on the machine.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
