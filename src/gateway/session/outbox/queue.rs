//! The messages that wait for a client's stream, oldest first, counted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::QUESTIONS_MAX;
use crate::access::limit::shares::Share;

pub(super) const PARCELS_MAX: usize = 256;
/// Beyond, the memory of an empty queue is given back.
const QUEUE_KEPT: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct OutboundMessage {
    /// The name of the upstream; empty for the gateway's own.
    pub upstream: Arc<str>,
    /// The id that the upstream gave the event, for resumption.
    pub event_id: Option<Bytes>,
    /// The message as the client is to see it. Empty: an event that only carries its id.
    pub data: Bytes,
    /// The public id, where it is a request.
    pub question: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct OutboxQueue {
    parcels: VecDeque<QueuedParcel>,
    bytes: usize,
    pub(super) requests: usize,
}

/// A message, and its share of what all queues may hold; `None`: it is taken at once.
#[derive(Debug)]
struct QueuedParcel {
    parcel: OutboundMessage,
    _held: Option<Share>,
}

impl OutboxQueue {
    /// Of events that only carry an id the last one says it all. Gives back what was not merged.
    pub(super) fn merge(&mut self, parcel: OutboundMessage) -> Option<OutboundMessage> {
        match self.parcels.back_mut().map(|waiting| &mut waiting.parcel) {
            Some(last)
                if last.data.is_empty() && parcel.data.is_empty() && last.upstream == parcel.upstream =>
            {
                last.event_id = parcel.event_id;
                None
            }
            _ => Some(parcel),
        }
    }

    /// The last message may be longer than what is left: a long one right behind another is no flood.
    pub(super) fn has_room_for(&self, parcel: &OutboundMessage, bytes_max: usize) -> bool {
        let has_room_for_request = parcel.question.is_none() || self.requests < QUESTIONS_MAX;
        has_room_for_request && !self.is_full(bytes_max)
    }

    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.parcels.len() >= PARCELS_MAX || self.bytes >= bytes_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// `held`: a reservation of as many bytes as the parcel has, unless it is taken at once.
    pub(super) fn push(&mut self, parcel: OutboundMessage, held: Option<Share>) {
        self.bytes += parcel.bytes();
        self.requests += usize::from(parcel.question.is_some());
        self.parcels.push_back(QueuedParcel { parcel, _held: held });
    }

    pub(super) fn pop(&mut self) -> Option<OutboundMessage> {
        let QueuedParcel { parcel, .. } = self.parcels.pop_front()?;
        self.removed(&parcel);
        if self.parcels.is_empty() && self.parcels.capacity() > QUEUE_KEPT {
            self.parcels = VecDeque::new();
        }
        Some(parcel)
    }

    /// One of this upstream if there is one.
    pub(super) fn take_oldest_notification(&mut self, upstream: &str) -> Option<OutboundMessage> {
        let is_notification = |waiting: &QueuedParcel| waiting.parcel.question.is_none();
        let is_its_own =
            |waiting: &QueuedParcel| is_notification(waiting) && *waiting.parcel.upstream == *upstream;
        let oldest = self.parcels.iter().position(is_its_own);
        let oldest = oldest.or_else(|| self.parcels.iter().position(is_notification))?;
        let QueuedParcel { parcel, .. } = self.parcels.remove(oldest)?;
        self.removed(&parcel);
        Some(parcel)
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&OutboundMessage) -> bool) {
        self.parcels.retain(|waiting| is_kept(&waiting.parcel));
        let parcels = || self.parcels.iter().map(|waiting| &waiting.parcel);
        self.bytes = parcels().map(OutboundMessage::bytes).sum();
        self.requests = parcels().filter(|parcel| parcel.question.is_some()).count();
    }

    fn removed(&mut self, parcel: &OutboundMessage) {
        self.bytes -= parcel.bytes();
        self.requests -= usize::from(parcel.question.is_some());
    }
}

impl OutboundMessage {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.data.len() + self.event_id.as_ref().map_or(0, Bytes::len)
    }
}
