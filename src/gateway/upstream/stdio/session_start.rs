//! The process of one session: started and initialized as a task of its own, and claimed by whoever opens the session.
//!
//! A caller that opens a session may give up before its process is up. Then the next that opens one in the same way claims
//! the start: nobody has used it yet. A process that nobody claims for a while is ended.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::Children;
use super::own_initialize::{answer_to, has_result, refuses_revision, with_start_id};
use super::processes::{OpenedSession, SessionOutcome, SessionWish, UnclaimedStart};
use crate::access::limit::payer::Payer;
use crate::flight::{FlightRole, Landing};
use crate::upstream::exchange::Reply;
use crate::upstream::mux::exchange::{CloseOnDrop, ConnectRequest, MuxPost, ask_to_initialize};
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
        let begun = match self.claim(&wish) {
            Some(claimed) => claimed,
            None => self.begin_session_start(asking, wish, post.json_depth_max).await?,
        };
        let flight = Arc::clone(&begun.flight);
        let mut claim = Claim { children: self, start: Some(begun) };
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

    fn claim(&self, wish: &SessionWish) -> Option<UnclaimedStart> {
        let mut unclaimed = self.unclaimed.lock();
        let at = unclaimed.iter().position(|start| start.wish == *wish)?;
        Some(unclaimed.swap_remove(at))
    }

    async fn begin_session_start(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        wish: SessionWish,
        json_depth_max: usize,
    ) -> Result<UnclaimedStart, UpstreamError> {
        let number = self.next_start.fetch_add(1, Ordering::Relaxed);
        // No other start has this number.
        let FlightRole::Begin(landing) = self.session_starts.join(&number) else {
            return Err(UpstreamError::Unreachable);
        };
        let flight = Arc::clone(&landing.flight);
        let start = SessionStart {
            children: Arc::clone(self),
            landing,
            number,
            wish: wish.clone(),
            json_depth_max,
            running: self.take_asked_in_vain(asking),
        };
        let run = move |host: &Rc<Host>| {
            host.run(start.run(Rc::clone(host)));
            Ok(())
        };
        asking.client.host.on_worker(run).await?;
        Ok(UnclaimedStart { wish, number, flight })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(start) = self.start.take() else { return };
        match start.flight.outcome() {
            None => self.children.unclaimed.lock().push(start),
            Some(Ok(opened)) => opened.connection.close(),
            Some(Err(_)) => {}
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
            if children.forget_unclaimed(number) {
                opened.connection.close();
            }
        } else {
            children.forget_unclaimed(number);
        }
    }

    /// Starts, and tells who waits. The session that it gives may have nobody who claims it.
    async fn land(self, host: &Rc<Host>) -> Option<OpenedSession> {
        let Self { children, landing, wish, json_depth_max, running, .. } = self;
        let opened = if let Some(connection) = running {
            let starting = CloseOnDrop::new(connection);
            let asked = ask(starting.connection(), &wish, json_depth_max);
            let opened = timeout(children.start_timeout(), asked).await;
            // Earlier questions that it has not answered by now it does not answer.
            starting.connection().abandon_own();
            opened.unwrap_or(Err(UpstreamError::TimedOut)).map(|answer| (starting, answer))
        } else {
            let is_own = wish.payer == Payer::GATEWAY;
            let seeks_room = || !is_own && Arc::strong_count(&landing.flight) > 2;
            match children.launch(host, wish.payer, seeks_room).await {
                Ok(mut launched) => {
                    let connection = launched.connection.connection().clone();
                    let watched = async { launched.up(&children, host).await };
                    let asked = ask(&connection, &wish, json_depth_max);
                    let answer = tokio::select! {
                        biased;
                        answer = asked => answer,
                        Err(error) = watched => Err(error),
                    };
                    if answer.is_err() && connection.is_over() && !children.is_retired() && !is_own {
                        children.note_opening(false);
                    }
                    answer.map(|answer| (launched.connection, answer))
                }
                Err(error) => Err(error),
            }
        };
        match opened {
            Ok((starting, answer)) if has_result(&answer, json_depth_max) => {
                children.note_opening(true);
                let opened = OpenedSession { connection: starting.keep(), answer };
                landing.land(Ok(opened.clone()));
                Some(opened)
            }
            Ok((starting, answer)) => {
                let is_own = wish.payer == Payer::GATEWAY;
                if !is_own && !refuses_revision(&wish.message, &answer, json_depth_max) {
                    children.note_opening(false);
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
    /// A process was asked to open a session, and did or did not. The first one tells whether the program knows sessions;
    /// where it does, later refusals have other causes.
    fn note_opening(&self, is_open: bool) {
        if self.opening.note(is_open) && !is_open {
            tracing::info!(
                upstream = self.name,
                "the program opens no session: its clients come over the bridge"
            );
        }
    }

    /// True if nobody waits for this start.
    fn forget_unclaimed(&self, number: u64) -> bool {
        let mut unclaimed = self.unclaimed.lock();
        let at = unclaimed.iter().position(|start| start.number == number);
        at.map(|at| unclaimed.swap_remove(at)).is_some()
    }
}

async fn ask(
    connection: &MuxConnection,
    wish: &SessionWish,
    json_depth_max: usize,
) -> Result<Bytes, UpstreamError> {
    let session = connection.begin_session();
    ask_to_initialize(connection, session, &wish.message, wish.payer, json_depth_max).await
}
