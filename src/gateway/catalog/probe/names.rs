//! The names of hosts in the URLs of upstreams, looked up at intervals: each address is a replica.
//!
//! A name that cannot be looked up keeps the addresses it had. Only a few lookups
//! are under way at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::snapshot::Snapshot;
use crate::upstream::fault::Fault;
use crate::upstream::{Replica, Upstream, UpstreamId};
use net::dns;
use net::jitter::jittered;

/// Lookups under way: a name that nobody answers for must not hold up the others.
const LOOKUPS_MAX: usize = 8;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

type Addresses = io::Result<Vec<SocketAddr>>;
/// A name, by its upstream and the place of its URL there.
type UpstreamName = (UpstreamId, usize);
pub(super) type LookupResult = (UpstreamName, Addresses);
pub(super) type Resolve = Rc<dyn Fn(String, u16) -> LocalBoxFuture<'static, Addresses>>;

pub(super) struct NameLookups {
    entries: HashMap<UpstreamName, LookupSchedule>,
    /// By when they are due. Those that are gone stay until then.
    waiting: BinaryHeap<Reverse<(Instant, UpstreamName)>>,
    looking_up: FuturesUnordered<LocalBoxFuture<'static, LookupResult>>,
    resolve: Resolve,
}

struct LookupSchedule {
    upstream: Arc<Upstream>,
    host: String,
    port: u16,
    /// `None` while it is looked up, or if it never is again.
    due: Option<Instant>,
    is_under_way: bool,
    is_failing: bool,
}

pub(super) fn by_system() -> Resolve {
    Rc::new(|host, port| async move { dns::resolve(&host, port).await }.boxed_local())
}

#[cfg(test)]
impl super::Prober {
    /// With other means of looking up names.
    pub(crate) fn resolving_by(mut self, resolve: Resolve) -> Self {
        self.names = NameLookups::new(resolve);
        self
    }
}

impl NameLookups {
    pub(super) fn new(resolve: Resolve) -> Self {
        let (entries, waiting) = Default::default();
        Self { entries, waiting, looking_up: FuturesUnordered::new(), resolve }
    }

    /// Takes up the names of the snapshot and drops those that are gone.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, now: Instant) {
        let living: HashSet<UpstreamId> = snapshot.upstreams.iter().map(|upstream| upstream.id).collect();
        self.entries.retain(|(id, _), _| living.contains(id));
        for upstream in &snapshot.upstreams {
            for (index, host, port) in upstream.replicas.names() {
                let name = (upstream.id, index);
                let is_known = self.entries.contains_key(&name);
                let entry = self.entries.entry(name).or_insert_with(|| LookupSchedule {
                    upstream: Arc::clone(upstream),
                    host: host.to_owned(),
                    port,
                    due: None,
                    is_under_way: false,
                    is_failing: false,
                });
                // With the settings of now, which may want it looked up more often, or again.
                let is_changed = !is_known || !Arc::ptr_eq(&entry.upstream, upstream);
                entry.upstream = Arc::clone(upstream);
                if is_changed && !entry.is_under_way {
                    entry.due = Some(now);
                    self.waiting.push(Reverse((now, name)));
                }
            }
        }
    }

    pub(super) async fn look_up_all(&mut self, now: Instant) {
        loop {
            self.begin(now);
            let Some(found) = self.next().await else { return };
            self.take(found, now);
        }
    }

    /// Begins to look up what is due, the longest due first.
    pub(super) fn begin(&mut self, now: Instant) {
        while self.looking_up.len() < LOOKUPS_MAX {
            let Some(&Reverse((due, name))) = self.waiting.peek().filter(|first| first.0.0 <= now) else {
                return;
            };
            self.waiting.pop();
            let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.due == Some(due)) else {
                continue;
            };
            (entry.due, entry.is_under_way) = (None, true);
            let lookup = (self.resolve)(entry.host.clone(), entry.port);
            self.looking_up.push(lookup.map(move |addresses| (name, addresses)).boxed_local());
        }
    }

    /// Waits for what a lookup finds; `None`, at once, if there is none under way.
    pub(super) async fn next(&mut self) -> Option<LookupResult> {
        self.looking_up.next().await
    }

    pub(super) fn take(&mut self, (name, addresses): LookupResult, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.take(name.1, addresses, now);
            self.waiting.extend(entry.due.map(|due| Reverse((due, name))));
        }
    }
}

impl LookupSchedule {
    fn take(&mut self, index: usize, addresses: Addresses, now: Instant) {
        self.is_under_way = false;
        let interval = self.upstream.config.replicas.resolve_interval;
        let upstream = self.upstream.config.name.as_str();
        let found = addresses.and_then(|addresses| {
            if addresses.is_empty() { Err(io::Error::other("it has no addresses")) } else { Ok(addresses) }
        });
        match found {
            Ok(addresses) => {
                self.is_failing = false;
                let count = addresses.len();
                if self.upstream.replicas.resolve(index, addresses, now) {
                    tracing::info!(
                        upstream,
                        host = self.host,
                        addresses = count,
                        "upstream has other addresses"
                    );
                }
                self.due = (!interval.is_zero()).then(|| now + jittered(interval, 0.9..1.1));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(upstream, host = self.host, %error, "the name of a host cannot be looked up");
                }
                let replicas = self.upstream.replicas.load();
                let unresolved =
                    |replica: &&Arc<Replica>| replica.address.is_none() && replica.host == self.host;
                for replica in replicas.iter().filter(unresolved) {
                    replica.note_found_fault(Fault::Name);
                }
                let pause = if interval.is_zero() { RETRY_INTERVAL } else { interval.min(RETRY_INTERVAL) };
                self.due = Some(now + jittered(pause, 0.9..1.1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn snapshot(interval: &str) -> Snapshot {
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"a\"]\n\
             [upstream.a]\nurl = \"http://tools.example:81/mcp\"\nresolve_interval = \"{interval}\"\n"
        );
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("f", &text)));
        Snapshot::build(&config, &Metrics::new(10).expect("metrics"), None).expect("a snapshot")
    }

    /// Gives these answers one after another.
    fn scripted(answers: Vec<Option<&'static [&'static str]>>) -> Resolve {
        let answers = RefCell::new(VecDeque::from(answers));
        Rc::new(move |host, port| {
            assert_eq!((host.as_str(), port), ("tools.example", 81));
            let answer = answers.borrow_mut().pop_front().expect("no more lookups");
            let answer = answer.map(|texts| {
                texts.iter().map(|text| format!("{text}:81").parse().expect("an address")).collect()
            });
            async move { answer.ok_or_else(|| io::Error::other("no answer")) }.boxed_local()
        })
    }

    #[test]
    fn addresses_come_and_go_and_failures_change_nothing() {
        let snapshot = snapshot("20s");
        let answers: Vec<Option<&[&str]>> =
            vec![Some(&["10.0.0.1", "10.0.0.2"]), None, Some(&[]), Some(&["10.0.0.2", "10.0.0.3"])];
        let mut names = NameLookups::new(scripted(answers));
        let mut now = crate::clock::now();
        names.follow(&snapshot, now);
        let labels = || {
            let set = snapshot.upstreams[0].replicas.load();
            set.iter().map(|replica| replica.label.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(labels(), ["tools.example:81/mcp"]);
        for (pause_s, expected) in [
            (0, ["10.0.0.1:81/mcp", "10.0.0.2:81/mcp"]),
            (23, ["10.0.0.1:81/mcp", "10.0.0.2:81/mcp"]),
            (2, ["10.0.0.1:81/mcp", "10.0.0.2:81/mcp"]),
            (2, ["10.0.0.2:81/mcp", "10.0.0.3:81/mcp"]),
        ] {
            now += Duration::from_secs(pause_s);
            names.look_up_all(now).now_or_never().expect("no answer is waited for");
            assert_eq!(labels(), expected);
        }
        names.look_up_all(now + Duration::from_secs(2)).now_or_never().expect("nothing is due");
    }

    #[test]
    fn without_an_interval_it_is_looked_up_once() {
        let snapshot = snapshot("0s");
        let mut names = NameLookups::new(scripted(vec![None, Some(&["10.0.0.1"])]));
        let now = crate::clock::now();
        names.follow(&snapshot, now);
        for pause_s in [0, 2, 100_000] {
            let then = now + Duration::from_secs(pause_s);
            names.look_up_all(then).now_or_never().expect("no answer is waited for");
        }
        assert!(names.entries.values().all(|entry| entry.due.is_none()));
    }
}
