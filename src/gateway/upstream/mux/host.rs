//! Where connections run: tasks of the thread that opened them, apart from its other tasks, so that they outlast those
//! and end in order.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus::IntCounter;
use tokio_util::sync::CancellationToken;

use super::MuxBounds;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;
use config::{self, Config};
use net::drain::Drain;
use net::tasks::Tasks;
use protocol::json::Scratch;

/// Bytes that wait for one reader, unless they are one message: a burst that one who reads catches up with.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the connections of all threads share.
#[derive(Debug)]
pub(crate) struct SharedHost {
    /// Child processes that run.
    pub children: Arc<Shares>,
    limits: ArcSwap<Limits>,
}

/// Bounds of every connection.
#[derive(Debug)]
pub(crate) struct Limits {
    pub message_bytes_max: usize,
    pub json_depth_max: usize,
    /// All that the configuration says.
    pub all: config::LimitsConfig,
    pub budget: Arc<Shares>,
}

/// A thread's place for connections.
pub(crate) struct Host {
    pub shared: Arc<SharedHost>,
    /// Memory for reading what goes into a connection.
    pub scratch: RefCell<Scratch>,
    tasks: Tasks,
    closing: CancellationToken,
    leaving: CancellationToken,
    cut: CancellationToken,
}

impl SharedHost {
    /// By configuration. What waits for readers is counted in `budget`.
    pub(crate) fn new(config: &Config, budget: &Arc<Shares>) -> Arc<Self> {
        let children = Shares::new(config.limits.children_max);
        Arc::new(Self { children, limits: ArcSwap::from_pointee(Limits::of(config, budget)) })
    }

    pub(crate) fn reconfigure(&self, config: &Config) {
        self.children.set_max(config.limits.children_max);
        let budget = Arc::clone(&self.limits().budget);
        self.limits.store(Arc::new(Limits::of(config, &budget)));
    }

    pub(crate) fn limits(&self) -> arc_swap::Guard<Arc<Limits>> {
        self.limits.load()
    }
}

impl Limits {
    fn of(config: &Config, budget: &Arc<Shares>) -> Self {
        let limits = &config.limits;
        Self {
            message_bytes_max: limits.reply_bytes_max,
            json_depth_max: limits.json_depth_max,
            all: limits.clone(),
            budget: Arc::clone(budget),
        }
    }

    /// What a connection is made with for which this payer is charged.
    pub(crate) fn bounds(&self, payer: Payer) -> MuxBounds {
        MuxBounds {
            waiting_bytes_max: self.message_bytes_max.min(WAITING_BYTES_MAX),
            json_depth_max: self.json_depth_max,
            budget: Arc::clone(&self.budget),
            payer,
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Host {
    /// A place on the current thread.
    pub(crate) fn new(shared: &Arc<SharedHost>, panics: IntCounter) -> Rc<Self> {
        Rc::new(Self {
            shared: Arc::clone(shared),
            scratch: RefCell::default(),
            tasks: Tasks::new(panics),
            closing: CancellationToken::new(),
            leaving: CancellationToken::new(),
            cut: CancellationToken::new(),
        })
    }

    pub(crate) fn run(&self, connection: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(connection);
    }

    /// From now on the thread takes in nothing new.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Completes when the thread takes in nothing new: what waits for a client to come back waits in vain, and would hold
    /// up the end.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Completes when connections that nobody uses are to end, as the thread has nothing else to do.
    pub(crate) async fn leaving(&self) {
        self.leaving.cancelled().await;
    }

    /// Whether that is so: a connection that is opened now would end at once, and hold up the end of the thread.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Completes when every connection is to end.
    pub(crate) async fn cut(&self) {
        self.cut.cancelled().await;
    }

    /// Ends the connections of this thread: idle ones at once, the others when they are idle or the drain cuts them.
    pub(crate) async fn finish(&self, drain: &Drain) {
        self.closing.cancel();
        self.leaving.cancel();
        let cut = async {
            drain.cut().await;
            self.cut.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.tasks.wait() => {}
            () = cut => {}
        }
    }
}
