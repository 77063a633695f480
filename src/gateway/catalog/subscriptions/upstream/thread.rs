//! What the streams of the control thread share, and all streams of one upstream.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::sleep;

use super::{Carrier, LINGER, OVERLAP, watch};
use crate::access::limit::payer::Payer;
use crate::context::state::State;
use crate::tables::subscriptions::feed::{Feed, Lane};
use crate::upstream::ask::Asker;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::{ReplicaSelection, Upstream};
use config::LimitsConfig;
use protocol::json::Scratch;

pub(super) struct Thread {
    pub(super) state: Arc<State>,
    pub(super) client: UpstreamClient,
    pub(super) scratch: RefCell<Scratch>,
    pub(super) next_id: Cell<u64>,
}

impl Thread {
    pub(super) fn limits(&self) -> Arc<LimitsConfig> {
        Arc::clone(&self.state.snapshot.load().limits)
    }

    pub(super) fn asker<'a>(&'a self, limits: &'a LimitsConfig) -> Asker<'a> {
        let Self { state, client, scratch, .. } = self;
        let (budget, payer, aim) = (&state.buffered, Payer::GATEWAY, ReplicaSelection::Any);
        Asker { client, scratch, limits, budget, payer, aim }
    }

    pub(super) fn is_current(&self, upstream: &Upstream) -> bool {
        self.state.snapshot.load().upstreams.iter().any(|current| current.id == upstream.id)
    }

    /// All streams of one upstream, until nobody listens to it any more.
    pub(super) async fn serve(self: Rc<Self>, feed: Arc<Feed>) {
        let lanes = async {
            let lists = Carrier::new(&self, &feed, Lane::Lists).run();
            let names = Carrier::new(&self, &feed, Lane::Names).run();
            tokio::join!(lists, names, watch::run(&self, &feed))
        };
        let unused = async {
            loop {
                feed.emptied.notified().await;
                // The streams end first, by their own clocks.
                sleep(LINGER + OVERLAP).await;
                if self.state.hub.close(&feed) {
                    return;
                }
            }
        };
        tokio::select! {
            _ = lanes => {}
            () = unused => {}
        }
    }
}
