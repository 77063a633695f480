//! How far a client has come with each upstream's events, and which ids of events it was given.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::OutboundMessage;
use crate::session::given_ids::digest;
use protocol::event_id;

/// Ids of events that are remembered, to be told from those of replies.
pub(super) const GIVEN_OUT_MAX: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Positions {
    /// What the client was last handed of each upstream.
    upstreams: Vec<UpstreamPosition>,
    /// Digests of the ids that the client was handed, oldest first.
    given_out: VecDeque<u64>,
}

#[derive(Debug)]
struct UpstreamPosition {
    upstream: Arc<str>,
    id: Bytes,
    /// Something that came later was dropped.
    has_gap: bool,
}

impl Positions {
    /// The id that the client is given for an event of an upstream.
    pub(super) fn give_out(&mut self, upstream: &Arc<str>, id: Bytes, has_several: bool) -> Option<Bytes> {
        let position = UpstreamPosition { upstream: Arc::clone(upstream), id: id.clone(), has_gap: false };
        match self.of(upstream) {
            Some(known) => *known = position,
            None => self.upstreams.push(position),
        }
        let all = || self.upstreams.iter().map(|position| (&*position.upstream, &*position.id));
        let id = if has_several { event_id::spell_get(all())? } else { id };
        if self.given_out.len() >= GIVEN_OUT_MAX {
            self.given_out.pop_front();
        }
        self.given_out.push_back(digest(&id));
        Some(id)
    }

    /// Digests of the ids that it was handed, for another process.
    pub(super) fn digests(&self) -> Vec<u64> {
        self.given_out.iter().copied().collect()
    }

    pub(super) fn restored(digests: Vec<u64>) -> Self {
        Self { given_out: digests.into(), ..Self::default() }
    }

    /// True if this is the id of an event of the client's own stream.
    pub(super) fn has_given_out(&self, id: &[u8]) -> bool {
        self.given_out.contains(&digest(id))
    }

    /// The client does not get this message.
    pub(super) fn mark_gap(&mut self, dropped: &OutboundMessage) {
        if dropped.event_id.is_some()
            && let Some(position) = self.of(&dropped.upstream)
        {
            position.has_gap = true;
        }
    }

    /// Goes back to the event with this id. False: nothing after it was lost.
    pub(super) fn rewind(&mut self, upstream: &str, id: &Bytes) -> bool {
        match self.of(upstream) {
            Some(position) if position.id == *id && !position.has_gap => return false,
            Some(position) => {
                position.id = id.clone();
                position.has_gap = false;
            }
            None => {
                let (upstream, id) = (upstream.into(), id.clone());
                self.upstreams.push(UpstreamPosition { upstream, id, has_gap: false });
            }
        }
        true
    }

    fn of(&mut self, upstream: &str) -> Option<&mut UpstreamPosition> {
        self.upstreams.iter_mut().find(|position| &*position.upstream == upstream)
    }
}
