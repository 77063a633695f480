//! The memory of sign-in between two requests, and bounds of its work at once. Nothing of it has to last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use identity::client::Client;
use identity::provider::metadata::ProviderMetadata;
use identity::sealed::fingerprint::Fingerprint;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::access::limit::per_address::{AddressShare, PerAddress};

/// The time for which the provider's metadata are good.
const METADATA_LIFE: Duration = Duration::from_hours(1);
/// Documents of clients that are kept; each has 16 KiB at most.
const DOCUMENTS_MAX: u64 = 1024;
/// Documents that are fetched at once, by all and by one network.
const FETCHES_MAX: usize = 16;
const FETCHES_PER_ADDRESS_MAX: usize = 2;
/// Requests of sign-in under way, of one network.
const REQUESTS_PER_ADDRESS_MAX: usize = 64;
/// Accounts that the provider is asked about at once, off the line.
const CHECKS_MAX: usize = 16;

/// Whatever came of fetching a document.
pub(crate) type FetchedDocument = Result<Arc<Client>, Arc<str>>;

/// The memory of sign-in; it outlives a reload that keeps the provider.
#[derive(Debug)]
pub(crate) struct SignInMemory {
    metadata: Mutex<Option<(Arc<ProviderMetadata>, Instant)>>,
    documents: Cache<String, (FetchedDocument, Instant)>,
    pub(crate) fetches: Semaphore,
    pub(crate) fetching: Arc<PerAddress>,
    requests: Arc<PerAddress>,
    checking: Mutex<HashSet<Fingerprint>>,
}

impl Default for SignInMemory {
    fn default() -> Self {
        Self {
            metadata: Mutex::default(),
            documents: Cache::new(DOCUMENTS_MAX),
            fetches: Semaphore::new(FETCHES_MAX),
            fetching: PerAddress::new(FETCHES_PER_ADDRESS_MAX),
            requests: PerAddress::new(REQUESTS_PER_ADDRESS_MAX),
            checking: Mutex::default(),
        }
    }
}

impl SignInMemory {
    /// The provider's metadata, if they were fetched lately. `any_age`: older ones are better than none.
    pub(crate) fn metadata(&self, now: Instant, any_age: bool) -> Option<Arc<ProviderMetadata>> {
        let metadata = self.metadata.lock();
        let (metadata, fetched) = metadata.as_ref()?;
        (any_age || now < *fetched + METADATA_LIFE).then(|| Arc::clone(metadata))
    }

    pub(crate) fn keep_metadata(&self, metadata: &Arc<ProviderMetadata>, now: Instant) {
        *self.metadata.lock() = Some((Arc::clone(metadata), now));
    }

    /// The document of a client, or why there is none, as it was fetched lately.
    pub(crate) fn document(&self, url: &str, now: Instant) -> Option<FetchedDocument> {
        let (document, until) = self.documents.get(url)?;
        (now < until).then_some(document)
    }

    pub(crate) fn keep_document(&self, url: &str, document: FetchedDocument, until: Instant) {
        self.documents.insert(url.to_owned(), (document, until));
    }

    /// The right to be served; `None`: this network has as many requests as it may.
    pub(crate) fn admit(&self, address: std::net::IpAddr) -> Option<AddressShare> {
        self.requests.admit(address)
    }

    /// The right to ask about an account off the line. `None`: somebody does, or too many do.
    pub(crate) fn begin_check(self: &Arc<Self>, grant: Fingerprint) -> Option<CheckUnderWay> {
        let mut checking = self.checking.lock();
        if checking.len() >= CHECKS_MAX || !checking.insert(grant) {
            return None;
        }
        Some(CheckUnderWay { memory: Arc::clone(self), grant })
    }
}

/// Held while an account is asked about.
#[derive(Debug)]
pub(crate) struct CheckUnderWay {
    memory: Arc<SignInMemory>,
    grant: Fingerprint,
}

impl Drop for CheckUnderWay {
    fn drop(&mut self) {
        self.memory.checking.lock().remove(&self.grant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kept_in_a_bounded_number() {
        let (memory, now) = (SignInMemory::default(), crate::clock::now());
        for number in 0..4 * DOCUMENTS_MAX {
            let url = format!("https://app.example/{number}");
            memory.keep_document(&url, Err("none".into()), now + Duration::from_secs(10));
        }
        memory.documents.run_pending_tasks();
        let kept = memory.documents.entry_count();
        assert!((1..=DOCUMENTS_MAX).contains(&kept), "{kept}");
    }

    #[test]
    fn documents_that_one_network_has_fetched_leave_room_for_another() {
        let memory = SignInMemory::default();
        let [one, another] = [1, 2].map(|end| std::net::IpAddr::from([192, 0, 2, end]));
        let shares: Vec<_> = (0..FETCHES_PER_ADDRESS_MAX).map(|_| memory.fetching.admit(one)).collect();
        assert!(shares.iter().all(Option::is_some));
        assert!(memory.fetching.admit(one).is_none() && memory.fetching.admit(another).is_some());
        drop(shares);
        assert!(memory.fetching.admit(one).is_some());
        let permits: Vec<_> = (0..FETCHES_MAX).map(|_| memory.fetches.try_acquire()).collect();
        assert!(permits.iter().all(Result::is_ok) && memory.fetches.try_acquire().is_err());
    }

    #[test]
    fn accounts_that_are_asked_about_are_few_at_once() {
        let memory = Arc::new(SignInMemory::default());
        let ask = |number: usize| memory.begin_check(Fingerprint::of(&[&number.to_string()]));
        let first = ask(0).expect("there is room");
        assert!(ask(0).is_none(), "it is asked about already");
        let others: Vec<_> = (1..CHECKS_MAX).map(ask).collect();
        assert!(others.iter().all(Option::is_some) && ask(CHECKS_MAX).is_none());
        drop(first);
        assert!(ask(0).is_some());
    }
}
