//! Servers over HTTP+SSE (2024-11-05): a stream for what is asked, and one for every other version.
//!
//! What only Streamable HTTP has (headers of messages, session ids, statuses of answers) is not asked here.

use std::time::Duration;

use http::Method;
use http::header::AUTHORIZATION;

use super::http::{HttpTransport, of_fault};
use super::modern::FOREIGN_ORIGIN;
use super::over_http::FOREIGN_HOST;
use super::sse::SseTransport;
use super::transport::ProbeTransport;
use super::{Inspection, garbage, legacy, lists, time};
use crate::doctor::facts::{Exchange, ListKind, Probe, Reached};
use crate::doctor::request::{ProbeRequest, Until};
use client::http_endpoint::HttpEndpoint;
use client::server::HttpServer;
use net::tasks::Tasks;
use protocol::version::LEGACY;

/// Asks everything that this transport has; false if the server does not speak it. `transport` goes to its URL.
pub(super) async fn inspect(
    inspection: &mut Inspection<'_>,
    transport: &ProbeTransport<'_>,
    address: &HttpServer,
    tasks: &Tasks,
) -> bool {
    inspection.probe(transport, Probe::HttpSse, &stream()).await;
    let is_stream = inspection
        .facts
        .answer(Probe::HttpSse)
        .is_some_and(|exchange| exchange.status == Some(200) && exchange.media == "text/event-stream");
    if !is_stream {
        return false;
    }
    let Some(events) = open(inspection, address).await else { return false };
    inspection.facts.is_http_sse = true;
    inspection.say("asking over HTTP+SSE");
    let wire_of_events = ProbeTransport::Sse(&events);
    let Some(dialect) = legacy::open(inspection, &wire_of_events, LEGACY[0]).await else { return true };
    legacy::begin(inspection, &wire_of_events, &dialect).await;
    legacy::inquire(inspection, &wire_of_events, &dialect).await;
    time(inspection, &wire_of_events, Some(&dialect)).await;
    garbage(inspection, &wire_of_events, Some(&dialect)).await;
    drop(events);
    other_streams(inspection, address).await;
    without_key(inspection, address).await;
    inspection.probe(transport, Probe::ForeignOrigin, &stream().with("origin", FOREIGN_ORIGIN)).await;
    if inspection.facts.reached == (Reached::Http { is_tls: false, is_loopback: true }) {
        let mut rebound = address.clone();
        FOREIGN_HOST.clone_into(&mut rebound.url.authority);
        if let Ok(http) = HttpEndpoint::new(&rebound, tasks.clone()) {
            inspection
                .probe(&ProbeTransport::Http(&HttpTransport::new(http)), Probe::ForeignHost, &stream())
                .await;
        }
    }
    true
}

/// A request for a stream, of which no more than the head is read.
fn stream() -> ProbeRequest {
    ProbeRequest::bare(Method::GET).until(Until::Head)
}

/// Every other version needs a stream of its own: the first `initialize` settles what is spoken there.
async fn other_streams(inspection: &mut Inspection<'_>, address: &HttpServer) {
    for (version, session) in LEGACY[1..].iter().zip(2..) {
        let Some(events) = open(inspection, address).await else { return };
        let transport = ProbeTransport::Sse(&events);
        // One that does not know this one does not know the others in another way.
        let Some(dialect) = legacy::open(inspection, &transport, version).await else { return };
        if session == 2 {
            legacy::begin(inspection, &transport, &dialect).await;
            if lists::again(&inspection.facts, 1) > 0 {
                let listing =
                    lists::read(&transport, inspection.budget, &dialect, ListKind::Tools, session).await;
                inspection.facts.listings.extend(listing);
            }
        }
    }
}

/// Whether the key that was given is needed at all.
async fn without_key(inspection: &mut Inspection<'_>, address: &HttpServer) {
    if !address.headers.contains_key(AUTHORIZATION) {
        return;
    }
    let mut stranger = address.clone();
    stranger.headers.remove(AUTHORIZATION);
    if let Some(events) = open(inspection, &stranger).await {
        inspection
            .probe(&ProbeTransport::Sse(&events), Probe::WithoutKey, &ProbeRequest::initialize(LEGACY[0]))
            .await;
    }
}

/// A stream; `None` if there is none, or no more may be asked.
async fn open(inspection: &Inspection<'_>, address: &HttpServer) -> Option<SseTransport> {
    let deadline = inspection.budget.begin()?;
    let opened = SseTransport::open(address, deadline).await;
    let failed = opened.as_ref().err().map(|fault| Exchange::failed(of_fault(fault), Duration::ZERO));
    if let Some(failed) = failed {
        inspection.budget.count(&failed);
    }
    opened.ok()
}
