//! Asks a provider for its metadata and its keys, by the way of the gateway's own requests.
//!
//! Nothing secret is sent. No redirect is followed: the gateway follows none.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::KeySource;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::Full;
use identity::provider::metadata::{METADATA_BYTES_MAX, jwks_uri};
use net::fetch::Fetcher;
use net::http_client::HttpError;
use net::outbound::{Outbound, OutboundError, WayOut};
use net::tasks::Tasks;
use net::tls::{Connector, TlsSettingsError};
use serde_json::Value;

use super::place::ProviderPlace;

/// Time for one answer, as at sign-in.
const TIMEOUT: Duration = Duration::from_secs(10);
const METADATA: &str = "/.well-known/openid-configuration";

/// The answer of a provider.
#[derive(Debug)]
pub struct ProviderAnswer {
    /// Its metadata, as they came.
    pub metadata: Bytes,
    /// The number of its keys; an error says what is wrong with them. `None`: they are in a file, or nobody knows where.
    pub keys: Option<Result<usize, String>>,
}

/// No metadata came.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It cannot be asked.
    #[error("{url}: {error}")]
    Unreachable {
        /// The URL.
        url: String,
        /// The cause.
        error: HttpError,
    },
    /// Something else than metadata is there.
    #[error("{url} has status {}: is this the issuer, to the letter?", status.as_u16())]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The way there cannot be had as configured.
    #[error(transparent)]
    Way(#[from] OutboundError),
    /// It is not known which provider to trust.
    #[error(transparent)]
    Tls(#[from] TlsSettingsError),
}

/// Asks the provider. Must be used on a runtime that can spawn locally; reads the files that the configuration names.
pub async fn ask(place: &ProviderPlace<'_>) -> Result<ProviderAnswer, AskError> {
    let outbound = Arc::new(Outbound::default());
    if let Some(config) = place.config {
        outbound.replace(&Arc::new(WayOut::read(&config.outbound)?));
    }
    let fetcher = Fetcher { tasks: Tasks::default(), outbound };
    let ca = place.jwt.and_then(|jwt| jwt.ca.as_deref());
    let url = format!("{}{METADATA}", place.issuer.trim_end_matches('/'));
    let metadata = fetch(&fetcher, &url, ca).await?;
    let of_keys = match place.jwt.map(|jwt| &jwt.keys) {
        Some(KeySource::File(_)) => None,
        Some(KeySource::Url(url)) => Some(url.to_string()),
        Some(KeySource::Discovery(_)) | None => jwks_uri(place.issuer, &metadata).ok(),
    };
    let keys = match of_keys {
        Some(url) => Some(match fetch(&fetcher, &url, ca).await {
            Ok(body) => count_of_keys(&body).ok_or_else(|| format!("{url} has no keys (JWKS)")),
            Err(error) => Err(error.to_string()),
        }),
        None => None,
    };
    Ok(ProviderAnswer { metadata, keys })
}

async fn fetch(fetcher: &Fetcher, url: &str, ca: Option<&Path>) -> Result<Bytes, AskError> {
    let unreachable = |error| AskError::Unreachable { url: url.to_owned(), error };
    let request = Request::get(url).header(ACCEPT, "application/json").body(Full::new(Bytes::new()));
    let request = request.map_err(|_| unreachable(HttpError::Url))?;
    let tls = if url.starts_with("https:") { Some(Connector::trusting(ca)?) } else { None };
    let answer = fetcher.fetch(request, tls.as_ref(), METADATA_BYTES_MAX, Instant::now() + TIMEOUT).await;
    let answer = answer.map_err(unreachable)?;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        status => Err(AskError::Status { url: url.to_owned(), status }),
    }
}

fn count_of_keys(body: &[u8]) -> Option<usize> {
    let document: Value = serde_json::from_slice(body).ok()?;
    document.get("keys")?.as_array().map(Vec::len).filter(|count| *count > 0)
}
