//! What a worker's thread does: it serves its listeners, follows changes of them, and looks through what became idle.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::time::{MissedTickBehavior, sleep};

use crate::clock::{self, now_s};
use crate::context::worker::Worker;
use crate::edge;
use crate::line::legacy;
use crate::upstream::mux::host::HostJobs;
use config::Listener;
use net::drain::Drain;
use net::socket::ListeningSocket;

/// How often idle connections to upstreams are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What a worker is to do about a listener, by its number.
#[derive(Debug)]
pub(super) enum ListenerChange {
    /// Accept here, too.
    Open(usize, Listener, ListeningSocket),
    /// Accept there no longer, and end what is connected by these clocks.
    Close(usize, config::DrainConfig),
}

/// Serves the listening sockets, in configured order, until the process ends.
pub(super) async fn run(
    worker: &Rc<Worker>,
    sockets: Vec<(Listener, ListeningSocket)>,
    changes: Receiver<ListenerChange>,
    jobs: HostJobs,
) {
    let mut open = HashMap::new();
    for (place, (config, socket)) in sockets.into_iter().enumerate() {
        open.insert(place, listen(worker, place, config, socket));
    }
    let drain = &worker.state.drain;
    let finished = async {
        drain.closing().await;
        worker.client.host.close();
        worker.client.pools.clear();
        worker.client.tasks.wait().await;
    };
    tokio::select! {
        () = finished => {}
        () = drain.cut() => {}
        () = sweep(worker) => {}
        () = legacy::cancellation::run(worker) => {}
        () = follow(worker, changes, open) => {}
        () = worker.client.host.work(jobs) => {}
    }
    worker.client.host.finish(drain).await;
}

fn listen(worker: &Rc<Worker>, place: usize, config: Listener, socket: ListeningSocket) -> Rc<Drain> {
    let drain = Rc::new(worker.state.drain.below());
    let (of_listener, server) = (Rc::clone(&drain), Rc::clone(worker));
    let serving = async move { edge::serve(server, place, &config, socket, of_listener).await };
    let pulses = Arc::clone(&worker.state.pulses);
    worker.client.tasks.spawn_vital(serving, move || pulses.give_up());
    drain
}

async fn follow(
    worker: &Rc<Worker>,
    mut changes: Receiver<ListenerChange>,
    mut open: HashMap<usize, Rc<Drain>>,
) {
    while let Some(change) = changes.recv().await {
        match change {
            ListenerChange::Open(place, config, socket) => {
                open.insert(place, listen(worker, place, config, socket));
            }
            ListenerChange::Close(place, clocks) => {
                let Some(drain) = open.remove(&place) else { continue };
                let state = Arc::clone(&worker.state);
                let by_clocks = async move {
                    drain.leave();
                    sleep(clocks.quiet_max()).await;
                    drain.start_closing();
                    sleep(clocks.max.saturating_sub(clocks.quiet_max())).await;
                    drain.start_cut();
                };
                worker.client.tasks.spawn(async move {
                    tokio::select! {
                        () = by_clocks => {}
                        () = state.drain.closing() => {}
                    }
                });
            }
        }
    }
    // Whoever changes listeners is gone; the process ends by its own clocks.
    std::future::pending::<()>().await;
}

async fn sweep(worker: &Rc<Worker>) {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let view = worker.view();
        worker.client.pools.sweep(clock::now());
        legacy::pending_answers::sweep(worker);
        view.snapshot.rates.sweep(clock::now());
        let (state, snapshot) = (Arc::clone(&worker.state), Arc::clone(&view.snapshot));
        // There may be very many sessions.
        let sweep = move || {
            let is_irreplaceable = |key: &str| snapshot.is_irreplaceable(key);
            state.sessions.sweep_once(now_s(), is_irreplaceable)
        };
        let closed = worker.client.tasks.compute(sweep).await;
        legacy::close(worker, &view, closed);
        if worker.state.drain.is_quiet() {
            worker.client.pools.clear();
        }
    }
}
