//! Documents of clients, fetched from the URLs that are their ids, and their keys: from public addresses alone.
//!
//! A name is resolved once, its addresses are judged, and the very address that was judged is connected to, over TLS by the name.
//! No redirect is followed, and no proxy is used. Few are fetched at once, by all, for one network and from one host; what came of
//! it is kept.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;
use identity::client::{Client, ClientKeys, ClientSource, check_url};
use identity::client_auth::{Proof, ShownClient};
use identity::client_document::{self, DOCUMENT_BYTES_MAX, FAILURE_KEPT_S, kept_s};
use identity::oauth_error::{ErrorCode, Fault, OAuthError};
use identity::public_address;
use net::http_client::HttpError;
use tokens::jwt::{TYPES_OF_ASSERTIONS, Token};

use super::desk::{SignInDesk, is_at_host};
use crate::access::auth::jwt::keys::KeySet;
use crate::access::auth::sign_in::faults::DocumentError;
use crate::access::auth::sign_in::fetched::Kept;
use crate::access::auth::sign_in::memory::FetchPlace;
use crate::clock;
use crate::identity::refusal::CredentialFault;

/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failure, and between two fetches for keys that a set does not have.
const PAUSE: Duration = Duration::from_secs(FAILURE_KEPT_S);
/// A document counts for so long where a newer one cannot be had.
const STALE_MAX: Duration = Duration::from_hours(24);

/// The outcome of a fetch of a stranger's.
type FetchedAnswer = Result<http::Response<Bytes>, DocumentError>;

impl SignInDesk {
    /// The client of the document at this URL.
    pub(super) async fn document(&self, url: &str, asker: IpAddr) -> Result<Arc<Client>, DocumentError> {
        let read = |answer: &http::Response<Bytes>| {
            let content_type = answer.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
            let client = client_document::read(url, content_type, answer.body());
            client.map_err(|fault| refused(fault.to_string()))
        };
        let documents = &self.settings.memory.documents;
        let fetch = async {
            let fetched = self.fetched(url, asker, read).await;
            let is_passing = fetched.outcome.as_ref().is_err_and(|error| error.is_passing);
            // People stay signed in at a client whose server is away, or while strangers have all places.
            if is_passing { documents.last_instead(fetched, url, STALE_MAX) } else { fetched }
        };
        documents.get(url, None, fetch).await
    }

    /// True where a key of the client has signed this assertion. One that its set does not have may be new: then the set is
    /// fetched again.
    pub(super) async fn is_signed_by(
        &self,
        client: &Client,
        shown: &ShownClient,
        asker: IpAddr,
    ) -> Result<bool, OAuthError> {
        let ClientSource::Document { keys: Some(keys) } = &client.source else { return Ok(false) };
        let Proof::Assertion(assertion) = &shown.proof else { return Ok(false) };
        let url = match keys {
            ClientKeys::Url(url) => url,
            ClientKeys::Set(set) => {
                let set = KeySet::read(set.as_bytes()).map_err(|error| unusable(&error.to_string()))?;
                return Ok(check(&set, assertion.expose()).is_ok());
            }
        };
        let kept = self.keys_at(url, None, asker).await?;
        let checked = check(&kept, assertion.expose());
        if checked != Err(CredentialFault::UnknownKey) {
            return Ok(checked.is_ok());
        }
        let of_now = self.keys_at(url, Some(PAUSE), asker).await?;
        Ok(check(&of_now, assertion.expose()).is_ok())
    }

    /// The keys at a URL; where they are older than they may be, as they are now.
    async fn keys_at(
        &self,
        url: &str,
        age_max: Option<Duration>,
        asker: IpAddr,
    ) -> Result<Arc<KeySet>, OAuthError> {
        let read = |answer: &http::Response<Bytes>| {
            let set = serde_json::from_slice(answer.body());
            let set = set.map_err(|_| refused("they are no JSON".to_owned()))?;
            client_document::check_keys(&set).map_err(|fault| refused(fault.to_string()))?;
            KeySet::read(answer.body()).map_err(|error| refused(error.to_string()))
        };
        let all = &self.settings.memory.client_keys;
        let fetch = async {
            let fetched = self.fetched(url, asker, read).await;
            if fetched.outcome.is_ok() {
                return fetched;
            }
            // Those that are good go on where newer ones cannot be had.
            match all.last(url).filter(|before| before.outcome.is_ok() && !before.lasts().is_zero()) {
                Some(before) => Kept::new(before.outcome.clone(), before.lasts()),
                None => fetched,
            }
        };
        all.get(url, age_max, fetch).await.map_err(|error| {
            if !error.is_passing {
                return unusable(&error.why);
            }
            let why = "the keys of the client cannot be had now";
            OAuthError::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Client).retry_after(10)
        })
    }

    /// Fetches something of a stranger's now, and reads it.
    async fn fetched<T>(
        &self,
        url: &str,
        asker: IpAddr,
        read: impl FnOnce(&http::Response<Bytes>) -> Result<T, DocumentError>,
    ) -> Kept<T, DocumentError> {
        let Some(answer) = self.fetch_public(url, DOCUMENT_BYTES_MAX, asker).await else {
            // Another asker may have a place.
            let why = "too many documents are fetched just now".into();
            return Kept::new(Err(DocumentError { why, is_passing: true }), Duration::ZERO);
        };
        let read = answer.and_then(|answer| {
            let cache_control = answer.headers().get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
            Ok((Arc::new(read(&answer)?), Duration::from_secs(kept_s(cache_control))))
        });
        self.series.documents.with_label_values(&[if read.is_ok() { "ok" } else { "error" }]).inc();
        match read {
            Ok((thing, lasts)) => Kept::new(Ok(thing), lasts),
            Err(error) => Kept::new(Err(error), PAUSE),
        }
    }

    /// Fetches something of a stranger's, within all bounds. `None`: there is no place for it just now.
    async fn fetch_public(&self, url: &str, bytes_max: usize, asker: IpAddr) -> Option<FetchedAnswer> {
        let uri = match check_url(url) {
            Ok(uri) => uri,
            Err(fault) => return Some(Err(refused(fault.to_string()))),
        };
        let host = uri.host.unwrap_or_default();
        // Nothing is fetched from this gateway itself, which would wait for itself.
        if is_at_host(&self.settings, host) {
            return Some(Err(refused("it is at the gateway itself".to_owned())));
        }
        let place = self.settings.memory.begin_fetch(host, asker)?;
        let fetched = clock::within(FETCH_TIMEOUT, Box::pin(self.fetch_in(place, url, bytes_max))).await;
        Some(fetched.unwrap_or_else(|| Err(passing("it did not come in time"))))
    }

    async fn fetch_in(&self, place: FetchPlace, url: &str, bytes_max: usize) -> FetchedAnswer {
        let tls = self.settings.public_tls.as_ref().ok_or_else(|| passing("no TLS"))?;
        let request = Request::get(url).header(ACCEPT, "application/json").body(Full::new(Bytes::new()));
        let request = request.map_err(|_| refused("it is no URL".to_owned()))?;
        let deadline = clock::now() + FETCH_TIMEOUT;
        // It is taken by the lookup, too: one that hangs goes on when nobody waits any more.
        let place = Arc::new(place);
        let choose = public_address::chosen;
        let fetching =
            self.fetcher.fetch_chosen(request, tls, choose, bytes_max, deadline, Arc::clone(&place));
        let answer = fetching.await.map_err(|error| {
            tracing::info!(target: "audit", url, %error, "what a client refers to cannot be fetched");
            told(&error)
        })?;
        if answer.status() != StatusCode::OK {
            return Err(passing(&format!("its server answered {}", answer.status().as_u16())));
        }
        Ok(answer)
    }
}

/// The words for strangers. They learn nothing of names and networks as they are seen from here: whether a name stands for an
/// address of our own is no different from one that does not exist.
fn told(error: &HttpError) -> DocumentError {
    match error {
        HttpError::TooLarge | HttpError::Malformed | HttpError::TimedOut => passing(&error.to_string()),
        _ => passing("it cannot be fetched"),
    }
}

/// Checks that a key of the set has signed an assertion.
fn check(keys: &KeySet, assertion: &str) -> Result<(), CredentialFault> {
    let token = Token::read_as(assertion, &TYPES_OF_ASSERTIONS).ok_or(CredentialFault::TokenForm)?;
    let algorithm = config::Algorithm::of(&token.algorithm).ok_or(CredentialFault::Algorithm)?;
    keys.check(&token, algorithm)
}

fn unusable(why: &str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidClient, format!("the keys of the client: {why}"))
}

fn passing(why: &str) -> DocumentError {
    DocumentError { why: why.into(), is_passing: true }
}

fn refused(why: String) -> DocumentError {
    DocumentError { why: why.into(), is_passing: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_learn_nothing_of_names_and_networks_from_a_failed_fetch() {
        let unreachable = HttpError::Unreachable("no address for printer.example.com".to_owned());
        for error in [HttpError::Address, unreachable, HttpError::ConnectTimedOut(Duration::from_secs(5))] {
            let told = told(&error);
            assert_eq!((&*told.why, told.is_passing), ("it cannot be fetched", true), "{error}");
        }
        assert_eq!(&*told(&HttpError::TooLarge).why, "the reply is larger than is accepted");
    }
}
