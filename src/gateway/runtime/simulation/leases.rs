//! Sessions that servers forget, which nobody notices, and those in which the gateway asks for lists, of which there are
//! fewer than kinds of clients: each list waits for one, and no server ever has more than it is to have, or one that the
//! gateway does not know of.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::world::World;
use crate::upstream::closing::was_asked_to_forget;

/// How many of them an upstream has at most.
pub(super) const LIST_SESSIONS_MAX: usize = 2;
/// Time in which one that makes room for another is closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);
/// Time in which the gateway has closed one, or knows it, in any weather: answers that are late are waited for.
const KNOWN_WITHIN: Duration = Duration::from_secs(45);

impl World {
    pub(super) async fn forget(self: Rc<Self>) {
        while !self.is_over.get() {
            sleep(Duration::from_millis(self.die(3000) as u64)).await;
            let server = &self.servers[self.die(self.servers.len())];
            // With repairs, streams may end, too.
            let is_heard = self.is_repair_time.get() && self.die(3) == 0;
            if server.forget_a_session(self.die(1000), is_heard) {
                self.forgotten.set(self.forgotten.get() + 1);
            }
        }
    }

    /// Looks at those that were opened in calm: what closes others may be lost in a storm.
    pub(super) async fn count_list_sessions(self: Rc<Self>) {
        while !self.is_over.get() {
            let since = Instant::now();
            let is_calm = || !self.model.weather.is_stormy.get();
            while is_calm() && !self.is_over.get() {
                let before: Vec<_> = self.servers.iter().map(|server| server.list_sessions(since)).collect();
                sleep(CLOSED_WITHIN).await;
                for (server, mut open) in self.servers.iter().zip(before) {
                    let after = server.list_sessions(since);
                    open.retain(|session| after.contains(session));
                    for one in open.iter().filter(|id| !self.state.sessions.holds(id)) {
                        let name = server.name;
                        self.model
                            .fault(format!("{name} has session {one} for lists, which nobody knows of"));
                    }
                    if open.len() > LIST_SESSIONS_MAX {
                        self.model.fault(format!("{} has sessions {open:?} for lists", server.name));
                    }
                }
            }
            sleep(CLOSED_WITHIN).await;
        }
    }

    /// Looks at all of them, in storms as well. A server has none that the gateway neither keeps nor has asked it to forget,
    /// though it was told of it. Those that a crash has ended are no more.
    pub(super) async fn look_for_lost_list_sessions(self: Rc<Self>) {
        let mut unknown: HashMap<String, Instant> = HashMap::new();
        while !self.is_over.get() {
            let before = std::mem::take(&mut unknown);
            for server in &self.servers {
                let told = server.told_list_sessions();
                let lost = |id: &String| !self.state.sessions.holds(id) && !was_asked_to_forget(id);
                for id in told.into_iter().filter(lost) {
                    let since = before.get(&id).copied().unwrap_or_else(Instant::now);
                    if since.elapsed() > KNOWN_WITHIN {
                        let name = server.name;
                        self.model.fault(format!("{name} has session {id} for lists, which was forgotten"));
                    }
                    unknown.insert(id, since);
                }
            }
            sleep(CLOSED_WITHIN).await;
        }
    }
}
