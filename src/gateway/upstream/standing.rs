//! The fault for which an upstream does not serve now: the one that status tells, and that clients are told of as far as
//! errors are.

use std::sync::Arc;

use http::StatusCode;

use super::Upstream;
use super::fault::{Fault, LastFault, NotedFault};
use super::replica::Replica;
use crate::clock;
use protocol::error::{NotOpened, Redirect, Refusal, UpstreamError};
use protocol::version::Era;

impl Upstream {
    /// The latest fault of one of its replicas, and whether that stands.
    pub(crate) fn fault_at(&self, replica: &Replica) -> Option<(bool, Arc<NotedFault>)> {
        let noted = replica.faults.latest()?;
        // Of streams of HTTP+SSE no more is asked than whether a connection comes about.
        let is_asked = !self.config.replicas.health.interval.is_zero()
            && !self.sse().is_some_and(|streams| streams.is_spoken());
        Some((replica.faults.stands(&noted, replica.load.answered(), is_asked, clock::now()), noted))
    }

    /// The fault that it met last and that belongs to no replica, and whether that stands.
    pub(crate) fn own_fault(&self) -> Option<(bool, Arc<NotedFault>)> {
        let known = self.facts.known();
        // Lacking one era is no fault of a server that speaks the other.
        let is_denied = known.was_tried && known.eras().is_empty() && self.config.eras.is_none();
        let of_process = self.children().map(|children| children.fault());
        let causes = [Some(&self.facts.fault), of_process].into_iter().flatten().map(|last| (last, None));
        let [of_sessions, of_none] = &self.facts.denials;
        let denials = [(of_sessions, Some(Era::Legacy)), (of_none, Some(Era::Modern))];
        let all = causes.chain(denials.into_iter().filter(|_| is_denied));
        let told = all.filter_map(|(last, denied): (&LastFault, _)| {
            let noted = last.latest()?;
            let stands = last.stands(&noted, 0, true, clock::now());
            let weight = if stands { weight(&noted.fault, denied, self.is_child()) } else { 0 };
            Some((stands, weight, noted))
        });
        let (stands, _, noted) =
            told.max_by_key(|(stands, weight, noted)| (*stands, *weight, noted.at_ms))?;
        Some((stands, noted))
    }

    /// The fault of the server that keeps it from serving: of a replica before any other.
    pub(crate) fn standing_fault(&self) -> Option<Fault> {
        let replicas = self.replicas.load();
        let mut all = replicas.iter().filter_map(|replica| self.fault_at(replica)).chain(self.own_fault());
        let is_of_server =
            |(stands, noted): &(bool, Arc<NotedFault>)| *stands && !matches!(noted.fault, Fault::Other(_));
        all.find(is_of_server).map(|(_, noted)| noted.fault.clone())
    }

    /// The error of a call that cannot be sent, as it is not known what the server speaks: whatever it answered when it was
    /// asked that.
    pub(crate) fn unasked(&self) -> UpstreamError {
        let Some(fault) = self.standing_fault() else { return UpstreamError::Unreachable };
        match fault.status().map(|status| status.as_u16()) {
            Some(401 | 403) => self.access.refusal(),
            _ => error_of(fault).before_call(),
        }
    }
}

/// The weight of a fault among those for which nothing is to be had of a server. The denial of an era is harmless by itself, and that
/// of sessions says more than that of none: so anything else is the cause.
fn weight(fault: &Fault, denied: Option<Era>, is_child: bool) -> u8 {
    match denied {
        Some(Era::Modern) if fault.is_era_refused() || !is_child => 0,
        Some(Era::Legacy) if fault.is_era_refused() => 1,
        Some(Era::Modern) => 2,
        None | Some(Era::Legacy) => 3,
    }
}

/// The error that clients are told where this fault was met.
fn error_of(fault: Fault) -> UpstreamError {
    match fault {
        Fault::Http { status, .. } if status == StatusCode::MISDIRECTED_REQUEST => {
            UpstreamError::UpstreamHost
        }
        Fault::Http {
            status: status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE),
            ..
        } => UpstreamError::Busy { status, retry_after_s: None },
        Fault::Http { status, media: Some(media) } if status.is_success() => {
            UpstreamError::OtherMedia { media }
        }
        Fault::Http { status, .. } if status.is_success() => UpstreamError::Nonsense,
        Fault::Http { status, media } => UpstreamError::Status { status, media },
        Fault::Redirected { status, to } => {
            UpstreamError::Redirected(Redirect::new(status, Some(&to)).into())
        }
        Fault::Encoded(coding) => UpstreamError::Encoded { coding },
        Fault::NotMcp => UpstreamError::Nonsense,
        Fault::TooLarge => UpstreamError::TooLarge,
        Fault::Refused { method: "initialize", code, text } => {
            UpstreamError::NotOpened(NotOpened::refused(code, &text).into())
        }
        Fault::Refused { method, code, text } => {
            UpstreamError::Refused(Refusal { method, code, message: text }.into())
        }
        Fault::Connect(_)
        | Fault::ConnectTimedOut(_)
        | Fault::Name
        | Fault::Tls(_)
        | Fault::TimedOut(_)
        | Fault::Closed
        | Fault::Revision(_)
        | Fault::Ended { .. }
        | Fault::NotStarted(_)
        | Fault::Other(_) => UpstreamError::Unreachable,
        Fault::NoPlace(bound) => UpstreamError::TooManyChildren { bound },
    }
}
