//! Reads the keys of issuers: when they are due, and when a token asks for it.
//!
//! One task of the control thread. An issuer that is down costs its own tokens nothing until the last keys are too old,
//! and others nothing at all.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::access::auth::jwt::issuer::{DOCUMENT_BYTES_MAX, FileError, Issuer, read_file};
use crate::access::auth::jwt::keys::{JwksError, KeySet};
use crate::clock;
use crate::context::state::State;
use crate::telemetry::metrics::gauge;
use config::KeySource;
use identity::provider::metadata::{MetadataFault, jwks_uri};
use net::fetch::Fetcher;
use net::http_client::HttpError;
use net::tls::Connector;

/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The time to the next look, at most: issuers may have become others.
const IDLE_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] HttpError),
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("the metadata of the issuer do not say where they are: {0}")]
    Metadata(#[from] MetadataFault),
    #[error(transparent)]
    Keys(#[from] JwksError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("not a request that can be sent")]
    Request(#[from] http::Error),
}

/// Runs until the process ends.
pub(super) async fn run(state: Arc<State>, fetcher: Fetcher) {
    let ended = Rc::new(Notify::new());
    loop {
        let snapshot = state.snapshot.load_full();
        let now = clock::now();
        let mut next = now + IDLE_MAX;
        for issuer in &snapshot.issuers.all {
            if issuer.begin(now) {
                let (state, issuer, ended) = (Arc::clone(&state), Arc::clone(issuer), Rc::clone(&ended));
                let fetching = fetcher.clone();
                fetcher.tasks.spawn(async move {
                    refresh(&state, &issuer, &fetching).await;
                    ended.notify_one();
                });
            }
            next = next.min(issuer.next());
        }
        tokio::select! {
            () = sleep_until(next.into()) => {}
            () = snapshot.issuers.wanted.notified() => {}
            () = ended.notified() => {}
        }
    }
}

async fn refresh(state: &State, issuer: &Issuer, fetcher: &Fetcher) {
    let read = match &issuer.config.keys {
        KeySource::Url(url) => fetch(url, issuer.tls.as_ref(), fetcher).await,
        KeySource::Discovery(url) => discover(issuer, url, fetcher).await,
        KeySource::File(path) => reread(path.clone(), fetcher).await,
    };
    let name = &issuer.config.name;
    let metrics = &state.metrics.credentials;
    let result = if read.is_ok() { "ok" } else { "error" };
    metrics.key_fetches.with_label_values(&[name, result]).inc();
    let keys = match read {
        Ok(keys) => Some(keys),
        Err(error) => {
            tracing::warn!(issuer = name, %error, "the keys of an issuer cannot be read");
            None
        }
    };
    if issuer.end(keys, clock::now()) {
        tracing::info!(issuer = name, keys = issuer.key_count(), "the keys of an issuer changed");
    }
    metrics.keys.with_label_values(&[name]).set(gauge(issuer.key_count()));
}

/// The keys at the place that the metadata at `url` name: it is asked for each time, since issuers move their keys.
async fn discover(issuer: &Issuer, url: &Uri, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    let tls = issuer.tls.as_ref();
    let metadata = document(url, tls, fetcher).await?;
    let keys: Uri = jwks_uri(&issuer.config.issuer, &metadata)?.parse().map_err(http::Error::from)?;
    fetch(&keys, tls, fetcher).await
}

async fn fetch(url: &Uri, tls: Option<&Arc<Connector>>, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    Ok(KeySet::read(&document(url, tls, fetcher).await?)?)
}

async fn document(url: &Uri, tls: Option<&Arc<Connector>>, fetcher: &Fetcher) -> Result<Bytes, RefreshError> {
    let request =
        Request::get(url.clone()).header(ACCEPT, "application/json").body(Full::new(Bytes::new()))?;
    let deadline = clock::now() + FETCH_TIMEOUT;
    let response = fetcher.fetch(request, tls, DOCUMENT_BYTES_MAX, deadline).await?;
    if response.status() != StatusCode::OK {
        return Err(RefreshError::Status(response.status()));
    }
    Ok(response.into_body())
}

/// Files may be on disks that are slow.
async fn reread(path: PathBuf, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    Ok(fetcher.tasks.compute(move || read_file(&path)).await?)
}
