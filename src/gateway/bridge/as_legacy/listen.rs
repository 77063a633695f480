//! One `subscriptions/listen` on behalf of a session: the request, its acknowledgement, and what is heard afterwards.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout_at;

use super::session::LegacySession;
use crate::access::limit::payer::Payer;
use crate::bridge::{BridgedServer, next_number};
use crate::clock;
use crate::upstream::ReplicaSelection;
use crate::upstream::ask::modern_headers;
use crate::upstream::body::collect;
use crate::upstream::exchange::{SendOptions, UpstreamClient};
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::request::{ExpectedReply, UpstreamRequest};
use protocol::error::UpstreamError;
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::subscription::{self, Heard, Lists, hear};
use protocol::translation::answer::{self, Ids, Said};
use protocol::version::MODERN;

/// How long a server may take to acknowledge.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// An acknowledged subscription. Dropped, it is over.
pub(super) struct Listen {
    id: String,
    messages: Box<Messages>,
}

#[derive(Debug)]
pub(super) enum ListenError {
    /// The server does not offer this.
    Refused,
    Failed(UpstreamError),
}

/// Asks for changes of these resources, and waits until the server agrees. Returns what it agrees to.
pub(super) async fn open(
    client: UpstreamClient,
    upstream: BridgedServer,
    session: Arc<LegacySession>,
    uris: Vec<Box<str>>,
) -> Result<(Listen, HashSet<Box<str>>), ListenError> {
    let id = format!("\"trunkline-{}\"", next_number());
    let uris = uris.iter().map(|uri| &**uri);
    let body = subscription::request(&id, Lists::default(), uris, std::iter::empty());
    let asked_bytes = body.len();
    let headers = modern_headers(MODERN[0], Method::Listen);
    let mut request = UpstreamRequest::post(Segments::from(body), headers);
    let attributes = &mut request.attributes;
    attributes.reply = ExpectedReply::Stream;
    attributes.principal.clone_from(&session.principal);
    let now = clock::now();
    let deadline = now + upstream.config.response_timeout.min(OPEN_TIMEOUT);
    let delivery = SendOptions {
        is_safe_to_repeat: true,
        aim: ReplicaSelection::Any,
        asked: None,
        payer: Payer::GATEWAY,
    };
    let sent = client.send_as_it_is(&upstream, &mut request, delivery, now, deadline).await;
    let mut reply = sent.map_err(ListenError::Failed)?;
    let (bytes_max, held) = {
        let limits = client.host.shared.limits();
        (limits.message_bytes_max.max(asked_bytes.saturating_mul(2)), limits.budget.open(upstream.payer()))
    };
    if !reply.is_stream() {
        let answer = collect(&mut reply.body, REFUSAL_BYTES_MAX, deadline, held).await;
        let answer = answer.map(|(answer, _)| answer).unwrap_or_default();
        return Err(match heard(&client, &answer, &id) {
            // Any other error of JSON-RPC but an internal one is about the request, which will not change.
            Heard::Refused(Some(code)) if code != -32603 => ListenError::Refused,
            _ => ListenError::Failed(UpstreamError::Nonsense),
        });
    }
    let messages = Box::new(Messages::new(reply, bytes_max, held));
    let mut listen = Listen { id, messages };
    let acknowledged = async {
        loop {
            let message = listen.message().await.map_err(ListenError::Failed)?;
            match heard(&client, &message, &listen.id) {
                Heard::Acknowledged(acknowledged) => return Ok(acknowledged),
                Heard::Refused(Some(code)) if code != -32603 => return Err(ListenError::Refused),
                Heard::Refused(_) | Heard::Ended => return Err(ListenError::Failed(UpstreamError::Reset)),
                _ => {}
            }
        }
    };
    let acknowledged = timeout_at(deadline.into(), acknowledged).await;
    let acknowledged = acknowledged.unwrap_or(Err(ListenError::Failed(UpstreamError::TimedOut)))?;
    Ok((listen, acknowledged.uris.into_iter().collect()))
}

impl Listen {
    /// The next change, as a legacy client is told of it, if the session wants to hear of it. An error: it is over. May be
    /// dropped and called again.
    pub(super) async fn update(
        &mut self,
        client: &UpstreamClient,
        session: &LegacySession,
    ) -> Result<Segments, UpstreamError> {
        loop {
            let message = self.message().await?;
            match heard(client, &message, &self.id) {
                Heard::Updated(notice) if session.subscribed.wants(&notice.name) => {
                    let ids = Ids { own: &self.id, client: "null" };
                    let read = client.read_json(|memory| answer::read(&message, ids, false, memory));
                    if let Said::Notification(told) = read {
                        return Ok(told);
                    }
                }
                Heard::Ended | Heard::Refused(_) => return Err(UpstreamError::Reset),
                _ => {}
            }
        }
    }

    async fn message(&mut self) -> Result<Bytes, UpstreamError> {
        loop {
            let event = self.messages.next().await?.ok_or(UpstreamError::Reset)?;
            if let Some(message) = get_stream::nonempty_message(event) {
                return Ok(message);
            }
        }
    }
}

fn heard(client: &UpstreamClient, message: &Bytes, id: &str) -> Heard {
    let heard = client.read_json(|(scratch, depth_max)| hear(scratch, message, id, depth_max));
    heard.unwrap_or(Heard::Other)
}
