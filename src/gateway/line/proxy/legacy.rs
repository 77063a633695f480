//! The line of a call within a session, where it differs: the session is found before the upstream is, names are
//! read from the body, and an upstream that forgot its session is given a new one.
//!
//! Without a session only `initialize`, `ping` and the lists are answered. What a client learns of an upstream's
//! sessions is nothing: its own session id is a sealed token.

use http::{HeaderValue, StatusCode};

use super::address::Outbound;
use super::context::RequestContext;
use super::{Proxy, RequestDecision, answer};
use crate::catalog::lists;
use crate::clock::{self, now_s};
use crate::context::call::Call;
use crate::line::legacy::{self, no_state};
use crate::line::message::Message;
use crate::line::response::ClientResponse;
use crate::session::outbox::CallInFlight;
use crate::session::{Session, SessionRequest};
use crate::tables::lists::List;
use crate::telemetry::calls::Spoken;
use crate::upstream::ask::SESSION_ID;
use protocol::agreement::name_in_body;
use protocol::envelope::MessageKind;
use protocol::error::{ClientError, Error, GatewayError, PolicyError};
use protocol::head::HeaderField;
use protocol::json::Value;
use protocol::level::Level;
use protocol::method::{Method, NameSource};
use protocol::route::Kind;
use protocol::version::Era;

/// A longer `initialize` is refused: what it says has no place in a session id.
const INITIALIZE_BYTES_MAX: usize = 256 * 1024;

impl Proxy {
    /// Finds the session that the request belongs to, if it names one.
    pub(super) async fn find_session(&self, cx: &mut RequestContext<'_>) -> Result<(), Error> {
        let token = match cx.head.session {
            HeaderField::Absent => return Ok(()),
            _ if cx.session.is_some() => return Ok(()),
            HeaderField::One(token) => token,
            HeaderField::Malformed | HeaderField::Many => return Err(ClientError::SessionGone.into()),
        };
        let mut session = self.open_session(cx, token)?;
        cx.call.spoken.set(Spoken::Legacy(session.grant.version));
        let sessions = &self.worker.state.sessions;
        if sessions.is_news(session.grant.id) {
            let closed = Box::pin(sessions.learn(session.owner())).await;
            legacy::close(&self.worker, &self.worker.view(), closed);
            // Another replica may have ended it.
            session = self.open_session(cx, token)?;
        }
        cx.session = Some(session);
        Ok(())
    }

    fn open_session(&self, cx: &RequestContext<'_>, token: &str) -> Result<Session, Error> {
        let name = &cx.endpoint.config.name;
        let who = (cx.call.principal().id(), Some(cx.call.client_address()));
        let (sessions, remembered) = (&self.worker.state.sessions, &cx.call.peer().session);
        let session = sessions.open_on(remembered, token, name, who, now_s());
        session.map_err(|no_session| {
            self.worker.state.metrics.sessions.ids_refused.with_label_values(&[no_session.label()]).inc();
            ClientError::SessionGone.into()
        })
    }

    /// DELETE: the client is done with its session.
    pub(super) async fn end_session(&self, cx: &mut RequestContext<'_>) -> Result<ClientResponse, Error> {
        self.find_session(cx).await?;
        legacy::end(&self.worker, cx.view, cx.session()?).await;
        Ok(ClientResponse::empty(StatusCode::NO_CONTENT))
    }

    /// [`dispatch_legacy`](Self::dispatch_legacy), within the session that the request names.
    pub(super) async fn dispatch_in_session(
        &self,
        cx: &mut RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        self.find_session(cx).await?;
        self.dispatch_legacy(cx, message).await
    }

    /// Which of the gateway's own answers, or which upstream, a legacy message gets.
    pub(super) async fn dispatch_legacy(
        &self,
        cx: &mut RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        cx.call.watch.identify(|| message.envelope.id.as_ref().map(|_| message.id()));
        match (message.envelope.kind, message.method) {
            (MessageKind::Request, Method::Initialize) => self.initialize(cx, message).await,
            (MessageKind::Request, Method::Ping) => Ok(answer(message, "{}")),
            (MessageKind::Request, method) if List::of(method).is_some() => self.list(cx, message).await,
            (MessageKind::Request, _) => self.request(cx, message).await,
            (MessageKind::Notification | MessageKind::Response, _) => {
                self.take_unanswered(cx, message).map(RequestDecision::Answer)
            }
        }
    }

    /// `initialize`: answered from what is remembered of the upstreams; none is asked.
    async fn initialize(&self, cx: &RequestContext<'_>, message: &Message) -> Result<RequestDecision, Error> {
        if self.worker.state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        if message.body.len() > INITIALIZE_BYTES_MAX {
            return Err(ClientError::TooLarge { bytes_max: INITIALIZE_BYTES_MAX }.into());
        }
        if !self.worker.state.sessions.admit(cx.call.payer(), clock::now()) {
            return Err(PolicyError::InitializeRate.into());
        }
        let params = self.initialize_params(message, cx.depth_max())?;
        let (snapshot, class) = (&cx.view.snapshot, &cx.caller()?.class);
        let (version, result) =
            lists::initialize::result(snapshot, cx.endpoint, class, &params.version).await;
        cx.call.spoken.set(Spoken::Legacy(version));
        let opening = SessionRequest {
            endpoint: &cx.endpoint.config.name,
            principal: cx.call.principal().id(),
            version,
            client_name: &params.client_name,
            client_title: &params.client_title,
            client_version: &params.client_version,
            capabilities: &params.capabilities,
            address: Some(cx.call.client_address()),
        };
        let issued = self.worker.state.sessions.issue(&opening, now_s());
        let (_, token) = issued.map_err(|error| {
            tracing::error!(%error, "no session can be opened");
            GatewayError::Sessions
        })?;
        let RequestDecision::Answer(mut response) = answer(message, &result) else {
            return Err(GatewayError::Sessions.into());
        };
        let token = HeaderValue::from_str(&token).map_err(|_| GatewayError::Sessions)?;
        response.headers_mut().insert(SESSION_ID, token);
        Ok(RequestDecision::Answer(response))
    }

    fn initialize_params(&self, message: &Message, depth_max: usize) -> Result<InitializeParams, Error> {
        let wrong = |why| Error::from(ClientError::Params { why });
        let mut scratch = self.worker.scratch.borrow_mut();
        let document = scratch.index(&message.body, depth_max).map_err(|_| ClientError::NotJson)?;
        let params = document.root().get("params").ok_or_else(|| wrong("params is missing"))?;
        let text = |object: Value<'_>, key: &str| {
            let literal = object.get(key)?.as_literal()?;
            literal.decode(&message.body).map(String::from)
        };
        let version = text(params, "protocolVersion");
        let client = params.get("clientInfo");
        let of_client = |key| client.and_then(|client| text(client, key)).unwrap_or_default();
        let capabilities = params.get("capabilities").map(Value::raw);
        let capabilities = capabilities.filter(|raw| raw.starts_with(b"{"));
        Ok(InitializeParams {
            version: version.ok_or_else(|| wrong("params.protocolVersion is missing"))?,
            client_name: of_client("name"),
            client_title: of_client("title"),
            client_version: of_client("version"),
            capabilities: String::from_utf8_lossy(capabilities.unwrap_or(b"{}")).into_owned(),
        })
    }

    async fn request(&self, cx: &RequestContext<'_>, message: &Message) -> Result<RequestDecision, Error> {
        let session = cx.session()?;
        let announced = match message.method {
            // The gateway answers these itself.
            Method::SetLevel | Method::TasksList => None,
            // Its cancellation may come before it is sent.
            _ => Some(self.announce(message, session, cx.call)?),
        };
        let outbound = match message.method {
            method if method.is_foreign_to(Era::Legacy) => return Err(ClientError::Method.into()),
            Method::SetLevel => return self.set_level(cx, message).await,
            Method::TasksList => return self.list_tasks(cx, message).await,
            Method::Complete if !cx.is_untouched()? => self.complete(cx, message).await?,
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::Subscribe
            | Method::Unsubscribe
            | Method::TasksGet
            | Method::TasksResult
            | Method::TasksCancel => self.request_by_name(cx, message).await?,
            _ if cx.is_transparent() && cx.is_untouched()? => self.pass_through(cx, message).await?,
            _ => return Err(ClientError::Method.into()),
        };
        Ok(RequestDecision::Send(Outbound { announced, ..outbound }))
    }

    /// A request whose body names what it is about.
    async fn request_by_name(&self, cx: &RequestContext<'_>, message: &Message) -> Result<Outbound, Error> {
        let method = message.method;
        let literal = method.subject().and_then(|source| name_in_body(&message.envelope, source));
        let literal = literal.cloned().ok_or_else(|| missing_subject(method))?;
        let public = literal.decode(&message.body).ok_or_else(|| missing_subject(method))?.into_owned();
        let route = self.resolve(cx, kind_of(method), &public).await?;
        if method == Method::ToolsCall {
            let upstream = &cx.view.snapshot.upstreams[cx.endpoint.members[route.member]];
            if cx.head.has_param || upstream.annotated.are_any() {
                Box::pin(self.check_params_of_session(cx, message, &route)).await?;
            }
        }
        let route = self.admit_call(cx, message, route).await?;
        Ok(self.address(cx, message, &route, Some(&literal)))
    }

    fn announce(&self, message: &Message, session: &Session, call: &Call) -> Result<CallInFlight, Error> {
        let outbox = self.worker.state.sessions.outbox(session.owner()).map_err(no_state)?;
        outbox.set_client(|| call.payer());
        Ok(outbox.announce(message.id()))
    }

    /// `logging/setLevel`: kept with the session, and told to every upstream it has a session with now; the others
    /// are told when they are first needed.
    async fn set_level(&self, cx: &RequestContext<'_>, message: &Message) -> Result<RequestDecision, Error> {
        let level = self.level_in(message, cx.depth_max());
        let level = level.ok_or(ClientError::Params { why: "params.level is not a log level" })?;
        let (sessions, session) = (&self.worker.state.sessions, cx.session()?);
        let grant = &session.grant;
        sessions.set_level(session.owner(), level).map_err(no_state)?;
        let upstreams = (0..cx.endpoint.members.len()).filter_map(|member| cx.upstream(member));
        let told = upstreams
            .filter_map(|upstream| Some((upstream, sessions.opened(grant.id, &upstream.session_key)?)));
        let outbox = &sessions.outbox_if_any(grant.id);
        let told = told.map(|(upstream, opened)| async move {
            if let Some(outbox) = outbox {
                legacy::messages::wait_for_earlier(outbox, upstream).await;
            }
            legacy::set_level(&self.worker, cx.view, upstream, &opened, level).await;
        });
        futures_util::future::join_all(told).await;
        Ok(answer(message, "{}"))
    }

    fn level_in(&self, message: &Message, depth_max: usize) -> Option<Level> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(&message.body, depth_max).ok()?.root();
        Level::of(&root.get("params")?.get("level")?.as_literal()?.decode(&message.body)?)
    }
}

struct InitializeParams {
    version: String,
    client_name: String,
    client_title: String,
    client_version: String,
    capabilities: String,
}

fn kind_of(method: Method) -> Kind {
    match method {
        Method::PromptsGet => Kind::Prompt,
        Method::ToolsCall => Kind::Tool,
        Method::TasksGet | Method::TasksResult | Method::TasksCancel => Kind::Task,
        _ => Kind::Resource,
    }
}

fn missing_subject(method: Method) -> Error {
    let why = match method.subject() {
        Some(NameSource::Uri) => "params.uri is missing",
        Some(NameSource::TaskId) => "params.taskId is missing",
        _ => "params.name is missing",
    };
    ClientError::Params { why }.into()
}
