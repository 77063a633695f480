//! What a configuration names outside of its text, opened as a start of the gateway does: for `trunkline check`.
//!
//! Each part is made by the very function that makes it at a start, so that what is found here is what would be refused
//! there, and all of it is found at once. Nothing is listened at, connected to, started, or written.
//!
//! What only the process of the service can know is not held against the configuration, but said: its credentials, and
//! its environment. `ExecReload=` of the unit runs in the environment of the service, which [`is_of_service`] tells.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::StartError;
use crate::access::auth::jwt::issuer::Issuers;
use crate::access::auth::operator::Operators;
use crate::access::auth::sign_in::settings::own_keys;
use crate::access::limit::open_files;
use crate::access::tls::{TlsError, TlsServer, expiry, expiry_of};
use crate::key_file::{self, KeyFileError};
use crate::redis::{Redis, SharedError};
use crate::session::store::KEY_FILE;
use crate::snapshot::Snapshot;
use crate::telemetry::logs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::Traces;
use crate::upstream::credentials::{AccessError, Material, UpstreamAccess};
use crate::upstream::stdio::{launchers, program};
use config::{Config, SecretSource, SignIn};
use net::outbound::{OutboundError, WayOut};
use net::secret::{CREDENTIALS_AGE, Secret, SecretError, exposure};
use net::tls::Connectors;

/// What is wrong with what a configuration names.
#[derive(Debug, Default)]
pub struct FileFindings {
    /// A gateway would not start.
    pub errors: Vec<String>,
    /// It would start, or it cannot be told from here.
    pub warnings: Vec<String>,
    /// Upstreams whose program cannot be started or has a launcher that stays, by name, and why.
    pub programs: Vec<(String, String)>,
    /// Secrets that only the service has.
    unknown: usize,
}

impl FileFindings {
    /// Opens everything that `config` names.
    pub fn of(config: &Config) -> Result<Self, StartError> {
        let mut findings = Self::default();
        let metrics = Metrics::of(&config.metrics)?;
        for listener in &config.listeners {
            let server = listener.tls.as_ref().map(|tls| TlsServer::load(tls, None)).transpose();
            if let Ok(Some(server)) = &server {
                findings.warnings.extend(expiry::told(server.expiries()));
            }
            findings.part(&format!("listener {}: ", listener.address), server, |error| match error {
                TlsError::Key(error) => Some(error),
                _ => None,
            });
        }
        let operators = Operators::read(config.admin.as_ref(), None).map_err(AccessError::Secret);
        findings.part("admin: ", operators, secret_of);
        let scrapers = Operators::of_metrics(&config.metrics).map_err(AccessError::Secret);
        findings.part("metrics: ", scrapers, secret_of);
        findings.part("", WayOut::read(&config.outbound), |error| match error {
            OutboundError::Secret(error) => Some(error),
            _ => None,
        });
        for issuer in &config.jwt {
            let issuers = Issuers::new(std::slice::from_ref(issuer), None);
            findings.part("", issuers, |_| None);
        }
        for source in config.sign_in.iter().flat_map(SignIn::secrets) {
            findings.part("sign_in: ", Secret::read(source), |error| Some(error));
        }
        for upstream in &config.upstreams {
            let access = Material::read(upstream)
                .and_then(|material| UpstreamAccess::new(upstream, material, &mut Connectors::default()));
            findings.part(&format!("upstream {}: ", upstream.name), access, secret_of);
            let shown = upstream.tls.identity.as_ref().and_then(|(path, _)| expiry_of(path).ok());
            findings.warnings.extend(expiry::told(shown.as_slice()));
            if let Some(error) = upstream.command.as_ref().and_then(program::fault) {
                findings.programs.push((upstream.name.clone(), error.to_string()));
            }
        }
        findings.programs.extend(launchers::advice(config));
        let shared = config.shared.as_ref().map(|shared| Redis::new(shared, metrics.shared.clone()));
        findings.part("", shared.transpose(), |error| match error {
            SharedError::Password(error) => Some(error),
            _ => None,
        });
        findings.part("", Traces::open(config.trace.as_ref(), &metrics.gateway.trace_spans), |_| None);
        // With its reason, which is another error.
        let logs = logs::look(&config.log).into_iter().map(anyhow::Error::from);
        findings.errors.extend(logs.map(|error| format!("{error:#}")));
        findings.modes(config);
        let own_of_sessions = config.state_directory.as_ref().map(|folder| folder.join(KEY_FILE));
        findings.keys(config.session.key_file.as_deref(), own_of_sessions.as_deref());
        if let Some(sign_in) = &config.sign_in {
            // Without them, no snapshot can be made.
            let is_withheld = findings.keys(sign_in.key_file.as_deref(), own_keys(config).as_deref());
            findings.unknown += usize::from(is_withheld);
        }
        findings.warnings.extend(program::started_as_root(config));
        if let Err(error) = open_files::connections_max(config.limits.connections_max) {
            findings.warnings.push(error.to_string());
        }
        // Whatever goes beyond the parts.
        if findings.errors.is_empty() && findings.unknown == 0 {
            findings.part("", Snapshot::build(config, &metrics, None), |_| None);
        }
        Ok(findings)
    }

    /// Notes how a part came out; `secret` finds out whether it is for want of a secret.
    fn part<T, E: std::fmt::Display>(
        &mut self,
        what: &str,
        made: Result<T, E>,
        secret: impl Fn(&E) -> Option<&SecretError>,
    ) {
        let Err(error) = made else { return };
        let text = format!("{what}{error}");
        let is_of_service = is_of_service();
        let more = match secret(&error) {
            Some(error) if error.is_withheld_credential(is_of_service) => format!("; {CREDENTIALS_AGE}"),
            Some(SecretError::NotSet(_)) if !is_of_service => String::new(),
            _ => return self.errors.push(text),
        };
        self.unknown += 1;
        self.warnings.push(format!("{text} (not checked: the service may have it{more})"));
    }

    /// Files with secrets that everybody may use.
    fn modes(&mut self, config: &Config) {
        let shared = config.shared.as_ref().and_then(|shared| shared.password.as_ref());
        let own = config.state_directory.as_ref().map(|folder| folder.join(KEY_FILE));
        let session = config.session.key_file.as_deref().or(own.as_deref());
        let secrets = config.named().secrets.into_iter().chain(shared).filter_map(|source| match source {
            SecretSource::File(path) => Some(path.as_path()),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        let files = secrets.chain(session).filter(|path| seen.insert(path.to_path_buf()));
        self.warnings.extend(files.filter_map(exposure));
    }

    /// A file of keys. Where it is in the state directory, the first start makes it, and nobody but the service may have to
    /// be able to read it: true if that is so.
    fn keys(&mut self, named: Option<&Path>, own: Option<&Path>) -> bool {
        let Some(path) = named.or(own) else { return false };
        let Err(error) = key_file::load(path) else { return false };
        let reason = match &error {
            KeyFileError::Read { reason, .. } if named.is_none() => Some(reason.kind()),
            _ => None,
        };
        match reason {
            Some(io::ErrorKind::NotFound) => {}
            Some(io::ErrorKind::PermissionDenied) => {
                self.warnings.push(format!("{error} (not checked: the service can)"));
            }
            _ => self.errors.push(error.to_string()),
        }
        reason == Some(io::ErrorKind::PermissionDenied)
    }
}

fn secret_of(error: &AccessError) -> Option<&SecretError> {
    match error {
        AccessError::Secret(error) => Some(error),
        _ => None,
    }
}

/// Whether this process has the environment of the service: systemd says to what controls a service which process is its
/// main one, and to nobody else.
fn is_of_service() -> bool {
    std::env::var_os("MAINPID").is_some()
}
