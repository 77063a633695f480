//! The gateway between clients and servers, with reloads and storms, and what must be left in the end.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::ready;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::client::{Audience, Client, Listener};
use super::dice::Dice;
use super::faults::{Place, Weather};
use super::leases::LIST_SESSIONS_MAX;
use super::model::{Model, TOLD_WITHIN};
use super::server::Server;
use crate::catalog::probe::Prober;
use crate::context::state::State;
use crate::context::worker::Worker;
use crate::runtime::serving::{self, ListenerChange};
use crate::runtime::{ControlTasks, UPSTREAM_CONNECTIONS_OF_CONTROL};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::pulse::Life;
use crate::upstream::mux::host::Host;
use config::Config;
use net::socket::{self, ListenerSocket, ListeningSocket};
use net::tasks::Tasks;

const CLIENTS: usize = 6;
const STORMS: usize = 2;
const CALM: Duration = Duration::from_secs(70);
const STORM: Duration = Duration::from_secs(15);
/// Time in which the gateway finds out about its servers.
const SETTLING: Duration = Duration::from_secs(3);
/// Time in which everything that nobody uses any more is given back.
const AFTERWARDS: Duration = Duration::from_secs(150);
/// Time in which each of several replicas gets calls.
const SHARED_WITHIN: Duration = Duration::from_secs(30);
/// Looks at what is under way, of which one finds nothing.
const LOOKS: usize = 4;
/// Connections that may be open to upstreams in the end.
const SPARE_MAX: usize = 10;

pub(super) struct World {
    pub(super) model: Rc<Model>,
    pub(super) servers: Vec<Rc<Server>>,
    pub(super) state: Arc<State>,
    audience: Rc<Audience>,
    /// Reloads so far.
    reloads: Cell<usize>,
    dice: RefCell<Dice>,
    pub(super) is_over: Rc<Cell<bool>>,
    /// Whether replicas are repaired, and whether they ever were to be.
    pub(super) is_repair_time: Cell<bool>,
    had_repairs: Cell<bool>,
    pub(super) repaired: Cell<u64>,
    /// Sessions that servers were made to forget.
    pub(super) forgotten: Cell<u64>,
    /// Those on whom the gateway's life depends.
    _life: Life,
    _changes: mpsc::Sender<ListenerChange>,
}

/// Plays a seed. Returns what must not have been.
pub(super) fn play(seed: u64) -> Vec<String> {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().start_paused(true);
    let runtime = runtime.build_local(LocalOptions::default()).expect("a runtime");
    runtime.block_on(async move {
        // Time never passes by more than this before sockets are looked at.
        spawn_local(async {
            loop {
                sleep(Duration::from_millis(1)).await;
            }
        });
        let mut dice = Dice::new(seed);
        let ends_with_lost = dice.below(2) == 0;
        let model = Model::new(Weather::new(dice.fork()), ends_with_lost);
        let a = Server::start(&model, ("a", true), 3).await;
        let b = Server::start(&model, ("b", false), 2).await;
        let (world, clients) = World::start(model, vec![a, b], dice).await;
        world.run(clients).await
    })
}

impl World {
    async fn start(
        model: Rc<Model>,
        servers: Vec<Rc<Server>>,
        mut dice: Dice,
    ) -> (Rc<Self>, Vec<JoinHandle<()>>) {
        let config = config_of(&servers, model.ends_with_lost, 0);
        let state = State::new(&config, Metrics::new(100).expect("metrics")).expect("a state");
        let tasks = Tasks::new(state.metrics.gateway.panics.clone());
        let host = Host::of_control(&state.host, state.metrics.gateway.panics.clone());
        let control = ControlTasks { state: &state, tasks, host };
        let prober = Prober::new(Arc::clone(&state), control.client(UPSTREAM_CONNECTIONS_OF_CONTROL), None);
        let named = servers.clone();
        let mut prober = prober.resolving_by(Rc::new(move |host, _| {
            let server = named.iter().find(|server| host == server.host());
            ready(server.map(|server| server.listed()).ok_or(ErrorKind::NotFound.into())).boxed_local()
        }));
        prober.resolve().await;
        let pins = control.read_pins(None);
        control.ask_upstreams(prober, pins, None);
        let listener = config.listeners[0].clone();
        let address = listener.address.ip_address().expect("an address");
        let listening = socket::listen(address, false).expect("a port");
        let gateway = listening.local_addr().expect("an address");
        let sockets =
            vec![(listener, ListeningSocket { socket: ListenerSocket::Tcp(listening), outlives_us: false })];
        let (changes, of_worker) = mpsc::channel(1);
        let (pulse, life) = state.pulses.add();
        let jobs = state.host.add_worker();
        let worker = Worker::new(Arc::clone(&state), pulse, &config.log, 10_000);
        spawn_local(async move { serving::run(&worker, sockets, of_worker, jobs).await });
        sleep(SETTLING).await;
        let (audience, is_over) = (Rc::<Audience>::default(), Rc::<Cell<bool>>::default());
        let client = |dice| Client {
            number: 0,
            gateway,
            model: Rc::clone(&model),
            dice: Rc::new(RefCell::new(dice)),
            audience: Rc::clone(&audience),
        };
        let clients =
            (0..CLIENTS).map(|_| spawn_local(client(dice.fork()).run(Rc::clone(&is_over)))).collect();
        let (dice, reloads) = (RefCell::new(dice), Cell::default());
        let world = Self {
            model: Rc::clone(&model),
            servers,
            state,
            audience: Rc::clone(&audience),
            reloads,
            dice,
            is_over,
            is_repair_time: Cell::default(),
            had_repairs: Cell::default(),
            repaired: Cell::default(),
            forgotten: Cell::default(),
            _life: life,
            _changes: changes,
        };
        (Rc::new(world), clients)
    }

    async fn run(self: Rc<Self>, clients: Vec<JoinHandle<()>>) -> Vec<String> {
        let others = [
            spawn_local(Rc::clone(&self).change_lists()),
            spawn_local(Rc::clone(&self).tell()),
            spawn_local(Rc::clone(&self).reload()),
            spawn_local(Rc::clone(&self).forget()),
            spawn_local(Rc::clone(&self).count_list_sessions()),
            spawn_local(Rc::clone(&self).look_for_lost_list_sessions()),
            spawn_local(Rc::clone(&self).repair()),
        ];
        for _ in 0..STORMS {
            // With repairs, changes of lists are hardly looked at.
            self.is_repair_time.set(self.die(2) == 0);
            self.had_repairs.set(self.had_repairs.get() || self.is_repair_time.get());
            sleep(CALM).await;
            self.is_repair_time.set(false);
            self.storm().await;
        }
        sleep(CALM).await;
        self.look_at_shares(SHARED_WITHIN).await;
        self.is_over.set(true);
        for task in clients.into_iter().chain(others) {
            if timeout(Duration::from_mins(5), task).await.is_err() {
                self.model.fault("somebody has not come to an end");
            }
        }
        sleep(AFTERWARDS).await;
        self.look_at_what_is_left().await;
        self.look_at_what_there_was();
        self.model.faults()
    }

    /// Everything fails now and then, and replicas crash and come back.
    async fn storm(&self) {
        let weather = &self.model.weather;
        weather.is_stormy.set(true);
        let until = Instant::now() + STORM;
        while Instant::now() < until {
            let server = &self.servers[self.die(self.servers.len())];
            let replica = self.die(server.replicas.len());
            server.harm(&[Place::Upstream]);
            if server.replicas[replica].is_in_repair.get() {
                // Whoever does that brings it back.
            } else if server.is_up(replica) {
                server.go_down(replica);
            } else {
                server.come_up(replica).await;
            }
            sleep(Duration::from_millis(self.die(4000) as u64)).await;
        }
        weather.is_stormy.set(false);
        for server in &self.servers {
            for replica in 0..server.replicas.len() {
                if !server.is_up(replica) && !server.replicas[replica].is_in_repair.get() {
                    server.harm(&[Place::Upstream]);
                    server.come_up(replica).await;
                }
            }
        }
    }

    /// Who listens to changes of lists is told.
    async fn change_lists(self: Rc<Self>) {
        while !self.is_over.get() {
            sleep(Duration::from_secs(2) + Duration::from_millis(self.die(8000) as u64)).await;
            let server = &self.servers[self.die(self.servers.len())];
            let (before, changed) = (self.listeners(), Instant::now());
            server.change_list();
            let version = format!("{}__v{}", server.name, self.model.version_at(server.name, changed));
            sleep(TOLD_WITHIN).await;
            if !["a", "b"].iter().all(|name| self.model.was_heard(name, changed)) {
                continue;
            }
            let after = self.listeners();
            let told = before.iter().filter(|one| after.iter().any(|other| Rc::ptr_eq(one, other)));
            for listener in told.filter(|one| self.model.was_calm(&[Place::Client(one.client)], changed)) {
                if listener.heard.get().is_none_or(|at| at < changed) {
                    self.model
                        .fault(format!("client {} was not told that {version} is new", listener.client));
                }
            }
        }
    }

    /// Those who have been listening for a while.
    fn listeners(&self) -> Vec<Rc<Listener>> {
        let listeners = self.audience.listeners.borrow();
        let steady = |one: &&Rc<Listener>| one.since + TOLD_WITHIN <= Instant::now() && one.is_open.get();
        listeners.iter().filter(steady).cloned().collect()
    }

    /// What a server tells a session reaches its client.
    async fn tell(self: Rc<Self>) {
        while !self.is_over.get() {
            sleep(Duration::from_millis(self.die(1500) as u64)).await;
            let server = &self.servers[self.die(self.servers.len())];
            let since = Instant::now();
            let Some((client, token)) = server.tell_somebody(self.die(1000)) else { continue };
            let stream = self.stream_of(client);
            let world = Rc::clone(&self);
            let places = [server.place(), Place::Streams(server.name), Place::Client(client)];
            spawn_local(async move {
                sleep(TOLD_WITHIN).await;
                let is_steady = stream.is_some() && world.stream_of(client) == stream;
                if is_steady && world.model.was_calm(&places, since) && !world.model.is_heard(&token) {
                    world.model.fault(format!("client {client} was never told {token}"));
                }
            });
        }
    }

    /// Since when a client's stream is open.
    fn stream_of(&self, client: usize) -> Option<Instant> {
        let streams = self.audience.streams.borrow();
        streams.iter().find(|(number, _)| *number == client).map(|(_, since)| *since)
    }

    /// A reload harms nobody.
    async fn reload(self: Rc<Self>) {
        while !self.is_over.get() {
            sleep(Duration::from_millis(1 + self.die(20_000) as u64)).await;
            self.reloads.set(self.reloads.get() + 1);
            let config = config_of(&self.servers, self.model.ends_with_lost, self.reloads.get());
            match self.state.prepare(&config, &[0]) {
                Ok(prepared) => self.state.take_up(&config, prepared),
                Err(error) => self.model.fault(format!("a reload failed: {error}")),
            }
        }
    }

    async fn look_at_what_is_left(&self) {
        let state = &self.state;
        let counts = state.sessions.counts();
        let mut in_flight = usize::MAX;
        for _ in 0..LOOKS {
            // A question of the gateway's own may be under way, but not all the time.
            in_flight = in_flight.min(self.in_flight());
            sleep(SETTLING).await;
        }
        let spare = self.servers.iter().map(|server| server.spare_connections()).sum::<usize>();
        for (what, count) in [
            ("connections of clients", state.connections.open()),
            ("calls", state.pulses.calls()),
            ("bytes of messages", state.buffered.taken()),
            ("streams of sessions", state.sessions.open_streams()),
            // Those of sessions that nobody ended are left.
            ("streams for sessions", counts.upstream_streams.saturating_sub(2 * counts.sessions)),
            ("subscriptions", state.hub.open()),
            ("leases of sessions for lists", state.sessions.list_leases()),
            ("requests at upstreams", in_flight),
            // The gateway asks each replica now and then whether it is fit.
            ("connections to upstreams", spare.saturating_sub(SPARE_MAX)),
            ("panics", usize::try_from(state.metrics.gateway.panics.get()).unwrap_or(usize::MAX)),
        ] {
            if count > 0 {
                self.model.fault(format!("{count} {what} are left"));
            }
        }
    }

    /// Requests on their way to upstreams.
    fn in_flight(&self) -> usize {
        let upstreams = &self.state.snapshot.load().upstreams;
        let of_each = upstreams.iter().map(|upstream| {
            let replicas = upstream.replicas.load();
            replicas.iter().map(|replica| replica.load.in_flight()).sum::<u64>()
        });
        usize::try_from(of_each.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Whatever is looked at in a play was in it.
    fn look_at_what_there_was(&self) {
        let (answered, succeeded) = (self.model.answered.get(), self.model.succeeded.get());
        if succeeded * 2 < answered || answered < 100 {
            self.model.fault(format!("of {answered} calls only {succeeded} succeeded"));
        }
        let upstreams = &self.state.snapshot.load().upstreams;
        let closed: u64 = upstreams.iter().map(|upstream| upstream.series.list_sessions_closed.get()).sum();
        for (what, count) in [
            ("session made room for another", closed),
            ("session was forgotten", self.forgotten.get()),
            ("replica was repaired", self.repaired.get() + u64::from(!self.had_repairs.get())),
        ] {
            if count == 0 {
                self.model.fault(format!("no {what}"));
            }
        }
    }

    pub(super) fn die(&self, count: usize) -> usize {
        self.dice.borrow_mut().below(count)
    }
}

/// The configuration after so many reloads.
fn config_of(servers: &[Rc<Server>], ends_with_lost: bool, reloads: usize) -> Config {
    let mut text = format!(
        "[listener]\naddress = \"127.0.0.1:0\"\n[limits]\nconnections_per_address_max = {}\n\
         [[endpoint]]\npath = \"/one\"\nupstreams = [\"a\"]\n\
         [[endpoint]]\npath = \"/all\"\nupstreams = [\"a\", \"b\"]\n",
        1000 + reloads
    );
    if reloads % 2 == 1 {
        text.push_str("[[endpoint]]\npath = \"/more\"\nupstreams = [\"b\"]\n");
    }
    for server in servers {
        let eras = if server.is_modern { "[\"modern\", \"legacy\"]" } else { "[\"legacy\"]" };
        let session_loss = if ends_with_lost { "end" } else { "reopen" };
        let _ = write!(
            text,
            "[upstream.{}]\nurl = \"{}\"\neras = {eras}\nconnect_timeout = \"2s\"\nresponse_timeout = \"5s\"\n\
             list_timeout = \"10s\"\nlist_sessions_max = {LIST_SESSIONS_MAX}\nresolve_interval = \"1s\"\n\
             session_loss = \"{session_loss}\"\nslow_start = \"{}s\"\nhealth = {{ interval = \"2s\" }}\n\
             breaker = {{ open_time = \"200ms\", open_time_max = \"1s\" }}\n",
            server.name,
            server.url(),
            reloads / 2 % 2,
        );
    }
    config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("simulation", &text)))
}
