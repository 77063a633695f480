//! `trunkline check --provider`: asks an `OpenID` provider whether people can sign in there, and prints what to write.

use std::path::Path;
use std::process::ExitCode;

use tokio::runtime::{Builder, LocalOptions};

use super::{CommandFailure, EXIT_COMMAND_LINE, EXIT_FAILED, EXIT_UNREACHABLE};
use config::Config;
use protocol::text::{shown, shown_lines};
use tools::provider::{AskError, ProviderPlace, ask, is_safe_issuer, lines, review};
use tools::terminal::{self, paint, put_text};

/// The provider that is asked.
#[derive(Clone, Debug)]
pub(super) enum ProviderArg {
    /// That of the configuration.
    Configured,
    /// The one with this issuer.
    Issuer(String),
}

/// Reads the argument of `--provider`.
pub(super) fn provider(text: &str) -> Result<ProviderArg, String> {
    if text.is_empty() {
        return Ok(ProviderArg::Configured);
    }
    if !text.contains("://") {
        return Err("not an issuer: write its URL, as in https://login.example.com, and a configuration with --config".to_owned());
    }
    if !is_safe_issuer(text) {
        return Err(
            "not an issuer: a provider is asked by https, or by http at a loopback address".to_owned()
        );
    }
    Ok(ProviderArg::Issuer(text.to_owned()))
}

/// True where no configuration is needed: none is named, and none stands where it is looked for.
pub(super) fn needs_none(path: &Path, asked: &ProviderArg) -> bool {
    let is_missing = || matches!(path.try_exists(), Ok(false));
    matches!(asked, ProviderArg::Issuer(_)) && path == Path::new(super::CONFIG_FILE) && is_missing()
}

/// Asks, and prints findings on standard error, and what to register and to write on standard output.
pub(super) fn check_provider(
    asked: &ProviderArg,
    config: Option<&Config>,
) -> Result<ExitCode, CommandFailure> {
    let wrong = |why: String| CommandFailure::with(EXIT_COMMAND_LINE)(anyhow::anyhow!(why));
    let place = match (asked, config) {
        (ProviderArg::Issuer(issuer), config) => ProviderPlace::new(issuer, config),
        (ProviderArg::Configured, Some(config)) => ProviderPlace::of(config).map_err(wrong)?,
        (ProviderArg::Configured, None) => return Err(wrong("there is no configuration".to_owned())),
    };
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    let answer = runtime.block_on(ask(&place)).map_err(|error| {
        let code = if matches!(error, AskError::Unreachable { .. }) { EXIT_UNREACHABLE } else { EXIT_FAILED };
        CommandFailure::with(code)(anyhow::anyhow!(
            "the provider {} cannot be asked: {error}",
            shown(place.issuer)
        ))
    })?;
    let findings = review(&place, &answer);
    for finding in &findings {
        let (style, word) =
            if finding.is_error { (paint::BAD, "error") } else { (paint::WARNING, "warning") };
        terminal::say(format_args!("{}: {}", paint::painted(style, word), shown_lines(&finding.text)));
    }
    put_text(lines(&place, &answer));
    let is_fit = findings.iter().all(|finding| !finding.is_error);
    Ok(if is_fit { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}
