//! Tokens by OAuth 2.0 client credentials (RFC 6749 §4.4, with the resource of RFC 8707).
//!
//! One token serves all calls of all threads until it expires; shortly before, it is fetched anew while calls go on
//! with the old one. Of many who need one, one fetches and the others wait. Who cannot be given a token is told so at
//! once while the next try is not due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use serde::Deserialize;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{sleep, timeout_at};
use zeroize::Zeroizing;

use super::{AccessError, basic, bearer};
use crate::clock;
use crate::upstream::throttle::Throttle;
use config::{ClientAuth, OAuth};
use net::fetch::Fetcher;
use net::http_client::HttpError;
use net::jitter;
use net::outbound::WayOut;
use net::secret::Secret;
use net::tls::Connector;
use protocol::error::UpstreamError;

/// Tokens are a few kilobytes at most.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long the token endpoint may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between tries, for faults that pass.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// How long nobody tries again after all tries failed; doubled from one time to the next.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// A token is fetched anew so long before it expires, or at four fifths of a short life.
const REFRESH_BEFORE: Duration = Duration::from_mins(1);
/// Clocks differ, and requests take time.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5);
/// A server that takes no token at all does not make us fetch one for each call.
const REJECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The token of one upstream, and how it is fetched.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    upstream: String,
    oauth: OAuth,
    url: Uri,
    authorization: Option<HeaderValue>,
    form: Secret,
    tls: Option<Arc<Connector>>,
    current: ArcSwapOption<AccessToken>,
    /// Held by the one who fetches.
    failures: Arc<Mutex<Failures>>,
    rejections: Throttle,
}

/// What `Authorization` says, and for how long.
#[derive(Debug)]
pub(crate) struct AccessToken {
    /// `Bearer` and the token.
    pub header: HeaderValue,
    /// When to fetch the next, and when this one is over; `None`: nobody said.
    life: Option<(Instant, Instant)>,
}

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    until: Option<Instant>,
    /// By which way they were; another may lead there.
    way: Arc<WayOut>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error(transparent)]
    Fetch(#[from] HttpError),
    #[error("HTTP status {0}")]
    Status(StatusCode),
    #[error("HTTP status {0}: {1}")]
    Refused(StatusCode, String),
    #[error("the answer holds no bearer token")]
    NoToken,
}

impl TokenError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Fetch(HttpError::Proxy { fault, .. }) => fault.may_pass(),
            Self::Fetch(error) => !matches!(error, HttpError::Url | HttpError::Tls(_)),
            Self::Status(status) | Self::Refused(status, _) => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::NoToken => false,
        }
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
struct OAuthErrorBody {
    error: String,
}

impl AccessTokens {
    pub(super) fn new(
        upstream: &str,
        oauth: &OAuth,
        secret: &Secret,
        tls: Option<Arc<Connector>>,
    ) -> Result<Self, AccessError> {
        let mut form = Zeroizing::new("grant_type=client_credentials".to_owned());
        let scope = oauth.scopes.join(" ");
        let mut add = |name: &str, value: &[u8]| {
            for part in ["&", name, "=", &form_encoded(value)] {
                form.push_str(part);
            }
        };
        if !scope.is_empty() {
            add("scope", scope.as_bytes());
        }
        if let Some(resource) = &oauth.resource {
            add("resource", resource.as_bytes());
        }
        let authorization = match oauth.client_auth {
            ClientAuth::Post => {
                add("client_id", oauth.client_id.as_bytes());
                add("client_secret", secret.expose());
                None
            }
            // RFC 6749 §2.3.1: both are encoded before they are joined.
            ClientAuth::Basic => Some(basic(
                form_encoded(oauth.client_id.as_bytes()).as_bytes(),
                form_encoded(secret.expose()).as_bytes(),
            )?),
        };
        Ok(Self {
            upstream: upstream.to_owned(),
            oauth: oauth.clone(),
            url: oauth.token_url.parse().map_err(|_| AccessError::TokenUrl)?,
            authorization,
            form: Secret::from_bytes(form.as_bytes().to_vec()),
            tls,
            current: ArcSwapOption::empty(),
            failures: Arc::default(),
            rejections: Throttle::new(REJECTION_INTERVAL),
        })
    }

    /// Whether `other` would fetch the same, given the same secret.
    pub(super) fn are_fetched_like(&self, other: &Self) -> bool {
        self.upstream == other.upstream && self.oauth == other.oauth
    }

    /// A token that has not expired, fetched if need be until `deadline`.
    pub(super) async fn get(
        self: &Arc<Self>,
        fetcher: &Fetcher,
        deadline: Instant,
    ) -> Result<Arc<AccessToken>, UpstreamError> {
        let now = clock::now();
        if let Some(token) = self.valid(now) {
            if token.life.is_some_and(|(refresh, _)| refresh <= now)
                && let Ok(failures) = Arc::clone(&self.failures).try_lock_owned()
            {
                let (tokens, fetching) = (Arc::clone(self), fetcher.clone());
                fetcher.tasks.spawn(async move {
                    // Whoever needs it finds it, or finds that there is none.
                    let _ = tokens.fetch(failures, &fetching).await;
                });
            }
            return Ok(token);
        }
        // Fetched on a task of its own, it is there for the next even if nobody waits any more.
        let (tokens, fetching) = (Arc::clone(self), fetcher.clone());
        let (sender, outcome) = tokio::sync::oneshot::channel();
        fetcher.tasks.spawn(async move {
            let failures = Arc::clone(&tokens.failures).lock_owned().await;
            let token = match tokens.valid(clock::now()) {
                Some(token) => Some(token),
                None => tokens.fetch(failures, &fetching).await,
            };
            // Nobody may wait any more.
            let _ = sender.send(token);
        });
        let outcome = timeout_at(deadline.into(), outcome).await;
        outcome.ok().and_then(Result::ok).flatten().ok_or(UpstreamError::NoToken)
    }

    /// The upstream does not take `token`. Whether it is worth to try another.
    pub(super) fn reject(&self, token: &Arc<AccessToken>) -> bool {
        let is_current = |current: &Option<Arc<AccessToken>>| {
            current.as_ref().is_some_and(|current| Arc::ptr_eq(current, token))
        };
        let current = self.current.load_full();
        if !is_current(&current) {
            return true;
        }
        let is_due = self.rejections.admits(clock::now());
        if is_due {
            self.current.compare_and_swap(&current, None);
        }
        is_due
    }

    /// The token that was fetched last, if it was not given up.
    pub(super) fn shown(&self) -> Option<Arc<AccessToken>> {
        self.current.load_full()
    }

    fn valid(&self, now: Instant) -> Option<Arc<AccessToken>> {
        self.current.load_full().filter(|token| token.life.is_none_or(|(_, expiry)| now < expiry))
    }

    /// Tries a few times, unless that was in vain a moment ago.
    async fn fetch(
        &self,
        mut failures: OwnedMutexGuard<Failures>,
        fetcher: &Fetcher,
    ) -> Option<Arc<AccessToken>> {
        let way = fetcher.outbound.current();
        let is_same_way = Arc::ptr_eq(&way, &failures.way);
        if is_same_way && failures.until.is_some_and(|until| clock::now() < until) {
            return None;
        }
        let mut pauses = PAUSES.into_iter();
        let failure = loop {
            match self.fetch_once(fetcher).await {
                Ok(token) => {
                    let token = Arc::new(token);
                    self.current.store(Some(Arc::clone(&token)));
                    *failures = Failures::default();
                    tracing::debug!(upstream = self.upstream, "fetched a token");
                    return Some(token);
                }
                Err(failure) => match pauses.next().filter(|_| failure.may_pass()) {
                    Some(pause) => sleep(pause).await,
                    None => break failure,
                },
            }
        };
        let wait = BACKOFF_MAX.min(BACKOFF_MIN * 2_u32.saturating_pow(failures.in_a_row.min(16)));
        let wait = jitter::jittered(wait, 0.8..1.2);
        failures.in_a_row += 1;
        failures.until = Some(clock::now() + wait);
        failures.way = way;
        tracing::warn!(upstream = self.upstream, reason = %failure, retry_ms = wait.as_millis(), "no token for an upstream");
        None
    }

    async fn fetch_once(&self, fetcher: &Fetcher) -> Result<AccessToken, TokenError> {
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(self.form.expose())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let asked = clock::now();
        let deadline = asked + FETCH_TIMEOUT;
        let answer = fetcher.fetch(request, self.tls.as_ref(), ANSWER_BYTES_MAX, deadline).await?;
        read_answer(answer.status(), answer.body(), asked)
    }
}

fn read_answer(status: StatusCode, body: &[u8], asked: Instant) -> Result<AccessToken, TokenError> {
    if status != StatusCode::OK {
        return Err(match serde_json::from_slice::<OAuthErrorBody>(body) {
            Ok(OAuthErrorBody { error }) if is_error_code(&error) => TokenError::Refused(status, error),
            _ => TokenError::Status(status),
        });
    }
    let answer: TokenResponse = serde_json::from_slice(body).map_err(|_| TokenError::NoToken)?;
    let token = Zeroizing::new(answer.access_token);
    let token = token.as_bytes();
    let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    if !is_token || !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(TokenError::NoToken);
    }
    let header = bearer(token).map_err(|_| TokenError::NoToken)?;
    let life = match answer.expires_in.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(life)) => {
            let life = life.min(Duration::from_hours(24 * 365));
            let expiry = asked + life.saturating_sub(EXPIRY_MARGIN.min(life / 10));
            Some((asked + (life * 4 / 5).max(life.saturating_sub(REFRESH_BEFORE)), expiry))
        }
        Some(Err(_)) => return Err(TokenError::NoToken),
    };
    Ok(AccessToken { header, life })
}

/// The codes of RFC 6749 §5.2, which can be shown, and nothing else that an answer may hold.
fn is_error_code(code: &str) -> bool {
    let known = [
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
    ];
    known.contains(&code)
}

/// `application/x-www-form-urlencoded`.
fn form_encoded(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 3));
    for byte in bytes {
        match byte {
            b' ' => text.push('+'),
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'*' | b'-' | b'.' | b'_' => {
                text.push(char::from(*byte));
            }
            other => {
                const HEX: [char; 16] =
                    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
                text.push('%');
                text.push(HEX[usize::from(other >> 4)]);
                text.push(HEX[usize::from(other & 15)]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        for (text, encoded) in
            [("a-Z_0.9*", "a-Z_0.9*"), ("a b", "a+b"), ("a&b=%+:/\u{e4}", "a%26b%3D%25%2B%3A%2F%C3%A4")]
        {
            assert_eq!(*form_encoded(text.as_bytes()), encoded, "{text}");
        }
    }

    #[test]
    fn answers_are_read() {
        let asked = clock::now();
        let s = Duration::from_secs;
        let life = |refresh, expiry| Some((asked + refresh, asked + expiry));
        let cases = [
            (r#"{"access_token":"t","token_type":"Bearer"}"#, None),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":3600}"#, life(s(3540), s(3595))),
            (r#"{"access_token":"t","token_type":"BEARER","expires_in":100}"#, life(s(80), s(95))),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":0}"#, life(s(0), s(0))),
        ];
        for (body, life) in cases {
            let token = read_answer(StatusCode::OK, body.as_bytes(), asked).expect(body);
            assert_eq!(token.header, "Bearer t");
            assert!(!format!("{token:?}").contains("Bearer"));
            assert_eq!(token.life, life, "{body}");
        }
    }

    #[test]
    fn what_is_no_token_is_told_by_what_cannot_be_secret() {
        let cases = [
            (200, "hunter2", "the answer holds no bearer token"),
            (200, r#"{"access_token":"","token_type":"Bearer"}"#, "the answer holds no bearer token"),
            (
                200,
                r#"{"access_token":"hunter2\n","token_type":"Bearer"}"#,
                "the answer holds no bearer token",
            ),
            (200, r#"{"access_token":"hunter2","token_type":"mac"}"#, "the answer holds no bearer token"),
            (
                200,
                r#"{"access_token":"hunter2","token_type":"Bearer","expires_in":-1}"#,
                "the answer holds no bearer token",
            ),
            (401, r#"{"error":"invalid_client"}"#, "HTTP status 401 Unauthorized: invalid_client"),
            (400, r#"{"error":"hunter2"}"#, "HTTP status 400 Bad Request"),
            (302, "", "HTTP status 302 Found"),
        ];
        for (status, body, expected) in cases {
            let status = StatusCode::from_u16(status).expect("status");
            let failure = read_answer(status, body.as_bytes(), clock::now()).expect_err("refused");
            assert_eq!(failure.to_string(), expected, "{body}");
        }
    }
}
