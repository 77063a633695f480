//! The line of a call within a session, where it differs: the session is found before the upstream is, names are
//! read from the body, and an upstream that forgot its session is given a new one.
//!
//! Without a session only `initialize`, `ping` and the lists are answered. What a client learns of an upstream's
//! sessions is nothing: its own session id is a sealed token.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response, StatusCode};

use super::{Decision, Outbound, Proxy, accepted, answer, find_route};
use crate::call::Call;
use crate::catalog::{self, Ask, Dialect, List};
use crate::legacy::{self, Holder, InSession};
use crate::message::{Message, UNNAMED_VERSION};
use crate::protocol::agreement::name_in_body;
use crate::protocol::envelope::MessageKind;
use crate::protocol::error::{ClientError, Error, GatewayError, UpstreamError};
use crate::protocol::head::{Field, Head};
use crate::protocol::json::Value;
use crate::protocol::method::{Method, NameSource};
use crate::protocol::version::{Era, LegacyVersion};
use crate::relay::{Plan, ReplyBody, json_response, relay};
use crate::route::{Kind, Route, Style};
use crate::session::level::Level;
use crate::session::{Opening, Session, now_s};
use crate::snapshot::Endpoint;
use crate::upstream::ask::{PROTOCOL_VERSION, SESSION_ID};
use crate::upstream::exchange::RequestBody;
use crate::upstream::headers::forward;
use crate::worker::View;

/// A longer `initialize` is refused: what it says has no place in a session id.
const INITIALIZE_BYTES_MAX: usize = 256 * 1024;
/// A longer id cannot be one of a request that was taken.
const ID_BYTES_MAX: usize = 1024;

impl Proxy {
    /// The session that the request belongs to; `None` if it names none.
    pub(super) fn session(
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
        let principal = call.principal.identity();
        let session = self.worker.state.sessions.open(token, &endpoint.config.path, &principal, now_s());
        session.map(Some).map_err(|no_session| {
            self.worker.state.metrics.sessions_refused.with_label_values(&[no_session.label()]).inc();
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
    ) -> Result<Decision, Error> {
        call.seen.era = Era::Legacy;
        let session = self.session(endpoint, head, call)?.ok_or(ClientError::NoSession)?;
        let closed = self.worker.state.sessions.end(session.grant.id, session.grant.expires_s);
        self.worker.state.sessions.kept().await;
        legacy::close(&self.worker, view, closed);
        let mut response = Response::new(ReplyBody::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(Decision::Answer(response))
    }

    /// Which of the gateway's own answers, or which upstream, a legacy message gets.
    pub(super) async fn dispatch_legacy(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        (head, headers): (&Head<'_>, &HeaderMap),
        message: Message,
        session: Option<Session>,
        call: &Call,
    ) -> Result<Decision, Error> {
        match (message.envelope.kind, message.method) {
            (MessageKind::Request, Method::Initialize) => {
                return self.initialize(view, endpoint, &message, call).await;
            }
            (MessageKind::Request, Method::Ping) => return Ok(answer(&message, "{}")),
            (MessageKind::Request, method) => {
                if let Some(list) = List::of(method) {
                    let version = session.as_ref().map(|session| session.grant.version);
                    let version = version.unwrap_or_else(|| version_of(head));
                    let cursor = message.cursor();
                    if message.envelope.cursor.is_some() && cursor.is_none() {
                        return Err(ClientError::Cursor.into());
                    }
                    let dialect = Dialect::Legacy(version);
                    let ask = Ask { list, dialect, cursor: cursor.as_deref(), id: message.id() };
                    let json = catalog::list(&self.worker, view, endpoint, ask).await?;
                    return Ok(Decision::Answer(json_response(StatusCode::OK, json)));
                }
            }
            _ => {}
        }
        let session = session.ok_or(ClientError::NoSession)?;
        match message.envelope.kind {
            MessageKind::Request => self.request(view, endpoint, (head, headers), message, session).await,
            MessageKind::Notification => {
                if message.is_cancellation() {
                    self.cancel(view, &message, &session);
                }
                Ok(Decision::Answer(accepted()))
            }
            // Nothing was asked of the client.
            MessageKind::Response => Ok(Decision::Answer(accepted())),
        }
    }

    /// `initialize`: answered from what is remembered of the upstreams; none is asked.
    async fn initialize(
        &self,
        view: &View,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        call: &Call,
    ) -> Result<Decision, Error> {
        if self.worker.state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        if message.body.len() > INITIALIZE_BYTES_MAX {
            return Err(ClientError::TooLarge { bytes_max: INITIALIZE_BYTES_MAX }.into());
        }
        let params = self.initialize_params(message, view.snapshot.limits.json_depth_max)?;
        let (version, result) = catalog::initialize::result(&view.snapshot, endpoint, &params.version).await;
        let principal = call.principal.identity();
        let opening = Opening {
            endpoint: &endpoint.config.path,
            principal: &principal,
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
        let Decision::Answer(mut response) = answer(message, &result) else {
            return Err(GatewayError::Sessions.into());
        };
        let token = HeaderValue::from_str(&token).map_err(|_| GatewayError::Sessions)?;
        response.headers_mut().insert(SESSION_ID, token);
        Ok(Decision::Answer(response))
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

    /// A request within a session.
    async fn request(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        (head, headers): (&Head<'_>, &HeaderMap),
        message: Message,
        session: Session,
    ) -> Result<Decision, Error> {
        let is_transparent = endpoint.naming.style() == Style::Transparent;
        let method = message.method;
        let decision = match method {
            method if method.is_foreign_to(Era::Legacy) => return Err(ClientError::Method.into()),
            Method::SetLevel => return self.set_level(view, endpoint, &message, &session).await,
            Method::Complete if !endpoint.naming.is_untouched() => {
                self.settle_names(endpoint).await;
                self.complete(view, endpoint, message)?
            }
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::Subscribe
            | Method::Unsubscribe => {
                let literal = method.subject().and_then(|source| name_in_body(&message.envelope, source));
                let literal = literal.cloned().ok_or_else(|| missing_subject(method))?;
                let public = literal.decode(&message.body).ok_or_else(|| missing_subject(method))?;
                let public = public.into_owned();
                let route = match find_route(endpoint, kind_of(method), &public) {
                    Err(Error::Gateway(GatewayError::NamesUnknown)) => {
                        self.settle_names(endpoint).await;
                        find_route(endpoint, kind_of(method), &public)?
                    }
                    found => found?,
                };
                if method == Method::ToolsCall && head.method.is_present() {
                    self.check_params(view, endpoint, headers, &message, &route).await?;
                }
                self.address(view, endpoint, message, &route, Some(&literal))
            }
            _ if is_transparent && endpoint.naming.is_untouched() => {
                self.address(view, endpoint, message, &Route { member: 0, inner: "".into() }, None)
            }
            _ => return Err(ClientError::Method.into()),
        };
        Ok(match decision {
            Decision::Send(mut outbound) => {
                // Only who mirrors the name has it mirrored.
                outbound.inner_name = outbound.inner_name.filter(|_| head.name.is_present());
                outbound.session = Some(session);
                Decision::Send(outbound)
            }
            answered @ Decision::Answer(_) => answered,
        })
    }

    /// `logging/setLevel`: kept with the session, and told to every upstream it has a session with now; the others
    /// are told when they are first needed.
    async fn set_level(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        session: &Session,
    ) -> Result<Decision, Error> {
        let level = self.level_in(message, view.snapshot.limits.json_depth_max);
        let level = level.ok_or(ClientError::Params { why: "params.level is not a log level" })?;
        let sessions = &self.worker.state.sessions;
        let Session { grant } = session;
        sessions.set_level(grant.id, grant.expires_s, level).map_err(|none| match none {
            crate::session::NoState::TooMany => Error::from(GatewayError::Sessions),
            crate::session::NoState::Ended => ClientError::SessionGone.into(),
        })?;
        let told = endpoint
            .members
            .iter()
            .filter_map(|member| view.snapshot.upstreams.get(*member))
            .filter_map(|upstream| Some((upstream, sessions.opened(grant.id, &upstream.session_key)?)));
        let told = told.map(|(upstream, opened)| async move {
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

    /// `notifications/cancelled`: which upstream has the request is not known, and the others ignore it.
    fn cancel(&self, view: &View, message: &Message, session: &Session) {
        let Some(note) = self.cancellation(message, view.snapshot.limits.json_depth_max) else { return };
        for (key, opened) in self.worker.state.sessions.all_opened(session.grant.id) {
            let upstream = view.snapshot.upstreams.iter().find(|upstream| *upstream.session_key == *key);
            if let Some(upstream) = upstream {
                legacy::tell_later(&self.worker, Arc::clone(upstream), opened, note.clone());
            }
        }
    }

    /// The notification with nothing in it but the request it is about.
    fn cancellation(&self, message: &Message, depth_max: usize) -> Option<Bytes> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let root = scratch.index(&message.body, depth_max).ok()?.root();
        let id = root.get("params")?.get("requestId")?.raw();
        let id = std::str::from_utf8(id)
            .ok()
            .filter(|id| id.len() <= ID_BYTES_MAX && !id.starts_with(['{', '[']))?;
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        Some(note.into())
    }

    /// Sends a request within the session with its upstream, and once more if the upstream turns out to have
    /// forgotten it: then it did not look at the request.
    pub(super) async fn send_in_session(
        &self,
        view: &Rc<View>,
        outbound: Outbound,
        headers: HeaderMap,
        call: &mut Call,
    ) -> Result<Response<ReplyBody>, Error> {
        let result = self.exchange_in_session(view, &outbound, headers, call).await;
        // Only a call that failed, or still may, needs its name for the log.
        let is_answered =
            result.as_ref().is_ok_and(|response| matches!(response.body(), ReplyBody::Whole(..)));
        if !is_answered {
            call.name = outbound.message.public_name();
        }
        result
    }

    async fn exchange_in_session(
        &self,
        view: &Rc<View>,
        outbound: &Outbound,
        mut headers: HeaderMap,
        call: &mut Call,
    ) -> Result<Response<ReplyBody>, Error> {
        let Outbound { message, member, body, inner_name, mapper, session } = outbound;
        let (Some(endpoint), Some(session)) = (&call.endpoint, session) else {
            return Err(ClientError::NoSession.into());
        };
        let slot = endpoint.members[*member];
        let upstream = &view.snapshot.upstreams[slot];
        call.upstream = Some(Rc::clone(&view.upstream_names[slot]));
        upstream.check_era(Era::Legacy)?;
        forward(&mut headers, inner_name.clone());
        let holder = Holder::from(session);
        let mut may_reopen = true;
        loop {
            let upstream_session = legacy::upstream_session(&self.worker, view, upstream, holder).await?;
            let mut request = Request::new(RequestBody(body.clone()));
            *request.method_mut() = HttpMethod::POST;
            headers.clone_into(request.headers_mut());
            let version = HeaderValue::from_static(upstream_session.version.as_str());
            request.headers_mut().insert(PROTOCOL_VERSION, version);
            if let Some(id) = &upstream_session.id {
                request.headers_mut().insert(SESSION_ID, id.clone());
            }
            let now = Instant::now();
            let deadline = now + upstream.config.reply_timeout;
            let is_safe_to_repeat = message.method.is_safe_to_repeat();
            let reply = self.worker.client.send(upstream, request, is_safe_to_repeat, now, deadline).await?;
            let in_session = InSession {
                upstream: Arc::clone(upstream),
                upstream_session: Arc::clone(&upstream_session),
                client_version: session.grant.version,
            };
            let plan = Plan {
                upstream,
                id: message.id(),
                mapper: mapper.clone(),
                deadline,
                session: Some(in_session),
            };
            match relay(&self.worker, reply, plan).await {
                Err(Error::Upstream(UpstreamError::SessionLost)) => {
                    // One that was opened just now is not what is wrong.
                    if !std::mem::take(&mut may_reopen) {
                        return Err(UpstreamError::SessionLost.into());
                    }
                    upstream.series.sessions_lost.inc();
                    upstream.is_sessionless.store(false, Ordering::Relaxed);
                    legacy::lose(&self.worker, view, upstream, holder, &upstream_session);
                }
                result => return result,
            }
        }
    }
}

/// What a client introduces itself with.
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
        _ => Kind::Resource,
    }
}

fn missing_subject(method: Method) -> Error {
    let why = match method.subject() {
        Some(NameSource::Uri) => "params.uri is missing",
        _ => "params.name is missing",
    };
    ClientError::Params { why }.into()
}

/// What a request without a session speaks.
fn version_of(head: &Head<'_>) -> LegacyVersion {
    let text = head.version.as_str().unwrap_or(UNNAMED_VERSION);
    LegacyVersion::of(text).unwrap_or(LegacyVersion::NEWEST)
}
