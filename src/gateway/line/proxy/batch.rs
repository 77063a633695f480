//! Several messages in one body, which sessions of 2025-03-26 may send: each takes the same line as if it had come
//! alone, and they are answered on one stream in the order in which they finish.
//!
//! What is wrong with one is its own answer; what is wrong with the batch is the whole one's.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use super::context::RequestContext;
use super::{Proxy, RequestDecision, accepted};
use crate::access::limit::shares::Share;
use crate::clock;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::batch;
use crate::line::legacy::no_state;
use crate::line::message::Message;
use crate::line::relay::{EventsKind, events_response, json_response};
use crate::line::reply_messages::ReplyMessages;
use crate::line::response::ClientResponse;
use crate::session::Session;
use crate::session::outbox::CallInFlight;
use crate::snapshot::Endpoint;
use crate::tables::sse_sessions::session::SseOutbound;
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{ClientError, Error};
use protocol::fields::Fields;
use protocol::head::Head;
use protocol::json::JsonError;
use protocol::sse::{COMMENT, data_event};
use protocol::version::{Era, LegacyVersion};

struct BatchPart {
    proxy: Proxy,
    view: Rc<View>,
    endpoint: Rc<Arc<Endpoint>>,
    fields: Rc<Fields>,
    session: Session,
    body: Bytes,
    /// A request has an answer, and so has what is no message.
    has_answer: bool,
    /// What the whole batch takes of the budget for bodies: a part of it keeps all of it in memory.
    held: Rc<Option<Share>>,
    call: Call,
    /// The first one was counted as the body that all of them came in.
    is_first: bool,
}

/// Events that wait for the client.
const EVENTS_MAX: usize = 16;

/// What one of a batch is, as far as its place in the order goes.
enum InBatch {
    Request(Box<str>),
    /// A notification or a response.
    Unanswered,
    /// Nothing of the kind; it is told so.
    Fault,
}

impl Proxy {
    /// Whether a body is several messages, of a session in which there may be such.
    pub(super) async fn is_batch(&self, cx: &mut RequestContext<'_>, body: &Bytes) -> Result<bool, Error> {
        if !cx.may_be_legacy() || !batch::is_batch(body) {
            return Ok(false);
        }
        cx.call.seen.era = Era::Legacy;
        self.find_session(cx).await?;
        let version = cx.session.as_ref().map(|session| session.grant.version);
        Ok(version == Some(LegacyVersion::V2025_03_26))
    }

    /// Takes a batch apart. `call` stands for all of it, and is of no method.
    pub(super) async fn batch(
        &self,
        cx: &RequestContext<'_>,
        body: &Bytes,
        reservation: Option<Share>,
    ) -> Result<ClientResponse, Error> {
        let RequestContext { view, endpoint, head, fields, .. } = *cx;
        let session = cx.session()?;
        if head.method.is_present() || head.name.is_present() || head.has_param {
            return Err(ClientError::mismatch("headers that mirror a message are sent with a batch").into());
        }
        let messages = self.messages_in(cx, body)?;
        let outbox = self.worker.state.sessions.outbox(session.owner()).map_err(no_state)?;
        let (mut has_answers, mut refused) = (false, None);
        let fields = Rc::new(fields.clone());
        let reservation = Rc::new(reservation);
        let (events, mut waiting) = mpsc::channel(EVENTS_MAX);
        for (index, body) in messages.into_iter().enumerate() {
            let mut call = cx.call.part();
            call.request_bytes = body.len() as u64;
            let request = self.in_batch(view, &body);
            let has_answer = !matches!(request, InBatch::Unanswered);
            has_answers |= has_answer;
            let part = BatchPart {
                proxy: Self::new(Rc::clone(&self.worker), Rc::clone(&self.drain)),
                view: Rc::clone(view),
                endpoint: Rc::clone(endpoint),
                fields: Rc::clone(&fields),
                session: session.clone(),
                body,
                has_answer,
                held: Rc::clone(&reservation),
                call,
                is_first: index == 0,
            };
            // A cancellation further on finds its call.
            let announced = match request {
                InBatch::Request(id) => Some(outbox.announce(&id)),
                InBatch::Unanswered => {
                    // What has no answer is taken at once, and so in the order in which it stands here.
                    if let Some(Error::Gateway(error)) = part.serve(&events).await {
                        refused.get_or_insert(error);
                    }
                    continue;
                }
                InBatch::Fault => None,
            };
            self.worker.client.tasks.spawn_unboxed(part.answer_on(events.clone(), announced));
        }
        drop(events);
        if has_answers {
            let mut signs = KeepAlive::new(view.snapshot.reply_keep_alive_interval);
            let next = move |cx: &mut Context<'_>| match waiting.poll_recv(cx) {
                Poll::Pending => signs.poll(cx).map(Some),
                next @ Poll::Ready(_) => {
                    signs.rest();
                    next.map(|next| Some(next?.events))
                }
            };
            return Ok(events_response(EventsKind::Answer, next));
        }
        while waiting.recv().await.is_some() {}
        refused.map_or_else(|| Ok(accepted()), |error| Err(error.into()))
    }

    fn messages_in(&self, cx: &RequestContext<'_>, body: &Bytes) -> Result<Vec<Bytes>, ClientError> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let document = scratch.index(body, cx.depth_max());
        let document = document.map_err(|error| match error {
            JsonError::NotJson => ClientError::NotJson,
            JsonError::TooDeep => ClientError::TooDeep,
        })?;
        let spans = batch::messages(document.root()).map_err(|why| ClientError::NotJsonRpc { why })?;
        Ok(spans.into_iter().map(|span| body.slice(span)).collect())
    }

    fn in_batch(&self, view: &View, message: &[u8]) -> InBatch {
        let depth_max = view.snapshot.limits.json_depth_max;
        let envelope = Envelope::parse(&mut self.worker.scratch.borrow_mut(), message, depth_max);
        let Ok(envelope) = envelope else { return InBatch::Fault };
        if envelope.kind != MessageKind::Request {
            return InBatch::Unanswered;
        }
        let id = envelope.id.and_then(|id| std::str::from_utf8(message.get(id)?).ok());
        id.map_or(InBatch::Fault, |id| InBatch::Request(id.into()))
    }
}

/// Comments on a stream of which nothing else is heard.
struct KeepAlive {
    /// Zero: there are none.
    interval: Duration,
    clock: Pin<Box<Sleep>>,
}

impl KeepAlive {
    fn new(interval: Duration) -> Self {
        Self { interval, clock: Box::pin(sleep(interval)) }
    }

    /// Something was heard.
    fn rest(&mut self) {
        self.clock.as_mut().reset((clock::now() + self.interval).into());
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if self.interval.is_zero() {
            return Poll::Pending;
        }
        ready!(self.clock.as_mut().poll(cx));
        self.rest();
        Poll::Ready(Bytes::from_static(COMMENT))
    }
}

impl BatchPart {
    /// Serves it for as long as somebody is there to read its answer.
    async fn answer_on(self, events: mpsc::Sender<SseOutbound>, announced: Option<CallInFlight>) {
        tokio::select! {
            _ = self.serve(&events) => {}
            // As when the connection of a single call is closed.
            () = events.closed() => {}
        }
        drop(announced);
    }

    /// Serves it. Returns what is wrong with one that has no answer to say it.
    async fn serve(mut self, events: &mpsc::Sender<SseOutbound>) -> Option<Error> {
        let reader = self.proxy.reader(&self.view, self.endpoint.eras());
        let id = reader.find_id(&self.body).await;
        let id = id.and_then(|id| std::str::from_utf8(self.body.get(id)?).ok()).map(str::to_owned);
        let bytes_max = self.view.snapshot.limits.reply_bytes_max;
        let answer = self.answer().await;
        let Self { proxy, body, has_answer, held, mut call, .. } = self;
        let payer = call.payer();
        drop((body, held));
        let response = match answer {
            Ok(mut response) => {
                call.status = Some(response.status.as_u16());
                response.body.carry(call);
                response
            }
            Err(error) => {
                let body = error.body(id.as_deref(), Era::Legacy);
                (call.status, call.reply_bytes) = (Some(StatusCode::OK.as_u16()), body.len() as u64);
                call.fail(&error);
                if !has_answer {
                    return Some(error);
                }
                json_response(StatusCode::OK, body)
            }
        };
        if has_answer {
            let budget = &proxy.worker.state.buffered;
            let messages =
                ReplyMessages { bytes_max, budget, payer, event: data_event, keeps_comments: true };
            // A client that has left needs no answer.
            let put = async |event, held| drop(events.send(SseOutbound { events: event, held }).await);
            if let Err(error) = messages.forward(response, &put).await {
                put(data_event(Bytes::from(error.body(id.as_deref(), Era::Legacy))), None).await;
            }
        }
        None
    }

    async fn answer(&mut self) -> Result<ClientResponse, Error> {
        let Self { proxy, view, endpoint, fields, call, .. } = self;
        let head = Head::read(fields);
        let cx = &mut RequestContext::new(view, endpoint, &head, fields, call);
        cx.session = Some(self.session.clone());
        if !self.is_first {
            proxy.admit_message(cx).await?;
        }
        let reader = proxy.reader(view, cx.served);
        let mut message = Message::unread(self.body.clone());
        let read = reader.read(&head, &mut message, &mut cx.call.seen).await;
        proxy.hear_of_trace(cx, &mut message);
        read?;
        if message.era != Era::Legacy {
            return Err(ClientError::NotJsonRpc { why: "a message of another revision is in a batch" }.into());
        }
        match proxy.dispatch_legacy(cx, &message).await? {
            RequestDecision::Answer(response) => Ok(response),
            RequestDecision::Send(mut outbound) => {
                let (session, fields) = (cx.session.take(), Fields::clone(fields));
                proxy.send(view, (&message, &mut outbound), session, fields, call).await
            }
        }
    }
}
