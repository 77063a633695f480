//! The memory of sign-in between two requests, and bounds of its work at once. Nothing of it has to last.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use identity::client::Client;
use identity::provider::metadata::ProviderMetadata;
use identity::sealed::fingerprint::Fingerprint;
use parking_lot::Mutex;

use super::faults::{DocumentError, ProviderFault};
use super::fetched::Fetched;
use crate::access::auth::jwt::keys::KeySet;
use crate::access::limit::per_address::{AddressShare, PerAddress};

/// Documents of clients that are kept, and sets of their keys; each has 16 KiB at most.
const DOCUMENTS_MAX: u64 = 1024;
const KEY_SETS_MAX: u64 = 256;
/// Documents of strangers that are fetched at once, by all, for one network and from one host.
const FETCHES_MAX: usize = 16;
const FETCHES_PER_ADDRESS_MAX: usize = 2;
const FETCHES_PER_HOST_MAX: usize = 2;
/// Requests of sign-in under way, of one network.
const REQUESTS_PER_ADDRESS_MAX: usize = 64;
/// Accounts that the provider is asked about at once, off the line.
const CHECKS_MAX: usize = 16;

/// The memory of sign-in; it outlives a reload that keeps the provider.
#[derive(Debug)]
pub(crate) struct SignInMemory {
    /// The provider's.
    pub(crate) metadata: Fetched<ProviderMetadata, ProviderFault>,
    pub(crate) documents: Fetched<Client, DocumentError>,
    /// The keys of clients, by their URLs.
    pub(crate) client_keys: Fetched<KeySet, DocumentError>,
    fetching_for: Arc<PerAddress>,
    fetching_from: Arc<UnderWay<String>>,
    requests: Arc<PerAddress>,
    checking: Arc<UnderWay<Fingerprint>>,
    refusals: Mutex<LinesOfSecond>,
}

impl Default for SignInMemory {
    fn default() -> Self {
        Self {
            metadata: Fetched::new(1),
            documents: Fetched::new(DOCUMENTS_MAX),
            client_keys: Fetched::new(KEY_SETS_MAX),
            fetching_for: PerAddress::new(FETCHES_PER_ADDRESS_MAX),
            fetching_from: Arc::default(),
            requests: PerAddress::new(REQUESTS_PER_ADDRESS_MAX),
            checking: Arc::default(),
            refusals: Mutex::default(),
        }
    }
}

/// The lines about refusals of one second.
#[derive(Debug, Default)]
struct LinesOfSecond {
    second: u64,
    written: usize,
    left_out: u64,
}

/// A place to fetch something of a stranger's in. It is taken until nothing of that goes on any more.
#[derive(Debug)]
pub(crate) struct FetchPlace {
    _of_asker: AddressShare,
    _of_host: PlaceUnderWay<String>,
}

impl SignInMemory {
    /// Admits a line about a refusal, of which strangers cause as many as they like. Then it says how many were left
    /// out before it.
    pub(crate) fn admit_line(&self, per_second_max: usize, now_s: u64) -> Option<u64> {
        let mut lines = self.refusals.lock();
        if lines.second != now_s {
            (lines.second, lines.written) = (now_s, 0);
        }
        if lines.written >= per_second_max {
            lines.left_out = lines.left_out.saturating_add(1);
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.left_out))
    }

    /// The right to be served; `None`: this network has as many requests as it may.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<AddressShare> {
        self.requests.admit(address)
    }

    /// The right to fetch something from this host. `None`: too much is fetched, by all, for this network or from there.
    pub(crate) fn begin_fetch(&self, host: &str, asker: IpAddr) -> Option<FetchPlace> {
        let of_asker = self.fetching_for.admit(asker)?;
        let host = host.to_ascii_lowercase();
        let of_host = self.fetching_from.begin(host, FETCHES_PER_HOST_MAX, FETCHES_MAX)?;
        Some(FetchPlace { _of_asker: of_asker, _of_host: of_host })
    }

    /// The right to ask about an account off the line. `None`: somebody does, or too many do.
    pub(crate) fn begin_check(&self, grant: Fingerprint) -> Option<PlaceUnderWay<Fingerprint>> {
        self.checking.begin(grant, 1, CHECKS_MAX)
    }
}

/// The number of each that is under way.
#[derive(Debug)]
struct UnderWay<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> UnderWay<K> {
    /// One more, where there are fewer than `of_key_max` of this key, and than `all_max` of all.
    fn begin(self: &Arc<Self>, key: K, of_key_max: usize, all_max: usize) -> Option<PlaceUnderWay<K>> {
        let mut counts = self.0.lock();
        let all: usize = counts.values().sum();
        let of_key = counts.get(&key).copied().unwrap_or_default();
        if all >= all_max || of_key >= of_key_max {
            return None;
        }
        counts.insert(key.clone(), of_key + 1);
        Some(PlaceUnderWay { all: Arc::clone(self), key })
    }
}

/// Held while it is under way.
#[derive(Debug)]
pub(crate) struct PlaceUnderWay<K: Eq + Hash> {
    all: Arc<UnderWay<K>>,
    key: K,
}

impl<K: Eq + Hash> Drop for PlaceUnderWay<K> {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, u8::try_from(number).expect("a small number")])
    }

    #[test]
    fn documents_that_one_network_has_fetched_leave_room_for_another() {
        let memory = SignInMemory::default();
        let begin =
            |host: usize, asker: usize| memory.begin_fetch(&format!("{host}.example"), network(asker));
        let of_one: Vec<_> = (0..3).filter_map(|host| begin(host, 0)).collect();
        assert_eq!(of_one.len(), FETCHES_PER_ADDRESS_MAX);
        drop(of_one);
        let from_one: Vec<_> = (0..3).filter_map(|asker| begin(0, asker)).collect();
        assert_eq!(from_one.len(), FETCHES_PER_HOST_MAX);
        assert!(memory.begin_fetch("0.EXAMPLE", network(9)).is_none());
        drop(from_one);
        let mut all: Vec<_> = (0..=FETCHES_MAX).filter_map(|number| begin(number, number)).collect();
        assert_eq!(all.len(), FETCHES_MAX);
        assert!(begin(99, 99).is_none());
        all.pop();
        assert!(begin(99, 99).is_some());
        drop(all);
        assert!(memory.fetching_from.0.lock().is_empty());
    }

    #[test]
    fn lines_about_refusals_are_few_in_a_second_and_the_others_are_counted() {
        let memory = SignInMemory::default();
        let admitted: Vec<_> = (0..5).map(|_| memory.admit_line(2, 7)).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        assert_eq!([memory.admit_line(2, 8), memory.admit_line(2, 8)], [Some(3), Some(0)]);
        assert_eq!(memory.admit_line(0, 9), None);
    }

    #[test]
    fn accounts_that_are_asked_about_are_few_at_once() {
        let memory = SignInMemory::default();
        let ask = |number: usize| memory.begin_check(Fingerprint::of(&[&number.to_string()]));
        let first = ask(0).expect("there is room");
        assert!(ask(0).is_none(), "it is asked about already");
        let others: Vec<_> = (1..CHECKS_MAX).map(ask).collect();
        assert!(others.iter().all(Option::is_some) && ask(CHECKS_MAX).is_none());
        drop(first);
        assert!(ask(0).is_some());
    }
}
