//! Lists that cannot be had: until when operators are told so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, eventually, in_session, legacy,
    list, open_session, side_by_side,
};

const PACE: &str = "health = { interval = \"1s\", timeout = \"500ms\" }";

/// A server that refuses one list until it is mended.
fn refusing(
    method: &'static str,
    is_modern: bool,
    is_mended: &Arc<AtomicBool>,
    times: &Arc<AtomicUsize>,
) -> Upstream {
    let offer = Offer::tools(&["echo"]).with_prompts(&["greet"]);
    let sessions = Legacy::new(offer.clone());
    let (is_mended, times) = (Arc::clone(is_mended), Arc::clone(times));
    Upstream::taking_anything(move |request: &Received| {
        if request.method() == method {
            times.fetch_add(1, Ordering::Relaxed);
            if !is_mended.load(Ordering::Relaxed) {
                return Reply::error(request, "200 OK", -32603, "fetch failed");
            }
        }
        if is_modern { offer.answer(request) } else { sessions.answer(request) }
    })
}

fn told(daemon: &Daemon) -> Value {
    daemon.get_admin("/status").json()["upstreams"][0].clone()
}

#[test]
fn a_list_that_can_be_had_again_is_told_so_without_a_client() {
    let cases = [true, false].into_iter().flat_map(|is_modern| {
        ["tools/list", "prompts/list"]
            .into_iter()
            .flat_map(move |method| [true, false].map(|by_modern| (is_modern, method, by_modern)))
    });
    side_by_side(cases, |(is_modern, method, by_modern)| {
        let (is_mended, times) = (Arc::default(), Arc::default());
        let server = refusing(method, is_modern, &is_mended, &times);
        // The one upstream of its endpoint: its names are not learned.
        let daemon = Daemon::start(&Config::new().probed("up", server.address, PACE).admin());
        eventually("it is known", || (told(&daemon)["state"] == "up").then_some(()));
        if by_modern {
            daemon.send(&list("1", method));
        } else {
            let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
            daemon.send(&in_session(&session, legacy("1", method, "{}")));
        }
        let case = format!("{method}, {is_modern}, {by_modern}");
        let why = format!("{method}: fetch failed (-32603)");
        let found = eventually("it is told", || Some(told(&daemon)).filter(|found| found["why"] == *why));
        assert_eq!(found["state"], "cannot be listed", "{case}: {found:#}");
        let is_told = |line: &str| line.contains(" WARN ") && line.contains("a list cannot be had");
        let line = daemon.wait_for_log(0, &why, is_told);
        assert!(line.contains(&format!("list=\"{method}\" why=\"{why}\"")), "{case}: {line}");
        let since = Instant::now();
        let asked = times.load(Ordering::Relaxed);
        eventually("it is asked again", || (times.load(Ordering::Relaxed) >= asked + 2).then_some(()));
        let found = told(&daemon);
        assert_eq!(found["state"], "cannot be listed", "{case}: {found:#}");
        assert!(since.elapsed() >= Duration::from_secs(1), "{case}: at the pace of the probe");
        is_mended.store(true, Ordering::Relaxed);
        let since = Instant::now();
        eventually("it is up", || (told(&daemon)["state"] == "up").then_some(()));
        assert!(since.elapsed() < Duration::from_secs(3), "{case}: {:?}", since.elapsed());
        // It is not asked once more.
        let asked = times.load(Ordering::Relaxed);
        let probes = server.received().len();
        eventually("other questions go on", || (server.received().len() >= probes + 3).then_some(()));
        assert_eq!(times.load(Ordering::Relaxed), asked, "{case}");
        assert_eq!(daemon.log().iter().filter(|line| is_told(line)).count(), 1, "{case}: {:?}", daemon.log());
    });
}

#[test]
fn a_server_that_nobody_probes_is_not_asked_for_lists_again() {
    let (is_mended, times) = (Arc::default(), Arc::default());
    let server = refusing("tools/list", true, &is_mended, &times);
    let lines = "health = { interval = \"0s\" }\nlist_ttl_min = \"0s\"";
    let daemon = Daemon::start(&Config::new().probed("up", server.address, lines).admin());
    eventually("it is known", || (told(&daemon)["state"] == "up").then_some(()));
    daemon.send(&list("1", "tools/list"));
    eventually("it is told", || (told(&daemon)["state"] == "cannot be listed").then_some(()));
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert_eq!(times.load(Ordering::Relaxed), 1);
        std::thread::sleep(Duration::from_millis(50));
    }
    is_mended.store(true, Ordering::Relaxed);
    daemon.send(&list("1", "tools/list")).assert_ok();
    eventually("it is up", || (told(&daemon)["state"] == "up").then_some(()));
}
