//! A tiny `OpenID` provider with two users: authorization codes with PKCE, ID tokens, refresh tokens that rotate.
//!
//! The way of a request: `server` accepts and collects it, [`Provider::answer`] judges it in `authorize`, `token` or `userinfo`,
//! and `answer` makes it a response. Everything but `server` is pure: it is given the time, and knows no sockets.
//!
//! Not here: passwords, sessions of browsers, registration of clients. A visit is remembered by its page alone. No code is
//! shared with the gateway, so that a mistake in one is noticed by the other.
//!
//! Invariants: codes, grants and access tokens are bounded, and the oldest gives way. A browser is sent to a registered redirect
//! URI, to the letter, or nowhere. A code is good once and for a minute; a refresh token that comes again ends its grant.
//!
//! Tests have it lie and fail: where [`ProviderSettings::takes_faults`] is set, `POST /faults` takes `faults`.

mod answer;
mod authorize;
mod client;
mod discovery;
mod faults;
mod form;
mod grants;
mod page;
mod server;
mod settings;
mod signing;
#[cfg(test)]
mod tests;
mod token;
mod userinfo;
mod users;

use bytes::Bytes;
use hyper::{Method, Request, Response, StatusCode};

use self::answer::Answer;
use self::faults::{FaultControl, Faults};
use self::grants::Grants;
pub use self::server::ProviderServer;
pub use self::settings::ProviderSettings;
use self::signing::SigningKey;

const DISCOVERY: &str = "/.well-known/openid-configuration";
const JWKS: &str = "/jwks";
const AUTHORIZE: &str = "/authorize";
const TOKEN: &str = "/token";
const USERINFO: &str = "/userinfo";
const REVOKE: &str = "/revoke";
const FAULTS: &str = "/faults";

/// The provider without its sockets.
struct Provider {
    /// Its origin.
    issuer: String,
    settings: ProviderSettings,
    key: SigningKey,
    grants: Grants,
    faults: FaultControl,
}

impl Provider {
    /// A provider with a new key; fails without randomness.
    fn new(issuer: String, settings: ProviderSettings) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let (key, grants) = (SigningKey::generate()?, Grants::default());
        Ok(Self { issuer, settings, key, grants, faults: FaultControl::default() })
    }

    /// Milliseconds by which the answer to a request is late.
    fn pause_ms(&self, path: &str) -> u64 {
        self.faults.now.pause_ms(path)
    }

    /// Answers a request at this time, in seconds since 1970.
    fn answer(&mut self, request: &Request<Bytes>, now_s: u64) -> Response<Bytes> {
        let path = request.uri().path();
        if self.settings.takes_faults && path == FAULTS {
            return self.control(request).into_response();
        }
        self.faults.count(path);
        if let Some(broken) = self.faults.now.broken(path) {
            return broken.into_response();
        }
        let now_s = now_s.saturating_add_signed(self.faults.now.clock_s);
        let answer = match (request.method(), path) {
            (&Method::GET, DISCOVERY) => discovery::metadata(&self.issuer),
            (&Method::GET, JWKS) => discovery::keys(&self.key),
            (&Method::GET | &Method::POST, AUTHORIZE) => self.authorize(request, now_s),
            (&Method::POST, TOKEN) => self.token(request, now_s),
            (&Method::GET | &Method::POST, USERINFO) => self.userinfo(request, now_s),
            (&Method::POST, REVOKE) => self.revoke(request),
            (_, DISCOVERY | JWKS | AUTHORIZE | TOKEN | USERINFO | REVOKE) => {
                Answer::Empty(StatusCode::METHOD_NOT_ALLOWED)
            }
            _ => Answer::Empty(StatusCode::NOT_FOUND),
        };
        self.faults.now.changed(path, answer).into_response()
    }

    /// Takes faults, or says how often each path was asked.
    fn control(&mut self, request: &Request<Bytes>) -> Answer {
        if request.method() == Method::GET {
            return self.faults.counts();
        }
        let faults = match Faults::read(request.body()) {
            Ok(faults) => faults,
            Err(refusal) => return refusal,
        };
        if faults.key != self.faults.now.key {
            match SigningKey::generate() {
                Ok(key) => self.key = key,
                Err(_) => return Answer::Empty(StatusCode::INTERNAL_SERVER_ERROR),
            }
        }
        self.faults.now = faults;
        Answer::Empty(StatusCode::NO_CONTENT)
    }
}
