//! Servers behind the gateway: their addresses, how a request reaches one, and the connections kept open.
//!
//! What a reply means to a client is the relay's business; here a reply is a head and a body.

pub(crate) mod ask;
mod attempt;
pub(crate) mod balance;
pub(crate) mod body;
pub(crate) mod broken_reply;
pub(crate) mod changes;
pub(crate) mod closing;
pub(crate) mod connect;
mod connection_use;
pub(crate) mod credentials;
mod era_wait;
pub(crate) mod exchange;
pub(crate) mod facts;
pub(crate) mod fault;
pub(crate) mod fresh_id;
pub(crate) mod get_stream;
pub(crate) mod headers;
pub(crate) mod health;
pub(crate) mod http1;
mod idle;
pub(crate) mod incoming;
pub(crate) mod initialize;
mod list_faults;
pub(crate) mod listing;
pub(crate) mod masking;
pub(crate) mod message_turns;
pub(crate) mod messages;
pub(crate) mod mux;
pub(crate) mod other_era;
pub(crate) mod own_id;
pub(crate) mod pins;
pub(crate) mod pool;
pub(crate) mod replica;
pub(crate) mod request;
mod rest;
mod revisions;
pub(crate) mod sending;
pub(crate) mod silence;
pub(crate) mod sse;
mod standing;
pub(crate) mod start_state;
pub(crate) mod stdio;
pub(crate) mod throttle;
pub(crate) mod withdrawal;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use self::balance::{NotChosen, Replicas};
use self::changes::Changes;
use self::connection_use::ConnectionPayers;
use self::credentials::UpstreamAccess;
use self::facts::{Fact, KnownEras};
use self::fault::{Fault, LastFault, PROCESS_ENDED};
use self::health::breaker::{BreakerState, Pass, Rules};
use self::health::{clock_ms, millis};
use self::listing::{Annotated, ListingState, TaskOnlyTools};
use self::message_turns::MessageTurns;
pub(crate) use self::other_era::{LateWord, OtherEra, RetiredBridges};
pub(crate) use self::replica::{Replica, ReplicaKey};
use self::start_state::StartWatch;
use self::stdio::Children;
use crate::access::limit::concurrency::Gate;
use crate::access::limit::payer::Payer;
use crate::access::policy::hints::HintCell;
use crate::telemetry::calls::UpstreamDurations;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::families::UpstreamSeries;
use crate::telemetry::tools::UpstreamTools;
use crate::upstream::pins::Pins;
use config::{self, Isolation};
use protocol::error::UpstreamError;
use protocol::hints::{Hint, RequiredHints};
use protocol::version::{Era, Eras};
use tokens::sealing::hex;

/// A session stays with a replica that is out of order for so long; after that it is lost if another replica is fit.
const SESSION_PATIENCE: Duration = Duration::from_secs(10);

/// Sessions for lists of a server elsewhere.
const LIST_SESSIONS_MAX: usize = 8;

/// How many messages without an answer may be on their way to one upstream, and how many of them of one client. Each
/// session sends one at a time.
const MESSAGES_IN_FLIGHT_MAX: usize = 256;
const MESSAGES_OF_CLIENT_MAX: usize = 64;

/// Identifies an upstream across configurations: equal ids mean the same upstream, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UpstreamId {
    /// Index into each worker's table of pools.
    pub slot: usize,
    /// Grows whenever the slot is given to another upstream.
    pub generation: u64,
}

#[derive(Debug)]
pub(crate) struct Upstream {
    /// Tells the upstream apart, also from those of other configurations.
    pub id: UpstreamId,
    pub config: config::UpstreamConfig,
    pub transport: Transport,
    /// What it is shown, and whom to believe there.
    pub access: UpstreamAccess,
    /// Its addresses, over HTTP.
    pub replicas: Replicas,
    pub series: UpstreamSeries,
    /// How long requests to it take.
    pub durations: Arc<UpstreamDurations>,
    /// Its tools that metrics tell apart.
    pub tools: Arc<UpstreamTools>,
    /// Which eras it speaks.
    pub facts: Arc<KnownEras>,
    /// How often its lists have changed.
    pub changes: Arc<Changes>,
    /// What its sessions are filed under: its name, and a digest of its addresses or its command, as a server elsewhere is not to be
    /// shown the ids of another's sessions.
    pub session_key: Arc<str>,
    /// True once it opened a session without giving it an id.
    pub is_sessionless: Arc<AtomicBool>,
    /// The mirrored parameters of its tools, as they were last listed.
    pub annotated: Arc<Annotated>,
    /// What the annotations of its tools say, as they were last listed.
    pub hinted: Arc<HintCell>,
    /// Its tools that are run as tasks alone, as they were last listed, or called.
    pub task_only: Arc<TaskOnlyTools>,
    /// How its tools are defined; `None`: nobody looks.
    pub pins: Option<Arc<Pins>>,
    pub listing: Arc<ListingState>,
    /// Where calls wait when it has as many as it may.
    pub gate: Option<Arc<Gate>>,
    /// Bounds messages on their way to it that have no answer, over all sessions.
    pub message_turns: Arc<MessageTurns>,
    /// Who uses its connections, of all workers.
    pub connection_payers: Arc<ConnectionPayers>,
    /// What this upstream is by now.
    pub current: Arc<CurrentUpstream>,
    /// How clients reach it that speak the other era only.
    pub other_era: Arc<dyn OtherEra>,
}

/// One upstream as it is configured now, for what outlasts a configuration.
#[derive(Debug, Default)]
pub(crate) struct CurrentUpstream(Mutex<Weak<Upstream>>);

impl CurrentUpstream {
    /// `None`: the configuration names it no longer, or not yet.
    pub(crate) fn get(&self) -> Option<Arc<Upstream>> {
        self.0.lock().upgrade()
    }

    /// Completes once the configuration names it no longer, whoever still has it.
    pub(crate) async fn gone(&self) {
        while let Some(facts) = self.get().map(|upstream| Arc::clone(&upstream.facts)) {
            if facts.is_over() {
                return;
            }
            // Another may take its place.
            facts.ended().await;
        }
    }
}

/// Which replica a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplicaSelection {
    /// Any that is fit.
    #[default]
    Any,
    /// This one, which holds the session that the request is part of.
    Session(ReplicaKey),
    /// This one, to find out whether it is fit.
    Question(ReplicaKey),
    /// Any, fit or not: to find out what the server is.
    Probe,
    /// This one, fit or not: it holds a session that is over.
    Closing(ReplicaKey),
}

impl From<Option<ReplicaKey>> for ReplicaSelection {
    /// Where a session is, if it is known.
    fn from(session: Option<ReplicaKey>) -> Self {
        session.map_or(Self::Any, Self::Session)
    }
}

#[derive(Debug)]
pub(crate) enum Transport {
    /// Streamable HTTP, at one of its replicas, or HTTP+SSE while that is what it speaks.
    Http(Arc<sse::SseUpstream>),
    Stdio(Arc<Children>),
}

impl Upstream {
    /// True if one opening serves all clients: it gives no session ids, and is shown nothing of a client.
    pub(crate) fn is_one_for_all(&self) -> bool {
        self.is_sessionless.load(std::sync::atomic::Ordering::Relaxed) && self.access.forward.is_empty()
    }

    /// What is charged for what is held for no client alone.
    pub(crate) fn payer(&self) -> Payer {
        Payer::upstream(&self.config.name)
    }

    /// Makes an upstream of its settings. Fails only on a URL that the configuration should have refused.
    pub(crate) fn new(
        id: UpstreamId,
        config: config::UpstreamConfig,
        access: UpstreamAccess,
        metrics: &Metrics,
        other_era: impl FnOnce(&Arc<CurrentUpstream>) -> Arc<dyn OtherEra>,
    ) -> Result<Self, http::Error> {
        let series = metrics.upstreams.of(&config.name);
        let common = replica::ReplicaCommon {
            upstream: config.name.as_str().into(),
            rules: Rules::of(&config.replicas, config.first_byte_timeout),
            openings: series.breaker_openings.clone(),
            tls: access.tls.clone(),
            host: config.host.as_deref().map(HeaderValue::from_str).transpose()?,
            query: access.query().cloned(),
        };
        let replicas = Replicas::new(&config.urls, common)?;
        let session_key = session_key(&config);
        let gate =
            config.concurrency.as_ref().map(|bounds| Gate::new(bounds, metrics.gates.of(&config.name)));
        let (durations, tools) = (metrics.upstream_durations(&config.name), metrics.tools.of(&config.name));
        let transport = match &config.command {
            Some(command) => Transport::Stdio(Children::new(
                &config,
                command,
                access.material.env.clone(),
                id.slot,
                metrics,
            )),
            None => Transport::Http(sse::SseUpstream::new(config.transport == config::TransportConfig::Sse)),
        };
        let current = Arc::default();
        let other_era = other_era(&current);
        let pins = config.pins.is_on().then(|| Arc::new(Pins::new(metrics.pins.of(&config.name))));
        Ok(Self {
            id,
            config,
            pins,
            transport,
            access,
            replicas,
            series,
            durations,
            tools,
            facts: Arc::default(),
            changes: Arc::default(),
            is_sessionless: Arc::default(),
            session_key,
            annotated: Arc::default(),
            hinted: Arc::default(),
            task_only: Arc::default(),
            listing: Arc::default(),
            gate,
            message_turns: MessageTurns::new(MESSAGES_IN_FLIGHT_MAX, MESSAGES_OF_CLIENT_MAX),
            connection_payers: Arc::default(),
            current,
            other_era,
        })
    }

    /// Goes on with the connections and the calls of `same`, which is the same server with other settings of the gateway.
    pub(crate) fn adopt(&mut self, same: &Self) {
        self.replicas.adopt(&same.replicas);
        self.transport = match &same.transport {
            Transport::Http(streams) => Transport::Http(Arc::clone(streams)),
            // A child keeps the environment it was started with.
            Transport::Stdio(_) if self.access.material.env != same.access.material.env => return,
            Transport::Stdio(children) => Transport::Stdio(Arc::clone(children)),
        };
        if let (Some(gate), Some(old)) = (&mut self.gate, &same.gate) {
            *gate = Arc::clone(old);
        }
        self.task_only = Arc::clone(&same.task_only);
        self.current = Arc::clone(&same.current);
        self.other_era = Arc::clone(&same.other_era);
        self.access.adopt(&same.access);
    }

    /// Takes over all that is known of `same`, whose identity it has.
    pub(crate) fn go_on_as(&mut self, same: &Self) {
        self.facts = Arc::clone(&same.facts);
        self.changes = Arc::clone(&same.changes);
        self.is_sessionless = Arc::clone(&same.is_sessionless);
        self.annotated = Arc::clone(&same.annotated);
        self.hinted = Arc::clone(&same.hinted);
        self.listing = Arc::clone(&same.listing);
        self.message_turns = Arc::clone(&same.message_turns);
        self.connection_payers = Arc::clone(&same.connection_payers);
    }

    /// From now on this is the upstream that its connections belong to.
    pub(crate) fn take_up(self: &Arc<Self>) {
        *self.current.0.lock() = Arc::downgrade(self);
        self.replicas.take_up();
        if let (Some(gate), Some(bounds)) = (&self.gate, &self.config.concurrency) {
            gate.reconfigure(bounds);
        }
    }

    /// Whether lists that were kept by the settings of `old` would be kept otherwise by these.
    pub(crate) fn keeps_lists_unlike(&self, old: &Self) -> bool {
        let settings = |upstream: &Self| {
            let config = &upstream.config;
            (config.list_ttl_min, config.stale_while_revalidate, config.stale_if_error)
        };
        settings(self) != settings(old)
    }

    /// Its streams of HTTP+SSE, should it speak it. `None`: it is not reached over HTTP.
    pub(crate) fn sse(&self) -> Option<&Arc<sse::SseUpstream>> {
        match &self.transport {
            Transport::Http(streams) => Some(streams),
            Transport::Stdio(_) => None,
        }
    }

    pub(crate) fn is_served_with(&self, other: &Self) -> bool {
        match (&self.transport, &other.transport) {
            (Transport::Http(one), Transport::Http(other)) => Arc::ptr_eq(one, other),
            (Transport::Stdio(one), Transport::Stdio(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The configuration names it no longer: what runs for it alone ends.
    pub(crate) fn retire(&self) {
        self.other_era.retire();
        match &self.transport {
            Transport::Http(streams) => streams.retire(),
            Transport::Stdio(children) => children.retire(),
        }
    }

    pub(crate) fn children(&self) -> Option<&Arc<Children>> {
        match &self.transport {
            Transport::Http(_) => None,
            Transport::Stdio(children) => Some(children),
        }
    }

    /// True if each session with it has a process for itself, which may have lists of its own.
    pub(crate) fn has_process_per_session(&self) -> bool {
        self.children().is_some_and(|children| children.is_for_one_session())
    }

    pub(crate) fn is_child(&self) -> bool {
        !matches!(self.transport, Transport::Http(_))
    }

    /// True if its replies are messages on a connection that many calls share: it is a child process, or speaks HTTP+SSE.
    pub(crate) fn has_own_connections(&self) -> bool {
        self.is_child() || self.sse().is_some_and(|streams| streams.is_spoken())
    }

    /// The eras it speaks, by configuration or as far as it was asked; `None`: not known, or neither.
    pub(crate) fn eras(&self) -> Option<Eras> {
        self.config.eras.or_else(|| self.facts.learned())
    }

    /// The eras in which it is asked: those that it speaks, and the legacy one of a program that refused the modern one and
    /// has opened no session yet. Such a program takes a call before `initialize` for one out of order.
    pub(crate) fn asked_in(&self) -> Option<Eras> {
        let presumed = || {
            let known = self.facts.known();
            let is_refused = known.modern == Fact::Absent && known.legacy == Fact::Unknown;
            (self.is_child() && is_refused).then_some(Eras::only(Era::Legacy))
        };
        self.eras().or_else(presumed)
    }

    /// The eras whose clients reach it, natively or over the bridge; `None`: not known, or none.
    pub(crate) fn reached_in(&self) -> Option<Eras> {
        let eras = self.eras()?;
        Some(if self.config.bridge.is_on { Eras::BOTH } else { eras })
    }

    /// Whether clients of one era reach it over the bridge.
    pub(crate) fn is_bridged(&self) -> bool {
        self.config.bridge.is_on && self.eras().is_some_and(|eras| eras != Eras::BOTH)
    }

    /// The era in which it is asked for a client of `era`: the client's own wherever it may speak that.
    pub(crate) fn era_for(&self, era: Era) -> Result<Era, UpstreamError> {
        match self.asked_in() {
            Some(eras) if !eras.contains(era) && self.config.bridge.is_on => Ok(era.other()),
            Some(eras) if !eras.contains(era) => Err(UpstreamError::OtherEra),
            _ => Ok(era),
        }
    }

    /// Whether clients' sessions are opened with the program itself although the gateway speaks to it in the modern era
    /// alone: each has a process of its own. Clients for which it opens none come over the bridge.
    pub(crate) fn opens_own_sessions(&self) -> bool {
        self.config.eras.is_none() && self.has_process_per_session() && self.lacks(Era::Legacy)
    }

    /// The same, unless it has opened none for any client that came so far.
    fn may_have_own_sessions(&self) -> bool {
        self.opens_own_sessions() && self.children().is_some_and(|children| !children.opens_none())
    }

    /// The era in which it is spoken to within a client's session.
    pub(crate) fn session_era(&self) -> Result<Era, UpstreamError> {
        if self.may_have_own_sessions() { Ok(Era::Legacy) } else { self.era_for(Era::Legacy) }
    }

    /// Whether a client's session ends with the one that it has here: by configuration, and unless that one is the bridge's
    /// own, in which no server keeps anything.
    pub(crate) fn is_irreplaceable(&self) -> bool {
        let is_ours = self.config.bridge.is_on && self.lacks(Era::Legacy) && !self.may_have_own_sessions();
        self.config.session_loss == config::SessionLoss::End && !is_ours
    }

    /// Whether its sessions of the legacy era end in this process: with a child, a stream of HTTP+SSE, or the bridge.
    pub(crate) fn has_local_sessions(&self) -> bool {
        self.has_own_connections() || (self.config.bridge.is_on && self.lacks(Era::Legacy))
    }

    /// How many sessions there may be in which it is asked for lists. Where each is a process, most of those are for
    /// clients.
    pub(crate) fn list_sessions_max(&self) -> usize {
        let Some(command) = &self.config.command else {
            return self.config.list_sessions_max.unwrap_or(LIST_SESSIONS_MAX);
        };
        let max = self.config.list_sessions_max.unwrap_or(1);
        if command.isolation == Isolation::Session { max.min((command.children_max / 4).max(1)) } else { max }
    }

    /// How far its program is; `None`: it is none.
    pub(crate) fn starts(&self) -> Option<&Arc<StartWatch>> {
        match &self.transport {
            Transport::Stdio(children) => Some(children.start_watch()),
            Transport::Http(_) => None,
        }
    }

    pub(crate) fn lacks(&self, era: Era) -> bool {
        self.eras().is_some_and(|eras| !eras.contains(era))
    }

    /// Whether this tool, by the upstream's own name, may be called twice: the operator says so, or believes the upstream.
    pub(crate) fn may_call_twice(&self, tool: &str) -> bool {
        let retry = &self.config.replicas.retry;
        let is_hinted = || {
            let hints = self.hinted.of(tool);
            let harmless = [Hint::ReadOnly, Hint::Idempotent];
            harmless.into_iter().any(|hint| RequiredHints::new(&[(hint, true)]).is_said_by(hints))
        };
        retry.tools.iter().any(|safe| safe == tool) || (retry.annotated_tools && is_hinted())
    }

    /// Whether every replica failed so often that its breaker is not closed.
    pub(crate) fn is_out_of_order(&self) -> bool {
        let replicas = self.replicas.load();
        !replicas.is_empty()
            && replicas.iter().all(|replica| replica.breaker.0.state() != BreakerState::Closed)
    }

    /// A text of the server's, as operators may be shown it.
    pub(crate) fn told(&self, text: &str) -> Box<str> {
        masking::told(&self.access.masked(text))
    }

    /// The fault that an error comes of that was met after waiting so long.
    pub(crate) fn fault_of(&self, error: &UpstreamError, patience: Duration) -> Fault {
        if let Some(fault) = self.known_fault(error) {
            return fault;
        }
        match error {
            UpstreamError::TimedOut => Fault::TimedOut(patience),
            // Its exit status is known a little later.
            UpstreamError::Reset if self.is_child() => {
                Fault::Ended { cause: PROCESS_ENDED, status: "".into(), said: "".into() }
            }
            UpstreamError::Reset => Fault::Closed,
            UpstreamError::Nonsense => Fault::NotMcp,
            UpstreamError::UpstreamHost => {
                Fault::Http { status: http::StatusCode::MISDIRECTED_REQUEST, media: None }
            }
            // One that answers is reached.
            UpstreamError::Unreachable => {
                self.standing_fault().unwrap_or_else(|| Fault::Other("cannot be reached".into()))
            }
            error => Fault::Other(masking::plain(&error.fault())),
        }
    }

    /// The fault that an error comes of, where it says so itself, or the latest fault that was met explains it.
    pub(crate) fn known_fault(&self, error: &UpstreamError) -> Option<Fault> {
        let own = Fault::of_error(error, |text| self.told(text));
        own.or_else(|| {
            let replicas = self.replicas.load();
            let all = replicas.iter().map(|replica| &replica.faults);
            let all = all.chain([&self.facts.fault]).chain(self.children().map(|children| children.fault()));
            let explaining = all.filter_map(LastFault::latest).filter(|noted| noted.fault.explains(error));
            explaining.max_by_key(|noted| noted.at_ms).map(|noted| noted.fault.clone())
        })
    }

    /// The replica of `set` that a request goes to, and how it passes; none that was `tried`.
    pub(crate) fn choose<'s>(
        set: &'s [Arc<Replica>],
        (aim, tried): (ReplicaSelection, &[ReplicaKey]),
        random: u32,
        now: Instant,
    ) -> Result<(&'s Arc<Replica>, Pass), NotChosen> {
        let find = |key| set.iter().find(|replica| replica.key == key && !tried.contains(&key));
        let unfit = |replica: &Arc<Replica>, now_ms| {
            let retry_after_ms = replica.breaker.0.until_ms().saturating_sub(now_ms);
            NotChosen::Unfit { retry_after_ms }
        };
        match aim {
            ReplicaSelection::Any => balance::choose(set, tried, random, now),
            ReplicaSelection::Question(key) => {
                find(key).map(|replica| (replica, Pass::Aside)).ok_or(NotChosen::AllTried)
            }
            // Without a right of its own, so that it is no trial.
            ReplicaSelection::Closing(key) => {
                let replica = find(key).ok_or(NotChosen::AllTried)?;
                let is_closed = replica.breaker.0.state() == BreakerState::Closed;
                Ok((replica, if is_closed { Pass::Free } else { Pass::Aside }))
            }
            ReplicaSelection::Probe => balance::choose(set, tried, random, now)
                .ok()
                .map(|(replica, pass)| {
                    // Who answers questions may answer nothing else: they are no trials.
                    replica.breaker.0.give_up(pass);
                    (replica, if pass == Pass::Trial { Pass::Aside } else { pass })
                })
                .or_else(|| Some((set.iter().find(|replica| !tried.contains(&replica.key))?, Pass::Aside)))
                .ok_or(NotChosen::AllTried),
            ReplicaSelection::Session(key) => {
                // Before its name is resolved nobody knows which replica there is.
                let is_resolved = || set.iter().all(|replica| replica.address.is_some());
                let Some(replica) = find(key) else {
                    let is_lost = tried.is_empty() && is_resolved();
                    return Err(if is_lost { NotChosen::Gone } else { NotChosen::AllTried });
                };
                let now_ms = clock_ms(now);
                let breaker = &replica.breaker.0;
                if let Some(pass) = breaker.pass(&replica.rules, now_ms) {
                    return Ok((replica, pass));
                }
                let others_are_fit = set.iter().any(|other| other.breaker.0.is_fit(&other.rules, now_ms));
                let is_lost = others_are_fit && breaker.open_for_ms(now_ms) >= millis(SESSION_PATIENCE);
                Err(if is_lost { NotChosen::Gone } else { unfit(replica, now_ms) })
            }
        }
    }
}

fn session_key(config: &config::UpstreamConfig) -> Arc<str> {
    let mut digest = Sha256::new();
    for url in &config.urls {
        digest.update(format!("{} {} {}\n", url.host, url.port, url.path_and_query));
    }
    if let Some(command) = &config.command {
        digest.update(format!("{command:?}"));
    }
    format!("{}#{}", config.name, hex(&digest.finalize()[..8])).into()
}
