//! Asking one upstream for one list, all its pages, or for `server/discover`.
//!
//! Bounded in time over the whole answer, in bytes and in pages; a cursor that comes again ends the walk.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::List;
use crate::config::Limits;
use crate::limit::buffered::Buffered;
use crate::protocol::envelope::{Envelope, MessageKind};
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::json::{Kind, Scratch, Span, Value, quote};
use crate::protocol::mapping::{self, Shape, Site};
use crate::protocol::method::Method;
use crate::protocol::splice::Segments;
use crate::protocol::sse::Events;
use crate::protocol::version;
use crate::relay;
use crate::upstream::Upstream;
use crate::upstream::exchange::{Client, RequestBody};

/// JSON-RPC's code for a method that does not exist.
const METHOD_NOT_FOUND: i64 = -32601;

/// What an upstream gave for one list.
#[derive(Debug, Default)]
pub struct Part {
    /// Its pages, in order.
    pub pages: Vec<Page>,
    /// The least `ttlMs` of any page, in milliseconds.
    pub ttl_ms: u64,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The reply.
    pub body: Bytes,
    /// Its entries.
    pub items: Vec<Item>,
}

/// One entry of a page.
#[derive(Debug)]
pub struct Item {
    /// Where it stands in the reply.
    pub span: Span,
    /// The names in it, in order; literals refer to the reply.
    pub sites: Vec<Site>,
}

/// A way to ask upstreams on the gateway's own behalf, or with a client's `_meta`.
#[derive(Clone, Copy)]
pub struct Fetcher<'f> {
    /// Connections.
    pub client: &'f Client,
    /// Memory for checking JSON.
    pub scratch: &'f RefCell<Scratch>,
    /// Bounds.
    pub limits: &'f Limits,
    /// What replies are counted against.
    pub budget: &'f Arc<Buffered>,
    /// The `_meta` object of every request, as JSON.
    pub meta: &'f str,
}

impl Fetcher<'_> {
    /// One list, all pages. An upstream without it has an empty one.
    pub async fn list(&self, upstream: &Upstream, list: List) -> Result<Part, UpstreamError> {
        let deadline = Instant::now() + upstream.config.list_timeout;
        let mut part = Part { pages: Vec::new(), ttl_ms: u64::MAX };
        let mut bytes_left = self.limits.list_bytes_max;
        let mut cursors: Vec<String> = Vec::new();
        for _ in 0..self.limits.list_pages_max {
            let cursor = cursors.last().map(String::as_str);
            let body = self.ask(upstream, list.method(), cursor, bytes_left, deadline).await?;
            bytes_left = bytes_left.saturating_sub(body.len());
            let Some(page) = self.read_page(&body, list)? else { break };
            part.ttl_ms = part.ttl_ms.min(page.ttl_ms);
            part.pages.push(Page { body, items: page.items });
            match page.next_cursor {
                Some(next) if !cursors.contains(&next) => cursors.push(next),
                Some(_) | None => break,
            }
        }
        if part.pages.is_empty() {
            part.ttl_ms = 0;
        }
        Ok(part)
    }

    /// The reply to `server/discover`.
    pub async fn discover(&self, upstream: &Upstream) -> Result<Bytes, UpstreamError> {
        let deadline = Instant::now() + upstream.config.list_timeout;
        self.ask(upstream, Method::Discover, None, self.limits.list_bytes_max, deadline).await
    }

    async fn ask(
        &self,
        upstream: &Upstream,
        method: Method,
        cursor: Option<&str>,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Bytes, UpstreamError> {
        let cursor = cursor.map(|cursor| format!(",\"cursor\":{}", quote(cursor))).unwrap_or_default();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{{"_meta":{}{cursor}}}}}"#,
            method.label(),
            self.meta
        );
        let mut request = Request::new(RequestBody(Segments::from(Bytes::from(body))));
        *request.headers_mut() = headers(method);
        let mut reply = self.client.send(upstream, request, true, Instant::now(), deadline).await?;
        match relay::media_of(&reply.head.headers) {
            relay::Media::Json => {
                let collected = relay::collect(&mut reply.body, bytes_max, deadline, self.budget).await;
                // The budget bounds what is read; a list is short-lived enough to be counted only so far.
                let (body, _) = collected.map_err(|error| match error {
                    Error::Upstream(error) => error,
                    _ => UpstreamError::TooLarge,
                })?;
                reply.lease.give_back(Instant::now());
                Ok(body)
            }
            relay::Media::Sse => {
                let answer = self.answer_in_events(&mut reply.body, bytes_max);
                timeout_at(deadline.into(), answer).await.unwrap_or(Err(UpstreamError::TimedOut))
            }
            relay::Media::Other => Err(UpstreamError::Nonsense),
        }
    }

    /// The answer among server-sent events. The stream need not end with it.
    async fn answer_in_events(&self, body: &mut Incoming, bytes_max: usize) -> Result<Bytes, UpstreamError> {
        let mut events = Events::new(bytes_max);
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| UpstreamError::Reset)?.into_data().unwrap_or_default();
            bytes += data.len();
            if bytes > bytes_max {
                return Err(UpstreamError::TooLarge);
            }
            events.push(data);
            while let Some(event) = events.next() {
                let data = event.map_err(|_| UpstreamError::TooLarge)?.data.unwrap_or_default();
                if self.is_answer(&data) {
                    return Ok(data);
                }
            }
        }
        let last = events.finish().and_then(|event| event.data).filter(|data| self.is_answer(data));
        last.ok_or(UpstreamError::Nonsense)
    }

    fn is_answer(&self, message: &[u8]) -> bool {
        let mut scratch = self.scratch.borrow_mut();
        let envelope = Envelope::parse(&mut scratch, message, self.limits.json_depth_max);
        envelope.is_ok_and(|envelope| envelope.kind == MessageKind::Response)
    }

    /// `None` if the upstream does not have this list.
    fn read_page(&self, body: &[u8], list: List) -> Result<Option<PageFields>, UpstreamError> {
        let mut scratch = self.scratch.borrow_mut();
        let document =
            scratch.index(body, self.limits.json_depth_max).map_err(|_| UpstreamError::Nonsense)?;
        let root = document.root();
        if let Some(error) = root.get("error") {
            let code = error.get("code").and_then(Value::as_integer);
            return if code == Some(METHOD_NOT_FOUND) { Ok(None) } else { Err(UpstreamError::Nonsense) };
        }
        let result = root.get("result").ok_or(UpstreamError::Nonsense)?;
        let entries = result.get(list.field()).filter(|value| value.kind() == Kind::Array);
        let items = entries
            .ok_or(UpstreamError::Nonsense)?
            .items()
            .map(|item| {
                let mut sites = Vec::new();
                mapping::sites(item, Shape::ListItem(list.entries()), &mut sites);
                Item { span: item.span(), sites }
            })
            .collect();
        let next_cursor = result.get("nextCursor").and_then(Value::as_literal);
        Ok(Some(PageFields {
            items,
            next_cursor: next_cursor.and_then(|cursor| cursor.decode(body).map(Into::into)),
            ttl_ms: ttl_ms(result),
        }))
    }
}

struct PageFields {
    items: Vec<Item>,
    next_cursor: Option<String>,
    ttl_ms: u64,
}

/// The `ttlMs` of a result: 0 where it is absent or negative.
pub fn ttl_ms(result: Value<'_>) -> u64 {
    result.get("ttlMs").and_then(Value::as_integer).and_then(|ttl| ttl.try_into().ok()).unwrap_or(0)
}

fn headers(method: Method) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(
        HeaderName::from_static("mcp-protocol-version"),
        HeaderValue::from_static(version::MODERN[0]),
    );
    headers.insert(HeaderName::from_static("mcp-method"), HeaderValue::from_static(method.label()));
    headers
}
