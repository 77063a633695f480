//! Which gateway a command asks: the options of `status`, `top`, `reload`, `ready`, `log-level` and `drain`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::HeaderValue;

use config::{Admin, SecretSource};
use net::secret::Secret;
use tools::admin_client::address::{AdminAddress, AdminAddressError};
use tools::admin_client::client::AdminClient;

/// Where the token comes from if there is no file.
const TOKEN_VARIABLE: &str = "TRUNKLINE_ADMIN_TOKEN";
/// Where the listener is looked for if there is no configuration: where the examples and the demo have it.
const USUAL_PLACE: &str = "127.0.0.1:9090";

/// Where a gateway's admin listener is, and what it wants.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The gateway's admin listener: an address and port, or unix: and the path of its socket
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// The gateway's configuration file, whose [admin] says where the listener is
    ///
    /// Default: /etc/trunkline/trunkline.toml, else 127.0.0.1:9090.
    #[arg(short, long, value_name = "FILE", env = super::CONFIG_VARIABLE, hide_env_values = true)]
    config: Option<PathBuf>,
    /// A file that holds nothing but the token of [admin]; else `TRUNKLINE_ADMIN_TOKEN`, else what the configuration names
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Seconds that an answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl AdminArgs {
    /// What asks that listener.
    pub(super) fn client(&self) -> anyhow::Result<AdminClient> {
        let (place, source) = self.found()?;
        let source = match (&self.token_file, std::env::var_os(TOKEN_VARIABLE), source) {
            (Some(file), ..) => Some(SecretSource::File(file.clone())),
            (None, Some(_), _) => Some(SecretSource::Env(TOKEN_VARIABLE.to_owned())),
            (None, None, source) => source,
        };
        let authorization = source.as_ref().map(authorization).transpose()?;
        Ok(AdminClient::new(place, authorization, Duration::from_secs(self.timeout)))
    }

    fn found(&self) -> anyhow::Result<(AdminAddress, Option<SecretSource>)> {
        let usual = Path::new(super::CONFIG_FILE);
        match (&self.admin, &self.config) {
            (Some(text), _) => {
                let place =
                    text.parse().map_err(|error: AdminAddressError| anyhow::anyhow!("{text:?}: {error}"))?;
                Ok((place, None))
            }
            (None, Some(path)) => of_config(path),
            (None, None) if usual.exists() => of_config(usual),
            (None, None) => Ok((USUAL_PLACE.parse()?, None)),
        }
    }
}

/// A gateway runs on with its old configuration while the file has errors: it is found all the same.
fn of_config(path: &Path) -> anyhow::Result<(AdminAddress, Option<SecretSource>)> {
    let admin = match super::load(path) {
        Ok(config) => config.admin,
        Err(error) => Some(super::config_files(path).ok().and_then(|files| files.admin()).ok_or(error)?),
    };
    let Admin { place, token, .. } = admin.with_context(|| {
        format!("{} has no [admin]: add `address = \"{USUAL_PLACE}\"` to it, or give --admin", path.display())
    })?;
    let place = AdminAddress::try_from(&place)
        .with_context(|| format!("the address of [admin] in {}", path.display()))?;
    Ok((place, token))
}

fn authorization(source: &SecretSource) -> anyhow::Result<HeaderValue> {
    let secret = Secret::read(source).map_err(|error| {
        anyhow::anyhow!("{error}; give the token of [admin] with --token-file or {TOKEN_VARIABLE}")
    })?;
    let text = std::str::from_utf8(secret.expose()).ok().map(str::trim).filter(|text| !text.is_empty());
    let value = text.and_then(|text| HeaderValue::from_str(&format!("Bearer {text}")).ok());
    let mut value = value.with_context(|| format!("{source} does not hold a token of one line"))?;
    value.set_sensitive(true);
    Ok(value)
}
