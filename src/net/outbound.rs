//! The way of the gateway's own requests: straight to a server, or through a proxy.
//!
//! It is chosen for each request anew, so that a reload takes up another one. Invariant: it comes from the configuration
//! alone. Variables such as `HTTPS_PROXY` are not read: they are set for a shell or an image, without a thought of
//! the credentials that would pass there.
//!
//! Deliberately not here: connections to upstreams and to Redis, which never have a proxy.

use std::sync::Arc;

use arc_swap::ArcSwap;
use config::NoProxy;

use crate::proxy::Proxy;
use crate::secret::{Secret, SecretError, basic};
use crate::tls::{Connector, TlsSettingsError};

/// The way that is in force, for all threads.
#[derive(Debug, Default)]
pub struct Outbound(ArcSwap<WayOut>);

/// A way out, as a configuration says it.
#[derive(Debug, Default, PartialEq)]
pub struct WayOut {
    proxy: Option<Arc<Proxy>>,
    direct: NoProxy,
}

/// A way out that cannot be had as configured. Shows nothing of a secret.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The password for the proxy.
    #[error("outbound: {0}")]
    Secret(#[from] SecretError),
    /// The certificates that are believed of the proxy.
    #[error("outbound: {0}")]
    Tls(#[from] TlsSettingsError),
    /// User and password.
    #[error("outbound: user and password cannot stand in a header")]
    Header(#[from] http::header::InvalidHeaderValue),
}

impl WayOut {
    /// Reads what `config` names. Blocks.
    pub fn read(config: &config::Outbound) -> Result<Self, OutboundError> {
        let Some(url) = &config.proxy else { return Ok(Self::default()) };
        let tls = url.is_tls.then(|| Connector::trusting(config.ca.as_deref())).transpose()?;
        let authorization = match &config.basic {
            Some(known) => Some(basic(known.user.as_bytes(), Secret::read(&known.password)?.expose())?),
            None => None,
        };
        let proxy = Proxy { host: url.host.clone(), port: url.port, tls, authorization };
        Ok(Self { proxy: Some(Arc::new(proxy)), direct: config.no_proxy.clone() })
    }

    /// The proxy that leads to `port` of `host`; `None`: it is reached without.
    pub(crate) fn proxy_to(&self, host: &str, port: u16) -> Option<&Arc<Proxy>> {
        self.proxy.as_ref().filter(|_| !self.direct.covers(host, port))
    }
}

impl Outbound {
    /// The way in force.
    pub fn current(&self) -> Arc<WayOut> {
        self.0.load_full()
    }

    /// Puts `way` in its place. True: it differs.
    pub fn replace(&self, way: &Arc<WayOut>) -> bool {
        let differs = *self.current() != **way;
        if differs {
            self.0.store(Arc::clone(way));
        }
        differs
    }
}
