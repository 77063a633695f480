//! One request of the client, from its line to its answer's.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::in_flight::InFlight;
use super::message::{ClientMessage, DEPTH_MAX, batch, key, refusal};
use super::proxy::StdioProxy;
use super::session::ServerSession;
use client::exchange_error::ExchangeError;
use client::response_reader::ResponseReader;
use net::http_client::{HttpReply, collect};
use protocol::envelope::{Envelope, MessageKind};
use protocol::method::Method;

/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// How often in a row a stream is resumed in vain.
const RESUMES_MAX: u32 = 6;

#[derive(Debug)]
pub(super) struct ClientRequest {
    pub(super) message: ClientMessage,
    /// The literal of its id.
    pub(super) id: String,
    /// One spelling of it.
    pub(super) key: String,
    pub(super) in_flight: Rc<InFlight>,
    /// How many notifications and responses the client wrote before it.
    pub(super) written_before: u64,
}

impl StdioProxy {
    /// Sends a request and writes its answer, or why there is none.
    pub(super) async fn answer(self: &Rc<Self>, call: &ClientRequest) {
        let answer = tokio::select! {
            answer = self.exchange(call) => Some(answer),
            () = call.in_flight.stop.cancelled() => None,
        };
        // The client may use the id again as soon as it has its answer.
        self.calls.remove(&call.key);
        match answer {
            None => {}
            Some(Ok(answer)) => self.output.write(answer).await,
            Some(Err(fault)) if call.in_flight.is_withdrawn.get() => self.stderr_log.say(fault.to_string()),
            Some(Err(fault)) => self.refuse(Some(&call.id), &fault).await,
        }
        let is_over = !call.in_flight.stop.is_cancelled();
        if call.in_flight.is_open_ended && is_over {
            let params = format!("{{\"requestId\":{}}}", call.id);
            let cancelled =
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
            self.output.write(Bytes::from(cancelled)).await;
        }
    }

    async fn exchange(self: &Rc<Self>, call: &ClientRequest) -> Result<Bytes, ExchangeError> {
        if let Some(version) = &call.in_flight.modern_version {
            let mut headers = call.message.modern_headers(version)?;
            if call.message.method == Method::ToolsCall {
                self.mirror_params(&call.message, &mut headers);
            }
            let answer = self.attempt(call, headers, None).await?;
            if call.message.method == Method::ToolsList
                && let Ok(document) = self.scratch.borrow_mut().index(&answer, DEPTH_MAX)
                && let Some(result) = document.root().get("result")
            {
                self.param_headers.borrow_mut().learn(result);
            }
            return Ok(answer);
        }
        if call.message.method == Method::Initialize {
            call.in_flight.is_sent.set(true);
            return self.initialize(call).await;
        }
        self.initializing.wait().await;
        self.introducing.wait().await;
        self.forwarded(call.written_before).await;
        call.in_flight.is_sent.set(true);
        let mut may_reopen = true;
        loop {
            let session = self.sessions.current();
            let headers = session.as_ref().map(|session| session.headers()).unwrap_or_default();
            match (self.attempt(call, headers, session.as_deref()).await, session) {
                // It was not executed.
                (Err(ExchangeError::SessionGone), Some(session)) if std::mem::take(&mut may_reopen) => {
                    self.reopen(&session).await?;
                }
                (answer, _) => return answer,
            }
        }
    }

    /// Adds the headers that mirror arguments of a `tools/call`.
    fn mirror_params(&self, message: &ClientMessage, headers: &mut HeaderMap) {
        let name = message.envelope.name.as_ref().and_then(|name| name.decode(&message.body));
        let mut scratch = self.scratch.borrow_mut();
        let (Some(name), Ok(document)) = (name, scratch.index(&message.body, DEPTH_MAX)) else { return };
        let arguments = document.root().get("params").and_then(|params| params.get("arguments"));
        self.param_headers.borrow().mirror(&name, arguments, headers);
    }

    async fn attempt(
        self: &Rc<Self>,
        call: &ClientRequest,
        headers: HeaderMap,
        session: Option<&ServerSession>,
    ) -> Result<Bytes, ExchangeError> {
        let is_safe_to_repeat = call.message.method.is_safe_to_repeat();
        let message = call.message.body.clone();
        let reply = self.endpoint.post(headers, message, is_safe_to_repeat, self.timeout).await?;
        self.read(call, reply, session).await
    }

    /// Reads a reply until the answer. What comes before it goes to the client.
    pub(super) async fn read(
        self: &Rc<Self>,
        call: &ClientRequest,
        mut reply: HttpReply,
        session: Option<&ServerSession>,
    ) -> Result<Bytes, ExchangeError> {
        let status = reply.head.status;
        if status == StatusCode::NOT_FOUND && session.is_some_and(|session| session.id.is_some()) {
            return Err(ExchangeError::SessionGone);
        }
        if !status.is_success() {
            let deadline = Instant::now() + self.timeout;
            let body = collect(&mut reply.body, REFUSAL_BYTES_MAX, deadline).await?;
            self.recycle(reply);
            let refusal = refusal(&mut self.scratch.borrow_mut(), &body, &call.id);
            return refusal.ok_or(ExchangeError::Status(status));
        }
        let mut messages = ResponseReader::of(reply);
        loop {
            let is_stream = messages.is_stream();
            let fault = match self.find_answer(call, &mut messages).await {
                Ok(Some(answer)) => {
                    self.recycle(messages.reply);
                    return Ok(answer);
                }
                Ok(None) if is_stream => ExchangeError::Reset,
                Ok(None) => return Err(ExchangeError::Nonsense),
                Err(fault) => fault,
            };
            let session = session.filter(|_| fault == ExchangeError::Reset);
            let position = messages.position;
            let (Some(session), Some(_)) = (session, &position.last_event_id) else { return Err(fault) };
            let open = async |position: &_| self.endpoint.open_stream(session.headers(), position).await;
            let reply = position.resume(RESUMES_MAX, open).await.ok_or(fault)?;
            messages = ResponseReader::behind(position, reply);
        }
    }

    /// `None`: the reply ended without the answer.
    async fn find_answer(
        &self,
        call: &ClientRequest,
        messages: &mut ResponseReader,
    ) -> Result<Option<Bytes>, ExchangeError> {
        let silence_max = (!call.in_flight.is_open_ended).then_some(self.timeout);
        let is_stream = messages.is_stream();
        while let Some(message) = messages.next(silence_max).await? {
            if let ControlFlow::Break(answer) = self.pass(message.clone(), Some(call)).await {
                return Ok(Some(answer));
            }
            if !is_stream {
                return Ok(refusal(&mut self.scratch.borrow_mut(), &message, &call.id));
            }
        }
        Ok(None)
    }

    /// Hands what the server says to the client, but for the answer to `call`, which breaks.
    pub(super) async fn pass(&self, message: Bytes, call: Option<&ClientRequest>) -> ControlFlow<Bytes> {
        let parts = batch(&mut self.scratch.borrow_mut(), &message);
        let parts = match parts {
            None => vec![message],
            Some(Ok(parts)) => parts,
            Some(Err(fault)) => {
                self.drop_message(&fault.to_string());
                return ControlFlow::Continue(());
            }
        };
        let mut answer = None;
        for part in parts {
            let envelope = Envelope::parse(&mut self.scratch.borrow_mut(), &part, DEPTH_MAX);
            match envelope.map(|envelope| (envelope.kind, envelope.id)) {
                Err(error) => self.drop_message(&error.to_string()),
                Ok((MessageKind::Response, id)) => {
                    let id = id.and_then(|id| key(part.get(id)?));
                    if id.is_some() && id.as_deref() == call.map(|call| &*call.key) {
                        answer.get_or_insert(part);
                    } else {
                        self.drop_message("it answers another request");
                    }
                }
                Ok((MessageKind::Request, _))
                    if call.is_some_and(|call| call.in_flight.modern_version.is_some()) =>
                {
                    self.drop_message("this revision has no requests of servers");
                }
                Ok(_) => self.output.write(part).await,
            }
        }
        answer.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    fn recycle(self: &Rc<Self>, reply: HttpReply) {
        let proxy = Rc::clone(self);
        self.tasks.spawn(async move { proxy.endpoint.put_back(reply).await });
    }
}
