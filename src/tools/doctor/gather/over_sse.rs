//! Servers over HTTP+SSE (2024-11-05): a stream for what is asked, and one for every other version.
//!
//! What only Streamable HTTP has (headers of messages, session ids, statuses of answers) is not asked here.

use std::time::Duration;

use http::Method;

use super::Inspection;
use super::http::{HttpTransport, of_fault};
use super::modern::FOREIGN_ORIGIN;
use super::over_http::keyless;
use super::sse::SseTransport;
use crate::doctor::facts::{Exchange, Probe};
use crate::doctor::request::ProbeRequest;
use client::server::HttpServer;
use protocol::version::LEGACY;

impl Inspection<'_> {
    /// Asks everything that this transport has; false if the server does not speak it. `http` goes to its URL.
    pub(super) async fn inspect_http_sse(&mut self, http: &mut HttpTransport, address: &HttpServer) -> bool {
        // Of a stream no more than the head is read.
        let stream = ProbeRequest::bare(Method::GET);
        self.probe(http, Probe::HttpSse, &stream).await;
        let is_stream = self
            .facts
            .answer(Probe::HttpSse)
            .is_some_and(|exchange| exchange.status == Some(200) && exchange.media == "text/event-stream");
        if !is_stream {
            return false;
        }
        let Some(mut events) = self.open_stream(address).await else { return false };
        self.facts.is_http_sse = true;
        self.say("asking over HTTP+SSE");
        let Some(dialect) = self.open_session(&mut events, LEGACY[0]).await else { return true };
        self.begin_session(&mut events, &dialect).await;
        self.inquire_in_session(&mut events, &dialect).await;
        self.time(&mut events, &dialect).await;
        self.garbage(&mut events, &dialect).await;
        drop(events);
        self.ask_on_other_streams(address).await;
        if let Some(keyless) = keyless(address)
            && let Some(mut events) = self.open_stream(&keyless).await
        {
            self.probe(&mut events, Probe::WithoutKey, &ProbeRequest::initialize(LEGACY[0])).await;
        }
        self.probe(http, Probe::ForeignOrigin, &stream.clone().with("origin", FOREIGN_ORIGIN)).await;
        self.ask_foreign_host(address, &stream).await;
        true
    }

    /// Every other version needs a stream of its own: the first `initialize` settles what is spoken there.
    async fn ask_on_other_streams(&mut self, address: &HttpServer) {
        for (version, session) in LEGACY[1..].iter().zip(2..) {
            let Some(mut events) = self.open_stream(address).await else { return };
            // One that does not know this one does not know the others in another way.
            let Some(dialect) = self.open_session(&mut events, version).await else { return };
            if session == 2 {
                self.begin_session(&mut events, &dialect).await;
                self.read_tools_again(&mut events, &dialect, session, 1).await;
            }
        }
    }

    /// A stream; `None` if there is none, or no more may be asked.
    async fn open_stream(&mut self, address: &HttpServer) -> Option<SseTransport> {
        let deadline = self.budget.begin()?;
        let opened = SseTransport::open(address, deadline).await;
        opened.inspect_err(|fault| self.budget.count(&Exchange::failed(of_fault(fault), Duration::ZERO))).ok()
    }
}
