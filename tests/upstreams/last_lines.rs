//! The last lines of processes of one program.

use serde_json::Value;

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Request, eventually, in_session, legacy, open_session,
};

fn told(daemon: &Daemon) -> Value {
    daemon.get_admin("/status").json()["upstreams"][0].clone()
}

/// A call in a session, which has a process of its own.
fn call(session: &str, tool: &str, arguments: &str) -> Request {
    in_session(session, legacy("1", "tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#)))
}

#[test]
fn the_last_lines_are_those_of_the_process_that_ended() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
    let sessions = [0, 1, 2].map(|_| open_session(daemon.address(), LEGACY_VERSION).0);
    let [ending, going_on, silent] = &sessions;
    let says = |session: &str, words: &str, lines: usize| {
        let arguments = format!(r#"{{"words":"{words}\n","lines":{lines}}}"#);
        let from = daemon.log().len();
        daemon.send(&call(session, "stderr", &arguments)).assert_ok();
        daemon.wait_for_log(from, words, |line| line.contains(words));
    };
    says(ending, "I shall end", 2);
    says(going_on, "I go on", 6);
    daemon.send(&call(ending, "die", "{}"));
    let found = eventually("its end is told", || {
        Some(told(&daemon)).filter(|found| found["children"]["crashes"] == 1 && !found["fault"].is_null())
    });
    assert_eq!(found["last_lines"], serde_json::json!(["I shall end", "I shall end"]), "{found:#}");
    assert!(found["fault"]["why"].as_str().is_some_and(|why| why.contains("I shall end")), "{found:#}");
    // One that has said nothing has no last words, whatever others say.
    says(going_on, "I still go on", 1);
    daemon.send(&call(silent, "echo", "{}")).assert_ok();
    daemon.send(&call(silent, "die", "{}"));
    let found = eventually("its end is told", || {
        Some(told(&daemon)).filter(|found| found["children"]["crashes"] == 2)
    });
    assert_eq!(found["last_lines"], serde_json::json!([]), "{found:#}");
}
