//! The process of one session: started and initialized as a task of its own, and claimed by whoever opens the session.
//!
//! A caller that opens a session may give up before its process is up. Then the next that opens one in the same way claims
//! the start: nobody has used it yet. A process that nobody claims for a while is ended.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::launch::{StartPayers, count_client, has_client};
use super::opening::{OpeningRole, SessionTrial};
use super::own_initialize::{answer_to, refuses_revision, result_of, with_start_id};
use super::processes::{OpenedSession, SessionOutcome, SessionWish, UnclaimedStart};
use super::trial::{is_final, may_be_trial, patience};
use super::{Children, not_started};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::flight::{FlightRole, Landing};
use crate::upstream::exchange::Reply;
use crate::upstream::mux::exchange::{ConnectRequest, MuxPost, ask_to_initialize};
use crate::upstream::mux::host::Host;
use crate::upstream::mux::sessions::SessionHandle;
use crate::upstream::mux::{MuxConnection, ONLY_SESSION};
use protocol::error::UpstreamError;

/// The time for which a process that is up waits for who opens its session.
const UNCLAIMED_TIME_MAX: Duration = Duration::from_mins(1);

/// A start that somebody waits for. Dropped, it is unclaimed again.
struct Claim<'c> {
    children: &'c Children,
    start: Option<UnclaimedStart>,
}

/// One start, as a task of its own.
struct SessionStart {
    children: Arc<Children>,
    landing: Landing<u64, SessionOutcome>,
    number: u64,
    wish: SessionWish,
    json_depth_max: usize,
    /// A process that runs already.
    running: Option<MuxConnection>,
    /// It shows whether the program opens sessions.
    trial: Option<SessionTrial>,
}

impl Children {
    /// Opens a session over a process of its own. One that is refused ends it.
    pub(super) async fn open_session(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        let wish = SessionWish {
            principal: asking.principal.map(Box::from),
            payer: asking.payer,
            message: with_start_id(post.message, post.envelope.id.clone()),
        };
        let introduction = self.opening.introduction(&wish.message, post.json_depth_max);
        let (begun, start) = loop {
            if let Some(claimed) = self.unclaimed.claim(&wish) {
                break (claimed, None);
            }
            let role = if may_be_trial(asking) {
                self.opening.join(introduction, asking.payer, clock::now())
            } else {
                OpeningRole::Known
            };
            let trial = match role {
                OpeningRole::Known => None,
                OpeningRole::Trial(trial) => Some(trial),
                OpeningRole::Wait(other) => {
                    self.wait_for_trial(asking, introduction, &other).await?;
                    continue;
                }
            };
            break self.new_session_start(asking, wish, trial, post.json_depth_max)?;
        };
        let trial = begun.trial.clone();
        let flight = Arc::clone(&begun.flight);
        let _client = count_client(asking, &flight);
        let mut claim = Claim { children: self, start: Some(begun) };
        if let Some(start) = start {
            let run = move |host: &Rc<Host>| {
                host.run(start.run(Rc::clone(host)));
                Ok(())
            };
            asking.client.host.on_worker(run).await?;
        }
        let landed = self.wait_for_start(asking, flight.landed());
        let opened = self.unless_client_is_late(asking, trial.as_ref(), landed).await?;
        let OpenedSession { connection, answer } = opened;
        claim.start = None;
        let (answer, is_open) = answer_to(post.id(), &answer, post.json_depth_max)?;
        let mut reply = Reply::json(answer);
        if is_open {
            let id =
                self.sessions.keep(SessionHandle { connection: connection.clone(), session: ONLY_SESSION });
            let Some(id) = id else {
                connection.close();
                return Err(UpstreamError::Reset);
            };
            reply.head.fields.set_session_id(id);
        }
        Ok(reply)
    }

    fn new_session_start(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        wish: SessionWish,
        trial: Option<SessionTrial>,
        json_depth_max: usize,
    ) -> Result<(UnclaimedStart, Option<SessionStart>), UpstreamError> {
        // One client may be granted a session that another was refused.
        if wish.payer == Payer::GATEWAY
            && let Some(wait) = self.initialize_pause(wish.payer)
        {
            return Err(not_started(wait));
        }
        self.check_start_of(wish.payer)?;
        let number = self.next_start.fetch_add(1, Ordering::Relaxed);
        // No other start has this number.
        let FlightRole::Begin(landing) = self.session_starts.join(&number) else {
            return Err(UpstreamError::Unreachable);
        };
        let flight = Arc::clone(&landing.flight);
        // Of a session's own the session pays, and that one is the gateway's.
        let is_own = wish.payer == Payer::GATEWAY && wish.principal.is_none();
        let running = is_own.then(|| self.take_asked_in_vain(&asking.upstream.facts)).flatten();
        let watch = trial.as_ref().map(SessionTrial::watch);
        let start = SessionStart {
            children: Arc::clone(self),
            landing,
            number,
            wish: wish.clone(),
            json_depth_max,
            running,
            trial,
        };
        Ok((UnclaimedStart { wish, number, flight, trial: watch }, Some(start)))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(start) = self.start.take() {
            self.children.unclaimed.give_back(start);
        }
    }
}

impl SessionStart {
    async fn run(self, host: Rc<Host>) {
        let (children, number) = (Arc::clone(&self.children), self.number);
        let landed = self.land(&host).await;
        if let Some(opened) = landed {
            let patience = UNCLAIMED_TIME_MAX.min(children.command.idle_timeout);
            tokio::select! {
                () = sleep(patience) => {}
                () = opened.connection.gone() => {}
                () = host.leaving() => {}
            }
            if children.unclaimed.forget(number) {
                opened.connection.close();
            }
        } else {
            children.unclaimed.forget(number);
        }
    }

    /// Starts, and tells who waits. The session that it gives may have nobody who claims it.
    async fn land(self, host: &Rc<Host>) -> Option<OpenedSession> {
        let Self { children, landing, wish, json_depth_max, running, trial, .. } = self;
        let is_own = wish.payer == Payer::GATEWAY;
        let trial = trial.as_ref();
        let asking = async |connection, read| {
            let started = clock::now();
            let asked = ask(&connection, &wish, json_depth_max);
            let patience = || {
                let took = children.start_watch.took().unwrap_or_default();
                patience(took.max(clock::since(started)), children.start_timeout())
            };
            match trial.zip(read) {
                Some((trial, read)) => trial.answer(read, patience, asked).await,
                None => asked.await,
            }
        };
        let has_client = || has_client(&landing.flight);
        let payers = StartPayers { payer: wish.payer, asker: wish.payer };
        let asked = children.launch_and_ask(host, payers, running, has_client, asking).await;
        let opened = asked.and_then(|(starting, answer)| {
            let is_silent = matches!(answer, Err(UpstreamError::TimedOut));
            let is_vain = is_silent || (answer.is_err() && starting.connection().is_over());
            if let Some(trial) = trial.filter(|_| is_vain && !children.is_retired()) {
                children.note_vain_opening(trial);
            }
            Ok((starting, answer?))
        });
        let opened = opened.map(|(starting, answer)| (starting, result_of(&answer, json_depth_max), answer));
        match opened {
            Ok((starting, Some(result), answer)) => {
                children.opening.note_open();
                children.introductions.note(wish.payer, result);
                if is_own {
                    children.note_initialized(wish.payer, true);
                }
                let opened = OpenedSession { connection: starting.keep(), answer };
                landing.land(Ok(opened.clone()));
                Some(opened)
            }
            Ok((starting, None, answer)) => {
                if !refuses_revision(&wish.message, &answer, json_depth_max) {
                    match trial {
                        _ if is_own => children.note_initialized(wish.payer, false),
                        Some(trial) if is_final(&answer, json_depth_max) => {
                            children.note_refused_opening(trial);
                        }
                        Some(trial) => children.note_vain_opening(trial),
                        None => {}
                    }
                }
                landing.land(Ok(OpenedSession { connection: starting.connection().clone(), answer }));
                None
            }
            Err(error) => {
                landing.land(Err(error));
                None
            }
        }
    }
}

impl Children {
    /// The process of this trial was asked to open a session, and knows none.
    fn note_refused_opening(&self, trial: &SessionTrial) {
        if self.opening.note_refusal(trial) {
            self.tell_of_bridge();
        }
    }

    /// The process of this trial was asked to open a session, and ended, said nothing or failed for a reason that may pass.
    fn note_vain_opening(&self, trial: &SessionTrial) {
        if self.opening.note_vain(trial, clock::now()) {
            self.tell_of_bridge();
        }
    }

    fn tell_of_bridge(&self) {
        tracing::info!(
            upstream = self.name,
            "the program opens no session for a client: those that introduce themselves alike come over the bridge"
        );
    }
}

async fn ask(
    connection: &MuxConnection,
    wish: &SessionWish,
    json_depth_max: usize,
) -> Result<Bytes, UpstreamError> {
    let session = connection.begin_session(wish.payer == Payer::GATEWAY);
    let answer = ask_to_initialize(connection, session, &wish.message, wish.payer, json_depth_max).await;
    // Earlier questions that it has not answered by now it does not answer.
    connection.abandon_own();
    answer
}
