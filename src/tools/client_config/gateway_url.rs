//! Where a gateway is for its clients, by its configuration.

use anyhow::Context as _;

use config::{self, AuthMethod, Config, EndpointConfig};
use protocol::text::shown;

/// Where the gateway is, and what it wants.
#[derive(Clone, Debug)]
pub struct GatewayUrl {
    /// The URL of the endpoint.
    pub url: String,
    /// Whether clients need an API key.
    pub wants_key: bool,
    /// What else clients need.
    pub note: Option<&'static str>,
}

impl GatewayUrl {
    /// That of the endpoint with this path, which may be left out where there is only one.
    pub fn of(config: &Config, path: Option<&str>) -> anyhow::Result<Self> {
        let paths = || config.endpoints.iter().map(|endpoint| endpoint.path.as_str());
        let all = || paths().map(shown).collect::<Vec<_>>().join(", ");
        let endpoint = match (path, config.endpoints.as_slice()) {
            (Some(path), endpoints) => {
                endpoints.iter().find(|endpoint| endpoint.path == path).with_context(|| {
                    let near =
                        config::nearest(path, paths()).map(|near| format!("; {near}")).unwrap_or_default();
                    format!("there is no endpoint {}: there is {}{near}", shown(path), all())
                })?
            }
            (None, [only]) => only,
            (None, _) => anyhow::bail!("which endpoint? Say it with --endpoint: there is {}", all()),
        };
        let has = |method| endpoint.auth.contains(&method);
        let note = if endpoint.auth.is_empty() || has(AuthMethod::ApiKey) {
            None
        } else if has(AuthMethod::Jwt) {
            Some("The gateway wants a token: it tells clients where to get one")
        } else {
            Some("The gateway wants a certificate of clients, which entries of this client have no place for")
        };
        Ok(Self { url: url(config, endpoint)?, wants_key: has(AuthMethod::ApiKey), note })
    }
}

fn url(config: &Config, endpoint: &EndpointConfig) -> anyhow::Result<String> {
    if let Some(url) = &endpoint.public_url {
        return Ok(url.clone());
    }
    let reachable = |listener: &&config::Listener| {
        !listener.proxy_protocol && !listener.address.ip().is_unspecified() && listener.address.port() != 0
    };
    let listener = config.listeners.iter().find(reachable).context(
        "the configuration does not say by which address clients reach the gateway: set `public_url` of the endpoint, or \
         give --url",
    )?;
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}{}", listener.address, endpoint.path))
}
