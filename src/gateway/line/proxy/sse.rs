//! Clients that speak HTTP+SSE: their stream, and the messages that they send to its address.
//!
//! A request is accepted with 202 once it is known to be one, and takes the line of every other from there in a task
//! of its own; what it is answered with goes to the stream, message by message. What has no answer is accepted once it has
//! its place in the order of the session. The session lives as long as the stream: its id never leaves the process.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::context::RequestContext;
use super::{LineAnswer, Proxy, RequestDecision, accepted};
use crate::access::limit::shares::Share;
use crate::catalog::subscriptions;
use crate::clock::now_s;
use crate::context::call::Call;
use crate::context::worker::{View, Worker};
use crate::line::intake::Intake;
use crate::line::legacy;
use crate::line::message::Message;
use crate::line::relay::{EventsKind, events_response};
use crate::line::reply_messages::ReplyMessages;
use crate::line::response::ClientResponse;
use crate::line::sse_stream::{SseStream, message_event};
use crate::session::Session;
use crate::session::outbox::CallInFlight;
use crate::snapshot::Endpoint;
use crate::tables::sse_sessions::SseSessionId;
use crate::tables::sse_sessions::session::{SseCall, SseOutbound, SseSession};
use crate::upstream::ask::SESSION_ID;
use protocol::envelope::MessageKind;
use protocol::error::{ClientError, Error, GatewayError};
use protocol::fields::Fields;
use protocol::head::Head;
use protocol::method::Method;
use protocol::version::{Era, Eras};

/// For how long a session that is over must not come back by a call that was still under way.
const ENDED_S: u64 = 600;

/// A request whose answer goes to a stream.
pub(super) struct DeferredReply {
    line: Arc<SseSession>,
    /// Counts it until it is answered.
    counted: SseCall,
    /// What its cancellation finds it by.
    announced: Option<CallInFlight>,
    endpoint: Rc<Arc<Endpoint>>,
    message: Message,
    share: Option<Share>,
}

impl Proxy {
    /// GET without a session: a stream, and an address for what its client has to say.
    pub(super) fn open_line(&self, cx: &RequestContext<'_>) -> Result<ClientResponse, Error> {
        let endpoint = cx.endpoint;
        let state = &self.worker.state;
        if state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        let principal = cx.call.principal().id();
        let place = state.sessions.admit_stream(cx.call.payer()).ok_or_else(|| {
            state.metrics.streams.refused.inc();
            GatewayError::Streams
        })?;
        let id = SseSessionId::random().map_err(|error| {
            tracing::error!(%error, "no stream can be opened");
            GatewayError::Sessions
        })?;
        let line = SseSession::new(id, Arc::clone(endpoint), principal);
        state.lines.add(&line);
        self.worker.client.tasks.spawn(keep(Rc::clone(&self.worker), Arc::clone(&line)));
        let snapshot = &cx.view.snapshot;
        let news = subscriptions::subscriber::join(state, snapshot, (endpoint, cx.caller()?), None, u64::MAX);
        let mut stream = SseStream::new(Arc::clone(state), line, place, news, snapshot.keep_alive_interval);
        let response = events_response(EventsKind::Session, move |cx| stream.poll(cx));
        Ok(response)
    }

    /// POST to the address of a stream.
    pub(super) async fn post_to_line(
        &self,
        cx: &mut RequestContext<'_>,
        id: SseSessionId,
        intake: &mut Intake,
    ) -> Result<LineAnswer, Error> {
        cx.call.seen.era = Era::Legacy;
        let lines = &self.worker.state.lines;
        let line = lines.find(id, &cx.endpoint.config.name, cx.call.principal().id());
        let line = line.ok_or(ClientError::SessionGone)?;
        let limits = &cx.view.snapshot.limits;
        let body = intake.collect(limits, &self.worker.state.buffered, || cx.call.payer()).await?;
        let only_legacy = Eras { modern: false, legacy: true };
        let mut message = Message::unread(body);
        let read = self.reader(cx.view, only_legacy).read(cx.head, &mut message, &mut cx.call.seen).await;
        self.hear_of_trace(cx, &mut message);
        read?;
        cx.session = line.session();
        // What has no answer has its place in the order before it is accepted.
        if message.envelope.kind != MessageKind::Request {
            if cx.session.is_some() {
                return self.take_unanswered(cx, &message).map(LineAnswer::Response);
            }
            cx.call.fail(&ClientError::NoSession.into());
            return Ok(LineAnswer::Response(accepted()));
        }
        let calls_max = usize::try_from(limits.streams_per_connection_max).unwrap_or(usize::MAX);
        let counted = line.begin(calls_max).ok_or(GatewayError::LineCalls)?;
        let announced = cx.session.as_ref().and_then(|session| {
            let outbox = self.worker.state.sessions.outbox(session.owner()).ok()?;
            Some(outbox.announce(message.id()))
        });
        let share = intake.take_reservation();
        let endpoint = Rc::clone(cx.endpoint);
        let posted = DeferredReply { line, counted, announced, endpoint, message, share };
        Ok(LineAnswer::Aside(Box::new(posted)))
    }

    /// Accepts a message and has it answered on its stream.
    pub(super) fn answer_aside(
        &self,
        view: &Rc<View>,
        posted: Box<DeferredReply>,
        fields: Fields,
        call: Call,
    ) -> ClientResponse {
        let (proxy, view) = (Self::new(Rc::clone(&self.worker), Rc::clone(&self.drain)), Rc::clone(view));
        self.worker.client.tasks.spawn_unboxed(async move {
            let line = Arc::clone(&posted.line);
            tokio::select! {
                () = line.closed() => {}
                () = proxy.answer_on_line(&view, *posted, fields, call) => {}
            }
        });
        accepted()
    }

    async fn answer_on_line(&self, view: &Rc<View>, posted: DeferredReply, fields: Fields, mut call: Call) {
        let DeferredReply { line, counted, announced, endpoint, message, share } = posted;
        let id: Box<str> = message.id().into();
        let head = Head::read(&fields);
        let cx = &mut RequestContext::new(view, &endpoint, &head, &fields, &mut call);
        let answer = Box::pin(self.answer_message(cx, &line, message)).await;
        // A client that is gone needs no answer.
        let put = async |events, held| {
            let _ = line.send(SseOutbound { events, held }).await;
        };
        let failure = match answer {
            Ok(mut response) => {
                let payer = call.payer();
                response.body.carry(call);
                let messages = ReplyMessages {
                    bytes_max: view.snapshot.limits.reply_bytes_max,
                    budget: &self.worker.state.buffered,
                    payer,
                    event: message_event,
                    keeps_comments: false,
                };
                messages.forward(response, &put).await.err()
            }
            Err(error) => {
                call.fail(&error);
                Some(error)
            }
        };
        if let Some(error) = failure {
            put(message_event(Bytes::from(error.body(Some(&id), Era::Legacy))), None).await;
        }
        drop((counted, announced, share));
    }

    /// What the message would be answered with by Streamable HTTP.
    async fn answer_message(
        &self,
        cx: &mut RequestContext<'_>,
        line: &SseSession,
        message: Message,
    ) -> Result<ClientResponse, Error> {
        let opens = message.method == Method::Initialize;
        let turn = if opens {
            let twice = ClientError::NotJsonRpc { why: "this stream has its session already" };
            Some(line.start_opening().ok_or(twice)?)
        } else {
            None
        };
        cx.session = line.session();
        let mut response = match self.dispatch_legacy(cx, &message).await? {
            RequestDecision::Answer(response) => response,
            RequestDecision::Send(mut outbound) => {
                let (session, fields) = (cx.session.take(), cx.fields.clone());
                return self.send(cx.view, (&message, &mut outbound), session, fields, cx.call).await;
            }
        };
        if let Some(turn) = turn {
            let token = response.headers_mut().remove(SESSION_ID).ok_or(GatewayError::Sessions)?;
            let token = token.to_str().map_err(|_| GatewayError::Sessions)?;
            let (name, sessions) = (&cx.endpoint.config.name, &self.worker.state.sessions);
            let session = sessions.open(token, name, &line.principal, now_s());
            let session = session.map_err(|_| GatewayError::Sessions)?;
            let address = Some(cx.call.client_address());
            let session = Session { has_resumption: false, address, ..session };
            if turn.finish(session.clone()).is_err() {
                end(&self.worker, &session);
            }
        }
        Ok(response)
    }
}

/// Ends what was the client's when its stream is over, or the process.
async fn keep(worker: Rc<Worker>, line: Arc<SseSession>) {
    tokio::select! {
        () = line.closed() => {}
        () = worker.state.drain.quiet() => line.close(),
    }
    worker.state.lines.remove(line.id);
    if let Some(session) = line.session() {
        end(&worker, &session);
    }
}

/// The id of the session was never given out, so it need not be known as ended for as long as it would open.
fn end(worker: &Rc<Worker>, session: &Session) {
    let closed = worker.state.sessions.end(session.grant.id, now_s().saturating_add(ENDED_S));
    legacy::close(worker, &worker.view(), closed);
}
