//! What is listened at, and how that changes while the gateway runs.
//!
//! A listener is known by its number, which is never used twice. New sockets are opened before anything changes, and
//! handed to the workers when nothing can fail any more. A listener that is no longer configured stops accepting, and
//! what is connected there is drained by the same clocks as at the end of the process. A socket that the service
//! manager opened is its own: it cannot be left while the process runs.

use tokio::sync::mpsc;

use super::serving::ListenerChange;
use super::sockets::{self, OpenPlace};
use crate::context::state::ListenPlace;
use config::{Config, DrainConfig, ListenAddress, Listener};
use net::socket::ListeningSocket;

/// Changes that a worker has not taken up yet. A worker takes them up at once.
pub(super) const CHANGES_WAITING_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Listeners {
    open: Vec<OpenListener>,
    next: usize,
    changes: Vec<mpsc::Sender<ListenerChange>>,
}

#[derive(Clone, Debug)]
struct OpenListener {
    number: usize,
    configured: ListenAddress,
    place: OpenPlace,
    has_tls: bool,
    /// Who may open its file, as was said when it was opened.
    access: FileAccess,
    outlives_us: bool,
}

/// Who may open the file of a Unix socket: mode and group, set when the socket is made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileAccess {
    mode: u32,
    group: Option<String>,
}

/// What is to be listened at, with sockets that are open already.
pub(super) struct ListenPlan {
    /// The number of each configured listener.
    pub(super) numbers: Vec<usize>,
    next: usize,
    kept: Vec<OpenListener>,
    opened: Vec<(OpenListener, Listener, Vec<ListeningSocket>)>,
    closed: Vec<OpenListener>,
}

impl Listeners {
    /// Those that the process started with; `changes` lead to the workers.
    pub(super) fn new(
        config: &Config,
        places: Vec<OpenPlace>,
        of_one_worker: &[(Listener, ListeningSocket)],
        changes: Vec<mpsc::Sender<ListenerChange>>,
    ) -> Self {
        let open = config.listeners.iter().zip(places).zip(of_one_worker).enumerate();
        let open = open.map(|(number, ((listener, place), (_, listening)))| OpenListener {
            number,
            configured: listener.address.clone(),
            place,
            has_tls: listener.tls.is_some(),
            access: FileAccess::of(listener),
            outlives_us: listening.outlives_us,
        });
        Self { open: open.collect(), next: config.listeners.len(), changes }
    }

    /// The places at which clients connect, in configured order.
    pub(super) fn places(&self) -> Vec<ListenPlace> {
        let place = |open: &OpenListener| ListenPlace {
            address: open.place.address.clone(),
            has_tls: open.has_tls,
            unused_socket_unit: open.place.unused_socket_unit.clone(),
        };
        self.open.iter().map(place).collect()
    }

    /// What is configured of the files of sockets that are open, and was not so when they were opened.
    pub(super) fn needs_restart(&self, config: &Config) -> Vec<&'static str> {
        let sockets = config.listeners.iter().filter(|listener| listener.address.ip_address().is_none());
        let pairs: Vec<_> = sockets
            .filter_map(|listener| {
                let open = self.open.iter().find(|open| open.configured == listener.address)?;
                Some((&open.access, FileAccess::of(listener)))
            })
            .collect();
        let differs = [
            ("listener.socket_mode", pairs.iter().any(|(open, wanted)| open.mode != wanted.mode)),
            ("listener.socket_group", pairs.iter().any(|(open, wanted)| open.group != wanted.group)),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect()
    }

    /// What `config` needs beside what is open. Opens every new socket, or none.
    pub(super) fn plan(&self, config: &Config) -> anyhow::Result<ListenPlan> {
        let mut left = self.open.clone();
        // Those that say their port first, so that no other takes it for port 0.
        let mut taken: Vec<Option<OpenListener>> = config
            .listeners
            .iter()
            .map(|listener| take(&mut left, |open| open.place.address == listener.address))
            .collect();
        for (listener, taken) in config.listeners.iter().zip(&mut taken) {
            if taken.is_none() {
                *taken = take(&mut left, |open| open.configured == listener.address);
            }
        }
        if let Some(passed) = left.iter().find(|open| open.outlives_us) {
            anyhow::bail!(
                "the listener at {} cannot be left while the gateway runs, as the service manager opened its socket: \
                 take it out of the socket unit, too, and restart",
                passed.place.address
            );
        }
        let mut plan = ListenPlan {
            numbers: Vec::new(),
            next: self.next,
            kept: Vec::new(),
            opened: Vec::new(),
            closed: left,
        };
        for (listener, taken) in config.listeners.iter().zip(taken) {
            let number = match taken {
                Some(open) => {
                    let number = open.number;
                    let has_tls = listener.tls.is_some();
                    plan.kept.push(OpenListener { configured: listener.address.clone(), has_tls, ..open });
                    number
                }
                None => plan.open(listener, self.changes.len())?,
            };
            plan.numbers.push(number);
        }
        Ok(plan)
    }

    pub(super) async fn follow(&mut self, plan: ListenPlan, drain: &DrainConfig) {
        let ListenPlan { numbers, next, kept, opened, closed } = plan;
        self.next = next;
        self.open = kept;
        for (open, listener, sockets) in opened {
            for (worker, socket) in self.changes.iter().zip(sockets) {
                // A worker that is gone ends the process.
                let _ = worker.send(ListenerChange::Open(open.number, listener.clone(), socket)).await;
            }
            tracing::info!(address = %open.place.address, "listening");
            self.open.push(open);
        }
        self.open.sort_by_key(|open| numbers.iter().position(|number| *number == open.number));
        for open in closed {
            for worker in &self.changes {
                let _ = worker.send(ListenerChange::Close(open.number, drain.clone())).await;
            }
            tracing::info!(address = %open.place.address, "no longer listening");
        }
    }
}

impl ListenPlan {
    /// Whether a network can still reach what is connected to a listener that is left.
    pub(super) fn leaves_to_network(&self) -> bool {
        self.closed.iter().any(|open| !open.place.address.is_loopback())
    }

    fn open(&mut self, listener: &Listener, count: usize) -> anyhow::Result<usize> {
        let (place, sockets) = sockets::own(listener, count)?;
        let number = self.next;
        self.next += 1;
        let (configured, has_tls) = (listener.address.clone(), listener.tls.is_some());
        let access = FileAccess::of(listener);
        let listener = Listener { address: place.address.clone(), ..listener.clone() };
        let open = OpenListener { number, configured, place, has_tls, access, outlives_us: false };
        self.opened.push((open, listener, sockets));
        Ok(number)
    }
}

impl FileAccess {
    fn of(listener: &Listener) -> Self {
        Self { mode: listener.socket_mode, group: listener.socket_group.clone() }
    }
}

fn take(left: &mut Vec<OpenListener>, is_it: impl Fn(&OpenListener) -> bool) -> Option<OpenListener> {
    let place = left.iter().position(is_it)?;
    Some(left.remove(place))
}
