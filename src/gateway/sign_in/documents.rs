//! Documents of clients, fetched from the URLs that are their ids: from public addresses alone.
//!
//! A name is resolved once, its addresses are judged, and the very address that was judged is connected to, over TLS by the name.
//! No redirect is followed, and no proxy is used. Few are fetched at once, by all and by one network; what came of it is kept.

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

use super::desk::{SignInDesk, is_at_host};
use crate::access::auth::jwt::keys::KeySet;
use crate::clock;

/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason that there is no document. `why` is for people.
#[derive(Clone, Debug)]
pub(super) struct DocumentError {
    pub why: Arc<str>,
    /// Another try may succeed.
    pub is_passing: bool,
}

impl SignInDesk {
    /// The client of the document at this URL.
    pub(super) async fn document(&self, url: &str, asker: IpAddr) -> Result<Arc<Client>, DocumentError> {
        let memory = &self.settings.memory;
        if let Some(known) = memory.document(url, clock::now()) {
            return known.map_err(|why| DocumentError { why, is_passing: true });
        }
        let busy =
            || DocumentError { why: "too many documents are fetched just now".into(), is_passing: true };
        let _share = memory.fetching.admit(asker).ok_or_else(busy)?;
        let _permit = memory.fetches.try_acquire().map_err(|_| busy())?;
        let fetched = clock::within(FETCH_TIMEOUT, self.fetch_document(url)).await;
        let fetched = fetched.unwrap_or_else(|| Err(passing("it did not come in time")));
        let (kept, lasts_s) = match &fetched {
            Ok((client, lasts_s)) => (Ok(Arc::clone(client)), *lasts_s),
            Err(error) => (Err(Arc::clone(&error.why)), FAILURE_KEPT_S),
        };
        self.series.documents.with_label_values(&[if kept.is_ok() { "ok" } else { "error" }]).inc();
        memory.keep_document(url, kept, clock::now() + Duration::from_secs(lasts_s));
        fetched.map(|(client, _)| client)
    }

    /// Fetches it now. Returns how long it is kept, in seconds.
    async fn fetch_document(&self, url: &str) -> Result<(Arc<Client>, u64), DocumentError> {
        let (answer, lasts_s) = self.fetch_public(url, DOCUMENT_BYTES_MAX).await?;
        let content_type = answer.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        let client = client_document::read(url, content_type, answer.body());
        let client = client.map_err(|fault| refused(fault.to_string()))?;
        Ok((Arc::new(client), lasts_s))
    }

    /// The keys by which a client signs, where it shows an assertion.
    pub(super) async fn keys_of(
        &self,
        client: &Client,
        shown: &ShownClient,
        asker: IpAddr,
    ) -> Result<Option<KeySet>, OAuthError> {
        let ClientSource::Document { keys: Some(keys) } = &client.source else { return Ok(None) };
        if !matches!(shown.proof, Proof::Assertion(_)) {
            return Ok(None);
        }
        let unusable =
            |why: String| OAuthError::new(ErrorCode::InvalidClient, format!("the keys of the client: {why}"));
        let set = match keys {
            ClientKeys::Set(set) => Bytes::copy_from_slice(set.as_bytes()),
            ClientKeys::Url(url) => {
                let away = || {
                    let why = "the keys of the client cannot be had now";
                    OAuthError::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Client).retry_after(10)
                };
                let memory = &self.settings.memory;
                let _share = memory.fetching.admit(asker).ok_or_else(away)?;
                let _permit = memory.fetches.try_acquire().map_err(|_| away())?;
                let fetched = clock::within(FETCH_TIMEOUT, self.fetch_public(url, DOCUMENT_BYTES_MAX)).await;
                let (answer, _) = fetched.and_then(Result::ok).ok_or_else(away)?;
                let set = serde_json::from_slice(answer.body())
                    .map_err(|_| unusable("they are no JSON".to_owned()))?;
                client_document::check_keys(&set).map_err(|fault| unusable(fault.to_string()))?;
                answer.into_body()
            }
        };
        KeySet::read(&set).map(Some).map_err(|error| unusable(error.to_string()))
    }

    /// Fetches something of a stranger's, within all bounds.
    pub(super) async fn fetch_public(
        &self,
        url: &str,
        bytes_max: usize,
    ) -> Result<(http::Response<Bytes>, u64), DocumentError> {
        let uri = check_url(url).map_err(|fault| refused(fault.to_string()))?;
        let host = uri.host.unwrap_or_default().to_owned();
        // Nothing is fetched from this gateway itself, which would wait for itself.
        if is_at_host(&self.settings, &host) {
            return Err(refused("it is at the gateway itself".to_owned()));
        }
        let tls = self.settings.public_tls.as_ref().ok_or_else(|| passing("no TLS"))?;
        let request = Request::get(url).header(ACCEPT, "application/json").body(Full::new(Bytes::new()));
        let request = request.map_err(|_| refused("it is no URL".to_owned()))?;
        let deadline = clock::now() + FETCH_TIMEOUT;
        let answer =
            self.fetcher.fetch_chosen(request, tls, public_address::chosen, bytes_max, deadline).await;
        let answer = answer.map_err(|error| match error {
            HttpError::Address => refused("its host is not a public one".to_owned()),
            error => passing(&error.to_string()),
        })?;
        if answer.status() != StatusCode::OK {
            return Err(passing(&format!("its server answered {}", answer.status().as_u16())));
        }
        let cache_control = answer.headers().get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
        let lasts_s = kept_s(cache_control);
        Ok((answer, lasts_s))
    }
}

fn passing(why: &str) -> DocumentError {
    DocumentError { why: why.into(), is_passing: true }
}

fn refused(why: String) -> DocumentError {
    DocumentError { why: why.into(), is_passing: false }
}
