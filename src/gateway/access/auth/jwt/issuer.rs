//! An issuer of tokens, with the keys that it has now.
//!
//! Keys are fetched by the control thread alone; a call at most asks for that and waits a moment. Invariant: whoever
//! remembers that a token was valid remembers the generation of the keys, and another generation makes that void.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::keys::{JwksError, KeySet};
use crate::clock;
use crate::identity::refusal::CredentialFault;
use config::{self, Algorithm, KeySource};
use net::jitter::doubled;
use net::tls::{Connector, TlsSettingsError};
use tokens::jwt::Token;

/// How often tokens with unknown keys may have an issuer's keys fetched.
const ASKED_INTERVAL: Duration = Duration::from_secs(10);
/// For how long a call waits for keys.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a failed fetch, which doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// More than any set of keys needs.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Issuer {
    pub config: config::Jwt,
    /// How its server must prove who it is, where that is asked by TLS.
    pub tls: Option<Arc<Connector>>,
    held: ArcSwapOption<CurrentKeys>,
    generation: AtomicU64,
    plan: Mutex<FetchSchedule>,
    /// How many fetches have ended.
    ended: watch::Sender<u64>,
    wanted: Arc<Notify>,
}

#[derive(Debug)]
struct CurrentKeys {
    keys: KeySet,
    generation: u64,
}

#[derive(Debug)]
struct FetchSchedule {
    due: Instant,
    is_fetching: bool,
    failures: u32,
    asked: Option<Instant>,
    /// When the keys that are held are too old to be used.
    stale: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Issuers {
    /// In configured order.
    pub all: Vec<Arc<Issuer>>,
    /// Told when one needs its keys before they are due.
    pub wanted: Arc<Notify>,
}

#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error("[[jwt]] {name}: {reason}")]
    Tls { name: String, reason: TlsSettingsError },
    #[error(transparent)]
    File(#[from] FileError),
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: std::io::Error },
    /// It holds something else.
    #[error("{}: {reason}", path.display())]
    Keys { path: PathBuf, reason: JwksError },
}

impl Issuers {
    /// The issuers of `configs`. What is equal in `old` is kept, with its keys. A file must be there; what is behind a
    /// URL is fetched later.
    pub(crate) fn new(configs: &[config::Jwt], old: Option<&Self>) -> Result<Self, IssuerError> {
        let wanted = old.map_or_else(Arc::default, |old| Arc::clone(&old.wanted));
        let all = configs.iter().map(|config| -> Result<Arc<Issuer>, IssuerError> {
            let same_source = |issuer: &&Arc<Issuer>| {
                issuer.config.keys == config.keys && issuer.config.issuer == config.issuer
            };
            let before = old.and_then(|old| old.all.iter().find(same_source));
            let keys = match &config.keys {
                KeySource::File(path) => Some(read_file(path)?),
                KeySource::Url(_) | KeySource::Discovery(_) => None,
            };
            let has_changed =
                |issuer: &Arc<Issuer>| keys.as_ref().is_some_and(|keys| issuer.digest() != Some(keys.digest));
            let tls = connector(config)?;
            let settings = tls.as_deref().map(Connector::settings);
            let is_same = |issuer: &&Arc<Issuer>| {
                issuer.config == *config
                    && issuer.tls.as_deref().map(Connector::settings) == settings
                    && !has_changed(issuer)
            };
            if let Some(same) = before.filter(is_same) {
                return Ok(Arc::clone(same));
            }
            Ok(Arc::new(Issuer { tls, ..Issuer::new(config, keys, before, Arc::clone(&wanted)) }))
        });
        Ok(Self { all: all.collect::<Result<_, _>>()?, wanted })
    }
}

/// The way to the server of an issuer that is asked by TLS.
fn connector(config: &config::Jwt) -> Result<Option<Arc<Connector>>, IssuerError> {
    let (KeySource::Url(url) | KeySource::Discovery(url)) = &config.keys else { return Ok(None) };
    if url.scheme_str() != Some("https") {
        return Ok(None);
    }
    let connector = Connector::trusting(config.ca.as_deref());
    connector.map(Some).map_err(|reason| IssuerError::Tls { name: config.name.clone(), reason })
}

pub(crate) fn read_file(path: &std::path::Path) -> Result<KeySet, FileError> {
    use std::io::Read as _;
    let mut document = Vec::new();
    net::regular_file::open(path)
        .and_then(|file| file.take(DOCUMENT_BYTES_MAX as u64).read_to_end(&mut document))
        .map_err(|reason| FileError::Read { path: path.to_owned(), reason })?;
    KeySet::read(&document).map_err(|reason| FileError::Keys { path: path.to_owned(), reason })
}

impl Issuer {
    fn new(
        config: &config::Jwt,
        keys: Option<KeySet>,
        before: Option<&Arc<Self>>,
        wanted: Arc<Notify>,
    ) -> Self {
        let now = clock::now();
        let mut plan = FetchSchedule { due: now, is_fetching: false, failures: 0, asked: None, stale: None };
        let mut held = None;
        if let Some(before) = before {
            let old = before.plan();
            (plan.due, plan.stale) = (old.due, old.stale);
            held = before.held.load_full();
        }
        if let Some(keys) = keys {
            held = Some(Arc::new(CurrentKeys { keys, generation: 1 }));
            plan.due = now + config.jwks_refresh_interval;
            plan.stale = Some(now + config.jwks_stale_max);
        }
        Self {
            config: config.clone(),
            tls: None,
            generation: AtomicU64::new(held.as_ref().map_or(0, |held| held.generation)),
            held: ArcSwapOption::new(held),
            plan: Mutex::new(plan),
            ended: watch::Sender::new(0),
            wanted,
        }
    }

    fn plan(&self) -> parking_lot::MutexGuard<'_, FetchSchedule> {
        self.plan.lock()
    }

    fn digest(&self) -> Option<[u8; 32]> {
        self.held.load().as_ref().map(|held| held.keys.digest)
    }

    /// Which keys it has now; another number after every change.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.held.load().is_some()
    }

    /// Checks how a token is signed. Returns the generation of the keys that it was checked with.
    pub(crate) fn check(&self, token: &Token<'_>, algorithm: Algorithm) -> Result<u64, CredentialFault> {
        if !self.config.algorithms.contains(&algorithm) {
            return Err(CredentialFault::Algorithm);
        }
        let held = self.held.load();
        let held = held.as_ref().ok_or(CredentialFault::UnknownKey)?;
        held.keys.check(token, algorithm)?;
        Ok(held.generation)
    }

    /// Has the keys fetched for a token whose key is unknown, and waits for that a moment. Returns at once if that was
    /// done just now: what tokens say must not make the gateway fetch as often as somebody likes.
    pub(crate) async fn ask(&self) {
        let mut ended = self.ended.subscribe();
        let seen = *ended.borrow_and_update();
        {
            let now = clock::now();
            let mut plan = self.plan();
            // What is due anyway is waited for, and counts for nobody.
            if !plan.is_fetching && plan.due > now {
                let is_recent = |asked: Instant| now.duration_since(asked) < ASKED_INTERVAL;
                if plan.asked.is_some_and(is_recent) {
                    return;
                }
                plan.asked = Some(now);
                plan.due = now;
                self.wanted.notify_one();
            }
        }
        // Out of patience, the call goes by what is known.
        let _ = timeout(PATIENCE, ended.wait_for(|ended| *ended > seen)).await;
    }

    /// Whether keys are to be fetched now; if so, they are being fetched from here on. Keys that are too old are dropped.
    pub(crate) fn begin(&self, now: Instant) -> bool {
        let mut plan = self.plan();
        if plan.stale.is_some_and(|stale| stale <= now) {
            plan.stale = None;
            self.held.store(None);
            self.generation.fetch_add(1, Ordering::Release);
        }
        let begins = !plan.is_fetching && plan.due <= now;
        plan.is_fetching |= begins;
        begins
    }

    /// When [`begin`](Self::begin) has something to do next.
    pub(crate) fn next(&self) -> Instant {
        let plan = self.plan();
        // While keys are fetched, the end of that is waited for.
        let due = if plan.is_fetching { plan.due + PAUSE_MAX } else { plan.due };
        plan.stale.map_or(due, |stale| due.min(stale))
    }

    /// Has keys that could not be read tried again now, for a reason to hope.
    pub(crate) fn hasten(&self, now: Instant) {
        let mut plan = self.plan();
        if plan.failures > 0 {
            (plan.failures, plan.due) = (0, now);
        }
    }

    /// What came of fetching. Returns whether keys changed.
    pub(crate) fn end(&self, keys: Option<KeySet>, now: Instant) -> bool {
        let mut has_changed = false;
        {
            let mut plan = self.plan();
            plan.is_fetching = false;
            if let Some(keys) = keys {
                plan.failures = 0;
                plan.due = now + self.config.jwks_refresh_interval;
                plan.stale = Some(now + self.config.jwks_stale_max);
                has_changed = self.digest() != Some(keys.digest);
                if has_changed {
                    let generation = self.generation() + 1;
                    self.held.store(Some(Arc::new(CurrentKeys { keys, generation })));
                    self.generation.store(generation, Ordering::Release);
                }
            } else {
                let pause = doubled(PAUSE_MIN, plan.failures, PAUSE_MAX);
                plan.failures = plan.failures.saturating_add(1);
                plan.due = now + pause.min(self.config.jwks_refresh_interval);
            }
        }
        self.ended.send_modify(|ended| *ended += 1);
        has_changed
    }

    pub(crate) fn key_count(&self) -> usize {
        self.held.load().as_ref().map_or(0, |held| held.keys.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn config(stale_max: Duration) -> config::Jwt {
        config::Jwt {
            name: "test".into(),
            issuer: "https://issuer".into(),
            keys: KeySource::Url("http://127.0.0.1/keys".parse().expect("a URL")),
            ca: None,
            algorithms: vec![Algorithm::EdDSA],
            audiences: Vec::new(),
            leeway: Duration::ZERO,
            subject_claim: "sub".into(),
            groups_claim: "groups".into(),
            scope_claim: None,
            jwks_refresh_interval: Duration::from_mins(10),
            jwks_stale_max: stale_max,
        }
    }

    fn keys(comment: &str) -> KeySet {
        KeySet::read(format!("{KEYS}{comment}").as_bytes()).expect("keys")
    }

    #[test]
    fn keys_last_until_they_are_too_old() {
        let issuers = Issuers::new(&[config(Duration::from_hours(1))], None).expect("issuers");
        let issuer = &issuers.all[0];
        let start = clock::now();
        assert!(issuer.begin(start), "due at once");
        assert!(!issuer.begin(start), "under way");
        assert!(issuer.end(Some(keys("")), start));
        let first = issuer.generation();
        let due = start + Duration::from_mins(10);
        assert_eq!(issuer.next(), due);
        assert!(issuer.begin(due));
        assert!(!issuer.end(Some(keys("")), due), "the same keys");
        assert_eq!(issuer.generation(), first);
        assert!(issuer.begin(due + Duration::from_mins(10)));
        assert!(issuer.end(Some(keys("\n")), due + Duration::from_mins(10)), "other keys");
        assert_ne!(issuer.generation(), first);
        let last = due + Duration::from_mins(10);
        let mut now = last;
        while now < last + Duration::from_hours(1) {
            now = issuer.next();
            if issuer.begin(now) {
                issuer.end(None, now);
            }
        }
        assert!(!issuer.has_keys(), "nobody could read them for an hour");
        assert_eq!(now, last + Duration::from_hours(1));
    }

    #[test]
    fn a_reload_keeps_the_keys_of_an_issuer() {
        let old = Issuers::new(&[config(Duration::from_hours(1))], None).expect("issuers");
        old.all[0].end(Some(keys("")), clock::now());
        let same = Issuers::new(&[config(Duration::from_hours(1))], Some(&old)).expect("issuers");
        assert!(Arc::ptr_eq(&old.all[0], &same.all[0]));
        let changed = Issuers::new(&[config(Duration::from_hours(2))], Some(&same)).expect("issuers");
        assert!(!Arc::ptr_eq(&old.all[0], &changed.all[0]) && changed.all[0].has_keys());
        let other = config::Jwt {
            keys: KeySource::Url("http://127.0.0.1/others".parse().expect("a URL")),
            ..config(Duration::from_hours(1))
        };
        assert!(!Issuers::new(&[other], Some(&same)).expect("issuers").all[0].has_keys());
    }
}
