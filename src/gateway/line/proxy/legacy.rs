//! The line of a call within a session, where it differs: the session is found before the upstream is, names are
//! read from the body, and an upstream that forgot its session is given a new one.
//!
//! Without a session only `initialize`, `ping` and the lists are answered. What a client learns of an upstream's
//! sessions is nothing: its own session id is a sealed token.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::{Proxy, RequestDecision, accepted, answer};
use crate::catalog::lists::upstream_dialect::NO_CAPABILITIES;
use crate::catalog::lists::{self, ListRequest};
use crate::clock::now_s;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::legacy;
use crate::line::message::{Message, UNNAMED_VERSION};
use crate::line::relay::{ReplyBody, json_response};
use crate::session::outbox::CallInFlight;
use crate::session::{NoState, Session, SessionRequest};
use crate::snapshot::Endpoint;
use crate::tables::lists::Dialect;
use crate::tables::lists::List;
use crate::telemetry::calls::Spoken;
use crate::upstream::ask::SESSION_ID;
use protocol::agreement::name_in_body;
use protocol::envelope::MessageKind;
use protocol::error::{ClientError, Error, GatewayError, PolicyError};
use protocol::head::{Field, Head};
use protocol::json::Value;
use protocol::level::Level;
use protocol::method::{Method, NameSource};
use protocol::route::{Kind, Route, Style};
use protocol::version::{Era, LegacyVersion};

/// A longer `initialize` is refused: what it says has no place in a session id.
const INITIALIZE_BYTES_MAX: usize = 256 * 1024;

impl Proxy {
    /// The session that the request belongs to; `None` if it names none.
    pub(super) async fn session(
        &self,
        endpoint: &Endpoint,
        head: &Head<'_>,
        call: &Call,
    ) -> Result<Option<Session>, Error> {
        let token = match head.session {
            Field::Absent => return Ok(None),
            Field::One(token) => token,
            Field::Malformed | Field::Many => return Err(ClientError::SessionGone.into()),
        };
        let principal = call.principal().id();
        let session = self.open_session(endpoint, token, principal)?;
        call.spoken.set(Spoken::Legacy(session.grant.version));
        let sessions = &self.worker.state.sessions;
        if !sessions.is_news(session.grant.id) {
            return Ok(Some(session));
        }
        let closed = Box::pin(sessions.learn(session.grant.id, session.grant.expires_s)).await;
        legacy::close(&self.worker, &self.worker.view(), closed);
        // Another replica may have ended it.
        self.open_session(endpoint, token, principal).map(Some)
    }

    fn open_session(&self, endpoint: &Endpoint, token: &str, principal: &str) -> Result<Session, Error> {
        let session = self.worker.state.sessions.open(token, &endpoint.config.path, principal, now_s());
        session.map_err(|no_session| {
            self.worker.state.metrics.sessions.ids_refused.with_label_values(&[no_session.label()]).inc();
            ClientError::SessionGone.into()
        })
    }

    /// DELETE: the client is done with its session.
    pub(super) async fn end_session(
        &self,
        view: &View,
        endpoint: &Endpoint,
        head: &Head<'_>,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        call.seen.era = Era::Legacy;
        let session = self.session(endpoint, head, call).await?.ok_or(ClientError::NoSession)?;
        let closed = self.worker.state.sessions.end(session.grant.id, session.grant.expires_s);
        self.worker.state.sessions.kept().await;
        legacy::close(&self.worker, view, closed);
        let mut response = Response::new(ReplyBody::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(RequestDecision::Answer(response))
    }

    /// Which of the gateway's own answers, or which upstream, a legacy message gets.
    pub(super) async fn dispatch_legacy(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        (head, headers): (&Head<'_>, &HeaderMap),
        message: Message,
        session: Option<Session>,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        call.watch.identify(message.envelope.id.as_ref().map(|_| message.id()));
        match (message.envelope.kind, message.method) {
            (MessageKind::Request, Method::Initialize) => {
                return self.initialize(view, endpoint, &message, call).await;
            }
            (MessageKind::Request, Method::Ping) => return Ok(answer(&message, "{}")),
            (MessageKind::Request, method) => {
                if let Some(list) = List::of(method) {
                    let version = session.as_ref().map(|session| session.grant.version);
                    let version = version.unwrap_or_else(|| version_of(head));
                    call.spoken.set(Spoken::Legacy(version));
                    let cursor = message.cursor();
                    if message.envelope.cursor.is_some() && cursor.is_none() {
                        return Err(ClientError::Cursor.into());
                    }
                    let declared = session.as_ref().map(|session| &*session.grant.capabilities);
                    let capabilities = declared.unwrap_or(NO_CAPABILITIES).as_bytes();
                    let dialect = Dialect::Legacy { version, capabilities };
                    let class = &call.caller()?.class;
                    let id = message.id();
                    let ask = ListRequest {
                        list,
                        dialect,
                        cursor: cursor.as_deref(),
                        id,
                        class,
                        asker: Some(call),
                    };
                    let json = lists::list(&self.worker, view, endpoint, ask).await?;
                    return Ok(RequestDecision::Answer(json_response(StatusCode::OK, json)));
                }
            }
            _ => {}
        }
        let session = session.ok_or(ClientError::NoSession)?;
        match message.envelope.kind {
            MessageKind::Request => {
                self.request(view, endpoint, (head, headers), message, session, call).await
            }
            MessageKind::Notification => {
                self.take_notification(view, endpoint, &message, &session)?;
                Ok(RequestDecision::Answer(accepted()))
            }
            MessageKind::Response => {
                self.take_answer(view, endpoint, &message, &session)?;
                Ok(RequestDecision::Answer(accepted()))
            }
        }
    }

    /// `initialize`: answered from what is remembered of the upstreams; none is asked.
    async fn initialize(
        &self,
        view: &View,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        call: &Call,
    ) -> Result<RequestDecision, Error> {
        if self.worker.state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        if message.body.len() > INITIALIZE_BYTES_MAX {
            return Err(ClientError::TooLarge { bytes_max: INITIALIZE_BYTES_MAX }.into());
        }
        if !self.worker.state.sessions.admit(&call.client(), Instant::now()) {
            return Err(PolicyError::InitializeRate.into());
        }
        let params = self.initialize_params(message, view.snapshot.limits.json_depth_max)?;
        let (version, result) =
            lists::initialize::result(&view.snapshot, endpoint, &call.caller()?.class, &params.version).await;
        call.spoken.set(Spoken::Legacy(version));
        let principal = call.principal().id();
        let opening = SessionRequest {
            endpoint: &endpoint.config.path,
            principal,
            version,
            client_name: &params.client_name,
            client_title: &params.client_title,
            client_version: &params.client_version,
            capabilities: &params.capabilities,
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

    async fn request(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        (head, headers): (&Head<'_>, &HeaderMap),
        message: Message,
        session: Session,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        let is_transparent = endpoint.naming.style() == Style::Transparent;
        let method = message.method;
        let announced = match method {
            // The gateway answers these itself.
            Method::SetLevel | Method::TasksList => None,
            // Its cancellation may come before it is sent.
            _ => Some(self.announce(&message, &session, call)?),
        };
        let decision = match method {
            method if method.is_foreign_to(Era::Legacy) => return Err(ClientError::Method.into()),
            Method::SetLevel => return self.set_level(view, endpoint, &message, &session).await,
            Method::Complete if !endpoint.is_untouched_for(&call.caller()?.class) => {
                self.settle_names(endpoint).await;
                self.complete(view, endpoint, headers, message, (Some(session), call)).await?
            }
            Method::TasksList => {
                return self.list_tasks(view, endpoint, (&message, headers), (call, &session)).await;
            }
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::Subscribe
            | Method::Unsubscribe
            | Method::TasksGet
            | Method::TasksResult
            | Method::TasksCancel => {
                let literal = method.subject().and_then(|source| name_in_body(&message.envelope, source));
                let literal = literal.cloned().ok_or_else(|| missing_subject(method))?;
                let public = literal.decode(&message.body).ok_or_else(|| missing_subject(method))?;
                let public = public.into_owned();
                if kind_of(method) == Kind::Task {
                    let tasks = std::iter::once(&*public);
                    Box::pin(self.learn_tasks(endpoint, call.caller()?, tasks)).await;
                }
                let route = match self.find_route(endpoint, call.caller()?, kind_of(method), &public) {
                    Err(Error::Gateway(GatewayError::NamesUnknown)) => {
                        self.settle_names(endpoint).await;
                        self.find_route(endpoint, call.caller()?, kind_of(method), &public)?
                    }
                    found => found?,
                };
                if method == Method::ToolsCall && head.method.is_present() {
                    self.check_params(view, endpoint, headers, &message, &route).await?;
                }
                self.admit_call(view, endpoint, call, (method, headers), &route).await?;
                self.address(
                    view,
                    endpoint,
                    message,
                    (&route, Some(&literal)),
                    (Some(session), call.principal().id()),
                )
            }
            _ if is_transparent && endpoint.is_untouched_for(&call.caller()?.class) => {
                super::tasks::check_method(endpoint, &message)?;
                let only = Route { member: 0, inner: "".into() };
                self.admit_call(view, endpoint, call, (method, headers), &only).await?;
                self.address(view, endpoint, message, (&only, None), (Some(session), call.principal().id()))
            }
            _ => return Err(ClientError::Method.into()),
        };
        Ok(match decision {
            RequestDecision::Send(mut outbound) => {
                // Only who mirrors the name has it mirrored.
                outbound.inner_name = outbound.inner_name.filter(|_| head.name.is_present());
                outbound.announced = announced;
                RequestDecision::Send(outbound)
            }
            answered => answered,
        })
    }

    fn announce(&self, message: &Message, session: &Session, call: &Call) -> Result<CallInFlight, Error> {
        let grant = &session.grant;
        let desk = self.worker.state.sessions.desk(grant.owner()).map_err(no_state)?;
        desk.set_client(|| (&*call.client()).into());
        Ok(desk.announce(message.id()))
    }

    /// `logging/setLevel`: kept with the session, and told to every upstream it has a session with now; the others
    /// are told when they are first needed.
    async fn set_level(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        session: &Session,
    ) -> Result<RequestDecision, Error> {
        let level = self.level_in(message, view.snapshot.limits.json_depth_max);
        let level = level.ok_or(ClientError::Params { why: "params.level is not a log level" })?;
        let sessions = &self.worker.state.sessions;
        let grant = &session.grant;
        sessions.set_level(grant.owner(), level).map_err(no_state)?;
        let told = endpoint
            .members
            .iter()
            .filter_map(|member| view.snapshot.upstreams.get(*member))
            .filter_map(|upstream| Some((upstream, sessions.opened(grant.id, &upstream.session_key)?)));
        let desk = &sessions.desk_if_any(grant.id);
        let told = told.map(|(upstream, opened)| async move {
            if let Some(desk) = desk {
                legacy::messages::wait_for_earlier(desk, upstream).await;
            }
            legacy::set_level(&self.worker, view, upstream, &opened, level).await;
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

pub(super) fn no_state(none: NoState) -> Error {
    match none {
        NoState::TooMany => GatewayError::Sessions.into(),
        NoState::TooManyOfPrincipal => PolicyError::Sessions.into(),
        NoState::Ended => ClientError::SessionGone.into(),
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

/// What a request without a session speaks.
fn version_of(head: &Head<'_>) -> LegacyVersion {
    let text = head.version.as_str().unwrap_or(UNNAMED_VERSION);
    LegacyVersion::of(text).unwrap_or(LegacyVersion::NEWEST)
}
