//! Exchanges over HTTP+SSE (2024-11-05): a message goes out by POST, and its answer comes on the stream.
//!
//! What POST is answered with says only whether the message was accepted: of an answer that comes there is no status.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::http::of_fault;
use super::search::{Next, Search};
use super::transport::ProbeTransport;
use crate::doctor::answer::reply_to;
use crate::doctor::facts::{Answer, Exchange};
use crate::doctor::request::ProbeRequest;
use client::exchange_error::ExchangeError;
use client::http_sse::{MessageEndpoint, connect};
use client::response_reader::ResponseReader;
use client::server::HttpServer;

/// A stream of a server, which is a session of its own, and where messages for it go.
#[derive(Debug)]
pub(super) struct SseTransport {
    stream: ResponseReader,
    posts: MessageEndpoint,
}

impl ProbeTransport for SseTransport {
    async fn ask(&mut self, ask: &ProbeRequest, deadline: Instant) -> Exchange {
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
}

impl SseTransport {
    pub(super) async fn open(address: &HttpServer, deadline: Instant) -> Result<Self, ExchangeError> {
        let (stream, posts) = connect(address, deadline).await?;
        Ok(Self { stream, posts })
    }

    async fn exchange(
        &mut self,
        ask: &ProbeRequest,
        deadline: Instant,
        exchange: &mut Exchange,
    ) -> Result<(), ExchangeError> {
        self.posts.send(ask.bytes(), deadline).await?;
        if ask.id().is_none() {
            return Ok(());
        }
        let mut search = Search::new(ask, exchange);
        loop {
            let Some(text) = self.stream.next(None).await? else {
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
