//! Programs that start with their first call (`lazy`): when they are started, and what is shown of them before.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Child, Config, Connection, Daemon, Folder, LEGACY_VERSION, Request, Response, call, eventually,
    in_session, legacy, legacy_call, list, listen, open_session, post, side_by_side, tool_names, trunkline,
};

const SECOND: Duration = Duration::from_secs(1);
const CHANGED: &str = "notifications/tools/list_changed";

/// Programs of either era, by who shares their processes.
const KINDS: [(&str, &str); 6] = [
    ("modern-only", "shared"),
    ("modern-only", "principal"),
    ("modern-only", "session"),
    ("strict", "shared"),
    ("strict", "principal"),
    ("strict", "session"),
];

/// A lazy program, and the state directory of its gateways.
struct Lazy {
    child: Child,
    folder: Folder,
    isolation: &'static str,
    is_modern: bool,
}

/// A client of the era of its program.
struct Client<'d> {
    daemon: &'d Daemon,
    session: Option<String>,
}

impl Lazy {
    fn new((kind, isolation): (&str, &'static str)) -> Self {
        let child = Child::new(&[kind, "tools-only"]);
        Self { child, folder: Folder::new(), isolation, is_modern: kind == "modern-only" }
    }

    fn config(&self, lines: &str) -> Config {
        let isolation = self.isolation;
        let keys = format!("lazy = true\nisolation = {isolation:?}\nchild_idle_timeout = \"1s\"\n{lines}");
        Config::new().raw("up", &self.child.keys(&keys)).top(&self.folder.key()).admin()
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.config(""))
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lists/up")
    }

    /// A gateway lists it, and ends.
    fn list_once(&self) {
        let mut daemon = self.start();
        self.child.wait_for("started", 1);
        eventually("all is kept", || {
            let upstreams = fs::read_to_string(self.folder.path().join("upstreams.json")).ok()?;
            (upstreams.contains("\"present\"") && self.file().exists() && Self::tells(&daemon)).then_some(())
        });
        daemon.terminate();
        assert_eq!(daemon.wait_exit().code(), Some(0));
        assert_eq!(self.child.pids().len(), 1, "it was started to be listed");
    }

    fn client<'d>(&self, daemon: &'d Daemon) -> Client<'d> {
        let session = (!self.is_modern).then(|| open_session(daemon.address(), LEGACY_VERSION).0);
        Client { daemon, session }
    }

    /// The status of its upstream.
    fn status(daemon: &Daemon) -> Value {
        daemon.get_admin("/status").json()["upstreams"][0].take()
    }

    /// True if operators are told that it rests.
    fn tells(daemon: &Daemon) -> bool {
        Self::status(daemon)["why"] == "starts with its first call"
    }

    /// Waits until it rests, and expects that it does so.
    fn rests(&self, daemon: &Daemon, starts: usize) {
        self.child.wait_for("started", starts);
        self.child.wait_gone();
        eventually("it rests", || Self::tells(daemon).then_some(()));
        self.stays(starts);
    }

    /// It is started no oftener for a while: it is looked four times a second what is due.
    #[track_caller]
    fn stays(&self, starts: usize) {
        let since = Instant::now();
        while since.elapsed() < 3 * SECOND / 2 {
            assert_eq!(self.child.pids().len(), starts);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Client<'_> {
    fn send(&self, modern: &Request, legacy: Request) -> Response {
        match &self.session {
            None => self.daemon.send(modern),
            Some(session) => self.daemon.send(&in_session(session, legacy)),
        }
    }

    fn list(&self) -> Response {
        self.send(&list("1", "tools/list"), legacy("1", "tools/list", "{}"))
    }

    /// Its session is over.
    fn end(self) {
        let end = post("").method("DELETE").without("Content-Type");
        if let Some(session) = self.session {
            assert_eq!(self.daemon.send(&in_session(&session, end)).status, 204);
        }
    }

    fn call(&self) -> String {
        let answer = self.send(&call("2", "echo"), legacy_call("2", "echo"));
        let said = answer.json()["result"]["content"][0]["text"].as_str().map(String::from);
        said.unwrap_or_else(|| answer.text())
    }
}

/// All clients are shown what is kept, at once.
fn expect_listed(program: &Lazy, daemon: &Daemon) {
    let since = Instant::now();
    for client in [program.client(daemon), Client { daemon, session: None }] {
        assert_eq!(tool_names(&client.list()), ["echo"]);
    }
    daemon.send(&list("3", "server/discover")).assert_ok();
    assert!(since.elapsed() < SECOND, "{:?}", since.elapsed());
}

#[test]
fn a_lazy_program_is_started_once_to_be_listed_and_rests() {
    side_by_side(KINDS, |kind| {
        let program = Lazy::new(kind);
        let daemon = program.start();
        program.rests(&daemon, 1);
        expect_listed(&program, &daemon);
        program.stays(1);
    });
}

#[test]
fn the_first_call_starts_it_once_however_often_the_gateway_starts() {
    side_by_side(KINDS, |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = program.start();
        expect_listed(&program, &daemon);
        // Sessions and lists, over and over.
        for _ in 0..3 {
            expect_listed(&program, &daemon);
        }
        program.stays(1);
        let client = program.client(&daemon);
        let pid = client.call();
        assert_eq!(Some(&pid), program.child.pids().last().map(ToString::to_string).as_ref(), "{kind:?}");
        program.stays(2);
        assert_eq!(program.child.received("tools/call").len(), 1);
        assert_eq!(tool_names(&client.list()), ["echo"]);
    });
}

#[test]
fn clients_of_the_other_era_start_it_as_well() {
    side_by_side([("modern-only", "shared"), ("strict", "shared"), ("strict", "session")], |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = program.start();
        let session = program.is_modern.then(|| open_session(daemon.address(), LEGACY_VERSION).0);
        let client = Client { daemon: &daemon, session };
        assert_eq!(tool_names(&client.list()), ["echo"]);
        program.stays(1);
        assert!(client.call().parse::<u32>().is_ok());
        program.stays(2);
        assert_eq!(tool_names(&client.list()), ["echo"]);
    });
}

#[test]
fn it_rests_again_once_nobody_uses_it_and_the_next_call_starts_it() {
    side_by_side([("modern-only", "session"), ("modern-only", "shared")], |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = program.start();
        let client = program.client(&daemon);
        for starts in 2..4 {
            assert!(client.call().parse::<u32>().is_ok());
            program.rests(&daemon, starts);
            expect_listed(&program, &daemon);
        }
    });
}

#[test]
fn after_clients_of_their_own_processes_it_is_listed_once() {
    let program = Lazy::new(("strict", "session"));
    program.list_once();
    program.child.offers_more();
    let daemon = program.start();
    let client = program.client(&daemon);
    assert!(client.call().parse::<u32>().is_ok());
    program.stays(2);
    let end = post("").method("DELETE").without("Content-Type");
    let session = client.session.as_deref().expect("a session");
    assert_eq!(daemon.send(&in_session(session, end)).status, 204);
    // Its lists may be those of another version.
    program.rests(&daemon, 3);
    assert_eq!(tool_names(&program.client(&daemon).list()), ["echo", "more"]);
}

#[test]
fn other_lists_than_were_kept_are_told_once_it_is_up() {
    side_by_side([("modern-only", "shared"), ("strict", "shared"), ("modern-only", "session")], |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        program.child.offers_more();
        let daemon = program.start();
        // A client that listens to changes of lists starts nothing.
        let mut stream = daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#));
        assert_eq!(stream.head().status, 200);
        assert!(stream.event().expect("an acknowledgement").contains("toolsListChanged"));
        let mut of_session = listening_session(&daemon);
        program.stays(1);
        assert_eq!(tool_names(&program.client(&daemon).list()), ["echo"]);
        assert!(program.client(&daemon).call().parse::<u32>().is_ok());
        for stream in [&mut stream, &mut of_session] {
            while !stream.event().expect("a change").contains(CHANGED) {}
        }
        eventually("it is listed anew", || {
            (tool_names(&program.client(&daemon).list()) == ["echo", "more"]).then_some(())
        });
        // Nor do they keep it.
        if kind.0 == "modern-only" {
            program.rests(&daemon, 2);
        }
        let is_warning = |line: &String| line.contains("WARN") && line.contains("upstream=");
        assert!(!daemon.log().iter().any(is_warning), "{:#?}", daemon.log());
    });
}

fn listening_session(daemon: &Daemon) -> Connection {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, get).bytes());
    assert_eq!(stream.head().status, 200);
    stream
}

#[test]
fn lists_of_another_configuration_are_not_taken() {
    side_by_side([("modern-only", "session"), ("strict", "shared")], |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = Daemon::start(&program.config("env = { OTHER = \"b\" }"));
        program.rests(&daemon, 2);
        expect_listed(&program, &daemon);
        program.stays(2);
    });
}

#[test]
fn where_its_tools_were_not_pinned_yet_it_is_listed_once_and_shown() {
    side_by_side([("modern-only", "shared"), ("strict", "shared"), ("strict", "session")], |kind| {
        for (mode, by_reload) in [("quarantine", false), ("block", true)] {
            let program = Lazy::new(kind);
            program.list_once();
            let pinned = program.config(&format!("pins = {mode:?}"));
            let mut daemon = if by_reload { program.start() } else { Daemon::start(&pinned) };
            if by_reload {
                daemon.reload(&pinned);
            }
            program.rests(&daemon, 2);
            expect_listed(&program, &daemon);
            // From then on nothing starts it.
            daemon.terminate();
            daemon.wait_exit();
            let daemon = Daemon::start(&pinned);
            expect_listed(&program, &daemon);
            program.stays(2);
        }
    });
}

#[test]
fn what_is_approved_while_it_rests_is_shown_without_a_start() {
    side_by_side([("modern-only", "shared"), ("strict", "shared")], |kind| {
        // Its lists are asked for anew whenever it is up.
        let child = Child::new(&[kind.0, "tools-only", "ttl=1"]);
        let program = Lazy { child, ..Lazy::new(kind) };
        let config = program.config("pins = \"block\"");
        let daemon = Daemon::start(&config);
        program.rests(&daemon, 1);
        assert_eq!(tool_names(&program.client(&daemon).list()), ["echo"]);
        program.child.offers_more();
        // It is not let through any more, which is found out by a call.
        let client = program.client(&daemon);
        client.call();
        client.end();
        let book = program.folder.path().join("pins/up.json");
        let sha256 = eventually("it waits for approval", || {
            let book: Value = serde_json::from_str(&fs::read_to_string(&book).ok()?).ok()?;
            let more = book["tools"].as_array()?.iter().find(|tool| tool["name"] == "more")?;
            Some(more["pending"][0]["sha256"].as_str()?.to_owned())
        });
        program.rests(&daemon, 2);
        let client = program.client(&daemon);
        assert_eq!(tool_names(&client.list()), [""; 0]);
        let mut stream = listening_session(&daemon);
        let approve = ["pins", "approve", "up", "more", "--hash", &sha256];
        let (output, _) = trunkline(&approve, Some(&config.to_string()));
        assert!(output.status.success(), "{output:?}");
        while !stream.event().expect("a change").contains(CHANGED) {}
        assert_eq!(tool_names(&client.list()), ["echo", "more"]);
        program.stays(2);
    });
}

#[test]
fn it_does_not_rest_before_its_tools_are_known() {
    let program = Lazy::new(("strict", "shared"));
    program.child.lists_nothing();
    let daemon = program.start();
    program.child.wait_received("tools/list", 1);
    program.child.wait_gone();
    program.child.lists();
    let starts = program.child.pids().len();
    // No client asks for anything.
    program.child.wait_for("started", starts + 1);
    program.child.wait_gone();
    eventually("it rests", || Lazy::tells(&daemon).then_some(()));
    expect_listed(&program, &daemon);
}

#[test]
fn a_start_to_be_listed_that_fails_is_made_up_for_after_the_next_use() {
    let program = Lazy::new(("strict", "session"));
    program.list_once();
    program.child.offers_more();
    let daemon = program.start();
    let use_it = || {
        let client = program.client(&daemon);
        // After a start that failed there is a pause.
        eventually("it is called", || client.call().parse::<u32>().is_ok().then_some(()));
        client
    };
    let client = use_it();
    program.child.breaks();
    client.end();
    program.child.wait_for("started", 3);
    eventually("it has failed", || (Lazy::status(&daemon)["state"] == "down").then_some(()));
    program.child.is_mended();
    let starts = program.child.pids().len();
    use_it().end();
    program.rests(&daemon, starts + 2);
    assert_eq!(tool_names(&program.client(&daemon).list()), ["echo", "more"]);
}

#[test]
fn a_reload_knows_the_lists_that_are_not_written_yet() {
    side_by_side([("modern-only", "shared"), ("strict", "shared"), ("strict", "session")], |kind| {
        let program = Lazy::new(kind);
        // Nothing can be written there.
        let lists = program.folder.path().join("lists");
        fs::write(&lists, "in the way").expect("a file");
        let daemon = program.start();
        program.rests(&daemon, 1);
        // It is another for the gateway, and reached as ever.
        daemon.reload(&program.config("prefix = \"new\""));
        daemon.wait_for_log(0, "the reload", |line| line.contains(" reloaded "));
        assert_eq!(tool_names(&program.client(&daemon).list()), ["echo"]);
        program.stays(1);
        fs::remove_file(lists).expect("out of the way");
        eventually("they are written", || program.file().exists().then_some(()));
    });
}

#[test]
fn operators_are_told_that_it_starts_with_its_first_call() {
    let program = Lazy::new(("strict", "shared"));
    program.list_once();
    let daemon = program.start();
    let told = Lazy::status(&daemon);
    assert_eq!(
        (&told["state"], &told["usable"], &told["healthy"]),
        (&"up".into(), &true.into(), &true.into())
    );
    assert_eq!((&told["start"]["phase"], &told["lists_kept_s"]), (&"first_call".into(), &Value::Null));
    assert_eq!(daemon.get_admin("/status").json()["problems"], Value::Array(Vec::new()));
    let labels = "{upstream=\"up\",state=\"up\",cause=\"\"}";
    eventually("it counts as usable", || {
        (daemon.metric(&format!("trunkline_upstream_usable{labels}")) == 1).then_some(())
    });
    let admin = daemon.admin().to_string();
    let (output, _) = trunkline(&["status", "--admin", &admin], None);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !said.contains("kept over a restart"), "{said}");
}

#[test]
fn a_lazy_program_whose_call_finds_it_broken_is_told_and_not_started_again_by_itself() {
    let program = Lazy::new(("strict", "shared"));
    program.list_once();
    let daemon = program.start();
    program.child.breaks();
    let client = program.client(&daemon);
    assert!(client.call().parse::<u32>().is_err());
    let starts = program.child.pids().len();
    eventually("it is told", || (Lazy::status(&daemon)["state"] == "down").then_some(()));
    program.stays(starts);
    expect_listed(&program, &daemon);
}

#[test]
fn a_lazy_program_that_is_mended_is_up_once_it_answers_a_call() {
    side_by_side(KINDS, |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = program.start();
        program.child.breaks();
        let is_looping = || daemon.find_metric("trunkline_child_crash_loop{upstream=\"up\"}") == Some(1);
        eventually("it is in a loop", || {
            assert!(program.client(&daemon).call().parse::<u32>().is_err());
            is_looping().then_some(())
        });
        assert_eq!(Lazy::status(&daemon)["state"], "down", "{kind:?}");
        program.child.is_mended();
        let client = eventually("it is called", || {
            let client = program.client(&daemon);
            client.call().parse::<u32>().is_ok().then_some(client)
        });
        // A process that rests would be listed, and be up for that.
        eventually(&format!("{kind:?} is down no more"), || {
            assert!(client.call().parse::<u32>().is_ok());
            let told = Lazy::status(&daemon);
            // Of its calls of the last minute many failed.
            (told["state"] != "down" && told["usable"] == true && !is_looping()).then_some(())
        });
    });
}

#[test]
fn lists_that_come_while_a_call_starts_a_lazy_program_neither_wait_for_it_nor_start_it_again() {
    side_by_side([("modern-only", "shared"), ("strict", "shared"), ("strict", "principal")], |kind| {
        let program = Lazy::new(kind);
        program.list_once();
        let daemon = program.start();
        program.child.starts_in(1);
        program.child.breaks();
        let client = program.client(&daemon);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.call());
            program.child.wait_for("started", 2);
            while !call.is_finished() {
                expect_listed(&program, &daemon);
            }
            assert!(call.join().expect("an answer").parse::<u32>().is_err());
        });
        expect_listed(&program, &daemon);
        program.stays(2);
    });
}

#[test]
fn check_warns_where_nothing_keeps_its_lists() {
    let program = Lazy::new(("strict", "shared"));
    let (output, _) = trunkline(&["check"], Some(&program.config("").to_string()));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("lazy"), "{output:?}");
    let bare = Config::new().raw("up", &program.child.keys("lazy = true"));
    let (output, _) = trunkline(&["check"], Some(&bare.to_string()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`lazy`") && said.contains("state_directory"), "{said}");
}
