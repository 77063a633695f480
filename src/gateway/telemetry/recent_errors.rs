//! The latest calls that did not succeed, for whoever looks at `/status`.
//!
//! Calls that failed alike are one entry with a count, so that one client that fails all the time does not hide the others.
//! Bounded: [`ENTRIES_MAX`] entries, and of each text what a log line has. Nothing here is a body, a key, a URI's query or
//! an address. Only calls that failed come here; the lock is held for a search of the entries.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::call_record::CallRecord;
use super::calls::outcome;
use super::logs::{cut, shorten};
use super::strays::Strays;
use crate::clock;
use crate::identity::Principal;
use protocol::error::Reason;

/// Entries that are kept.
const ENTRIES_MAX: usize = 50;

/// The latest of them, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentErrors {
    entries: Mutex<VecDeque<RecentError>>,
    /// Clients that asked for what is not there.
    pub(crate) strays: Strays,
}

/// Calls that failed alike.
#[derive(Clone, Debug)]
pub(crate) struct RecentError {
    /// When the latest ended, in seconds since 1970.
    pub(crate) at_s: u64,
    /// When the first one did.
    pub(crate) first_s: u64,
    pub(crate) calls: u64,
    pub(crate) endpoint: Option<Box<str>>,
    pub(crate) upstream: Option<Box<str>>,
    pub(crate) method: &'static str,
    /// What was called, as it is logged.
    pub(crate) name: Option<Box<str>>,
    /// `None`: nobody showed who he is.
    pub(crate) principal: Option<Box<str>>,
    pub(crate) reason: Reason,
    /// Why the latest failed.
    pub(crate) message: Option<Box<str>>,
    /// Of the latest.
    pub(crate) request_id: Box<str>,
}

impl RecentErrors {
    /// A call failed for this reason.
    pub(crate) fn note(&self, call: &CallRecord<'_>, reason: Reason) {
        let (now_s, request_id) = (clock::now_s(), call.request_id.to_string().into());
        let name = call.name.map(shorten);
        let principal = match call.principal {
            Principal::Anonymous => None,
            known @ Principal::Known(_) => Some(cut(known.name())),
        };
        let mut entries = self.entries.lock();
        let alike = |entry: &RecentError| {
            entry.reason == reason
                && entry.method == call.method
                && entry.endpoint.as_deref() == call.endpoint
                && entry.upstream.as_deref() == call.upstream
                && entry.name.as_deref() == name.as_deref()
                && entry.principal.as_deref() == principal.as_deref()
        };
        let known = entries.iter().position(alike).and_then(|at| entries.remove(at));
        let entry = match known {
            Some(known) => {
                let calls = known.calls.saturating_add(1);
                RecentError { at_s: now_s, calls, message: call.message.map(Box::from), request_id, ..known }
            }
            None => RecentError {
                at_s: now_s,
                first_s: now_s,
                calls: 1,
                endpoint: call.endpoint.map(Box::from),
                upstream: call.upstream.map(Box::from),
                method: call.method,
                name: name.map(Box::from),
                principal: principal.map(Box::from),
                reason,
                message: call.message.map(Box::from),
                request_id,
            },
        };
        if entries.len() >= ENTRIES_MAX {
            let goes = oldest_of_most(&entries);
            entries.remove(goes);
        }
        entries.push_back(entry);
    }

    /// All that are kept, the latest first.
    pub(crate) fn all(&self) -> Vec<RecentError> {
        self.entries.lock().iter().rev().cloned().collect()
    }
}

impl RecentError {
    /// The coarse answer to what became of them.
    pub(crate) fn outcome(&self) -> &'static str {
        outcome(Some(self.reason))
    }
}

/// The oldest entry of whoever has most of them at one endpoint: names are chosen by clients, so that one who fails with
/// many hides nobody else.
fn oldest_of_most(entries: &VecDeque<RecentError>) -> usize {
    let is_alike = |one: &RecentError, other: &RecentError| {
        one.endpoint == other.endpoint && one.principal == other.principal
    };
    let count = |entry| entries.iter().filter(|other| is_alike(entry, other)).count();
    // Of several, the last that is looked at: the oldest.
    let most = entries.iter().enumerate().rev().max_by_key(|(_, entry)| count(entry));
    most.map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::telemetry::request_id::RequestId;

    fn note(errors: &RecentErrors, name: &str, reason: Reason) {
        let now = clock::now();
        let call = CallRecord {
            request_id: &RequestId::Own { thread: 1, number: 2 },
            started: now,
            ended: now,
            endpoint: Some("/mcp"),
            method: "tools/call",
            name: Some(name),
            upstream: None,
            principal: &Principal::api_key("ci"),
            client: IpAddr::from([203, 0, 113, 7]),
            version: None,
            request_bytes: 0,
            reply_bytes: 0,
            status: Some(502),
            reason: Some(reason),
            message: None,
            trace_id: None,
        };
        errors.note(&call, reason);
    }

    #[test]
    fn calls_that_fail_alike_are_one_entry() {
        let errors = RecentErrors::default();
        for _ in 0..3 {
            note(&errors, "echo", Reason::UpstreamTimeout);
        }
        note(&errors, "echo", Reason::Cancelled);
        note(&errors, "other", Reason::UpstreamTimeout);
        note(&errors, "echo", Reason::UpstreamTimeout);
        let told: Vec<_> = errors
            .all()
            .into_iter()
            .map(|error| (error.name.unwrap_or_default(), error.reason, error.calls))
            .collect();
        let expected = [
            ("echo".into(), Reason::UpstreamTimeout, 4),
            ("other".into(), Reason::UpstreamTimeout, 1),
            ("echo".into(), Reason::Cancelled, 1),
        ];
        assert_eq!(told, expected);
        let latest = &errors.all()[0];
        assert_eq!((latest.principal.as_deref(), latest.outcome()), (Some("ci"), "failed"));
        assert!(latest.first_s <= latest.at_s);
    }

    #[test]
    fn what_is_kept_is_bounded_and_fit_to_be_shown() {
        let errors = RecentErrors::default();
        for number in 0..10 * ENTRIES_MAX {
            note(&errors, &number.to_string(), Reason::Cancelled);
        }
        assert_eq!(errors.all().len(), ENTRIES_MAX);
        note(&errors, &"ä".repeat(5000), Reason::Cancelled);
        note(&errors, "https://me:secret@host/a?token=secret\u{1b}", Reason::Cancelled);
        let names: Vec<_> =
            errors.all().into_iter().take(2).map(|error| error.name.unwrap_or_default()).collect();
        assert_eq!(&*names[0], "https://host/a");
        assert_eq!(names[1].chars().count(), 128);
    }
}
