//! One start of a program: room for it, its turn, and the time until it has answered anything.
//!
//! A start belongs to the program and not to who asked: it is a task of its own, and ends by an answer, by the end of its
//! process, by `start_timeout` ([`process`](super::process)), or with its upstream. All who need the process wait for that
//! one start, each as long as it may.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::room::{RoomSearch, WAIT_MAX};
use super::start_queue::StartTurn;
use super::{Children, not_started};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;
use crate::flight::Flight;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::fault::Fault;
use crate::upstream::mux::MuxConnection;
use crate::upstream::mux::exchange::{CloseOnDrop, ConnectRequest};
use crate::upstream::mux::host::Host;
use protocol::error::{ProcessBound, UpstreamError};

/// The time for which a start keeps its turn. One that takes longer waits for something else than this machine, such as a download.
pub(super) const TURN_TIME_MAX: Duration = Duration::from_secs(15);
/// The time before its end at which a call is told that the program is still starting; at most half of what it has.
const CALL_MARGIN: Duration = Duration::from_secs(5);
/// The same of what the gateway asks.
const OWN_MARGIN: Duration = Duration::from_millis(50);
/// When it may be tried again.
const RETRY_AFTER_S: u32 = 5;
/// Between two looks whether a client still waits for a start while its thread ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A process that was started, and has answered nothing yet.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) connection: CloseOnDrop,
    read: CancellationToken,
    up: CancellationToken,
    turn: Option<StartTurn>,
}

/// Those for whom a process is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartPayers {
    /// The one that is charged for it.
    pub(super) payer: Payer,
    /// The one that began it.
    pub(super) asker: Payer,
}

/// Counts a client that waits for this start; the gateway itself makes nobody give way.
pub(super) fn count_client<V>(asking: ConnectRequest<'_>, flight: &Flight<V>) -> Option<Wanted> {
    (asking.payer != Payer::GATEWAY).then(|| Wanted::new(&flight.clients))
}

/// True if a client waits for this start, whoever began it: then a process that rests makes room.
pub(super) fn has_client<V>(flight: &Flight<V>) -> bool {
    flight.clients.load(Ordering::Relaxed) > 0
}

/// Counts one that waits for a program while it lives.
#[derive(Debug)]
pub(crate) struct Wanted(Arc<AtomicUsize>);

impl Wanted {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Children {
    /// The turn of a start without a caller of its own; `None`: it has one.
    pub(super) async fn common_turn(&self, caller: &[u8]) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if caller.is_empty() { Some(self.common_start.lock().await) } else { None }
    }

    /// Starts a process on this thread, once there is room and it is its turn. `seeks_room`: whether one that
    /// rests is to make room, asked until there is some.
    pub(super) async fn launch(
        self: &Arc<Self>,
        host: &Rc<Host>,
        payers: StartPayers,
        seeks_room: impl Fn() -> bool,
    ) -> Result<Launched, UpstreamError> {
        tokio::select! {
            biased;
            launched = self.launch_in_turn(host, payers, seeks_room) => launched,
            () = self.ended(host) => Err(self.why_ended()),
        }
    }

    async fn launch_in_turn(
        self: &Arc<Self>,
        host: &Rc<Host>,
        StartPayers { payer, asker }: StartPayers,
        seeks_room: impl Fn() -> bool,
    ) -> Result<Launched, UpstreamError> {
        self.check_start(host, payer, &seeks_room)?;
        let begun = self.start_watch.begin(payer == Payer::GATEWAY).asked_by(asker);
        let queued = GaugeGuard::new(&self.series.starts_waiting);
        let places = match self.places_in_time(host, payer, &seeks_room).await {
            Ok(places) => places,
            Err(bound) => {
                // It is not on its way any more.
                begun.fail(bound.to_string());
                self.fault.note(Fault::NoPlace(bound), 0, self.serving() == 0 && !self.are_lazy());
                return Err(UpstreamError::TooManyChildren { bound });
            }
        };
        let turn = host.shared.starting.turn(self.start_place.clone()).await;
        drop(queued);
        self.check_start(host, payer, &seeks_room)?;
        begun.run();
        let (read, up) = (begun.read(), begun.up());
        let connection = CloseOnDrop::new(self.start(host, places, begun)?);
        Ok(Launched { connection, read, up, turn: Some(turn) })
    }

    /// Its places among all processes, or the bound that keeps it from them.
    async fn places_in_time(
        self: &Arc<Self>,
        host: &Rc<Host>,
        payer: Payer,
        seeks_room: impl Fn() -> bool,
    ) -> Result<(Share, Share), ProcessBound> {
        let mut room = RoomSearch::new(clock::now() + WAIT_MAX);
        loop {
            let own = self.running.take(payer).map_err(|_| ProcessBound::OfUpstream);
            let places = own.and_then(|own| {
                let of_all = host.shared.children.take(payer).map_err(|_| ProcessBound::OfAll)?;
                Ok((own, of_all))
            });
            let Err(bound) = places else { return places };
            if !(seeks_room() && Box::pin(room.wait(self, host, payer)).await) {
                tracing::debug!(upstream = self.name(), "{bound}");
                return Err(bound);
            }
        }
    }

    /// Fails if none may be started for this payer now. One that a client waits for is not the gateway's alone.
    fn check_start(
        &self,
        host: &Host,
        payer: Payer,
        has_client: impl Fn() -> bool,
    ) -> Result<(), UpstreamError> {
        if self.is_retired() || host.is_leaving() {
            return Err(self.why_ended());
        }
        let is_own = payer == Payer::GATEWAY && !has_client();
        self.start_pause(is_own, clock::now()).map_or(Ok(()), |wait| Err(not_started(wait)))
    }

    /// Completes when nothing is to be started any more.
    async fn ended(&self, host: &Host) {
        tokio::select! {
            () = self.retired() => {}
            () = host.leaving() => {}
        }
    }

    /// The reason for which nothing is to be started any more.
    fn why_ended(&self) -> UpstreamError {
        if self.is_retired() { UpstreamError::Reconfigured } else { UpstreamError::Unreachable }
    }

    /// Completes when a start that is under way is to end: with its upstream, or, where no client waits for it, with the
    /// thread.
    async fn unneeded(&self, host: &Host, has_client: impl Fn() -> bool) -> UpstreamError {
        let left = async {
            host.leaving().await;
            while has_client() {
                sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = self.retired() => {}
            () = left => {}
        }
        self.why_ended()
    }

    /// Starts a process, unless this one runs already, and asks it to make itself ready. It has `start_timeout` for that from
    /// when it is up. It ends with its upstream, and, where no client waits for it, with the thread. Fails where none is
    /// started. `ask` is given what is cancelled once a new process has read the question.
    pub(super) async fn launch_and_ask<T, A>(
        self: &Arc<Self>,
        host: &Rc<Host>,
        payers: StartPayers,
        running: Option<MuxConnection>,
        has_client: impl Fn() -> bool,
        ask: impl FnOnce(MuxConnection, Option<CancellationToken>) -> A,
    ) -> Result<(CloseOnDrop, Result<T, UpstreamError>), UpstreamError>
    where
        A: Future<Output = Result<T, UpstreamError>>,
    {
        if let Some(connection) = running {
            let starting = CloseOnDrop::new(connection.clone());
            let asked = timeout(self.start_timeout(), ask(connection, None));
            let answer = tokio::select! {
                biased;
                answer = asked => answer.unwrap_or(Err(UpstreamError::TimedOut)),
                error = self.unneeded(host, &has_client) => Err(error),
            };
            return Ok((starting, answer));
        }
        let mut launched = self.launch(host, payers, &has_client).await?;
        let asked = ask(launched.connection.connection().clone(), Some(launched.read.clone()));
        let in_vain = async {
            match launched.up(self, host).await {
                Ok(()) => sleep(self.start_timeout()).await,
                Err(error) => return error,
            }
            UpstreamError::TimedOut
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            error = in_vain => Err(error),
            error = self.unneeded(host, &has_client) => Err(error),
        };
        Ok((launched.connection, answer))
    }

    /// The outcome of a start, for one who waits as long as it may. A start may take minutes: a thread that takes in nothing new
    /// does not wait for it.
    pub(super) async fn wait_for_start<T>(
        &self,
        asking: ConnectRequest<'_>,
        landed: impl Future<Output = Option<Result<T, UpstreamError>>>,
    ) -> Result<T, UpstreamError> {
        let is_own = asking.payer == Payer::GATEWAY;
        let _wanted = (!is_own).then(|| Wanted::new(self.wanted()));
        let until = told_at(asking.deadline, if is_own { OWN_MARGIN } else { CALL_MARGIN });
        let landed = timeout_at(until.into(), landed);
        match asking.client.host.unless_closing(landed).await {
            Some(Ok(landed)) => landed.unwrap_or(Err(UpstreamError::Unreachable)),
            Some(Err(_)) | None => Err(still_starting()),
        }
    }
}

impl Launched {
    /// Waits until it has answered anything.
    pub(super) async fn up(&mut self, children: &Children, host: &Host) -> Result<(), UpstreamError> {
        let connection = self.connection.connection().clone();
        let up = self.up.clone();
        let answered = async {
            tokio::select! {
                biased;
                () = up.cancelled() => Ok(()),
                () = connection.gone() => {
                    let pause = children.start_pause(true, clock::now());
                    Err(not_started(pause.unwrap_or_default()))
                }
                () = children.ended(host) => Err(children.why_ended()),
            }
        };
        let mut answered = std::pin::pin!(answered);
        let outcome = tokio::select! {
            outcome = &mut answered => Some(outcome),
            () = sleep(TURN_TIME_MAX) => None,
        };
        self.turn = None;
        match outcome {
            Some(outcome) => outcome,
            None => answered.await,
        }
    }
}

/// When one is told that a program is still starting who has until `deadline`.
fn told_at(deadline: Instant, margin: Duration) -> Instant {
    let left = deadline.saturating_duration_since(clock::now());
    deadline.checked_sub(margin.min(left / 2)).unwrap_or(deadline)
}

/// When a call that has until `deadline` is told that the program is still starting.
pub(crate) fn call_told_at(deadline: Instant) -> Instant {
    told_at(deadline, CALL_MARGIN)
}

pub(crate) fn still_starting() -> UpstreamError {
    UpstreamError::Starting { retry_after_s: RETRY_AFTER_S }
}
