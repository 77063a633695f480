//! `trunkline check --as PRINCIPAL`: what somebody may do, by the rules of a configuration alone. No server is asked, so
//! that of annotations nothing is known.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueHint};

use super::near;
use super::status::now_s;
use config::{Config, EndpointConfig, SecretSource};
use gateway::{ANONYMOUS, EndpointRules, Principal, TokenPart, TokenReport, VerifiedIdentity};
use net::secret::Secret;
use protocol::route::Kind;
use protocol::text;
use tools::terminal::put_text;

/// Whose permissions are shown, and which.
#[derive(Debug, Args)]
pub(super) struct PermissionArgs {
    /// Show what this principal may do: a name such as `ci`, an id such as `key:ci`, or `anonymous`
    #[arg(long = "as", value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// A group the principal is in
    #[arg(long = "group", value_name = "GROUP", requires = "principal")]
    groups: Vec<String>,
    /// A scope the principal was granted
    #[arg(long = "scope", value_name = "SCOPE", requires = "principal")]
    scopes: Vec<String>,
    /// A claim of the principal's token
    #[arg(long = "claim", value_name = "CLAIM=VALUE", requires = "principal", value_parser = claim)]
    claims: Vec<(String, String)>,
    /// Show what this endpoint makes of the token (JWT) in a file, claim by claim
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "principal")]
    token: Option<PathBuf>,
    /// With --as or --token: this endpoint only, or the one at HOST/PATH where endpoints share a path
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// Say whether this tool may be called: as clients call it, or as upstreams do
    #[arg(long = "tool", value_name = "NAME", requires = "principal")]
    tools: Vec<String>,
    /// Say whether this prompt may be used
    #[arg(long = "prompt", value_name = "NAME", requires = "principal")]
    prompts: Vec<String>,
    /// Say whether this resource may be read
    #[arg(long = "resource", value_name = "URI", requires = "principal")]
    resources: Vec<String>,
}

fn claim(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or("write CLAIM=VALUE")?;
    Ok((claim.to_owned(), value.to_owned()))
}

impl PermissionArgs {
    /// True if nobody's permissions are asked for.
    pub(super) fn is_nothing(&self) -> bool {
        self.principal.is_none() && self.token.is_none() && self.endpoint.is_none()
    }

    /// Prints the permissions. Fails if something that was asked for may not be used at any of the endpoints.
    pub(super) fn answer(&self, config: &Config) -> anyhow::Result<ExitCode> {
        if self.principal.is_none() && self.token.is_none() {
            anyhow::bail!("--endpoint goes with --as PRINCIPAL or --token FILE");
        }
        let endpoints = self.endpoints(config)?;
        match &self.token {
            Some(file) => judge_token(config, &endpoints, file),
            None => self.permissions(config, &endpoints),
        }
    }

    fn endpoints<'c>(&self, config: &'c Config) -> anyhow::Result<Vec<&'c EndpointConfig>> {
        let is_shown =
            |endpoint: &&EndpointConfig| self.endpoint.as_ref().is_none_or(|name| endpoint.is_called(name));
        let endpoints: Vec<&EndpointConfig> = config.endpoints.iter().filter(is_shown).collect();
        if endpoints.is_empty() {
            let path = self.endpoint.as_deref().unwrap_or_default();
            let near = near(path, config.endpoints.iter().map(|endpoint| endpoint.name.as_str()));
            anyhow::bail!("there is no endpoint {}{near}", text::shown(path));
        }
        Ok(endpoints)
    }

    fn permissions(&self, config: &Config, endpoints: &[&EndpointConfig]) -> anyhow::Result<ExitCode> {
        let principal = self.who(config);
        let things = self.things();
        let mut is_allowed = vec![false; things.len()];
        let mut text = format!("{} (id {})\n", principal.name(), or_dash(principal.id()));
        for endpoint in endpoints {
            let rules = EndpointRules::new(config, endpoint)?;
            let class = rules.class_of(&principal);
            rules.describe(&class, &mut text);
            for ((kind, name), is_allowed) in things.iter().zip(&mut is_allowed) {
                *is_allowed |= rules.decide(&class, *kind, name, &mut text);
            }
        }
        put_text(text::shown_lines(&text));
        Ok(if is_allowed.iter().all(|allowed| *allowed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn who(&self, config: &Config) -> Principal {
        let written = self.principal.as_deref().unwrap_or_default();
        if written == ANONYMOUS {
            return Principal::Anonymous;
        }
        let name = written.strip_prefix("key:").unwrap_or(written);
        let mut identity = match config.api_keys.iter().find(|key| key.name == name) {
            Some(key) => VerifiedIdentity {
                id: format!("key:{name}").into(),
                name: name.into(),
                groups: key.groups.iter().map(|group| group.as_str().into()).collect(),
                scopes: key.scopes.iter().map(|scope| scope.as_str().into()).collect(),
                ..VerifiedIdentity::default()
            },
            None => {
                VerifiedIdentity { id: written.into(), name: written.into(), ..VerifiedIdentity::default() }
            }
        };
        identity.groups.extend(self.groups.iter().map(|group| group.as_str().into()));
        identity.scopes.extend(self.scopes.iter().map(|scope| scope.as_str().into()));
        let claims = self.claims.iter().map(|(claim, value)| (claim.as_str().into(), value.as_str().into()));
        identity.claims.extend(claims);
        Principal::Known(Arc::new(identity))
    }

    fn things(&self) -> Vec<(Kind, &str)> {
        let kinds =
            [(Kind::Tool, &self.tools), (Kind::Prompt, &self.prompts), (Kind::Resource, &self.resources)];
        kinds
            .into_iter()
            .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())))
            .collect()
    }
}

/// Prints what endpoints make of the token in `file`. Fails if it fits none of them.
fn judge_token(config: &Config, endpoints: &[&EndpointConfig], file: &Path) -> anyhow::Result<ExitCode> {
    let source = SecretSource::File(std::path::absolute(file)?);
    let secret = Secret::read(&source)?;
    let token = std::str::from_utf8(secret.expose()).context("the file holds no text")?.trim();
    let token = token
        .get(..7)
        .filter(|scheme| scheme.eq_ignore_ascii_case("bearer "))
        .map_or(token, |_| token[7..].trim());
    let (mut text, mut fits) = (String::new(), false);
    for endpoint in endpoints {
        let report = TokenReport::of(config, endpoint, token, now_s())?;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", endpoint.name);
        for TokenPart { name, fits, said } in &report.0 {
            let verdict = match fits {
                Some(true) => "fits",
                Some(false) => "does not fit",
                None => "unknown",
            };
            let _ = writeln!(text, "  {name:<10} {verdict:<13} {}", text::shown(said));
        }
        fits |= report.fits();
    }
    put_text(text::shown_lines(&text));
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
