//! Random sequences of what clients and servers do, over the four pairings of eras, against what must come of them.
//!
//! Every call says what its server does ([`Script`]), and every answer says to which question of which call whose answer
//! it is; so the whole result of a call is known before it is made. What servers alone can see (an answer to no question
//! of theirs, one that comes twice, principals that meet in one session), they find themselves. At the end nothing may be
//! left, neither in the gateway nor at the servers.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{
    Act, Answer, Asked, Caller, Child, Config, Connection, Daemon, Kind, Outcome, Script, Scripted, Turn,
    answer, api_key, eventually, question_of, side_by_side,
};

const KEYS: [(&str, &str); 2] =
    [("ada", "ada-key-0123456789abcdefghijklmnopqr"), ("bob", "bob-key-0123456789abcdefghijklmnopqr")];
/// Short enough that a test waits for calls that nobody goes on with, long enough for those that somebody does.
const BRIDGE: &str = "bridge = { suspended_call_timeout = \"8s\", session_idle_timeout = \"500ms\" }\n";
const CLIENTS: usize = 4;
const CALLS: usize = 12;

/// What is added to every seed, so that other sequences can be played than those of every run.
fn first_seed() -> u64 {
    std::env::var("BRIDGE_MODEL_SEED").map_or(0, |seed| seed.parse().expect("a number"))
}

/// Numbers that look random and are the same every time (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(sides).expect("a die")).expect("a side")
    }

    fn is(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }

    fn kinds(&mut self) -> Vec<Kind> {
        let count = if self.is(25) { 2 } else { 1 };
        (0..count).map(|_| Kind::ALL[self.roll(3)]).collect()
    }

    fn script(&mut self, tag: String, server: &Server, client: Era) -> Script {
        let act = |dice: &mut Self| match dice.roll(10) {
            // A client with a session hears what is asked beside its calls on a stream that this one does not open.
            5 | 6 if client == Era::Modern && server.era == Era::Legacy && server.is_http => {
                Act::AskBeside(dice.kinds())
            }
            0..7 => Act::Ask(dice.kinds()),
            7 if server.era == Era::Modern => Act::Again,
            7 | 8 => Act::Progress,
            _ => Act::Log,
        };
        let count = self.roll(5);
        Script { tag, acts: (0..count).map(|_| act(self)).collect() }
    }

    fn capabilities(&mut self) -> Value {
        let chosen = Kind::ALL.into_iter().filter(|_| self.is(75));
        Value::Object(chosen.map(|kind| (kind.capability().to_owned(), json!({}))).collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A server, as the endpoint knows it.
struct Server {
    era: Era,
    tool: &'static str,
    /// Whether it hears on a stream what it is asked beside its calls.
    is_http: bool,
}

/// What the clients did, of which the gateway must have counted the same.
#[derive(Default)]
struct Counts {
    /// Continuations of calls that waited.
    resumed: AtomicUsize,
    /// Continuations that fit nothing.
    rejected: AtomicUsize,
    /// Calls that nobody went on with.
    abandoned: AtomicUsize,
    /// Calls whose client went away before it knew what became of them.
    left: AtomicUsize,
    /// Calls that came to their own end.
    ended: AtomicUsize,
}

/// One client and what it does.
struct Player<'a> {
    dice: Dice,
    caller: Caller,
    /// The same principal's, or another's, continuation is refused where it is not the call's own.
    stranger: Caller,
    who: &'static str,
    number: usize,
    server: &'a Server,
    counts: &'a Counts,
    next_call: usize,
}

impl Player<'_> {
    fn era(&self) -> Era {
        if self.caller.is_legacy() { Era::Legacy } else { Era::Modern }
    }

    /// Whether its calls wait in the gateway while it is asked.
    fn parks(&self) -> bool {
        self.era() == Era::Modern && self.server.era == Era::Legacy
    }

    fn play(&mut self) {
        for _ in 0..CALLS {
            self.next_call += 1;
            let tag = format!("{}-{}-{}", self.who, self.number, self.next_call);
            let script = self.dice.script(tag, self.server, self.era());
            let parks = self.parks();
            match self.dice.roll(10) {
                // What a process asks while two calls of a session run, it asks on a stream that this client does not open.
                0 if self.era() == Era::Modern || self.server.era == Era::Modern || self.server.is_http => {
                    self.leave(&script);
                }
                1 | 2 if parks => self.misuse(&script),
                3 if parks => self.race(&script),
                4 if self.era() == Era::Legacy => self.fail(&script),
                _ => self.behave(&script),
            }
        }
        if self.caller.is_legacy() {
            self.caller.leave();
        }
    }

    fn expected(&self, script: &Script) -> String {
        script.expected(self.who, |kind| self.caller.can(kind.capability()))
    }

    /// The questions that the client hears.
    fn heard(&self, script: &Script) -> BTreeSet<String> {
        let kinds = script.acts.iter().flat_map(Act::kinds).enumerate();
        let heard = kinds.filter(|(_, kind)| self.caller.can(kind.capability()));
        heard.map(|(number, _)| format!("{}/{number}", script.tag)).collect()
    }

    fn check(&self, script: &Script, outcome: &Outcome) {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        assert_eq!(outcome.text(), self.expected(script), "{script:?}: {outcome:?}");
        let told =
            |notes: &[Value], method: &str| notes.iter().filter(|note| note["method"] == method).count();
        let progress = script.acts.iter().filter(|act| **act == Act::Progress).count();
        assert_eq!(told(&outcome.notes, "notifications/progress"), progress, "{script:?}: {outcome:?}");
    }

    /// Answers everything, now and then not at once.
    fn behave(&mut self, script: &Script) {
        let (who, parks) = (self.who, self.parks());
        let mut withheld = BTreeSet::new();
        let mut dice = Dice(self.dice.0 ^ 1);
        let outcome = self.caller.converse(self.next_call, script, |question| {
            // Asked again, it answers.
            if parks && dice.is(15) && withheld.insert(question_of(question).to_owned()) {
                return Answer::Withheld;
            }
            Answer::Result(answer(question, who))
        });
        self.check(script, &outcome);
        let questions: BTreeSet<String> = outcome.questions.iter().cloned().collect();
        assert_eq!(questions, self.heard(script), "{script:?}");
        if !parks || withheld.is_empty() {
            assert_eq!(questions.len(), outcome.questions.len(), "asked twice: {outcome:?}");
        }
    }

    /// Goes away in the middle.
    fn leave(&mut self, script: &Script) {
        if self.era() == Era::Modern && self.dice.is(50) {
            // Without a word after the first question.
            match self.caller.round("\"left\"", script, None) {
                Turn::Ended(outcome) => self.check(script, &outcome),
                Turn::Asked(_) if self.parks() => drop(self.counts.abandoned.fetch_add(1, Ordering::Relaxed)),
                Turn::Asked(_) => {}
            }
            return;
        }
        self.counts.left.fetch_add(1, Ordering::Relaxed);
        let mut connection = Connection::open(self.caller.address);
        connection.write(&self.caller.request("\"left\"", script, None).bytes());
        if self.dice.is(50) {
            connection.head();
        }
    }

    /// Answers a question with an error.
    fn fail(&mut self, script: &Script) {
        let outcome = self.caller.converse(self.next_call, script, |_| Answer::Error);
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        if self.server.era == Era::Legacy || self.heard(script).is_empty() {
            assert_eq!(outcome.text(), script.expected("nobody", |_| false), "{outcome:?}");
        } else {
            outcome.error(200);
        }
    }

    /// Goes on with a call as somebody else, or with another call, and then as it should.
    fn misuse(&mut self, script: &Script) {
        let mut turn = self.caller.round("\"0\"", script, None);
        for round in 1.. {
            let asked = match turn {
                Turn::Ended(outcome) => return self.check(script, &rounded(outcome, script)),
                Turn::Asked(asked) => asked,
            };
            let other = Script { tag: format!("{}x", script.tag), ..script.clone() };
            let (caller, of) =
                if self.dice.is(50) { (&self.caller, &other) } else { (&self.stranger, script) };
            self.refused(caller, "\"wrong\"", of, &asked);
            self.counts.resumed.fetch_add(1, Ordering::Relaxed);
            turn = self.caller.resume(&format!("\"{round}\""), script, &asked, self.who);
            self.refused(&self.caller, "\"again\"", script, &asked);
        }
    }

    fn refused(&self, caller: &Caller, id: &str, script: &Script, asked: &Asked) {
        let mut connection = Connection::open(caller.address);
        let answers = asked.answers("mallory");
        let request = caller.request(id, script, Some((&answers, asked.state.as_deref())));
        connection.write(&request.bytes());
        connection.response().assert_error(400, -32602, Some(id));
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Goes on with a call twice at once.
    fn race(&mut self, script: &Script) {
        let mut turn = self.caller.round("\"0\"", script, None);
        for round in 1.. {
            let asked = match turn {
                Turn::Ended(outcome) => return self.check(script, &rounded(outcome, script)),
                Turn::Asked(asked) => asked,
            };
            let turns = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for twin in 0..2 {
                    let (turns, asked) = (&turns, &asked);
                    let (caller, who) = (&self.caller, self.who);
                    scope.spawn(move || {
                        let turn = caller.resume(&format!("\"{round}.{twin}\""), script, asked, who);
                        turns.lock().unwrap().push(turn);
                    });
                }
            });
            let turns = turns.into_inner().unwrap();
            let is_refusal = |turn: &Turn| match turn {
                Turn::Ended(outcome) => outcome.status == 400 && outcome.message["error"]["code"] == -32602,
                Turn::Asked(_) => false,
            };
            let (refused, mut taken): (Vec<Turn>, Vec<Turn>) = turns.into_iter().partition(is_refusal);
            assert_eq!((refused.len(), taken.len()), (1, 1), "{refused:?} {taken:?}");
            self.counts.resumed.fetch_add(1, Ordering::Relaxed);
            self.counts.rejected.fetch_add(1, Ordering::Relaxed);
            turn = taken.remove(0);
        }
    }
}

/// As if all the progress had come with the last round.
fn rounded(mut outcome: Outcome, script: &Script) -> Outcome {
    let progress = script.acts.iter().filter(|act| **act == Act::Progress).count();
    outcome.notes = vec![json!({"method": "notifications/progress"}); progress];
    outcome
}

fn config() -> Config {
    let keys =
        KEYS.iter().fold(Config::new().admin(), |config, (name, key)| config.section(&api_key(name, key)));
    keys.top("workers = 3")
}

/// Lets clients of these eras play, and looks at what is left.
fn play(seed: u64, daemon: &Daemon, players: &[(Era, &Server)]) -> Counts {
    let counts = Counts::default();
    eventually("the tools are known", || {
        let known = players.iter().all(|(era, server)| {
            let script = Script::new("ada-0-0", &[]);
            let caller = client(*era, daemon, &json!({}), 0).with_tool(server.tool);
            let mut connection = Connection::open(daemon.address());
            connection.write(&caller.request("1", &script, None).bytes());
            let response = connection.response();
            if caller.is_legacy() {
                caller.leave();
            }
            response.status == 200 && response.text().contains("content")
        });
        known.then_some(())
    });
    std::thread::scope(|scope| {
        for (number, (era, server)) in players.iter().enumerate() {
            let mut dice = Dice(seed.wrapping_mul(1000) + u64::try_from(number).expect("few"));
            let principal = number % 2;
            let capabilities = dice.capabilities();
            let mut caller = client(*era, daemon, &capabilities, principal).with_tool(server.tool);
            if *era == Era::Modern && dice.is(30) {
                caller = caller.with_level("debug");
            }
            let stranger = caller.clone().with_key(KEYS[1 - principal].1);
            let (who, counts) = (KEYS[principal].0, &counts);
            let mut player = Player { dice, caller, stranger, who, number, server, counts, next_call: 0 };
            scope.spawn(move || player.play());
        }
    });
    nothing_is_left(daemon);
    counts
}

fn client(era: Era, daemon: &Daemon, capabilities: &Value, principal: usize) -> Caller {
    let key = KEYS[principal].1;
    match era {
        Era::Modern => Caller::modern(daemon.address(), capabilities).with_key(key),
        Era::Legacy => Caller::legacy_with_key(daemon.address(), capabilities, Some(key)),
    }
}

/// Calls that were left expire, and all sessions are closed.
fn nothing_is_left(daemon: &Daemon) {
    for name in ["trunkline_bridge_suspended_calls", "trunkline_bridge_sessions"] {
        eventually(name, || (daemon.metric(name) == 0).then_some(()));
    }
    assert_eq!(daemon.metric(r#"trunkline_bridge_suspensions_total{result="refused"}"#), 0);
}

/// The clients of one era before one server.
fn crowd(era: Era, server: &Server) -> Vec<(Era, &Server)> {
    vec![(era, server); CLIENTS]
}

fn scripted(era: Era) -> (Scripted, Server) {
    let scripted = if era == Era::Legacy { Scripted::legacy() } else { Scripted::modern() };
    (scripted, Server { era, tool: "script", is_http: true })
}

fn eras(era: Era) -> &'static str {
    if era == Era::Legacy { "eras = [\"legacy\"]" } else { "eras = [\"modern\"]" }
}

fn pairing(client: Era, server: Era, seeds: std::ops::Range<u64>) {
    side_by_side(seeds, |seed| {
        let seed = first_seed() + seed;
        let (scripted, server) = scripted(server);
        let lines = format!("{}\n{BRIDGE}", eras(server.era));
        let daemon = Daemon::start(&config().upstream("up", scripted.upstream.address, &lines));
        let counts = play(seed, &daemon, &crowd(client, &server));
        if server.era == Era::Legacy {
            scripted.wait_idle();
        }
        if client == Era::Modern && server.era == Era::Legacy {
            eventually("no session is left", || scripted.client_sessions().is_empty().then_some(()));
        }
        counted(&daemon, &counts, seed);
        assert_eq!(scripted.faults(), Vec::<String>::new(), "seed {seed}");
    });
}

/// The gateway counted what the clients saw; rounds of calls that were answered without more ado come on top.
fn counted(daemon: &Daemon, counts: &Counts, seed: u64) {
    let parks = |result: &str| {
        let series = format!("trunkline_bridge_suspensions_total{{result=\"{result}\"}}");
        usize::try_from(daemon.metric(&series)).expect("few")
    };
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert!(of(&counts.ended) > 0, "seed {seed}");
    assert_eq!(parks("rejected"), of(&counts.rejected), "seed {seed}");
    assert!(parks("lost") <= of(&counts.left), "seed {seed}");
    assert!(parks("resumed") >= of(&counts.resumed), "seed {seed}");
    assert!(parks("expired") >= of(&counts.abandoned), "seed {seed}");
}

#[test]
fn legacy_clients_and_legacy_servers() {
    pairing(Era::Legacy, Era::Legacy, 0..2);
}

#[test]
fn modern_clients_and_modern_servers() {
    pairing(Era::Modern, Era::Modern, 0..2);
}

#[test]
fn legacy_clients_and_modern_servers() {
    pairing(Era::Legacy, Era::Modern, 0..4);
}

#[test]
fn modern_clients_and_legacy_servers() {
    pairing(Era::Modern, Era::Legacy, 0..4);
}

#[test]
fn clients_and_processes_of_the_other_era() {
    for (client, word) in [(Era::Legacy, "modern"), (Era::Modern, "legacy")] {
        let era = if client == Era::Legacy { Era::Modern } else { Era::Legacy };
        let child = Child::new(&["scripted", word]);
        let server = Server { era, tool: "script", is_http: false };
        let lines = child.keys(&format!("{}\n{BRIDGE}", eras(era)));
        let daemon = Daemon::start(&config().raw("up", &lines));
        let seed = first_seed() + 7;
        let counts = play(seed, &daemon, &crowd(client, &server));
        counted(&daemon, &counts, seed);
        assert_eq!(child.events_of("fault"), Vec::<Value>::new());
    }
}

#[test]
fn all_of_them_at_one_endpoint() {
    let (old, new) = (Scripted::legacy(), Scripted::modern());
    let (old_child, new_child) = (Child::new(&["scripted"]), Child::new(&["scripted", "modern"]));
    let config = config()
        .upstream("old", old.upstream.address, &format!("{}\n{BRIDGE}", eras(Era::Legacy)))
        .upstream("new", new.upstream.address, &format!("{}\n{BRIDGE}", eras(Era::Modern)))
        .raw("oldchild", &old_child.keys(&format!("{}\n{BRIDGE}", eras(Era::Legacy))))
        .raw("newchild", &new_child.keys(&format!("{}\n{BRIDGE}", eras(Era::Modern))));
    let daemon = Daemon::start(&config);
    let server = |era, tool, is_http| Server { era, tool, is_http };
    let servers = [
        server(Era::Legacy, "old__script", true),
        server(Era::Modern, "new__script", true),
        server(Era::Legacy, "oldchild__script", false),
        server(Era::Modern, "newchild__script", false),
    ];
    let players: Vec<(Era, &Server)> =
        servers.iter().flat_map(|server| [(Era::Legacy, server), (Era::Modern, server)]).collect();
    let seed = first_seed() + 11;
    let counts = play(seed, &daemon, &players);
    old.wait_idle();
    counted(&daemon, &counts, seed);
    for child in [&old_child, &new_child] {
        assert_eq!(child.events_of("fault"), Vec::<Value>::new());
    }
}
