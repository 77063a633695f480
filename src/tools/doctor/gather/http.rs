//! Exchanges over HTTP: every reply is read to its answer, whatever its form, and no further.

use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION, WWW_AUTHENTICATE};
use serde_json::Value;
use tokio::time::timeout_at;

use super::search::{Next, Search};
use super::transport::ProbeTransport;
use crate::doctor::answer::{nonsense, read};
use crate::doctor::facts::{Answer, Exchange, clip};
use crate::doctor::request::{ProbeRequest, Until};
use client::MESSAGE_BYTES_MAX;
use client::exchange_error::ExchangeError;
use client::http_endpoint::HttpEndpoint;
use client::response_reader::ResponseReader;
use client::server::HttpServer;
use net::http_client::{HttpReply, collect};
use net::tasks::Tasks;

/// Of a header that is kept.
const HEADER_CHARS_MAX: usize = 4096;

/// The way to a server over HTTP.
#[derive(Debug)]
pub(super) struct HttpTransport(HttpEndpoint);

impl HttpTransport {
    pub(super) fn new(address: &HttpServer, tasks: &Tasks) -> Result<Self, http::Error> {
        HttpEndpoint::new(address, tasks.clone()).map(Self)
    }
}

impl ProbeTransport for HttpTransport {
    async fn ask(&mut self, ask: &ProbeRequest, deadline: Instant) -> Exchange {
        let started = Instant::now();
        let (method, headers) = (ask.http_method.clone(), ask.headers.clone());
        let reply = match self.0.send(method, headers, ask.bytes(), true, deadline).await {
            Ok(reply) => reply,
            Err(fault) => return Exchange::failed(of_fault(&fault), started.elapsed()),
        };
        let mut exchange = head(&reply, started.elapsed());
        if ask.until == Until::Head {
            return exchange;
        }
        if exchange.media == "text/event-stream" {
            self.read_stream(reply, ask, deadline, &mut exchange).await;
        } else {
            self.read_body(reply, ask, deadline, &mut exchange).await;
        }
        exchange.took = started.elapsed();
        exchange
    }
}

impl HttpTransport {
    async fn read_body(
        &self,
        mut reply: HttpReply,
        ask: &ProbeRequest,
        deadline: Instant,
        exchange: &mut Exchange,
    ) {
        let body = match collect(&mut reply.body, MESSAGE_BYTES_MAX, deadline).await {
            Ok(body) => body,
            Err(fault) => {
                exchange.answer = of_fault(&fault.into());
                return;
            }
        };
        self.0.put_back(reply).await;
        exchange.bytes = body.len();
        let is_success = exchange.status.is_some_and(|status| (200..300).contains(&status));
        match serde_json::from_slice::<Value>(&body) {
            Ok(message) => {
                if ask.id().is_none() && message.get("result").is_none() && message.get("error").is_none() {
                    exchange.answer = Answer::Document(message);
                    return;
                }
                (exchange.answer, exchange.form_fault) = read(&message, ask.id());
                let is_message = matches!(exchange.answer, Answer::Result(_) | Answer::Error(_));
                if !is_message && (ask.id().is_none() || !is_success) {
                    // What a refusal says besides its status is free.
                    exchange.form_fault = None;
                } else if is_message && exchange.media != "application/json" {
                    let media = clip(&exchange.media, 60);
                    exchange.form_fault = Some(format!("a message came as Content-Type {media:?}"));
                }
            }
            Err(_) => exchange.answer = nonsense(&body),
        }
    }

    async fn read_stream(
        &self,
        reply: HttpReply,
        ask: &ProbeRequest,
        deadline: Instant,
        exchange: &mut Exchange,
    ) {
        let mut messages = ResponseReader::of(reply);
        let mut search = Search::new(ask, exchange);
        loop {
            // Bytes that make no message are no reason to wait any longer.
            let next = timeout_at(deadline.into(), messages.next(None)).await;
            let text = match next.unwrap_or(Err(ExchangeError::TimedOut)) {
                Ok(Some(text)) => text,
                Ok(None) => return,
                Err(fault) => {
                    exchange.answer = of_fault(&fault);
                    return;
                }
            };
            match search.take_text(&text) {
                Next::More(_) => {}
                Next::Enough => return,
                Next::Answered => return self.0.put_back(messages.reply).await,
            }
        }
    }
}

fn head(reply: &HttpReply, took: Duration) -> Exchange {
    let headers = &reply.head.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let media = text(CONTENT_TYPE.as_str()).unwrap_or_default();
    Exchange {
        status: Some(reply.head.status.as_u16()),
        media: media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase(),
        session_id: session_id(headers),
        is_unbuffered: text("x-accel-buffering").is_some_and(|value| value.eq_ignore_ascii_case("no")),
        challenges: challenges(headers),
        location: text(LOCATION.as_str()).map(str::to_owned),
        coding: text(CONTENT_ENCODING.as_str())
            .filter(|coding| !coding.eq_ignore_ascii_case("identity"))
            .map(|coding| clip(coding, HEADER_CHARS_MAX)),
        ..Exchange::failed(Answer::Nothing, took)
    }
}

/// What is no text is kept as well as it can be: the checks say what is wrong with it.
fn session_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("mcp-session-id")?;
    Some(clip(&String::from_utf8_lossy(value.as_bytes()), HEADER_CHARS_MAX))
}

fn challenges(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    values.take(8).map(|value| clip(value, HEADER_CHARS_MAX)).collect()
}

/// What came instead of an answer.
pub(super) fn of_fault(fault: &ExchangeError) -> Answer {
    match fault {
        ExchangeError::TimedOut => Answer::Silence,
        ExchangeError::Unreachable(why) => Answer::Failed(format!("the server cannot be reached: {why}")),
        ExchangeError::Tls(fault) => Answer::Failed(format!("no connection over TLS: {fault}")),
        ExchangeError::Reset => Answer::Failed("the connection broke".to_owned()),
        ExchangeError::Nonsense => Answer::Failed("the reply is not valid HTTP".to_owned()),
        ExchangeError::TooLarge => {
            Answer::Failed(format!("the reply has more than {} MiB", MESSAGE_BYTES_MAX >> 20))
        }
        fault => Answer::Failed(fault.to_string()),
    }
}
