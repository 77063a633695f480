//! Where connections run: tasks of the thread that opened them, apart from its other tasks, so that they outlast those
//! and end in order. What the control thread opens for everybody runs on a worker, where its calls are.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::MuxBounds;
use crate::access::limit::fair::Turn;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;
use crate::upstream::stdio::start_queue::StartQueue;
use config::{self, Config};
use net::drain::Drain;
use net::tasks::Tasks;
use protocol::error::UpstreamError;
use protocol::json::Scratch;

/// Bytes that wait for one reader, unless they are one message: a burst that one who reads catches up with.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the connections of all threads share.
#[derive(Debug)]
pub(crate) struct SharedHost {
    /// Child processes that run.
    pub children: Arc<Shares>,
    /// Whose turn it is to start one.
    pub starting: Arc<StartQueue>,
    limits: ArcSwap<Limits>,
    /// Makes room for a child process, once there is somebody who can.
    room: OnceLock<Arc<dyn MakeRoom>>,
    /// Workers that run jobs; the next is the last.
    workers: Mutex<Vec<mpsc::UnboundedSender<HostJob>>>,
}

/// Ends child processes that rest. Shared by all threads.
pub(crate) trait MakeRoom: std::fmt::Debug + Send + Sync {
    /// Has the process end that makes room for one of `payer` at the upstream of this name, and says how long that may take.
    fn make_room(&self, asked: &str, payer: Payer, now: Instant) -> Turn<Duration>;
}

/// What is to be done on another thread.
type HostJob = Box<dyn FnOnce(&Rc<Host>) + Send>;

/// The jobs of one worker.
#[derive(Debug)]
pub(crate) struct HostJobs(mpsc::UnboundedReceiver<HostJob>);

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
    is_control: bool,
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
        let limits = ArcSwap::from_pointee(Limits::of(config, budget));
        let starting = StartQueue::new(starting_max(config));
        Arc::new(Self { children, starting, limits, room: OnceLock::new(), workers: Mutex::default() })
    }

    /// Who makes room for child processes; the first stays.
    pub(crate) fn set_room(&self, room: Arc<dyn MakeRoom>) {
        let _ = self.room.set(room);
    }

    pub(crate) fn room(&self) -> Option<Arc<dyn MakeRoom>> {
        self.room.get().cloned()
    }

    /// One more worker, which is to run what it gets.
    pub(crate) fn add_worker(&self) -> HostJobs {
        let (sender, jobs) = mpsc::unbounded_channel();
        self.workers.lock().push(sender);
        HostJobs(jobs)
    }

    /// Gives it to the workers in turn. Back comes what no worker takes.
    fn hand_over(&self, mut job: HostJob) -> Result<(), HostJob> {
        let mut workers = self.workers.lock();
        while let Some(worker) = workers.pop() {
            match worker.send(job) {
                Ok(()) => {
                    workers.insert(0, worker);
                    return Ok(());
                }
                Err(refused) => job = refused.0,
            }
        }
        Err(job)
    }

    pub(crate) fn reconfigure(&self, config: &Config) {
        self.children.set_max(config.limits.children_max);
        self.starting.set_max(starting_max(config));
        let budget = Arc::clone(&self.limits().budget);
        self.limits.store(Arc::new(Limits::of(config, &budget)));
    }

    pub(crate) fn limits(&self) -> arc_swap::Guard<Arc<Limits>> {
        self.limits.load()
    }
}

/// The number of child processes that may start at once.
fn starting_max(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    config.limits.children_starting_max.unwrap_or_else(|| 2 * cores())
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
    /// A place on the current thread, which answers calls.
    pub(crate) fn new(shared: &Arc<SharedHost>, panics: IntCounter) -> Rc<Self> {
        Self::on_thread(shared, panics, false)
    }

    /// A place on the control thread, which answers none.
    pub(crate) fn of_control(shared: &Arc<SharedHost>, panics: IntCounter) -> Rc<Self> {
        Self::on_thread(shared, panics, true)
    }

    fn on_thread(shared: &Arc<SharedHost>, panics: IntCounter, is_control: bool) -> Rc<Self> {
        Rc::new(Self {
            shared: Arc::clone(shared),
            is_control,
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

    /// Does what takes long apart from this thread.
    pub(crate) async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.tasks.compute(work).await
    }

    /// What `job` gives, done on this thread or, where this is the control thread, on a worker. `Unreachable` also where
    /// that ends before.
    pub(crate) async fn on_worker<T: Send + 'static>(
        self: &Rc<Self>,
        job: impl FnOnce(&Rc<Self>) -> Result<T, UpstreamError> + Send + 'static,
    ) -> Result<T, UpstreamError> {
        if !self.is_control {
            return job(self);
        }
        let (done, result) = oneshot::channel();
        let job: HostJob = Box::new(move |host| drop(done.send(job(host))));
        if let Err(job) = self.shared.hand_over(job) {
            job(self);
        }
        result.await.unwrap_or(Err(UpstreamError::Unreachable))
    }

    /// Does what other threads hand over. Never completes.
    pub(crate) async fn work(self: &Rc<Self>, mut jobs: HostJobs) {
        while let Some(job) = jobs.0.recv().await {
            job(self);
        }
        std::future::pending::<()>().await;
    }

    /// From now on the thread takes in nothing new.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// From now on connections that nobody uses end, and none is opened here any more.
    pub(crate) fn leave(&self) {
        self.closing.cancel();
        self.leaving.cancel();
    }

    /// Completes when the thread takes in nothing new: what waits for a client to come back waits in vain, and would hold
    /// up the end.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// The outcome of `waiting`, if it comes before that. `None`: it would hold up the end.
    pub(crate) async fn unless_closing<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = waiting => Some(outcome),
            () = self.closing.cancelled() => None,
        }
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
        self.leave();
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
