//! A request of sign-in, and all that it is answered with.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use identity::uri::Uri;
use net::fetch::Fetcher;
use zeroize::Zeroize as _;

use crate::access::auth::sign_in::settings::SignIn;
use crate::grants::Grants;
use crate::telemetry::metrics::families::SignInMetrics;

/// All that a request of sign-in is answered with.
#[derive(Clone, Debug)]
pub(crate) struct SignInDesk {
    pub settings: Arc<SignIn>,
    pub grants: Arc<Grants>,
    pub series: SignInMetrics,
    /// The way of requests of the gateway's own.
    pub fetcher: Fetcher,
}

/// A request, as far as it matters here.
#[derive(Debug)]
pub(crate) struct SignInRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub origin: Option<String>,
    pub authorization: Option<Vec<u8>>,
    pub content_type: Option<Vec<u8>>,
    pub cookies: Vec<Vec<u8>>,
    pub body: Bytes,
    pub client: IpAddr,
    /// The id by which the log knows the request.
    pub id: String,
}

impl Drop for SignInRequest {
    /// Codes, tokens, secrets and cookies are gone from memory with the request, as far as they are nobody else's.
    fn drop(&mut self) {
        wipe(std::mem::take(&mut self.body));
        self.query.zeroize();
        self.authorization.zeroize();
        self.cookies.zeroize();
    }
}

impl SignInDesk {
    /// The name of this authorization server.
    pub(super) fn issuer(&self) -> &str {
        &self.settings.config.url
    }
}

/// True where the host that a request names is that of sign-in.
pub(crate) fn is_at_host(settings: &SignIn, host: &str) -> bool {
    Uri::read(&settings.config.url).is_ok_and(|url| url.is_at_host(host))
}

/// Takes out of memory what nobody else holds.
pub(super) fn wipe(bytes: Bytes) -> bool {
    match bytes.try_into_mut() {
        Ok(mut bytes) => {
            bytes.as_mut().zeroize();
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_alone_holds_is_wiped() {
        let bytes = Bytes::from(b"swordfish".to_vec());
        let other = bytes.clone();
        assert!(!wipe(bytes), "another reads it");
        assert_eq!(&other[..], b"swordfish");
        assert!(wipe(other));
    }
}
