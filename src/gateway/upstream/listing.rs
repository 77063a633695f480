//! What the lists of an upstream have come to, as far as calls and notices need it: which parameters of its tools are
//! mirrored in headers, which tools are run as tasks alone, which lists could not be had lately, and how often something may happen.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::fault::{Fault, NotedFault};
use super::list_faults::ListFaults;
use super::throttle::Throttle;
use crate::clock;
use protocol::param_headers::Annotation;

/// The mirrored parameters of tools, by the name the upstream gave them; tools without are not in it.
pub(crate) type Annotations = HashMap<Box<str>, Arc<[Annotation]>>;

/// What is known now of the mirrored parameters of an upstream's tools.
#[derive(Debug, Default)]
pub(crate) struct Annotated {
    known: ArcSwap<Annotations>,
    are_any: AtomicBool,
    was_listed: AtomicBool,
}

/// A tools list is fetched at most so often because of headers that disagree with it.
const REFETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Tools that are known to have annotations, in all lists of an upstream; beyond it only the latest list counts.
const ANNOTATED_MAX: usize = 65_536;
/// Tools that are known to be run as tasks alone.
const TASK_ONLY_MAX: usize = 1024;
/// Tools that are known to be left out.
const LEFT_OUT_MAX: usize = 1024;
/// The bits of all lists; the one above them is that of `server/discover`.
const LIST_BITS: u8 = 0b1111;
/// The bit of the tools.
const TOOLS_BIT: u8 = 0b1;
/// What is wrong with a list is logged at most so often.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The state of one upstream's lists; shared by all threads.
#[derive(Debug)]
pub(crate) struct ListingState {
    /// Lets a tools list be fetched because of headers.
    pub refetch: Throttle,
    /// Lets a log line through.
    pub log: Throttle,
    /// Lets a log line through of a list that cannot be had.
    fault_log: Throttle,
    /// Tools that its list has and clients do not get.
    pub left_out: LeftOutTools,
    /// A bit for each list that a client got without this upstream.
    missing: AtomicU8,
    /// Why lists cannot be had.
    failing: ListFaults,
    /// A bit for each list that is given out as it was before the start, as it was not fetched since.
    kept: AtomicU8,
    /// When these were written, in seconds since 1970.
    kept_s: AtomicU64,
    /// A bit for each list that is known, from before the start or since.
    known: AtomicU8,
    /// Its program was started to be listed, after clients had used processes of their own.
    was_listed_after_use: AtomicBool,
}

impl Default for ListingState {
    fn default() -> Self {
        Self {
            refetch: Throttle::new(REFETCH_INTERVAL),
            log: Throttle::new(LOG_INTERVAL),
            fault_log: Throttle::new(LOG_INTERVAL),
            left_out: LeftOutTools::default(),
            missing: AtomicU8::new(0),
            failing: ListFaults::default(),
            kept: AtomicU8::new(0),
            kept_s: AtomicU64::new(0),
            known: AtomicU8::new(0),
            was_listed_after_use: AtomicBool::new(false),
        }
    }
}

impl Annotated {
    pub(crate) fn was_listed(&self) -> bool {
        self.was_listed.load(Ordering::Relaxed)
    }

    /// Whether any tool is known to have mirrored parameters.
    pub(crate) fn are_any(&self) -> bool {
        self.are_any.load(Ordering::Relaxed)
    }

    /// The mirrored parameters of a tool, by the upstream's name for it.
    pub(crate) fn of(&self, tool: &str) -> Option<Arc<[Annotation]>> {
        if self.are_any() { self.known.load().get(tool).cloned() } else { None }
    }

    /// Replaces what is known of the tools of these `names`. Lists differ by the capabilities of those who ask, so that
    /// nothing is said of a tool that is not in one.
    pub(crate) fn publish<'n>(
        &self,
        names: impl Iterator<Item = Cow<'n, str>>,
        annotations: &Arc<Annotations>,
    ) {
        self.replace(names, annotations);
        self.are_any.store(!self.known.load().is_empty(), Ordering::Relaxed);
        self.was_listed.store(true, Ordering::Relaxed);
    }

    fn replace<'n>(&self, names: impl Iterator<Item = Cow<'n, str>>, annotations: &Arc<Annotations>) {
        let known = self.known.load();
        if known.is_empty() {
            if !annotations.is_empty() {
                self.known.store(Arc::clone(annotations));
            }
            return;
        }
        let mut all = Annotations::clone(&known);
        for name in names {
            all.remove(&*name);
        }
        all.extend(annotations.iter().map(|(name, annotations)| (name.clone(), Arc::clone(annotations))));
        if all.len() > ANNOTATED_MAX {
            self.known.store(Arc::clone(annotations));
        } else if all != **known {
            self.known.store(Arc::new(all));
        }
    }
}

/// Tools that are run as tasks alone.
#[derive(Debug, Default)]
pub(crate) struct TaskOnlyTools(Mutex<HashSet<Box<str>>>);

impl TaskOnlyTools {
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.0.lock().contains(tool)
    }

    /// What a list says of its tools.
    pub(crate) fn publish<'n>(&self, listed: impl Iterator<Item = (Cow<'n, str>, bool)>) {
        let mut tools = self.0.lock();
        for (name, is_task_only) in listed {
            if !is_task_only {
                tools.remove(&*name);
            } else if tools.len() < TASK_ONLY_MAX {
                tools.insert(name.into());
            }
        }
    }

    /// It is not called without one.
    pub(crate) fn add(&self, tool: &str) {
        let mut tools = self.0.lock();
        if tools.len() < TASK_ONLY_MAX {
            tools.insert(tool.into());
        }
    }

    /// It is called without one again.
    pub(crate) fn remove(&self, tool: &str) {
        self.0.lock().remove(tool);
    }
}

/// Tools that are left out of lists for what they say of themselves. No client knows of them, so none calls them.
#[derive(Debug, Default)]
pub(crate) struct LeftOutTools {
    are_any: AtomicBool,
    names: Mutex<HashSet<Box<str>>>,
}

impl LeftOutTools {
    pub(crate) fn are_any(&self) -> bool {
        self.are_any.load(Ordering::Relaxed)
    }

    pub(crate) fn has(&self, tool: &str) -> bool {
        self.names.lock().contains(tool)
    }

    /// What the latest list says of its tools: of those that are `listed`, and of those that clients do not get.
    pub(crate) fn publish<'n>(
        &self,
        listed: impl Iterator<Item = Cow<'n, str>>,
        excluded: impl Iterator<Item = &'n String>,
    ) {
        let mut left_out: HashSet<Box<str>> =
            excluded.take(LEFT_OUT_MAX).map(|name| name.as_str().into()).collect();
        if left_out.is_empty() && !self.are_any() {
            return;
        }
        // Of a tool that comes twice one is listed.
        listed.for_each(|name| _ = left_out.remove(&*name));
        let mut names = self.names.lock();
        self.are_any.store(!left_out.is_empty(), Ordering::Relaxed);
        *names = left_out;
    }
}

impl ListingState {
    /// A client's list was answered without this upstream. `list` is below 8.
    pub(crate) fn note_missing(&self, list: u8) {
        self.missing.fetch_or(1 << list, Ordering::AcqRel);
    }

    /// The server refuses the list of this number, or what it gives is none. `question`: a digest of all that it was asked
    /// with. True if the log is to tell it.
    #[cold]
    pub(crate) fn note_fault(&self, list: u8, question: u64, fault: Fault) -> bool {
        let is_due = self.failing.note(list, question, fault) && self.fault_log.admits(clock::now());
        if is_due {
            self.failing.note_logged(question);
        }
        is_due
    }

    /// The gateway asked the same again, and met this.
    #[cold]
    pub(crate) fn note_fault_again(&self, question: u64, fault: Fault) {
        self.failing.note_again(question, fault);
    }

    /// The fault that this question met last, unless it is over.
    pub(crate) fn fault_of(&self, question: u64) -> Option<Arc<NotedFault>> {
        self.failing.of(question)
    }

    /// True if this question met that fault not so long ago.
    pub(crate) fn has_met(&self, question: u64, fault: &Fault, within: Duration) -> bool {
        self.failing.has_met(question, fault, within)
    }

    /// The server gave the list.
    pub(crate) fn note_listed(&self, list: u8, question: u64) {
        self.failing.note_answered(list, question);
    }

    /// The lists that cannot be had now, by their number, and why.
    pub(crate) fn faults(&self) -> Vec<(u8, Arc<NotedFault>)> {
        self.failing.in_order()
    }

    /// A list is given out as it was before the start, when it was written at this moment. `list` is below 8.
    pub(crate) fn note_kept(&self, list: u8, written_s: u64) {
        self.kept_s.store(written_s, Ordering::Release);
        self.known.fetch_or(1 << list, Ordering::AcqRel);
        self.kept.fetch_or(1 << list, Ordering::AcqRel);
    }

    /// It was fetched. True if it had been given out as it was before the start.
    pub(crate) fn note_fetched(&self, list: u8) -> bool {
        self.known.fetch_or(1 << list, Ordering::AcqRel);
        self.kept.fetch_and(!(1 << list), Ordering::AcqRel) & (1 << list) != 0
    }

    /// True if any list is given out as it was before the start.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire) != 0
    }

    /// True if its tools are known: other lists are known of a server that never gave any.
    pub(crate) fn are_tools_known(&self) -> bool {
        self.known.load(Ordering::Acquire) & TOOLS_BIT != 0
    }

    /// Its program is started to be listed, after clients have used processes of their own: once is enough.
    pub(crate) fn note_listed_after_use(&self) {
        self.was_listed_after_use.store(true, Ordering::Relaxed);
    }

    /// True if its program was not started for that yet, though its lists are from before the start.
    pub(crate) fn is_to_be_listed_after_use(&self) -> bool {
        self.is_kept() && !self.was_listed_after_use.load(Ordering::Relaxed)
    }

    /// When the lists were written that are given out as they were before the start, in seconds since 1970.
    pub(crate) fn kept_s(&self) -> Option<u64> {
        self.is_kept().then(|| self.kept_s.load(Ordering::Acquire))
    }

    /// True if any list is to be fetched as soon as that is possible, as clients go without it or with an old one.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_kept() || self.missing.load(Ordering::Acquire) & LIST_BITS != 0
    }

    /// The list is there. True if a client got it without.
    pub(crate) fn note_returned(&self, list: u8) -> bool {
        self.missing.fetch_and(!(1 << list), Ordering::AcqRel) & (1 << list) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_returns_once() {
        let listing = ListingState::default();
        listing.note_missing(3);
        listing.note_missing(3);
        assert_eq!([3, 3, 2].map(|list| listing.note_returned(list)), [true, false, false]);
    }
}
