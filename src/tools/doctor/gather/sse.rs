//! Exchanges over HTTP+SSE (2024-11-05): a message goes out by POST, and its answer comes on the stream.
//!
//! What POST is answered with says only whether the message was accepted: of an answer that comes there is no status.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::http::of_fault;
use super::search::{Next, Search};
use crate::doctor::answer::reply_to;
use crate::doctor::facts::{Answer, Exchange};
use crate::doctor::request::ProbeRequest;
use client::exchange_error::ExchangeError;
use client::http_sse::{MessageEndpoint, SseStream, connect};
use client::server::HttpServer;

/// A stream of a server, and what goes with it.
#[derive(Debug)]
pub(in crate::doctor) struct SseTransport {
    stream: RefCell<SseStream>,
    posts: MessageEndpoint,
}

impl SseTransport {
    /// Opens a stream, which is a session of its own.
    pub(super) async fn open(address: &HttpServer, deadline: Instant) -> Result<Self, ExchangeError> {
        let (stream, posts) = connect(address, deadline).await?;
        Ok(Self { stream: RefCell::new(stream), posts })
    }

    /// Sends a request and takes what comes. A message without id is only sent.
    pub(super) async fn ask(&self, ask: &ProbeRequest, deadline: Instant) -> Exchange {
        let started = Instant::now();
        let mut exchange = Exchange::failed(Answer::Nothing, Duration::ZERO);
        let asked = timeout_at(deadline.into(), self.exchange(ask, deadline, &mut exchange)).await;
        match asked.unwrap_or(Err(ExchangeError::TimedOut)) {
            Ok(()) => {}
            Err(ExchangeError::Status(status)) => exchange.status = Some(status.as_u16()),
            Err(fault) => exchange.answer = of_fault(&fault),
        }
        exchange.took = started.elapsed();
        exchange
    }

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "exchanges follow one another; nothing else borrows it"
    )]
    async fn exchange(
        &self,
        ask: &ProbeRequest,
        deadline: Instant,
        exchange: &mut Exchange,
    ) -> Result<(), ExchangeError> {
        self.posts.send(ask.bytes(), deadline).await?;
        if ask.id().is_none() {
            return Ok(());
        }
        let mut stream = self.stream.borrow_mut();
        let mut search = Search::new(ask, exchange);
        loop {
            let Some(text) = stream.message().await? else {
                search.fail("the stream ended");
                return Ok(());
            };
            let Next::More(message) = search.take_text(&text) else { return Ok(()) };
            if let Some(answer) = reply_to(&message) {
                self.posts.send(Bytes::from(answer.to_string()), deadline).await?;
            }
        }
    }
}
