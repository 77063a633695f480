//! Servers over HTTP+SSE (2024-11-05): a stream for what is asked, and one for every other version.
//!
//! What only Streamable HTTP has (headers of messages, session ids, statuses of answers) is not asked here.

use std::time::Duration;

use http::Method;
use http::header::AUTHORIZATION;

use super::events::EventsWire;
use super::http::{HttpWire, of_fault};
use super::modern::FOREIGN_ORIGIN;
use super::over_http::FOREIGN_HOST;
use super::wire::Wire;
use super::{Inquiry, garbage, legacy, lists, time};
use crate::doctor::ask::{Ask, Until};
use crate::doctor::facts::{Exchange, Kind, Probe, Reached};
use client::http_endpoint::HttpEndpoint;
use client::server::Address;
use net::tasks::Tasks;
use protocol::version::LEGACY;

/// Asks everything that this transport has; false if the server does not speak it. `wire` goes to its URL.
pub(super) async fn inspect(
    inquiry: &mut Inquiry<'_>,
    wire: &Wire<'_>,
    address: &Address,
    tasks: &Tasks,
) -> bool {
    inquiry.probe(wire, Probe::HttpSse, &stream()).await;
    let is_stream = inquiry
        .facts
        .answer(Probe::HttpSse)
        .is_some_and(|exchange| exchange.status == Some(200) && exchange.media == "text/event-stream");
    if !is_stream {
        return false;
    }
    let Some(events) = open(inquiry, address).await else { return false };
    inquiry.facts.is_http_sse = true;
    inquiry.say("asking over HTTP+SSE");
    let wire_of_events = Wire::Events(&events);
    let Some(tongue) = legacy::open(inquiry, &wire_of_events, LEGACY[0]).await else { return true };
    legacy::begin(inquiry, &wire_of_events, &tongue).await;
    legacy::inquire(inquiry, &wire_of_events, &tongue).await;
    time(inquiry, &wire_of_events, Some(&tongue)).await;
    garbage(inquiry, &wire_of_events, Some(&tongue)).await;
    drop(events);
    other_streams(inquiry, address).await;
    without_key(inquiry, address).await;
    inquiry.probe(wire, Probe::ForeignOrigin, &stream().with("origin", FOREIGN_ORIGIN)).await;
    if inquiry.facts.reached == (Reached::Http { is_tls: false, is_loopback: true }) {
        let mut rebound = address.clone();
        FOREIGN_HOST.clone_into(&mut rebound.url.authority);
        if let Ok(http) = HttpEndpoint::new(&rebound, tasks.clone()) {
            inquiry.probe(&Wire::Http(&HttpWire::new(http)), Probe::ForeignHost, &stream()).await;
        }
    }
    true
}

/// A request for a stream, of which no more than the head is read.
fn stream() -> Ask {
    Ask::bare(Method::GET).until(Until::Head)
}

/// Every other version needs a stream of its own: the first `initialize` settles what is spoken there.
async fn other_streams(inquiry: &mut Inquiry<'_>, address: &Address) {
    for (version, session) in LEGACY[1..].iter().zip(2..) {
        let Some(events) = open(inquiry, address).await else { return };
        let wire = Wire::Events(&events);
        // One that does not know this one does not know the others in another way.
        let Some(tongue) = legacy::open(inquiry, &wire, version).await else { return };
        if session == 2 {
            legacy::begin(inquiry, &wire, &tongue).await;
            if lists::again(&inquiry.facts, 1) > 0 {
                let listing = lists::read(&wire, inquiry.budget, &tongue, Kind::Tools, session).await;
                inquiry.facts.listings.extend(listing);
            }
        }
    }
}

/// Whether the key that was given is needed at all.
async fn without_key(inquiry: &mut Inquiry<'_>, address: &Address) {
    if !address.headers.contains_key(AUTHORIZATION) {
        return;
    }
    let mut stranger = address.clone();
    stranger.headers.remove(AUTHORIZATION);
    if let Some(events) = open(inquiry, &stranger).await {
        inquiry.probe(&Wire::Events(&events), Probe::WithoutKey, &Ask::initialize(LEGACY[0])).await;
    }
}

/// A stream; `None` if there is none, or no more may be asked.
async fn open(inquiry: &Inquiry<'_>, address: &Address) -> Option<EventsWire> {
    let deadline = inquiry.budget.begin()?;
    let opened = EventsWire::open(address, deadline).await;
    let failed = opened.as_ref().err().map(|fault| Exchange::failed(of_fault(fault), Duration::ZERO));
    if let Some(failed) = failed {
        inquiry.budget.count(&failed);
    }
    opened.ok()
}
