//! The process of one session: started and initialized as a task of its own, and claimed by whoever opens the session.
//!
//! A caller that opens a session may give up before its process is up. Then the next that opens one in the same way claims
//! the start: nobody has used it yet. A process that nobody claims for a while is ended.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;

use super::launch::{count_client, has_client};
use super::own_initialize::{answer_to, refuses_revision, result_of, with_start_id};
use super::processes::{OpenedSession, SessionOutcome, SessionWish, UnclaimedStart};
use super::trial::SessionTrial;
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
    begun: Instant,
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
        let (begun, start) = match self.unclaimed.claim(&wish) {
            Some(claimed) => (claimed, None),
            None => self.new_session_start(asking, wish, post.json_depth_max)?,
        };
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
        let OpenedSession { connection, answer } = self.wait_for_start(asking, flight.landed()).await?;
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
        json_depth_max: usize,
    ) -> Result<(UnclaimedStart, Option<SessionStart>), UpstreamError> {
        // One client may be granted a session that another was refused.
        if wish.payer == Payer::GATEWAY
            && let Some(wait) = self.initialize_pause(wish.payer)
        {
            return Err(not_started(wait));
        }
        let number = self.next_start.fetch_add(1, Ordering::Relaxed);
        // No other start has this number.
        let FlightRole::Begin(landing) = self.session_starts.join(&number) else {
            return Err(UpstreamError::Unreachable);
        };
        let flight = Arc::clone(&landing.flight);
        // Of a session's own the session pays, and that one is the gateway's.
        let is_own = wish.payer == Payer::GATEWAY && wish.principal.is_none();
        let running = is_own.then(|| self.take_asked_in_vain(&asking.upstream.facts)).flatten();
        let begun = clock::now();
        let trial = SessionTrial::of(asking).filter(|_| self.opening.begin_trial(begun));
        let start = SessionStart {
            children: Arc::clone(self),
            landing,
            number,
            wish: wish.clone(),
            json_depth_max,
            running,
            begun,
            trial,
        };
        Ok((UnclaimedStart { wish, number, flight }, Some(start)))
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
        let Self { children, landing, wish, json_depth_max, running, begun, trial, .. } = self;
        let is_own = wish.payer == Payer::GATEWAY;
        let (is_new, is_trial) = (running.is_none(), trial.is_some());
        let asking = async |connection, read| {
            let asked = ask(&connection, &wish, json_depth_max);
            match trial.zip(read) {
                Some((trial, read)) => trial.answer(read, children.start_timeout(), asked).await,
                None => asked.await,
            }
        };
        let has_client = || has_client(&landing.flight);
        let asked = children.launch_and_ask(host, wish.payer, running, has_client, asking).await;
        let opened = asked.and_then(|(starting, answer)| {
            let is_silent = is_trial && matches!(answer, Err(UpstreamError::TimedOut));
            let is_vain = is_silent || (answer.is_err() && starting.connection().is_over());
            if is_vain && is_new && !children.is_retired() && !is_own {
                children.note_opening(None, begun);
            }
            Ok((starting, answer?))
        });
        let opened = opened.map(|(starting, answer)| (starting, result_of(&answer, json_depth_max), answer));
        match opened {
            Ok((starting, Some(result), answer)) => {
                children.note_opening(Some(true), begun);
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
                    if is_own {
                        children.note_initialized(wish.payer, false);
                    } else {
                        children.note_opening(Some(false), begun);
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
    /// A process whose start had `begun` then was asked to open a session, and did or did not; `None`: it ended, or said nothing.
    /// The first answer tells whether the program knows sessions; where it does, later refusals have other causes.
    fn note_opening(&self, is_open: Option<bool>, begun: Instant) {
        let is_news = match is_open {
            Some(is_open) => self.opening.note_answer(is_open),
            None => self.opening.note_vain(begun, clock::now()),
        };
        if is_news && is_open != Some(true) {
            tracing::info!(
                upstream = self.name,
                "the program opens no session: its clients come over the bridge"
            );
        }
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
