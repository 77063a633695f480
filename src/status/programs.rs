//! The state of an upstream that is a program. Pure.

use crate::faults::{of_fault, of_lists, standing_fault};
use crate::servers::{ChildrenStatus, FaultStatus, UpstreamStatus};
use crate::standing::{FIRST_CALL, Standing, UpstreamState};
use crate::words::{number_of, span};

/// The words for those that end again and again.
const LOOP: &str = "its child process is in a crash loop";
/// The words for those that take longer than `start_timeout`.
const LATE: &str = "has not started";

/// The state by the ends of its processes; `None`: they say nothing of it.
pub(crate) fn of_process(upstream: &UpstreamStatus) -> Option<Standing> {
    let children = upstream.children.as_ref()?;
    let fault = upstream.fault.as_ref().filter(|fault| fault.kind == "process");
    // A program that ends at a list may be called.
    let of_list = upstream.list_fault.as_ref().filter(|fault| fault.stands && fault.kind == "closed");
    if let Some(fault) = of_list {
        return Some(of_ends_at_list(of_lists(upstream)?, children, fault));
    }
    if children.crash_loop {
        return Some(of_loop(upstream, children, fault));
    }
    let fault = fault.filter(|fault| fault.stands)?;
    let found = of_fault(fault, upstream);
    // Others of its processes answer.
    let is_served = children.serving > 0;
    Some(if is_served { Standing { state: UpstreamState::Failing, is_usable: true, ..found } } else { found })
}

/// `found`: what is told of the list.
fn of_ends_at_list(mut found: Standing, children: &ChildrenStatus, fault: &FaultStatus) -> Standing {
    let method = fault.list.as_ref().map(|method| format!("{method}: ")).unwrap_or_default();
    let mut words = format!("{method}{}", fault.cause);
    if children.crash_loop {
        let why = found.why.unwrap_or_default();
        found.why = Some(format!("{why}; {}", counted_loop(children)));
        words = format!("{words}; {LOOP}");
    }
    found.shares(words, Some(fault))
}

/// Processes that end again and again before they are of use, or at a question of the gateway's own.
fn of_loop(upstream: &UpstreamStatus, children: &ChildrenStatus, fault: Option<&FaultStatus>) -> Standing {
    let looping = counted_loop(children);
    if let Some(question) = &children.ends_at {
        // A call starts it again.
        let why = fault.map_or("its process ended", |fault| &*fault.why);
        let cause = fault.map_or("the process ended", |fault| &*fault.cause);
        let failing = Standing::new(UpstreamState::Failing, true);
        let failing = failing.because(format!("{question}: {why}; {looping}"), "crash loop");
        return failing.shares(format!("{question}: {cause}; {LOOP}"), fault).since(upstream.down_since_s);
    }
    let with = |of: fn(&FaultStatus) -> &String| fault.map(|fault| format!(": {}", of(fault)));
    let (why, cause) = (with(|fault| &fault.why), with(|fault| &fault.cause));
    let down = Standing::new(UpstreamState::Down, false);
    let down = down.because(format!("{looping}{}", why.unwrap_or_default()), "crash loop");
    let down = down.shares(format!("{LOOP}{}", cause.unwrap_or_default()), fault);
    down.since(upstream.down_since_s.or(fault.map(|fault| fault.since_s)))
}

fn counted_loop(children: &ChildrenStatus) -> String {
    format!("{LOOP}, {} so far", number_of(children.crashes, "crash", "crashes"))
}

/// The state by its start, or as it was not asked yet; `None`: it is asked.
pub(crate) fn of_start(upstream: &UpstreamStatus, now_s: u64) -> Option<Standing> {
    let Some(start) = upstream.start.as_ref().filter(|start| start.phase != FIRST_CALL) else {
        let is_new = upstream.asked == Some(false) && standing_fault(upstream).is_none();
        return is_new.then(|| Standing::new(UpstreamState::Starting, false).because("not asked yet", ""));
    };
    let lasted = start.since_s.map_or(0, |since_s| now_s.saturating_sub(since_s));
    let told = format!("{} for {}", start.phase, span(lasted));
    let is_late = start.timeout_s.is_some_and(|timeout_s| lasted > timeout_s) && start.phase == "running";
    let found = if is_late {
        let down = Standing::new(UpstreamState::Down, false);
        down.because(format!("{LATE}: {told}"), "slow start").shares(LATE.to_owned(), None)
    } else {
        Standing::new(UpstreamState::Starting, false).because(told, "")
    };
    Some(found.since(start.since_s))
}

/// A program that does not run, as it was not called yet.
pub(crate) fn of_rest(upstream: &UpstreamStatus) -> Option<Standing> {
    upstream.start.as_ref().filter(|start| start.phase == FIRST_CALL)?;
    Some(Standing::new(UpstreamState::Up, true).because("starts with its first call", ""))
}
