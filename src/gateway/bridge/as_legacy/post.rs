//! A request within a session: answered by the bridge itself, where the modern era has no such request, or by the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use tokio::time::timeout_at;

use super::call::LegacyCall;
use super::mrtr_loop::{MrtrEvent, MrtrLoop};
use super::session::LegacySession;
use crate::bridge::BridgedServer;
use crate::clock;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::messages::MessageStream;
use crate::upstream::request::RequestAttributes;
use crate::upstream::sending::Sending;
use protocol::envelope::Envelope;
use protocol::error::{UpstreamError, error_body};
use protocol::json::{Document, quote};
use protocol::level::Level;
use protocol::method::Method;

/// How long a subscription waits for its server to know of it.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct LegacyPost<'p> {
    pub(super) client: &'p UpstreamClient,
    pub(super) upstream: &'p BridgedServer,
    pub(super) session: &'p Arc<LegacySession>,
    pub(super) message: Bytes,
    pub(super) envelope: &'p Envelope,
    /// Told once the session knows of the request.
    pub(super) sending: Option<&'p Sending>,
}

impl LegacyPost<'_> {
    pub(super) async fn answer(
        self,
        method: Method,
        about: (HeaderMap, RequestAttributes),
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        match method {
            Method::Ping => Ok(self.done()),
            Method::SetLevel => Ok(self.set_level()),
            Method::Subscribe => Ok(self.subscribe(deadline).await),
            Method::Unsubscribe => {
                if let Some(uri) = self.uri() {
                    self.session.subscribed.remove(&uri);
                }
                Ok(self.done())
            }
            Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel => {
                Ok(self.error(-32601, "the server behind this name has no tasks of this revision"))
            }
            _ => self.call(about, deadline).await,
        }
    }

    /// A request that the server answers.
    async fn call(
        self,
        about: (HeaderMap, RequestAttributes),
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let Self { client, upstream, session, ref message, envelope, sending } = self;
        let Some(call) = LegacyCall::of(client, upstream, session, (message.clone(), envelope), about) else {
            return Ok(self.error(-32601, "method not found"));
        };
        let mut line = MrtrLoop::new(call, deadline);
        if let Some(sending) = sending {
            sending.mark_taken();
        }
        let first = match line.first().await? {
            MrtrEvent::Answer(answer) => {
                line.finish();
                return Ok(Reply::json(answer));
            }
            MrtrEvent::Begun => None,
            MrtrEvent::Part(part) => Some(part),
        };
        Ok(MessageStream::reply(stream::unfold((first, line), |(first, mut line)| async {
            let next = match first {
                Some(first) => Some(Ok(first)),
                None => line.part().await,
            };
            next.map(|part| (part, (None, line)))
        })))
    }

    fn set_level(&self) -> Reply {
        let level = self.client.read_json(|(scratch, depth_max)| {
            let root = scratch.index(&self.message, depth_max).map(Document::root).ok()?;
            Level::of(&root.get("params")?.get("level")?.as_literal()?.decode(&self.message)?)
        });
        match level {
            Some(level) => {
                self.session.set_level(level);
                self.done()
            }
            None => self.error(-32602, "params.level is not a log level"),
        }
    }

    /// The answer waits until the server knows, so that nothing that happens after it is missed.
    async fn subscribe(&self, deadline: Instant) -> Reply {
        let uris_max = self.client.host.shared.limits().all.subscription_uris_max;
        let Some(uri) = self.uri() else { return self.error(-32602, "params.uri is missing") };
        let subscribed = &self.session.subscribed;
        let Some(number) = subscribed.add(&uri, uris_max) else {
            return self.error(-32000, "this session has as many subscriptions as it may");
        };
        let patience = deadline.min(clock::now() + SETTLE_PATIENCE);
        let settled = timeout_at(patience.into(), subscribed.settled(number)).await;
        match settled {
            Ok(Some(settled)) if !settled.honoured.contains(&*uri) => {
                subscribed.remove(&uri);
                self.error(-32602, "the server behind this name does not tell of changes of this resource")
            }
            // A server that does not say is asked again and again.
            _ => self.done(),
        }
    }

    fn uri(&self) -> Option<String> {
        Some(self.envelope.uri.as_ref()?.decode(&self.message)?.into_owned())
    }

    fn id(&self) -> &str {
        let id = self.envelope.id.clone().and_then(|id| self.message.get(id));
        id.and_then(|id| std::str::from_utf8(id).ok()).unwrap_or("null")
    }

    fn done(&self) -> Reply {
        Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, self.id()).into())
    }

    fn error(&self, code: i32, why: &str) -> Reply {
        let error = format!(r#"{{"code":{code},"message":{}}}"#, quote(why));
        Reply::json(error_body(Some(self.id()), &error).into())
    }
}
