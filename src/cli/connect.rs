//! `trunkline connect`: standard input and output against a server elsewhere.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::EXIT_COMMAND_LINE;
use crate::config;
use crate::connect::{self, Settings};
use crate::tls::client::Connector;

/// Where the key comes from if there is no file.
const KEY_VARIABLE: &str = "TRUNKLINE_KEY";

/// Options of `trunkline connect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  the client ended its output or closed its input, or a signal came
  1  standard input or output cannot be used
  2  the command line is wrong, or the key or the certificates cannot be read

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file

What goes wrong with the server is not an exit: the request it happened to gets an error.")]
pub(super) struct Options {
    #[arg(help = "The server, for example http://127.0.0.1:8080/mcp")]
    url: String,
    /// A header for every request, as 'Name: value'; may be given more than once
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// A file that holds nothing but the key, which is sent as Authorization: Bearer
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file of the certificates to believe, in PEM, for an https URL; without it, those that the system believes
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Seconds that a reply may take to begin, and may pause after that
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

/// Runs until one side ends it.
pub(super) fn connect(options: &Options) -> ExitCode {
    let settings = match settings(options) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(EXIT_COMMAND_LINE);
        }
    };
    match connect::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn settings(options: &Options) -> anyhow::Result<Settings> {
    let url = config::server_url(&options.url).map_err(|why| anyhow::anyhow!("{:?}: {why}", options.url))?;
    let mut headers = HeaderMap::new();
    for text in &options.headers {
        let (name, value) = header(text)?;
        headers.append(name, value);
    }
    if let Some(key) = key(options.key_file.as_deref())? {
        anyhow::ensure!(!headers.contains_key(AUTHORIZATION), "give either a key or an Authorization header");
        headers.insert(AUTHORIZATION, key);
    }
    anyhow::ensure!(options.ca.is_none() || url.is_tls, "--ca is for a URL that begins with https://");
    let tls = url.is_tls.then(|| Connector::trusting(options.ca.as_deref())).transpose()?;
    Ok(Settings { url, headers, tls, timeout: Duration::from_secs(options.timeout) })
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
    anyhow::ensure!(!connect::is_reserved(&header), "{name} is written by this program itself");
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
