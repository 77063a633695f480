//! The state of an upstream, by what its questions and calls met. Pure.
//!
//! The gateway writes what it knows of an upstream, [`standing`] says how it is by that, and every view shows it in these
//! words.

use crate::faults::{of_fault, of_lists, standing_fault};
use crate::programs::{of_process, of_rest, of_start};
use crate::seen::SeenCalls;
use crate::servers::{FaultStatus, ReplicaStatus, UpstreamStatus};
use crate::standing::{Standing, UpstreamState};
use crate::words::number_of;

/// The state of this upstream. `before`: its calls as they were a minute ago; `None`: they say nothing of it.
pub fn standing(upstream: &UpstreamStatus, before: Option<&SeenCalls>, now_s: u64) -> Standing {
    if upstream.enabled == Some(false) {
        return Standing::new(UpstreamState::Off, false);
    }
    let found = of_process(upstream)
        .or_else(|| of_replicas(upstream))
        .or_else(|| of_start(upstream, now_s))
        .or_else(|| of_questions(upstream))
        .or_else(|| of_lists(upstream))
        .or_else(|| of_calls(upstream, before?))
        .or_else(|| of_rest(upstream));
    found.unwrap_or_else(|| match upstream.healthy {
        // As an older gateway tells it.
        Some(false) => Standing::new(UpstreamState::Down, false).since(upstream.down_since_s),
        _ => Standing::new(UpstreamState::Up, true),
    })
}

/// The state that replicas have in common, or that some of them fail.
fn of_replicas(upstream: &UpstreamStatus) -> Option<Standing> {
    let all = &upstream.replicas;
    let found: Vec<(&ReplicaStatus, Standing)> =
        all.iter().filter_map(|replica| Some((replica, of_replica(replica, upstream)?))).collect();
    let (first, worst) = found.first()?;
    if found.len() == all.len() {
        // The least of it: one that lets calls through does.
        let best = found.iter().find(|(_, standing)| standing.is_usable).map_or(worst, |(_, best)| best);
        let mut common = best.clone();
        if all.len() > 1 {
            let why = common.why.take().unwrap_or_default();
            common.why = Some(format!("all {} replicas: {why}", all.len()));
        }
        return Some(common);
    }
    let replicas = number_of(all.len() as u64, "replica", "replicas");
    let why = worst.why.as_deref().unwrap_or_default();
    let why = format!("{} of {replicas} down: {}: {why}", found.len(), first.address);
    let since_s = found.iter().filter_map(|(_, standing)| standing.since_s).min();
    let failing = Standing::new(UpstreamState::Failing, true).because(why, &worst.cause).since(since_s);
    let words = worst.common.as_ref().map(|common| format!("some replicas down: {}", common.words));
    Some(failing.shares(words.unwrap_or_default(), first.fault.as_ref()))
}

fn of_replica(replica: &ReplicaStatus, upstream: &UpstreamStatus) -> Option<Standing> {
    let fault = replica.fault.as_ref();
    let breaker = "its circuit breaker is open";
    if let Some(mut found) = of_answer(replica, upstream).filter(|_| replica.breaker != "closed") {
        if replica.breaker == "open" {
            found.why = found.why.map(|why| format!("{why}; {breaker}"));
        }
        return Some(found);
    }
    if replica.is_down() {
        let unresolved = "DNS: its name does not resolve";
        let own = standing_fault(upstream).filter(|_| replica.breaker == "open");
        let last = fault.or(own);
        let (why, cause) = match last {
            Some(fault) if replica.breaker == "open" => (format!("{}; {breaker}", fault.why), &*fault.cause),
            Some(fault) => (fault.why.clone(), &*fault.cause),
            None if replica.breaker == "open" => (breaker.to_owned(), "breaker"),
            None => (unresolved.to_owned(), unresolved),
        };
        let down = Standing::new(UpstreamState::Down, false).because(why, cause);
        let words = last.map(|fault| fault.cause.clone()).unwrap_or_default();
        return Some(down.shares(words, last).since(replica.down_since_s));
    }
    if let Some(fault) = fault.filter(|fault| fault.stands) {
        return Some(of_fault(fault, upstream));
    }
    let is_tried = replica.breaker == "half_open";
    let last = fault.map(|fault| format!(": {}", fault.why)).unwrap_or_default();
    let tried = Standing::new(UpstreamState::Failing, true);
    is_tried.then(|| {
        tried.because(format!("is being probed after failures{last}"), "breaker").since(replica.down_since_s)
    })
}

/// The state by an answer that is none of MCP, or refuses credentials: it says more than a breaker that has opened since.
fn of_answer(replica: &ReplicaStatus, upstream: &UpstreamStatus) -> Option<Standing> {
    let last = replica.fault.as_ref();
    // A fault that belongs to no replica counts unless something else was met since.
    let is_latest =
        |own: &&FaultStatus| last.is_none_or(|last| last.cause == own.cause || last.at_s <= own.at_s);
    let all = last.into_iter().chain(upstream.fault.as_ref().filter(is_latest));
    let mut found = all.filter(|fault| fault.stands).map(|fault| of_fault(fault, upstream));
    let is_of_answer =
        |found: &Standing| matches!(found.state, UpstreamState::NotMcp | UpstreamState::RefusesCredentials);
    found.find(is_of_answer)
}

/// The state by questions about the server itself came to.
fn of_questions(upstream: &UpstreamStatus) -> Option<Standing> {
    Some(of_fault(standing_fault(upstream)?, upstream))
}

/// The state by the share of the latest calls that failed, if that is worth a word.
fn of_calls(upstream: &UpstreamStatus, before: &SeenCalls) -> Option<Standing> {
    let percent = before.failing_percent(&upstream.figures)?;
    let why = format!("{percent} % of its calls failed in the last minute");
    let failing = Standing::new(UpstreamState::Failing, true).because(why, "calls fail");
    Some(failing.since(before.failing_since_s))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;

    const NOW_S: u64 = 1_800_000_000;

    fn told(upstream: &Value) -> (String, String, bool) {
        let upstream = UpstreamStatus::read(upstream).unwrap_or_default();
        let Standing { state, why, is_usable, .. } = standing(&upstream, Some(&SeenCalls::default()), NOW_S);
        (state.word().to_owned(), why.unwrap_or_default(), is_usable)
    }

    fn fault(kind: &str, why: &str, http_status: Option<u64>) -> Value {
        json!({"kind": kind, "why": why, "cause": why, "http_status": http_status, "since_s": 7, "stands": true})
    }

    fn list_fault(method: &str, why: &str) -> Value {
        let mut told = fault("error", why, None);
        told["list"] = method.into();
        told
    }

    #[test]
    fn a_program_that_starts_with_its_first_call_is_up_unless_it_could_not_start() {
        let rests = json!({"start": {"phase": "first_call"}});
        assert_eq!(told(&rests), ("up".into(), "starts with its first call".into(), true));
        let fault = fault("process", "its process ended: no key", None);
        let failed = json!({"start": {"phase": "first_call"}, "fault": fault, "children": {}});
        assert_eq!(told(&failed), ("down".into(), "its process ended: no key".into(), false));
    }

    #[test]
    fn each_cause_has_its_state() {
        let with = |fault: Value| json!({"asked": true, "replicas": [{"breaker": "closed", "fault": fault}]});
        for (upstream, state, why, is_usable) in [
            (json!({}), "up", "", true),
            (json!({"enabled": false}), "off", "", false),
            (json!({"healthy": false}), "down", "", false),
            (json!({"asked": false}), "starting", "not asked yet", false),
            (
                json!({"start": {"phase": "queued", "since_s": NOW_S - 12}}),
                "starting",
                "queued for 12 s",
                false,
            ),
            (
                json!({"start": {"phase": "running", "since_s": NOW_S - 200, "timeout_s": 180}}),
                "down",
                "has not started: running for 3 min",
                false,
            ),
            (with(fault("connect", "connect: refused", None)), "down", "connect: refused", false),
            (with(fault("tls", "TLS: certificate expired", None)), "down", "TLS: certificate expired", false),
            (with(fault("http", "HTTP 401", Some(401))), "refuses our credentials", "HTTP 401", false),
            (
                with(fault("http", "HTTP 404 text/html", Some(404))),
                "is no MCP server",
                "HTTP 404 text/html",
                false,
            ),
            (
                with(fault("http", "HTTP 200 text/html", Some(200))),
                "is no MCP server",
                "HTTP 200 text/html",
                false,
            ),
            (
                with(fault("redirect", "HTTP 307 to /mcp/", Some(307))),
                "is no MCP server",
                "HTTP 307 to /mcp/",
                false,
            ),
            (
                with(fault("encoding", "Content-Encoding gzip", None)),
                "is no MCP server",
                "Content-Encoding gzip",
                false,
            ),
            (with(fault("http", "HTTP 500 text/plain", Some(500))), "failing", "HTTP 500 text/plain", false),
            (with(fault("timeout", "timed out after 5 s", None)), "failing", "timed out after 5 s", false),
            (
                json!({"list_fault": fault("error", "tools/list: fetch failed (-32603)", None)}),
                "cannot be listed",
                "tools/list: fetch failed (-32603)",
                false,
            ),
            (
                json!({"fault": fault("error", "initialize: database is down (-32603)", None)}),
                "failing",
                "initialize: database is down (-32603)",
                false,
            ),
            (
                json!({"calls": 50, "errors": 5}),
                "failing",
                "10 % of its calls failed in the last minute",
                true,
            ),
            (json!({"replicas": [{"breaker": "open"}]}), "down", "its circuit breaker is open", false),
            (json!({"replicas": [{"resolved": false}]}), "down", "DNS: its name does not resolve", false),
            (
                json!({"replicas": [{"breaker": "open", "fault": fault("timeout", "timed out after 5 s", None)}]}),
                "down",
                "timed out after 5 s; its circuit breaker is open",
                false,
            ),
            (
                json!({"replicas": [{"breaker": "half_open"}]}),
                "failing",
                "is being probed after failures",
                true,
            ),
            (
                json!({"replicas": [{"breaker": "open", "address": "a:1"}, {"breaker": "closed"}]}),
                "failing",
                "1 of 2 replicas down: a:1: its circuit breaker is open",
                true,
            ),
        ] {
            assert_eq!(told(&upstream), (state.to_owned(), why.to_owned(), is_usable), "{upstream}");
        }
    }

    #[test]
    fn an_answer_that_is_none_of_mcp_stays_the_state_once_the_breaker_opens() {
        for (upstream, state, why, is_usable) in [
            (
                json!({"replicas": [{"breaker": "open", "fault": fault("http", "HTTP 404", Some(404))}]}),
                "is no MCP server",
                "HTTP 404; its circuit breaker is open",
                false,
            ),
            (
                json!({"replicas": [{"breaker": "half_open", "fault": fault("http", "HTTP 401", Some(401))}]}),
                "refuses our credentials",
                "HTTP 401",
                false,
            ),
            (
                json!({
                    "fault": fault("not_mcp", "not an answer of MCP", None), "replicas": [{"breaker": "open"}],
                }),
                "is no MCP server",
                "not an answer of MCP; its circuit breaker is open",
                false,
            ),
        ] {
            assert_eq!(told(&upstream), (state.to_owned(), why.to_owned(), is_usable), "{upstream}");
        }
    }

    #[test]
    fn a_program_that_ends_at_a_list_may_be_called() {
        let why = "its process ended: no key";
        let (in_loop, fault) = (json!({"crash_loop": true, "crashes": 26}), fault("process", why, None));
        let mut of_list = list_fault("tools/list", why);
        of_list["kind"] = "closed".into();
        let is_in_loop = "its child process is in a crash loop, 26 crashes so far";
        for (upstream, state, expected) in [
            (json!({"children": in_loop, "fault": fault}), "down", format!("{is_in_loop}: {why}")),
            (
                json!({"children": in_loop, "fault": fault, "list_fault": of_list}),
                "cannot be listed",
                format!("tools/list: {why}; {is_in_loop}"),
            ),
            (
                json!({"children": {}, "fault": fault, "list_fault": of_list}),
                "cannot be listed",
                format!("tools/list: {why}"),
            ),
            (json!({"children": {}, "fault": fault}), "down", why.to_owned()),
        ] {
            assert_eq!(told(&upstream), (state.to_owned(), expected, false), "{upstream}");
        }
    }

    #[test]
    fn what_leaves_calls_in_use_is_usable() {
        let at_listen = json!({"crash_loop": true, "crashes": 9, "ends_at": "subscriptions/listen"});
        for (upstream, state, why, is_usable) in [
            (
                json!({"children": at_listen, "fault": fault("process", "its process ended: no key", None)}),
                "failing",
                "subscriptions/listen: its process ended: no key; its child process is in a crash loop, 9 crashes so far",
                true,
            ),
            (
                json!({"list_fault": list_fault("tools/list", "timed out after 5 s")}),
                "cannot be listed",
                "tools/list: timed out after 5 s",
                false,
            ),
            (
                json!({"list_fault": list_fault("prompts/list", "prompts/list: fetch failed (-32603)")}),
                "cannot be listed",
                "prompts/list: fetch failed (-32603)",
                true,
            ),
            (
                json!({"children": {"serving": 1}, "fault": fault("process", "its process ended: no key", None)}),
                "failing",
                "its process ended: no key",
                true,
            ),
        ] {
            assert_eq!(told(&upstream), (state.to_owned(), why.to_owned(), is_usable), "{upstream}");
        }
    }

    #[test]
    fn whose_callers_have_their_own_is_up() {
        let refused = json!({
            "asked": true, "forwards_credentials": true,
            "replicas": [{"breaker": "closed", "fault": fault("http", "HTTP 401", Some(401))}],
        });
        let upstream = UpstreamStatus::read(&refused).unwrap_or_default();
        let found = standing(&upstream, None, NOW_S);
        assert_eq!(found.state, UpstreamState::WantsCallersCredentials);
        assert!(found.is_usable && !found.is_wrong());
    }

    #[test]
    fn what_is_over_is_no_reason() {
        let mut old = fault("connect", "connect: refused", None);
        old["stands"] = false.into();
        let upstream =
            json!({"asked": true, "fault": old, "replicas": [{"breaker": "closed", "fault": old}]});
        assert_eq!(told(&upstream).0, "up");
    }

    #[test]
    fn every_state_has_a_word_of_its_own() {
        for state in UpstreamState::ALL {
            assert_eq!(UpstreamState::of_word(state.word()), Some(state));
        }
    }
}
