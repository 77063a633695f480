//! What is said to the other replicas without anybody waiting for it.
//!
//! Invariant: bounded. What there is no room for is dropped and counted; what must not be forgotten is said again once
//! there is a connection.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Pipeline};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Redis;

/// What may wait to be said.
const WAITING_MAX: usize = 16 << 10;
/// What is said at once.
const BATCH_MAX: usize = 256;
/// What is kept to be said once there is a connection.
const KEPT_MAX: usize = 64 << 10;
/// When it is tried again over a connection that goes on.
const KEPT_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It is dropped: others find it out by themselves, or do without.
    Dropped,
    /// It is said once there is a connection.
    Kept,
}

#[derive(Debug)]
enum OutboxItem {
    Commands(Vec<Cmd>, Urgency),
    /// To be answered once all before it is said.
    Said(oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Outbox {
    sender: mpsc::Sender<OutboxItem>,
    receiver: Mutex<Option<mpsc::Receiver<OutboxItem>>>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Redis {
    /// Says something later, in the order in which it is told. Never waits. False: there is no room for it.
    pub(crate) fn tell(&self, commands: Vec<Cmd>, urgency: Urgency) -> bool {
        let has_room = self.outbox.sender.try_send(OutboxItem::Commands(commands, urgency)).is_ok();
        if !has_room {
            self.series.lost.inc();
        }
        has_room
    }

    /// Waits until what was told before is said, or cannot be said; at most for as long as an operation may take.
    pub(crate) async fn said(&self) {
        if !self.is_connected() {
            return;
        }
        let (sender, said) = oneshot::channel();
        if self.outbox.sender.try_send(OutboxItem::Said(sender)).is_ok() {
            let _ = tokio::time::timeout(self.timeout(), said).await;
        }
    }

    /// Says what is told, for as long as the process runs.
    pub(super) async fn say(&self) {
        let receiver = self.outbox.receiver.lock().take();
        let Some(mut receiver) = receiver else { return };
        let mut kept = VecDeque::new();
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut epoch = self.epoch();
        let mut again_at = Instant::now();
        loop {
            tokio::select! {
                count = receiver.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return },
                () = self.connected_after(epoch), if !kept.is_empty() => again_at = Instant::now(),
                () = sleep_until(again_at), if !kept.is_empty() && self.is_connected() => {}
            }
            if !kept.is_empty() && Instant::now() >= again_at {
                epoch = self.epoch();
                self.say_kept(&mut kept).await;
                again_at = Instant::now() + KEPT_PAUSE;
            }
            self.say_batch(&mut batch, &mut kept).await;
        }
    }

    async fn say_batch(&self, batch: &mut Vec<OutboxItem>, kept: &mut VecDeque<Vec<Cmd>>) {
        let mut pipeline = Pipeline::new();
        let mut waiting = Vec::new();
        let mut told = Vec::with_capacity(batch.len());
        for one in batch.drain(..) {
            match one {
                OutboxItem::Commands(commands, urgency) => {
                    for command in &commands {
                        pipeline.add_command(command.clone()).ignore();
                    }
                    told.push((commands, urgency));
                }
                OutboxItem::Said(sender) => waiting.push(sender),
            }
        }
        if !told.is_empty() && self.pipeline::<()>(&pipeline).await.is_err() {
            for (commands, urgency) in told {
                self.keep(kept, commands, urgency);
            }
        }
        for sender in waiting {
            // Whoever asked may have left.
            let _ = sender.send(());
        }
    }

    fn keep(&self, kept: &mut VecDeque<Vec<Cmd>>, commands: Vec<Cmd>, urgency: Urgency) {
        if urgency == Urgency::Dropped {
            self.series.lost.inc();
            return;
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
            self.series.lost.inc();
        }
        kept.push_back(commands);
    }

    async fn say_kept(&self, kept: &mut VecDeque<Vec<Cmd>>) {
        while !kept.is_empty() {
            let mut pipeline = Pipeline::new();
            let batch = kept.len().min(BATCH_MAX);
            for command in kept.iter().take(batch).flatten() {
                pipeline.add_command(command.clone()).ignore();
            }
            if self.pipeline::<()>(&pipeline).await.is_err() {
                return;
            }
            kept.drain(..batch);
        }
    }
}
