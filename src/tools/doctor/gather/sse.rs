//! Exchanges over HTTP+SSE (2024-11-05): a message goes out by POST, and its answer comes on the stream.
//!
//! What POST is answered with says only whether the message was accepted: of an answer that comes there is no status.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::timeout_at;

use super::http::of_fault;
use crate::doctor::answer::{answers, nonsense, read, reply_to};
use crate::doctor::facts::{Answer, Exchange};
use crate::doctor::request::{ProbeRequest, Until};
use client::exchange_error::ExchangeError;
use client::http_sse::{MessageEndpoint, SseStream, connect};
use client::server::HttpServer;

/// How many messages are passed over in search of an answer.
const SKIPPED_MAX: usize = 10_000;
/// How many bytes they may have.
const SKIPPED_BYTES_MAX: usize = 32 << 20;
const REMARKS_MAX: usize = 8;

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
        for _ in 0..SKIPPED_MAX {
            let Some(text) = stream.message().await? else {
                exchange.answer = Answer::Failed("the stream ended".to_owned());
                return Ok(());
            };
            exchange.bytes += text.len();
            let Ok(message) = serde_json::from_slice::<Value>(&text) else {
                exchange.answer = nonsense(&text);
                return Ok(());
            };
            if answers(&message, ask.id()) || message.is_array() {
                (exchange.answer, exchange.form_fault) = read(&message, ask.id());
                return Ok(());
            }
            if exchange.bytes > SKIPPED_BYTES_MAX {
                break;
            }
            if let Some(answer) = reply_to(&message) {
                self.posts.send(Bytes::from(answer.to_string()), deadline).await?;
            }
            if exchange.remarks.len() < REMARKS_MAX {
                exchange.remarks.push(message);
            }
            if ask.until == Until::FirstMessage {
                return Ok(());
            }
        }
        let kib = exchange.bytes >> 10;
        exchange.answer = Answer::Failed(format!("no answer among many messages, {kib} KiB in all"));
        Ok(())
    }
}
