//! How far the program of an upstream is: waiting for its turn to start, starting, up, or failed.
//!
//! A start is under way until its process has answered anything. An upstream may have several processes; the one that is
//! furthest speaks for it. Whoever starts a process holds its [`Start`]; everybody else reads [`StartWatch`].

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::limit::payer::Payer;
use crate::clock;

/// How far the program of one upstream is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StartState {
    /// Nobody needed it yet.
    #[default]
    NotStarted,
    /// As many programs start as may, and it waits for its turn.
    Queued { since: Instant },
    /// It runs, and has answered nothing yet.
    Running { since: Instant },
    /// It has answered.
    Up { since: Instant },
    /// It was up, and has ended.
    Ended { at: Instant },
    /// The last start came to nothing.
    Failed(Arc<StartFailure>),
}

/// Why a start came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartFailure {
    /// For operators.
    pub why: String,
    pub at: Instant,
    /// The same in seconds since 1970.
    pub at_s: u64,
}

/// How far the processes of one upstream are; shared by all threads.
#[derive(Debug)]
pub(crate) struct StartWatch {
    starts: Mutex<StartStages>,
    state: watch::Sender<StartState>,
    /// True while any of them has not answered yet, though others have.
    under_way: watch::Sender<bool>,
    /// True while there is one of the gateway's own, or it is on its way.
    own: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct StartStages {
    next: u64,
    /// Those that are not over, in the order in which they began.
    stages: BTreeMap<u64, StartStage>,
    /// How the last one ended.
    last: Option<StartState>,
    /// When the last one that began had read all that it was sent.
    read: Option<Instant>,
    /// The time that the last one took which came up, without that for its turn.
    took: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct StartStage {
    stage: Stage,
    /// The gateway asks in it, whoever else does.
    is_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Up(Instant),
    Running(Instant),
    Queued(Instant),
}

/// One process on its way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Start {
    watch: Arc<StartWatch>,
    number: u64,
    is_own: bool,
    asker: Payer,
    read: CancellationToken,
    read_since: OnceLock<Instant>,
    up: CancellationToken,
}

impl Default for StartWatch {
    fn default() -> Self {
        Self {
            starts: Mutex::default(),
            state: watch::Sender::new(StartState::default()),
            under_way: watch::Sender::new(false),
            own: watch::Sender::new(false),
        }
    }
}

impl StartWatch {
    pub(crate) fn state(&self) -> StartState {
        self.state.borrow().clone()
    }

    /// True from when a start came to nothing until one comes up.
    pub(crate) fn has_failed(&self) -> bool {
        let starts = self.starts.lock();
        let is_up = starts.stages.values().any(|start| matches!(start.stage, Stage::Up(_)));
        !is_up && matches!(starts.last, Some(StartState::Failed(_)))
    }

    /// Tells of each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<StartState> {
        self.state.subscribe()
    }

    /// Tells of each start from now on: true while any is under way.
    pub(crate) fn under_way(&self) -> watch::Receiver<bool> {
        self.under_way.subscribe()
    }

    /// True while there is a process in which the gateway itself asks, or one is on its way.
    pub(crate) fn has_own(&self) -> bool {
        *self.own.borrow()
    }

    /// Since when the newest of those has answered.
    pub(crate) fn own_up_since(&self) -> Option<Instant> {
        let starts = self.starts.lock();
        let up = starts.stages.values().filter(|start| start.is_own).filter_map(|start| match start.stage {
            Stage::Up(since) => Some(since),
            Stage::Running(_) | Stage::Queued(_) => None,
        });
        up.max()
    }

    /// Tells from now on whether there is one.
    pub(crate) fn own(&self) -> watch::Receiver<bool> {
        self.own.subscribe()
    }

    /// Since when a process has read all that it was sent, and says nothing; `None`: it may still be on its way, or is over.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        let starts = self.starts.lock();
        starts.read.filter(|_| !starts.stages.is_empty())
    }

    /// The time that the last one took which came up, from when it ran.
    pub(crate) fn took(&self) -> Option<Duration> {
        self.starts.lock().took
    }

    /// A start that waits for its turn. `is_own`: the gateway asks in this process.
    pub(crate) fn begin(self: &Arc<Self>, is_own: bool) -> Start {
        let number = self.update(|starts| {
            starts.read = None;
            let number = starts.next;
            starts.next += 1;
            starts.stages.insert(number, StartStage { stage: Stage::Queued(clock::now()), is_own });
            number
        });
        let (read, read_since, up) = Default::default();
        let asker = Payer::GATEWAY;
        Start { watch: Arc::clone(self), number, is_own, asker, read, read_since, up }
    }

    fn update<T>(&self, change: impl FnOnce(&mut StartStages) -> T) -> T {
        let mut starts = self.starts.lock();
        let value = change(&mut starts);
        let state = starts.state();
        // Under the lock, so that the last change is the one that is told.
        self.state.send_if_modified(|told| {
            let is_news = *told != state;
            *told = state;
            is_news
        });
        let is_under_way = starts.stages.values().any(|start| !matches!(start.stage, Stage::Up(_)));
        let has_own = starts.stages.values().any(|start| start.is_own);
        self.own.send_if_modified(|told| std::mem::replace(told, has_own) != has_own);
        self.under_way.send_if_modified(|told| std::mem::replace(told, is_under_way) != is_under_way);
        value
    }
}

impl StartStages {
    fn state(&self) -> StartState {
        match self.stages.values().map(|start| &start.stage).min() {
            Some(Stage::Up(since)) => StartState::Up { since: *since },
            Some(Stage::Running(since)) => StartState::Running { since: *since },
            Some(Stage::Queued(since)) => StartState::Queued { since: *since },
            None => self.last.clone().unwrap_or_default(),
        }
    }

    fn end(&mut self, number: u64) {
        if let Some(StartStage { stage: Stage::Up(_), .. }) = self.stages.remove(&number) {
            self.last = Some(StartState::Ended { at: clock::now() });
        }
    }
}

impl Start {
    /// The same, begun for this one.
    pub(crate) fn asked_by(mut self, asker: Payer) -> Self {
        self.asker = asker;
        self
    }

    /// The one that it was begun for, whoever is charged.
    pub(crate) fn asker(&self) -> Payer {
        self.asker
    }

    /// It has its turn.
    pub(crate) fn run(&self) {
        self.set(Stage::Running(clock::now()));
    }

    /// It has read all that it was sent.
    pub(crate) fn note_read(&self) {
        let since = *self.read_since.get_or_init(clock::now);
        self.watch.starts.lock().read = Some(since);
        self.read.cancel();
    }

    /// Cancelled once it has read all that it was sent first.
    pub(crate) fn read(&self) -> CancellationToken {
        self.read.clone()
    }

    /// Since when it has; `None`: it has not yet.
    pub(crate) fn read_since(&self) -> Option<Instant> {
        self.read_since.get().copied()
    }

    /// It has answered.
    pub(crate) fn succeed(&self) {
        {
            let mut starts = self.watch.starts.lock();
            if let Some(StartStage { stage: Stage::Running(since), .. }) =
                starts.stages.get(&self.number).copied()
            {
                starts.took = Some(clock::since(since));
            }
        }
        self.set(Stage::Up(clock::now()));
        self.up.cancel();
    }

    /// True where the gateway asks in it, whoever else does.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Cancelled once it has answered.
    pub(crate) fn up(&self) -> CancellationToken {
        self.up.clone()
    }

    /// It came to nothing.
    pub(crate) fn fail(&self, why: String) {
        let failure = StartFailure { why, at: clock::now(), at_s: clock::now_s() };
        self.watch.update(|starts| {
            starts.stages.remove(&self.number);
            starts.last = Some(StartState::Failed(failure.into()));
        });
    }

    /// Its process is to end, as nobody uses it: from now on it is none.
    pub(crate) fn rest(&self) {
        self.watch.update(|starts| starts.end(self.number));
    }

    fn set(&self, stage: Stage) {
        let start = StartStage { stage, is_own: self.is_own };
        self.watch.update(|starts| starts.stages.insert(self.number, start));
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        self.watch.update(|starts| starts.end(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_is_furthest_speaks_for_all() {
        let watch = Arc::new(StartWatch::default());
        let mut changes = watch.changes();
        assert_eq!(watch.state(), StartState::NotStarted);
        let first = watch.begin(false);
        assert!(matches!(watch.state(), StartState::Queued { .. }));
        first.run();
        let second = watch.begin(false);
        assert!(matches!(watch.state(), StartState::Running { .. }));
        second.run();
        second.succeed();
        assert!(changes.has_changed().expect("it is there"));
        assert!(matches!(*changes.borrow_and_update(), StartState::Up { .. }));
        assert!(*watch.under_way().borrow(), "the other is on its way");
        first.fail("it ended".into());
        assert!(matches!(watch.state(), StartState::Up { .. }), "one of them is up");
        assert!(!*watch.under_way().borrow());
        drop(second);
        assert!(matches!(watch.state(), StartState::Ended { .. }));
        let third = watch.begin(false);
        third.run();
        third.fail("exit status: 3".into());
        let StartState::Failed(failure) = watch.state() else { panic!("{:?}", watch.state()) };
        assert_eq!(failure.why, "exit status: 3");
        drop(watch.begin(false));
        assert!(matches!(watch.state(), StartState::Failed(_)), "one that was given up says nothing");
    }

    #[test]
    fn the_gateways_own_is_none_once_it_is_to_end() {
        let watch = Arc::new(StartWatch::default());
        let others = watch.begin(false);
        others.succeed();
        assert!(!watch.has_own());
        let own = watch.begin(true);
        let told = watch.own();
        assert!(*told.borrow() && watch.has_own(), "it is on its way");
        assert!(watch.own_up_since().is_none(), "that of another says nothing");
        assert_eq!(watch.took(), None, "it had no turn");
        own.run();
        own.succeed();
        assert!(watch.own_up_since().is_some() && watch.took().is_some());
        own.rest();
        assert!(!watch.has_own() && matches!(watch.state(), StartState::Up { .. }), "another is up");
        others.rest();
        assert!(matches!(watch.state(), StartState::Ended { .. }));
        let next = watch.begin(true);
        next.run();
        drop((own, others));
        assert!(watch.has_own() && matches!(watch.state(), StartState::Running { .. }), "these are over");
    }
}
