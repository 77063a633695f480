//! What the admin listener answers, and to whom.
//!
//! Every answer passes the same checks in the same order: no pages of other sites, then the token or the name, then what
//! a form could not have sent. `/livez` and `/readyz` need neither token nor name: load balancers have none. The page needs
//! no token: it is where a person gives it; and a person may come to it from anywhere.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_SECURITY_POLICY;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::answers::{self, HttpAnswer, RefusedOperators, TEXT, closing, not_allowed, page};
use super::connections::Answering;
use super::door::{self, Refused};
use super::latest::Latest;
use super::metrics::MetricsText;
use super::page::Page;
use super::sampler::StatusSampler;
use super::{StartRecord, grants, servers, status, tools};
use crate::context::audit;
use crate::context::reloads::ReloadOutcome;
use crate::context::state::State;
use crate::telemetry::logs;
use ::status::ToolsQuery;
use config::LogLevel;
use net::tasks::Tasks;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const PATHS: &str = "there is /, /metrics, /status, /status/history, /status/tools, /grants, /livez and /readyz, \
                     and POST to /reload, /log-level, /drain, /grants/revoke and /grants/backup\n";

const GRANTS_REFUSED: &str = "for this, [admin] needs a `token` or a Unix socket, so that not everybody on this machine can see or \
                              end people's sign-ins\n";
const BODY_BYTES_MAX: usize = 4096;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers requests.
pub(super) struct Routes {
    state: Arc<State>,
    tasks: Tasks,
    process: Arc<StartRecord>,
    refusals: RefusedOperators,
    is_named_freely: bool,
    metrics: Rc<MetricsText>,
    status: Latest<Bytes>,
    history: Latest<Bytes>,
    sampler: Arc<StatusSampler>,
    /// One list of tools is made at a time.
    tools: Arc<Mutex<()>>,
    page: Page,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedLevel {
    level: String,
}

impl Routes {
    /// `is_named_freely`: any name may lead to it.
    pub(super) fn new(
        state: Arc<State>,
        tasks: Tasks,
        process: StartRecord,
        refusals: RefusedOperators,
        is_named_freely: bool,
        sampler: Arc<StatusSampler>,
        metrics: Rc<MetricsText>,
    ) -> Self {
        Self {
            state,
            tasks,
            process: Arc::new(process),
            refusals,
            is_named_freely,
            metrics,
            status: Latest::default(),
            history: Latest::default(),
            sampler,
            tools: Arc::default(),
            page: Page::new(),
        }
    }
}

impl Answering for Routes {
    /// Answers one request.
    async fn answer(&self, request: Request<Incoming>) -> HttpAnswer {
        let mut answer = match self.admit(&request) {
            Ok(is_operator) => self.route(request, is_operator).await,
            Err(refused) => self.refusals.answer(refused).await,
        };
        answers::close_doors(&mut answer);
        answer
    }
}

impl Routes {
    /// True for operators; false for those who get no more than a yes or a no.
    fn admit<B>(&self, request: &Request<B>) -> Result<bool, Refused> {
        let headers = request.headers();
        let is_page = is_reading(request.method()) && request.uri().path() == "/";
        if !(is_page && door::is_visit(headers)) {
            door::check_page(headers)?;
        }
        let operators = &self.state.snapshot.load().operators;
        match door::check_operator(headers, operators, self.is_named_freely) {
            Err(_) if is_probe(request.uri().path()) => return Ok(false),
            // It holds nothing, and is where a person can give the token.
            Err(Refused::Token) if is_page => return Ok(false),
            other => other?,
        }
        if !is_reading(request.method()) {
            door::check_form(headers)?;
        }
        Ok(true)
    }

    async fn route(&self, request: Request<Incoming>, is_operator: bool) -> HttpAnswer {
        let (parts, body) = request.into_parts();
        let is_change = parts.method == Method::POST;
        match parts.uri.path() {
            path @ ("/" | "/livez" | "/readyz" | "/metrics" | "/status" | "/status/history"
            | "/status/tools" | "/grants") => {
                if !is_reading(&parts.method) {
                    return not_allowed("GET, HEAD");
                }
                match path {
                    "/" => self.page(),
                    "/livez" => page(StatusCode::OK, TEXT, "ok\n"),
                    "/readyz" => self.readiness(is_operator),
                    "/metrics" => self.metrics.answer().await,
                    "/status/history" => self.history().await,
                    "/grants" if self.is_for_everybody() => page(StatusCode::FORBIDDEN, TEXT, GRANTS_REFUSED),
                    "/grants" => grants::list(&self.state, parts.uri.query().unwrap_or_default()).await,
                    "/status/tools" => self.tools(parts.uri.query().unwrap_or_default()).await,
                    _ => self.status().await,
                }
            }
            "/reload" | "/log-level" | "/drain" | "/grants/revoke" | "/grants/backup" if !is_change => {
                not_allowed("POST")
            }
            path @ ("/reload" | "/log-level" | "/drain" | "/grants/revoke" | "/grants/backup") => {
                match read(body).await {
                    Err(answer) => answer,
                    Ok(_) if path == "/reload" => self.reload().await,
                    Ok(_) if path == "/drain" => self.drain(),
                    Ok(_) if path.starts_with("/grants/") && self.is_for_everybody() => {
                        page(StatusCode::FORBIDDEN, TEXT, GRANTS_REFUSED)
                    }
                    Ok(body) if path == "/grants/revoke" => grants::revoke(&self.state, &body).await,
                    Ok(body) if path == "/grants/backup" => grants::back_up(&self.state, &body).await,
                    Ok(body) => set_level(&body),
                }
            }
            _ => page(StatusCode::NOT_FOUND, TEXT, PATHS),
        }
    }

    /// 503 while it drains, and where the operator wants to wait for lists: where a server is down, another gateway would
    /// not reach it either.
    fn readiness(&self, is_operator: bool) -> HttpAnswer {
        if self.state.drain.is_quiet() {
            return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n");
        }
        let unlisted = servers::unlisted(&self.state);
        if !unlisted.is_empty() {
            let names = if is_operator { format!(": {}", unlisted.join(", ")) } else { String::new() };
            return page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not listed yet{names}\n"));
        }
        let mut text = String::from("ok\n");
        if is_operator {
            text.extend(servers::unhealthy(&self.state).into_iter().map(|line| line + "\n"));
        }
        page(StatusCode::OK, TEXT, text)
    }

    fn page(&self) -> HttpAnswer {
        let mut answer = page(StatusCode::OK, HTML, self.page.text.clone());
        answer.headers_mut().insert(CONTENT_SECURITY_POLICY, self.page.policy.clone());
        answer
    }

    async fn status(&self) -> HttpAnswer {
        let (state, process) = (Arc::clone(&self.state), Arc::clone(&self.process));
        let sampler = Arc::clone(&self.sampler);
        let make = move || status::text(&state, &process, &sampler);
        page(StatusCode::OK, JSON, self.status.get(&self.tasks, make).await)
    }

    async fn history(&self) -> HttpAnswer {
        let sampler = Arc::clone(&self.sampler);
        page(StatusCode::OK, JSON, self.history.get(&self.tasks, move || sampler.history_text()).await)
    }

    async fn tools(&self, query: &str) -> HttpAnswer {
        let refused = |why: String| page(StatusCode::BAD_REQUEST, TEXT, why + "\n");
        let query = match ToolsQuery::read(query) {
            Ok(query) => query,
            Err(why) => return refused(why),
        };
        let (state, sampler) = (Arc::clone(&self.state), Arc::clone(&self.sampler));
        let place = Arc::clone(&self.tools).lock_owned().await;
        let make = move || {
            // Held to the end, even if whoever asked has left.
            let _place = place;
            tools::text(&state, &sampler, &query)
        };
        match self.tasks.compute(make).await {
            Ok(text) => page(StatusCode::OK, JSON, text),
            Err(why) => refused(why),
        }
    }

    async fn reload(&self) -> HttpAnswer {
        // What comes of it is told where it is done.
        audit::act("reload by the admin listener", "asked for");
        let outcome = self.state.reloads.request().await;
        let status = match &outcome {
            ReloadOutcome::Reloaded { .. } => StatusCode::OK,
            ReloadOutcome::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ReloadOutcome::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        };
        page(status, TEXT, outcome.to_string())
    }

    /// Where there is no token, everybody on the machine could stop the gateway.
    /// True where everybody on this machine is an operator.
    fn is_for_everybody(&self) -> bool {
        self.state.snapshot.load().operators.is_open() && !self.is_named_freely
    }

    fn drain(&self) -> HttpAnswer {
        if self.is_for_everybody() {
            let text = format!(
                "for this, [admin] needs a `token` or a Unix socket, so that not everybody on this machine can stop the \
                 gateway; without them, SIGTERM does the same: `kill {}`, or `systemctl stop` and its unit\n",
                std::process::id()
            );
            return page(StatusCode::FORBIDDEN, TEXT, text);
        }
        audit::act("drain by the admin listener", "asked for");
        self.state.stop_wanted.notify_one();
        page(StatusCode::ACCEPTED, TEXT, "draining\n")
    }
}

fn set_level(body: &[u8]) -> HttpAnswer {
    let level = serde_json::from_slice(body).ok().and_then(|WantedLevel { level }| LogLevel::of(&level));
    let Some(level) = level else {
        return page(StatusCode::BAD_REQUEST, TEXT, "send {\"level\":\"debug\"}\n");
    };
    logs::set_level(level);
    audit::act("log level", level.label());
    let until = "until a reload brings another level";
    page(StatusCode::OK, TEXT, format!("{} {until}\n", level.label()))
}

/// The whole of a small body, read in time.
async fn read(body: Incoming) -> Result<Bytes, HttpAnswer> {
    match timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(_)) => Err(closing(StatusCode::PAYLOAD_TOO_LARGE, "at most 4096 bytes\n")),
        Err(_) => Err(closing(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n")),
    }
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
