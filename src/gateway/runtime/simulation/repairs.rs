//! Replicas that leave, crash and come back, one after another: whoever needs none of them in particular notices nothing.
//!
//! One that leaves does so as in a deployment: its name no longer leads there, and once the gateway has heard of that and
//! what was on its way is done, it is restarted. Deliberately not here: several at once, which is what storms are for.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::faults::Place;
use super::server::Server;
use super::world::World;

/// Time in which the gateway hears of a name, and calls come to their ends.
const DRAINED_WITHIN: Duration = Duration::from_secs(6);
/// So many looks at the shares of replicas are taken at most.
const SHARE_LOOKS: usize = 6;

impl World {
    pub(super) async fn repair(self: Rc<Self>) {
        while !self.is_over.get() {
            sleep(Duration::from_millis(500 + self.die(8000) as u64)).await;
            let server = &self.servers[self.die(self.servers.len())];
            let number = self.die(server.replicas.len());
            if !self.is_repair_time.get() || !server.is_up(number) {
                continue;
            }
            server.replicas[number].is_in_repair.set(true);
            if server.is_modern && self.die(2) == 0 {
                self.crash(server, number).await;
            } else {
                self.take_out(server, number).await;
            }
            server.replicas[number].is_in_repair.set(false);
            self.repaired.set(self.repaired.get() + 1);
        }
    }

    async fn crash(&self, server: &Rc<Server>, number: usize) {
        server.harm(&[Place::Connections, Place::Sessions, Place::Streams]);
        server.go_down(number);
        sleep(Duration::from_millis(self.die(10_000) as u64)).await;
        server.come_up(number).await;
        server.harm(&[Place::Sessions, Place::Streams]);
    }

    async fn take_out(&self, server: &Rc<Server>, number: usize) {
        server.harm(&[Place::Streams]);
        server.lose_sessions(number);
        server.replicas[number].is_listed.set(false);
        sleep(DRAINED_WITHIN).await;
        server.harm(&[Place::Streams]);
        server.go_down(number);
        sleep(Duration::from_millis(self.die(5000) as u64)).await;
        server.come_up(number).await;
        server.replicas[number].is_listed.set(true);
        server.harm(&[Place::Streams]);
    }

    /// All replicas are there: each gets calls.
    pub(super) async fn look_at_shares(&self, time: Duration) {
        let servers: Vec<&Rc<Server>> = self.servers.iter().filter(|server| server.is_modern).collect();
        let counted = || -> Vec<Vec<usize>> {
            let replicas = servers.iter().map(|server| server.replicas.iter());
            replicas.map(|replicas| replicas.map(|replica| replica.calls.get()).collect()).collect()
        };
        let before = counted();
        let mut fault = None;
        // Calls in sessions go where their session is: there may be hardly any others for a while.
        for _ in 0..SHARE_LOOKS {
            sleep(time).await;
            let after = counted();
            let pairs = servers.iter().zip(before.iter().zip(&after));
            let mut idle =
                pairs.filter(|(_, (before, after))| before.iter().zip(*after).any(|(a, b)| a == b));
            let Some((server, (before, after))) = idle.next() else { return };
            let known = self.known_replicas(server.name);
            fault = Some(format!("the calls at {} went from {before:?} to {after:?}: {known}", server.name));
        }
        if let Some(fault) = fault {
            self.model.fault(fault);
        }
    }

    /// The record of the gateway of each replica of a server.
    fn known_replicas(&self, name: &str) -> String {
        let snapshot = self.state.snapshot.load();
        let upstreams = snapshot.upstreams.iter().filter(|upstream| &*upstream.config.name == name);
        let replicas = upstreams.flat_map(|upstream| upstream.replicas.load().to_vec());
        let known = replicas.map(|replica| {
            let (breaker, in_flight) = (replica.breaker.0.state(), replica.load.in_flight());
            format!("{:?} {breaker:?} with {in_flight} in flight", replica.address)
        });
        known.collect::<Vec<_>>().join(", ")
    }
}
