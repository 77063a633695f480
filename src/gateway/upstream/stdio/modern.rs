//! The processes of requests that stand for themselves: one for each caller, or one for all.
//!
//! A process is first asked how it introduces itself, by the gateway where nobody asks that anyway. It is known, and
//! found, once it has answered; callers who come before wait for its start.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Children;
use super::launch::{Launched, StartPayers, count_client, has_client};
use super::processes::{ModernChild, ModernOutcome};
use crate::access::limit::payer::Payer;
use crate::flight::Landing;
use crate::upstream::facts::KnownEras;
use crate::upstream::mux::MuxConnection;
use crate::upstream::mux::exchange::{ConnectRequest, MuxPost};
use crate::upstream::mux::host::Host;
use protocol::error::UpstreamError;
use protocol::initialize::discover_params;
use protocol::version::Era;

/// The program was found to be of the other era meanwhile, or does not say: the next attempt is told in its era.
const ASKED_IN_VAIN: UpstreamError = UpstreamError::Starting { retry_after_s: 1 };

/// One start, as a task of its own.
struct ModernStart {
    children: Arc<Children>,
    landing: Landing<Box<[u8]>, ModernOutcome>,
    caller: Box<[u8]>,
    payers: StartPayers,
    /// Told of the process as soon as it runs, where that is who introduces it.
    introducer: Option<oneshot::Sender<MuxConnection>>,
}

impl Children {
    /// The process of this caller, which has to be started.
    #[cold]
    pub(super) async fn start_modern(
        self: &Arc<Self>,
        asking: ConnectRequest<'_>,
        post: &MuxPost<'_>,
        caller: &[u8],
    ) -> Result<MuxConnection, UpstreamError> {
        let is_introduction = asking.payer == Payer::GATEWAY && post.is("server/discover");
        self.check_start_of(asking.payer)?;
        let (flight, landing) = self.modern_starts.join(&caller.into()).parts();
        let _client = count_client(asking, &flight);
        let introduced = match landing {
            None => None,
            Some(landing) => {
                if let Some(running) = self.running_modern(caller) {
                    landing.land(Ok(running.clone()));
                    return Ok(running);
                }
                let (introducer, running) = oneshot::channel();
                let start = ModernStart {
                    children: Arc::clone(self),
                    landing,
                    caller: caller.into(),
                    payers: StartPayers {
                        payer: if caller.is_empty() { Payer::GATEWAY } else { asking.payer },
                        asker: asking.payer,
                    },
                    introducer: is_introduction.then_some(introducer),
                };
                let run = move |host: &Rc<Host>| {
                    host.run(start.run(Rc::clone(host)));
                    Ok(())
                };
                asking.client.host.on_worker(run).await?;
                is_introduction.then_some(running)
            }
        };
        if let Some(introduced) = introduced
            && let Ok(connection) = introduced.await
        {
            return Ok(connection);
        }
        let connection = self.wait_for_start(asking, flight.landed()).await?;
        if !is_introduction && asking.upstream.eras().is_none() {
            // Its answer may have been that it is of the other era.
            let tried = async { Some(asking.upstream.facts.tried().await) };
            self.wait_for_start(asking, tried).await?;
            if asking.upstream.lacks(Era::Modern) {
                let is_bridged = asking.upstream.config.bridge.is_on;
                return Err(if is_bridged { ASKED_IN_VAIN } else { UpstreamError::OtherEra });
            }
        }
        Ok(connection)
    }

    /// The process of this caller, if it has one.
    pub(super) fn running_modern(&self, caller: &[u8]) -> Option<MuxConnection> {
        let modern = self.modern.lock();
        let child = modern.get(caller).filter(|child| !child.connection.is_over())?;
        Some(child.connection.clone())
    }

    /// Keeps the process of this caller that is up; or it was taken meanwhile.
    fn keep_modern(
        &self,
        launched: Result<Launched, UpstreamError>,
        caller: Box<[u8]>,
        payer: Payer,
    ) -> ModernOutcome {
        // Until it stands among the others: whoever takes it finds it in one of the two places.
        let mut introducing = self.introducing.lock();
        let is_taken = caller.is_empty() && introducing.take().is_none();
        let connection = launched?.connection.keep();
        if is_taken {
            // It carries a session by now.
            return Err(ASKED_IN_VAIN);
        }
        let mut modern = self.modern.lock();
        modern.retain(|_, child| !child.connection.is_over());
        modern.insert(caller, ModernChild { connection: connection.clone(), payer });
        Ok(connection)
    }

    /// A process without a caller of its own that was asked in the modern era in vain, at least until now.
    pub(super) fn take_asked_in_vain(&self, facts: &KnownEras) -> Option<MuxConnection> {
        if facts.known().modern.introduction().is_some() {
            return None;
        }
        let is_free = |connection: &MuxConnection| !connection.is_over() && connection.is_own();
        let mut introducing = self.introducing.lock();
        if introducing.as_ref().is_some_and(is_free) {
            return introducing.take();
        }
        drop(introducing);
        let mut modern = self.modern.lock();
        if !modern.get(&[][..]).is_some_and(|child| is_free(&child.connection)) {
            return None;
        }
        modern.remove(&[][..]).map(|child| child.connection)
    }
}

impl ModernStart {
    async fn run(self, host: Rc<Host>) {
        let Self { children, landing, caller, payers, introducer } = self;
        let turn = children.common_turn(&caller).await;
        let mut launched = match children.launch(&host, payers, || has_client(&landing.flight)).await {
            Ok(launched) => launched,
            Err(error) => return landing.land(Err(error)),
        };
        let connection = launched.connection.connection().clone();
        if children.is_for_all() {
            connection.make_common();
        }
        if caller.is_empty() {
            *children.introducing.lock() = Some(connection.clone());
        }
        drop(turn);
        if introducer.is_none_or(|introducer| introducer.send(connection.clone()).is_err()) {
            // Before any call: who answers this has started, whatever that call does to it.
            connection.ask_in_passing("server/discover", &discover_params());
        }
        let up = launched.up(&children, &host).await;
        landing.land(children.keep_modern(up.map(|()| launched), caller, payers.payer));
    }
}
