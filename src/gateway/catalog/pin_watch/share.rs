//! Keeping what is pinned here and what all gateways share together.
//!
//! The record is asked for at the start, then every second, and before the first pins of an upstream count. Where nothing was
//! kept here and it cannot be had, nothing is taken on trust until it can: otherwise a new gateway would let in what the others
//! withhold. Calls wait during the first attempt to connect to Redis, and fail after it. A gateway that has pins goes on with
//! these. Once the record can be had and is gone, the others first get the time to write it back.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::shared_pins::{ShareFault, SharedPins};
use super::watched::PinnedUpstream;
use super::{FILES_INTERVAL, PinWatcher};
use crate::clock;
use crate::upstream::pins::Pins;
use crate::upstream::pins::record::PinnedTools;
use crate::upstream::pins::version::Version;

/// Records that are brought together at once.
const SHARED_AT_ONCE_MAX: usize = 16;
/// Most readings of one record that another gateway replaced meanwhile.
const ATTEMPTS_MAX: usize = 4;

impl PinWatcher {
    /// Asks what gateways share, which counts before the first call.
    pub(crate) async fn meet(&mut self) {
        self.shared_looked_at = None;
        self.share_all().await;
    }

    /// Pins that are kept here were read; `None`: they cannot be. They count at once if the upstream was pinned, else once
    /// others were asked.
    pub(super) fn open(&mut self, name: &str, pins: &Pins, kept: Option<PinnedTools>) {
        let bytes_max = self.followed.limits.pins_bytes_max;
        let watched = self.watched.get_mut(name);
        match (watched, kept) {
            (Some(watched), Some(kept)) if self.shared.is_some() && !kept.is_complete => {
                watched.sharing.kept = Some(kept);
                if pins.is_unreadable() {
                    pins.distrust();
                }
            }
            (_, kept) => pins.open(kept, bytes_max),
        }
    }

    /// Looks at all records once in a while.
    pub(super) async fn share_all(&mut self) {
        let Some(shared) = self.shared.clone() else { return };
        let now = clock::now();
        if self.watched.is_empty() || self.shared_looked_at.is_some_and(|last| now < last + FILES_INTERVAL) {
            return;
        }
        self.shared_looked_at = Some(now);
        let readable = self.watched.iter().filter(|(_, watched)| !watched.pins.is_unreadable());
        let names: Vec<String> = readable.map(|(name, _)| name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match shared.versions(&names).await {
            Ok(versions) => {
                let found = names.into_iter().map(String::from).zip(versions).collect();
                self.share(&shared, found).await;
            }
            Err(fault) => {
                for name in names {
                    self.note_fault(name, &fault);
                }
            }
        }
    }

    /// Lets the first pins of an upstream count if no other gateway has others. True if they do.
    pub(super) async fn agree(&mut self, name: &str, pins: &Pins) -> bool {
        let Some(shared) = self.shared.clone().filter(|_| !pins.is_complete()) else { return true };
        pins.complete();
        let is_agreed = match shared.versions(&[name]).await {
            Ok(versions) => {
                let there = versions.into_iter().next().unwrap_or_default();
                let found = HashMap::from([(name.to_owned(), there)]);
                self.share(&shared, found).await.contains(name)
            }
            Err(fault) => {
                self.note_fault(name, &fault);
                false
            }
        };
        if !is_agreed {
            pins.distrust();
        }
        is_agreed
    }

    /// Brings both together for these upstreams; of each, the version of the record. They do not wait for each other: a Redis
    /// that is slow would hold up a start for as long as all of them take. Those of which it could be done now are returned.
    async fn share(&mut self, shared: &SharedPins, found: HashMap<String, String>) -> HashSet<String> {
        let bytes_max = self.followed.limits.pins_bytes_max;
        let due = self.watched.iter_mut().filter_map(|(name, watched)| {
            let there = found.get(name).filter(|there| !watched.sharing.is_pausing(there))?;
            Some(async move {
                (name.clone(), there.clone(), watched.agree(shared, name, there.clone(), bytes_max).await)
            })
        });
        let agreed: Vec<_> = stream::iter(due).buffer_unordered(SHARED_AT_ONCE_MAX).collect().await;
        let mut shared = HashSet::new();
        for (name, there, agreed) in agreed {
            if self.note_agreed(&name, there, agreed).await {
                shared.insert(name);
            }
        }
        shared
    }

    async fn note_agreed(&mut self, name: &str, there: String, agreed: Result<(), ShareFault>) -> bool {
        let Some(watched) = self.watched.get_mut(name) else { return false };
        if std::mem::take(&mut watched.sharing.has_turned) {
            self.show_approved(name).await;
        }
        let Some(watched) = self.watched.get_mut(name) else { return false };
        match agreed {
            Ok(()) => {
                watched.pins.set_unshared(false);
                (watched.sharing.failures, watched.sharing.again) = (0, None);
                if watched.sharing.complaint.end() {
                    tracing::info!(upstream = name, "what is pinned is shared again");
                }
                true
            }
            Err(fault) => {
                if !matches!(fault, ShareFault::Absent) {
                    watched.sharing.pause(there);
                }
                self.note_fault(name, &fault);
                false
            }
        }
    }

    fn note_fault(&mut self, name: &str, fault: &ShareFault) {
        let is_connecting = self.shared.as_ref().is_some_and(SharedPins::is_connecting_first);
        let Some(watched) = self.watched.get_mut(name) else { return };
        if !matches!(fault, ShareFault::Absent) {
            watched.sharing.is_forgotten(false);
        }
        if fault.is_lasting() {
            watched.pins.set_unshared(true);
            if watched.sharing.complaint.is_news(fault) {
                tracing::error!(upstream = name, %fault, "what is pinned of this upstream's tools cannot be shared");
            }
        }
        if !is_connecting && !watched.pins.is_open() && watched.pins.distrust() {
            tell_of_distrust(name, fault);
        }
    }
}

fn tell_of_distrust(upstream: &str, fault: &dyn Display) {
    tracing::warn!(
        upstream,
        %fault,
        "what other gateways have pinned of this upstream's tools is not known, and nothing was kept here: with quarantine or block none is let through until it is, with warn all are"
    );
}

impl PinnedUpstream {
    async fn agree(
        &mut self,
        shared: &SharedPins,
        name: &str,
        mut there: String,
        bytes_max: usize,
    ) -> Result<(), ShareFault> {
        let pins = Arc::clone(&self.pins);
        for _ in 0..ATTEMPTS_MAX {
            let known = pins.version().map(Version::text).unwrap_or_default();
            if there != known || !pins.is_open() {
                let found = shared.read(name, &there).await?;
                let is_new = !pins.is_open();
                let is_forgotten = self.sharing.is_forgotten(found.is_none());
                if found.is_none() && pins.is_unasked() && !is_forgotten {
                    return Err(ShareFault::Absent);
                }
                if is_new {
                    pins.open(Some(self.sharing.kept.take().unwrap_or_default()), bytes_max);
                }
                self.sharing.has_turned |= pins.compare(&self.upstream, found) || is_new;
            }
            let Some(unshared) = pins.take_unshared(shared.key()) else { return Ok(()) };
            let written = shared.write(name, &there, &unshared).await;
            match written {
                Ok(true) => {
                    pins.note_shared(&unshared);
                    return Ok(());
                }
                Ok(false) => pins.set_ahead(),
                Err(fault) => {
                    pins.set_ahead();
                    return Err(fault);
                }
            }
            there = shared.versions(&[name]).await?.into_iter().next().unwrap_or_default();
        }
        Err(ShareFault::Contended)
    }
}
