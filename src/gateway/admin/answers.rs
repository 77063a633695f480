//! What every answer to operators has, and the answer to those who are not let in.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::door::Refused;
use crate::clock;
use crate::context::state::State;

pub(super) type HttpAnswer = Response<Full<Bytes>>;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// An answer to a wrong token waits, so that guessing takes long.
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(200);
/// The log speaks of wrong tokens at most this often.
const WRONG_TOKEN_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts those who are not let in at one listener.
pub(super) struct RefusedOperators {
    state: Arc<State>,
    /// The section of the listener.
    section: &'static str,
    /// How the log calls it.
    place: String,
    wrong_token_logged: Cell<Option<Instant>>,
}

impl RefusedOperators {
    pub(super) fn new(state: &Arc<State>, section: &'static str, place: String) -> Self {
        Self { state: Arc::clone(state), section, place, wrong_token_logged: Cell::default() }
    }

    pub(super) async fn answer(&self, refused: Refused) -> HttpAnswer {
        self.state.metrics.gateway.admin_refused.with_label_values(&[refused.label()]).inc();
        let mut answer = page(refused.status(), TEXT, refused.text(self.section));
        if refused == Refused::Token {
            let now = clock::now();
            let is_due = |last: Instant| now.duration_since(last) >= WRONG_TOKEN_LOG_INTERVAL;
            if self.wrong_token_logged.get().is_none_or(is_due) {
                self.wrong_token_logged.set(Some(now));
                let Self { section, place, .. } = self;
                tracing::warn!(place, "a request to the {section} listener without the right token");
            }
            tokio::time::sleep(WRONG_TOKEN_DELAY).await;
            let challenge = HeaderValue::from_static("Bearer realm=\"trunkline\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        // Its body is not read.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

/// Says that a browser is to keep it for itself.
pub(super) fn close_doors(answer: &mut HttpAnswer) {
    let headers = answer.headers_mut();
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(nothing);
}

pub(super) fn not_allowed(allowed: &'static str) -> HttpAnswer {
    let mut answer = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("use {allowed}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(super) fn closing(status: StatusCode, text: &'static str) -> HttpAnswer {
    let mut answer = page(status, TEXT, text);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

pub(super) fn page(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> HttpAnswer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

/// An answer as a line of JSON.
pub(super) fn json_line(answer: &impl Serialize) -> Bytes {
    // Nothing in it can fail to be written.
    let mut text = serde_json::to_vec(answer).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
