//! What must have come of what clients did.
//!
//! A call is executed once or not at all. It is answered once, with what was executed, or with an error; with an error only
//! where something happened to its upstream or its connection, shortly before or meanwhile. What a server tells one session
//! reaches nobody else. In which order it comes is not looked at.
//!
//! A replica that leaves harms only what it was telling. One that crashes harms what was on its way to it, and for a while
//! what it alone knew; calls without a session go to the others. A session that its server forgets harms nobody, unless
//! clients are to hear of it: then theirs end.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::faults::{Place, Weather};

/// What a fault may do afterwards: a breaker that is open, a replica that is not asked, a session to be opened anew.
const AFTERMATH: Duration = Duration::from_secs(25);
/// The same for what was on its way to a replica that crashed while others did not: until its connections are seen to end.
const CRASH: Duration = Duration::from_millis(50);
/// Time after a fault in which streams of the gateway's own may not be open: one that was lost several times is opened again
/// after up to half a minute.
const REOPENED_WITHIN: Duration = Duration::from_secs(20);
/// Time in which somebody who listens is told.
pub(super) const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// What is reported of one seed.
const FAULTS_MAX: usize = 10;

/// How a call came back to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The text of its result.
    Text(String),
    /// An error in the form that the protocol gives it.
    Refused(String),
    /// The connection ended or could not be opened.
    Broken(String),
    /// What no server may answer.
    Nonsense(String),
}

/// The reference that everything is compared with.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) weather: Rc<Weather>,
    /// Whether a client's session ends with one that a server loses.
    pub(super) ends_with_lost: bool,
    started: Instant,
    next_token: Cell<usize>,
    executed: RefCell<HashMap<String, usize>>,
    /// Who a session of an upstream belongs to.
    owners: RefCell<HashMap<String, usize>>,
    /// Clients for whom a server has lost a session.
    bereft: RefCell<HashSet<usize>>,
    /// When lists of upstreams changed.
    changes: RefCell<Vec<(&'static str, Instant)>>,
    /// What servers told on streams, by token: for whom, and how often it arrived.
    told: RefCell<HashMap<String, (usize, usize)>>,
    pub(super) answered: Cell<usize>,
    pub(super) succeeded: Cell<usize>,
    /// What became of each token, for who has to find out.
    history: RefCell<HashMap<String, Vec<String>>>,
    faults: RefCell<Vec<String>>,
}

impl Model {
    pub(super) fn new(weather: Rc<Weather>, ends_with_lost: bool) -> Rc<Self> {
        Rc::new(Self {
            weather,
            ends_with_lost,
            started: Instant::now(),
            next_token: Cell::default(),
            executed: RefCell::default(),
            owners: RefCell::default(),
            bereft: RefCell::default(),
            changes: RefCell::default(),
            told: RefCell::default(),
            answered: Cell::default(),
            succeeded: Cell::default(),
            history: RefCell::default(),
            faults: RefCell::default(),
        })
    }

    /// Something that became of a token.
    pub(super) fn note(&self, token: &str, what: &str) {
        let line = format!("{:.3} {what}", self.started.elapsed().as_secs_f64());
        self.history.borrow_mut().entry(token.to_owned()).or_default().push(line);
    }

    /// Something that must not be of a token.
    fn fault_of(&self, token: &str, what: &str) {
        let history = self.history.borrow().get(token).cloned().unwrap_or_default().join("; ");
        self.fault(format!("{token} {what} ({history})"));
    }

    /// Something that must not be.
    pub(super) fn fault(&self, what: impl std::fmt::Display) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            faults.push(format!("at {:.3} s: {what}", self.started.elapsed().as_secs_f64()));
        }
    }

    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.borrow().clone()
    }

    /// A token that nobody has.
    pub(super) fn token(&self) -> String {
        self.next_token.set(self.next_token.get() + 1);
        format!("t{}", self.next_token.get())
    }

    /// A server does what a call says.
    pub(super) fn execute(&self, token: &str) {
        self.note(token, "executed");
        *self.executed.borrow_mut().entry(token.to_owned()).or_default() += 1;
        if self.executed.borrow()[token] > 1 {
            self.fault_of(token, "was executed twice");
        }
    }

    /// A session of an upstream was used for a client; `None`: for any.
    pub(super) fn use_session(&self, session: &str, client: usize) {
        let owner = *self.owners.borrow_mut().entry(session.to_owned()).or_insert(client);
        if owner != client {
            self.fault(format!("session {session} of client {owner} was used for client {client}"));
        }
    }

    pub(super) fn owner(&self, session: &str) -> Option<usize> {
        self.owners.borrow().get(session).copied()
    }

    /// A server no longer knows a session.
    pub(super) fn lose_session(&self, session: &str) {
        self.bereft.borrow_mut().extend(self.owner(session));
    }

    /// Whether a client may be told that its session is gone.
    pub(super) fn may_have_ended(&self, client: usize) -> bool {
        self.ends_with_lost && self.bereft.borrow().contains(&client)
    }

    /// An upstream's list is another from now on.
    pub(super) fn change_list(&self, upstream: &'static str) {
        self.changes.borrow_mut().push((upstream, Instant::now()));
    }

    /// The version of its list at that time.
    pub(super) fn version_at(&self, upstream: &str, when: Instant) -> usize {
        let changes = self.changes.borrow();
        1 + changes.iter().filter(|(changed, at)| *changed == upstream && *at <= when).count()
    }

    /// Whether the gateway heard of what an upstream had to tell.
    pub(super) fn was_heard(&self, upstream: &'static str, when: Instant) -> bool {
        let since = when.checked_sub(REOPENED_WITHIN).unwrap_or(when);
        self.was_calm(&[Place::Upstream(upstream), Place::Streams(upstream)], since)
    }

    /// Somebody who asked for a list at that time was shown these versions of an upstream's; a while after a change it is
    /// the new one.
    pub(super) fn show_versions(
        &self,
        upstream: &'static str,
        since: Instant,
        shown: impl Iterator<Item = usize>,
    ) {
        let told = since.checked_sub(TOLD_WITHIN).unwrap_or(since);
        let (expected, shown) = (self.version_at(upstream, told), shown.max());
        if shown.is_none_or(|shown| shown < expected) && self.was_heard(upstream, told) {
            self.fault(format!("the list of {upstream} is {shown:?}, not {expected}"));
        }
    }

    /// A server tells a client something on a stream. Returns its token.
    pub(super) fn tell(&self, client: usize) -> String {
        let token = self.token();
        self.told.borrow_mut().insert(token.clone(), (client, 0));
        token
    }

    /// A client was told something.
    pub(super) fn hear(&self, client: usize, token: &str) {
        let mut told = self.told.borrow_mut();
        let Some((owner, times)) = told.get_mut(token) else {
            drop(told);
            return self.fault(format!("client {client} was told {token}, which nobody said"));
        };
        *times += 1;
        let (owner, times) = (*owner, *times);
        drop(told);
        if owner != client {
            self.fault(format!("client {client} was told {token}, which was for client {owner}"));
        }
        if times > 1 {
            self.fault(format!("client {client} was told {token} {times} times"));
        }
    }

    /// Whether a client was told something.
    pub(super) fn is_heard(&self, token: &str) -> bool {
        self.told.borrow().get(token).is_some_and(|(_, times)| *times > 0)
    }

    /// Whether nothing happened that excuses an error of a request since then.
    pub(super) fn was_calm(&self, places: &[Place], since: Instant) -> bool {
        places.iter().all(|place| {
            let aftermath = if matches!(place, Place::Connections(_)) { CRASH } else { AFTERMATH };
            !self.weather.has_harmed(place, since.checked_sub(aftermath).unwrap_or(since))
        })
    }

    /// A call with this token came back. `places` may excuse that it failed.
    pub(super) fn answer(
        &self,
        (token, expected): (&str, &str),
        places: &[Place],
        since: Instant,
        outcome: Outcome,
    ) {
        self.answered.set(self.answered.get() + 1);
        let executed = self.executed.borrow().get(token).copied().unwrap_or_default();
        match outcome {
            Outcome::Text(text) if text == expected && executed == 1 => {
                self.succeeded.set(self.succeeded.get() + 1);
            }
            Outcome::Text(text) => {
                self.fault_of(token, &format!("was answered {text}, not {expected}"));
            }
            Outcome::Nonsense(what) => self.fault_of(token, &format!("was answered {what}")),
            Outcome::Refused(what) | Outcome::Broken(what) => {
                if self.was_calm(places, since) {
                    self.fault_of(token, &format!("failed for no reason: {what}"));
                }
            }
        }
    }
}
