//! The contents of the files that a configuration names: a file may be another while its name stays.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::watch::path_of;
use crate::access::auth::sign_in::settings::own_keys;
use crate::access::tls::expiry_of;
use crate::session::store::KEY_FILE;
use crate::telemetry::logs::time;
use crate::telemetry::trace;
use config::{Authorization, Config, KeySource, SecretSource};
use net::regular_file;

/// More than any of them has.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The files that a configuration names, and what is in them.
#[derive(Debug, Clone, Default)]
pub(super) struct FileContents(Vec<NamedFile>);

#[derive(Debug, Clone)]
struct NamedFile {
    /// The section that it belongs to.
    owner: String,
    role: Role,
    path: PathBuf,
    /// `None`: it could not be read.
    digest: Option<[u8; 32]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Certificates, which end.
    Certificates(&'static str),
    /// Keys and secrets.
    Secret(&'static str),
}

impl FileContents {
    /// Reads what `config` names, of a process that started with `started_with`: what is in force from the start on is read
    /// where that says.
    pub(super) fn read(config: &Config, started_with: &Config) -> Self {
        let mut all = Self::default();
        for listener in &config.listeners {
            let owner = || format!("listener {}", listener.address);
            let Some(tls) = &listener.tls else { continue };
            for certificate in &tls.certificates {
                all.add(owner(), Role::Certificates("certificate"), &certificate.chain);
                all.secret(owner(), "key", &certificate.key);
            }
            all.optional(owner(), Role::Certificates("client_ca"), tls.client_ca.as_deref());
        }
        for issuer in &config.jwt {
            let owner = || format!("jwt {}", issuer.name);
            if let KeySource::File(path) = &issuer.keys {
                all.add(owner(), Role::Secret("keys"), path);
            }
            all.optional(owner(), Role::Certificates("ca"), issuer.ca.as_deref());
        }
        all.optional("outbound".to_owned(), Role::Certificates("ca"), config.outbound.ca.as_deref());
        if let Some(basic) = &config.outbound.basic {
            all.secret("outbound".to_owned(), "password", &basic.password);
        }
        for upstream in &config.upstreams {
            let owner = || format!("upstream {}", upstream.name);
            all.optional(owner(), Role::Certificates("ca"), upstream.tls.ca.as_deref());
            if let Some((certificate, _)) = &upstream.tls.identity {
                all.add(owner(), Role::Certificates("certificate"), certificate);
            }
            if let Some(Authorization::OAuth(oauth)) = &upstream.credentials.authorization {
                all.optional(owner(), Role::Certificates("oauth.ca"), oauth.ca.as_deref());
            }
        }
        let own = started_with.state_directory.as_ref().map(|folder| folder.join(KEY_FILE));
        let key = config.session.key_file.as_ref().or(own.as_ref());
        all.optional("session".to_owned(), Role::Secret("key"), key.map(PathBuf::as_path));
        if let Some(sign_in) = &config.sign_in {
            let owner = || "sign_in".to_owned();
            let own = own_keys(started_with);
            let key = sign_in.key_file.as_ref().or(own.as_ref());
            all.optional(owner(), Role::Secret("key"), key.map(PathBuf::as_path));
            all.secret(owner(), "client_secret", sign_in.provider_client.proof.source());
            for client in &sign_in.clients {
                if let Some(secret) = &client.secret {
                    all.secret(format!("sign_in.client {}", client.id), "secret", secret);
                }
            }
        }
        if let Some(token) = &config.metrics.token {
            all.secret("metrics".to_owned(), "token", token);
        }
        // A listener that is to move has the old token until it does.
        let place = |config: &Config| config.admin.as_ref().map(|admin| admin.place.clone());
        let token = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
        if let Some(token) = token.filter(|_| place(config) == place(started_with)) {
            all.secret("admin".to_owned(), "token", token);
        }
        if let Some(shared) = &started_with.shared {
            let owner = || "shared, from its next connection on".to_owned();
            all.optional(owner(), Role::Certificates("ca"), shared.ca.as_deref());
            if let Some(password) = &shared.password {
                all.secret(owner(), "password", password);
            }
        }
        all
    }

    /// Reads what is in force from the start on alone.
    pub(super) fn read_of_start(started_with: &Config) -> Self {
        let mut all = Self::default();
        let ca = trace::ca_of(started_with.trace.as_ref());
        all.optional("trace".to_owned(), Role::Certificates("ca"), ca.as_deref());
        all
    }

    /// True if something in it is different from `before`.
    pub(super) fn differs(&self, before: &Self) -> bool {
        self.0.iter().any(|file| before.0.iter().any(|old| old.is_same(file) && old.digest != file.digest))
    }

    /// A line for every file that is another than `before`, or has other content, where what it belongs to was there.
    pub(super) fn changes(&self, before: &Self) -> Vec<String> {
        let is_unchanged =
            |file: &NamedFile| before.0.iter().any(|old| old.is_same(file) && old.digest == file.digest);
        let was_there = |file: &NamedFile| before.0.iter().any(|old| old.owner == file.owner);
        self.0.iter().filter(|file| was_there(file) && !is_unchanged(file)).map(NamedFile::told).collect()
    }

    fn optional(&mut self, owner: String, role: Role, path: Option<&Path>) {
        if let Some(path) = path {
            self.add(owner, role, path);
        }
    }

    fn secret(&mut self, owner: String, what: &'static str, source: &SecretSource) {
        self.optional(owner, Role::Secret(what), path_of(source).as_deref());
    }

    fn add(&mut self, owner: String, role: Role, path: &Path) {
        self.0.push(NamedFile { owner, role, path: path.to_owned(), digest: digest(path) });
    }
}

impl NamedFile {
    fn is_same(&self, other: &Self) -> bool {
        self.owner == other.owner && self.role == other.role && self.path == other.path
    }

    fn told(&self) -> String {
        let Self { owner, role, path, .. } = self;
        let path = path.display();
        match role {
            Role::Secret(what) => format!("{owner}: {what} changed, {path}"),
            Role::Certificates(what) => {
                let ends = expiry_of(&self.path).map(|expiry| time::to_the_second(expiry.ends_s));
                let ends = ends.map_or_else(|_| String::new(), |ends| format!(", good until {ends}"));
                format!("{owner}: {what} changed, {path}{ends}")
            }
        }
    }
}

fn digest(path: &Path) -> Option<[u8; 32]> {
    let mut file = regular_file::open(path).ok()?.take(FILE_BYTES_MAX);
    let mut digest = Sha256::new();
    // It may be a secret.
    let mut buffer = Zeroizing::new([0; 8192]);
    loop {
        let read = file.read(buffer.as_mut_slice()).ok()?;
        if read == 0 {
            return Some(digest.finalize().into());
        }
        digest.update(buffer.get(..read)?);
    }
}
