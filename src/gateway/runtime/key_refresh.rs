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
use net::tasks::Tasks;

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
pub(super) async fn run(state: Arc<State>, tasks: Tasks) {
    let ended = Rc::new(Notify::new());
    loop {
        let snapshot = state.snapshot.load_full();
        let now = clock::now();
        let mut next = now + IDLE_MAX;
        for issuer in &snapshot.issuers.all {
            if issuer.begin(now) {
                let (state, issuer, ended) = (Arc::clone(&state), Arc::clone(issuer), Rc::clone(&ended));
                let fetcher = Fetcher { tasks: tasks.clone(), tls: issuer.tls.clone() };
                tasks.spawn(async move {
                    refresh(&state, &issuer, &fetcher).await;
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
        KeySource::Url(url) => fetch(url, fetcher).await,
        KeySource::Discovery(url) => discover(&issuer.config.issuer, url, fetcher).await,
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
async fn discover(issuer: &str, url: &Uri, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    let metadata = document(url, fetcher).await?;
    let keys: Uri = jwks_uri(issuer, &metadata)?.parse().map_err(http::Error::from)?;
    fetch(&keys, fetcher).await
}

async fn fetch(url: &Uri, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    Ok(KeySet::read(&document(url, fetcher).await?)?)
}

async fn document(url: &Uri, fetcher: &Fetcher) -> Result<Bytes, RefreshError> {
    let request =
        Request::get(url.clone()).header(ACCEPT, "application/json").body(Full::new(Bytes::new()))?;
    let response = fetcher.fetch(request, DOCUMENT_BYTES_MAX, clock::now() + FETCH_TIMEOUT).await?;
    if response.status() != StatusCode::OK {
        return Err(RefreshError::Status(response.status()));
    }
    Ok(response.into_body())
}

/// Files may be on disks that are slow.
async fn reread(path: PathBuf, fetcher: &Fetcher) -> Result<KeySet, RefreshError> {
    Ok(fetcher.tasks.compute(move || read_file(&path)).await?)
}
