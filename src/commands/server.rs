//! Which server a command speaks to: the options that `connect`, `tools`, `call` and `doctor` have in common.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum, ValueHint};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use client::EraChoice;
use client::server::{HttpServer, Server, StdioServer};
use net::tls::Connector;
use protocol::level::Level;
use protocol::version::LegacyVersion;
use tools::call::CallTarget;

/// Where the key comes from if there is no file.
const KEY_VARIABLE: &str = "TRUNKLINE_KEY";

/// How a server over HTTP is spoken to.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// A header for every request, as 'Name: value'; may be given more than once
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// A file that holds nothing but the key, which is sent as Authorization: Bearer
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// CA bundle (PEM) for https URLs; without it, the system trust store
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca: Option<PathBuf>,
    /// Timeout in seconds for the start of a reply, for each message of it, and for idle streams
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl ServerArgs {
    /// The server at `url`.
    pub(super) fn address(&self, url: &str) -> anyhow::Result<HttpServer> {
        let url = config::server_url(url).map_err(|why| anyhow::anyhow!("{url:?}: {why}"))?;
        let mut headers = HeaderMap::new();
        for text in &self.headers {
            let (name, value) = header(text)?;
            headers.append(name, value);
        }
        if let Some(key) = key(self.key_file.as_deref())? {
            anyhow::ensure!(
                !headers.contains_key(AUTHORIZATION),
                "give either a key or an Authorization header"
            );
            headers.insert(AUTHORIZATION, key);
        }
        anyhow::ensure!(self.ca.is_none() || url.is_tls, "--ca is for a URL that begins with https://");
        let tls = url.is_tls.then(|| Connector::trusting(self.ca.as_deref())).transpose()?;
        Ok(HttpServer { url, headers, tls })
    }

    /// How long a reply may take to begin, a message of it to arrive, and the pause before the next.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// How `tools` and `call` speak to a server.
#[derive(Debug, Args)]
pub(super) struct ConversationArgs {
    /// The era of MCP to speak
    #[arg(long, value_enum, default_value_t)]
    era: EraArg,
    /// Show every message on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    how: ServerArgs,
}

impl ConversationArgs {
    /// The server, and what a person types for it.
    pub(super) fn target(
        &self,
        url: Option<&str>,
        command: &[String],
        log_level: Option<Level>,
    ) -> anyhow::Result<(CallTarget, String)> {
        let target = CallTarget {
            server: server(&self.how, url, command)?,
            era: self.era.wanted(),
            timeout: self.how.timeout(),
            log_level,
            is_verbose: self.verbose,
        };
        Ok((target, url.map_or_else(|| format!("-- {}", command.join(" ")), str::to_owned)))
    }
}

/// A server: its URL, or the program that it is.
pub(super) fn server(
    how: &ServerArgs,
    url: Option<&str>,
    command: &[impl AsRef<OsStr>],
) -> anyhow::Result<Server> {
    match (url, command.split_first()) {
        (Some(url), None) if url.contains("://") => Ok(Server::Http(how.address(url)?)),
        (Some(url), None) if looks_like_an_address(url) => {
            anyhow::bail!("{url:?} is no URL; did you mean http://{url}?")
        }
        (Some(url), None) => anyhow::bail!(
            "{url:?} is no server: write its URL, as in http://127.0.0.1:8080/mcp, or a program that is one behind --"
        ),
        (None, Some((name, arguments))) => Ok(Server::Stdio(StdioServer {
            name: name.into(),
            arguments: arguments.iter().map(Into::into).collect(),
        })),
        (Some(_), Some(_)) => {
            anyhow::bail!("give either the URL of a server, or a program that is one behind --")
        }
        (None, None) => anyhow::bail!("give the URL of a server, or a program that is one behind --"),
    }
}

/// Whether nothing but the scheme is missing to a URL.
fn looks_like_an_address(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    (has_port || host == "localhost") && config::server_url(&format!("http://{text}")).is_ok()
}

/// The revisions that may be spoken.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum EraArg {
    /// The newest that the server knows
    #[default]
    Auto,
    /// 2026-07-28 alone
    Modern,
    /// 2025-11-25 or older
    Legacy,
}

impl EraArg {
    fn wanted(self) -> EraChoice {
        match self {
            Self::Auto => EraChoice::Auto,
            Self::Modern => EraChoice::Modern,
            Self::Legacy => EraChoice::Legacy(LegacyVersion::NEWEST),
        }
    }
}

fn header(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    // The value may be a secret: it is never shown.
    let (name, value) = text.split_once(':').context("a header is written as 'Name: value'")?;
    let header: HeaderName = name
        .trim()
        .to_ascii_lowercase()
        .parse()
        .ok()
        .with_context(|| format!("no header's name: {name:?}"))?;
    anyhow::ensure!(!client::is_reserved(&header), "{name} is written by this program itself");
    let mut value =
        HeaderValue::from_str(value.trim()).ok().with_context(|| format!("no value for {name}"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

fn key(file: Option<&Path>) -> anyhow::Result<Option<HeaderValue>> {
    let (key, source) = match (file, std::env::var_os(KEY_VARIABLE)) {
        (Some(file), _) => {
            let key =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            (key, file.display().to_string())
        }
        (None, Some(key)) => {
            let key = key.into_string().ok().with_context(|| format!("{KEY_VARIABLE} is not text"))?;
            (key, KEY_VARIABLE.to_owned())
        }
        (None, None) => return Ok(None),
    };
    let key = key.trim();
    anyhow::ensure!(!key.is_empty(), "{source} holds no key");
    let value = HeaderValue::from_str(&format!("Bearer {key}")).ok();
    let mut value = value.with_context(|| format!("{source} does not hold a key of one line"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}
