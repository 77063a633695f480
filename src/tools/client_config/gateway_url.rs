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
    /// That of the endpoint with this path or name, which may be left out where there is only one.
    pub fn of(config: &Config, path: Option<&str>) -> anyhow::Result<Self> {
        let names = || config.endpoints.iter().map(|endpoint| endpoint.name.as_str());
        let all = || names().map(shown).collect::<Vec<_>>().join(", ");
        let endpoint = match (path, config.endpoints.as_slice()) {
            (Some(path), endpoints) => {
                let called = |endpoint: &&EndpointConfig| endpoint.name == path;
                let only = || {
                    let mut at_path = endpoints.iter().filter(|endpoint| endpoint.path == path);
                    at_path.next().filter(|_| at_path.next().is_none())
                };
                endpoints.iter().find(called).or_else(only).with_context(|| {
                    let near =
                        config::nearest(path, names()).map(|near| format!("; {near}")).unwrap_or_default();
                    format!("there is no endpoint {}: there is {}{near}", shown(path), all())
                })?
            }
            (None, [only]) => only,
            (None, _) => anyhow::bail!("which endpoint? Say it with --endpoint: there is {}", all()),
        };
        let has = |method| endpoint.auth.contains(&method);
        let note = if endpoint.auth.is_empty() || has(AuthMethod::ApiKey) {
            None
        } else if has(AuthMethod::Jwt) || has(AuthMethod::SignIn) {
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
    let reachable = |listener: &config::Listener| {
        let address = listener.address.ip_address().filter(|_| !listener.proxy_protocol)?;
        (!address.ip().is_unspecified() && address.port() != 0).then_some((address, listener.tls.is_some()))
    };
    let (address, has_tls) = config.listeners.iter().find_map(reachable).context(
        "the configuration does not say by which address clients reach the gateway: set `public_url` of the endpoint, or \
         give --url",
    )?;
    let scheme = if has_tls { "https" } else { "http" };
    // Where endpoints share a path, the address alone leads to another.
    let host = endpoint.hosts.iter().flatten().find(|host| !host.starts_with("*."));
    if host.is_none() && endpoint.hosts.is_some() {
        anyhow::bail!(
            "endpoint {} is for hosts with `*`, of which the configuration names none: set its `public_url`, or give --url",
            shown(&endpoint.name)
        );
    }
    match host.filter(|_| endpoint.name != endpoint.path) {
        Some(host) if host.rsplit(']').next().is_some_and(|port| port.contains(':')) => {
            Ok(format!("{scheme}://{host}{}", endpoint.path))
        }
        Some(host) => Ok(format!("{scheme}://{host}:{}{}", address.port(), endpoint.path)),
        None => Ok(format!("{scheme}://{}{}", address, endpoint.path)),
    }
}
