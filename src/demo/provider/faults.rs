//! Faults that tests ask for: the provider is slow, broken, or says something else than it should.
//!
//! `POST /faults` replaces all of them, `{}` ends them, and `GET /faults` says how often each path was asked.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Answer, OAuthFault};
use super::{AUTHORIZE, DISCOVERY, JWKS, REVOKE, TOKEN, USERINFO};

const PATHS: [&str; 6] = [DISCOVERY, JWKS, AUTHORIZE, TOKEN, USERINFO, REVOKE];
const PAUSE_MS_MAX: u64 = 10 * 60 * 1000;

/// The faults of now, and the requests so far.
#[derive(Default)]
pub(super) struct FaultControl {
    pub(super) now: Faults,
    requests: BTreeMap<&'static str, u64>,
}

/// Deviations from what is right; by default none.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Faults {
    /// Paths at which `slow_ms`, `status` and `html` hold; empty: all.
    at: Vec<String>,
    /// Each answer is late by so much.
    slow_ms: u64,
    /// Each answer is this status and nothing else.
    status: Option<u16>,
    /// Each answer is a page with 200, as a proxy that wants to be noticed has it.
    html: bool,
    /// By path, members that a good JSON answer has instead; `null` leaves one out. So the metadata name another issuer, userinfo
    /// another subject, and a token answer has no refresh token.
    answers: BTreeMap<String, Map<String, Value>>,
    /// Likewise claims of ID tokens: another `nonce`, `aud`, `exp` …
    pub(super) id_token: Map<String, Value>,
    /// Groups that users have instead of their own.
    pub(super) groups: BTreeMap<String, Vec<String>>,
    /// Users that are there no longer.
    pub(super) removed: Vec<String>,
    /// The number of the key. Another one than before makes a new key, and the old one is forgotten.
    pub(super) key: u32,
    /// Its clock is before or behind by so many seconds.
    pub(super) clock_s: i64,
}

impl FaultControl {
    pub(super) fn count(&mut self, path: &str) {
        if let Some(known) = PATHS.into_iter().find(|known| *known == path) {
            *self.requests.entry(known).or_default() += 1;
        }
    }

    /// The number of requests to each path.
    pub(super) fn counts(&self) -> Answer {
        Answer::json(json!({ "requests": self.requests }))
    }
}

impl Faults {
    /// Reads the faults that are to be.
    pub(super) fn read(body: &Bytes) -> Result<Self, Answer> {
        serde_json::from_slice(body)
            .map_err(|error| OAuthFault::InvalidRequest(error.to_string()).into_answer())
    }

    pub(super) fn pause_ms(&self, path: &str) -> u64 {
        if self.is_at(path) { self.slow_ms.min(PAUSE_MS_MAX) } else { 0 }
    }

    /// The answer that a broken provider has at this path.
    pub(super) fn broken(&self, path: &str) -> Option<Answer> {
        if !self.is_at(path) {
            return None;
        }
        if self.html {
            let html =
                "<!doctype html>\n<title>Notice</title>\n<p>Please accept the terms of this network.\n";
            return Some(Answer::Page { status: StatusCode::OK, html: html.to_owned() });
        }
        let status = StatusCode::from_u16(self.status?).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Some(Answer::Empty(status))
    }

    /// The answer as it goes out.
    pub(super) fn changed(&self, path: &str, answer: Answer) -> Answer {
        match (answer, self.answers.get(path)) {
            (Answer::Json { status: StatusCode::OK, mut body, challenge }, Some(changes)) => {
                change(&mut body, changes);
                Answer::Json { status: StatusCode::OK, body, challenge }
            }
            (answer, _) => answer,
        }
    }

    fn is_at(&self, path: &str) -> bool {
        self.at.is_empty() || self.at.iter().any(|at| at == path)
    }
}

/// Gives an object other members; `null` leaves one out.
pub(super) fn change(object: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (name, value) in changes {
        if value.is_null() {
            object.shift_remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
}
