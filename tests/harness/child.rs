//! A scripted child process, and what it says has happened to it.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, test_kill_process};
use serde_json::Value;

use super::{Folder, eventually};

/// A server that the gateway starts. `child.py` says what its words and tools do.
pub(crate) struct Child {
    folder: Folder,
    words: Vec<String>,
}

impl Child {
    pub(crate) fn new(words: &[&str]) -> Self {
        Self { folder: Folder::new(), words: words.iter().map(ToString::to_string).collect() }
    }

    /// The keys of an upstream that start it; `lines` are further ones.
    pub(crate) fn keys(&self, lines: &str) -> String {
        format!("command = {:?}\n{lines}", self.command())
    }

    /// The program, and its arguments.
    pub(crate) fn command(&self) -> Vec<String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/harness/child.py");
        let log = self.log().display().to_string();
        let program = ["python3".to_owned(), script.to_owned(), log].into_iter();
        program.chain(self.words.iter().cloned()).collect()
    }

    /// What happened so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What happened so far of one kind.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["event"] == kind).collect()
    }

    /// The messages of a method that were received.
    pub(crate) fn received(&self, method: &str) -> Vec<Value> {
        let events = self.events_of("received").into_iter();
        events.map(|event| event["message"].clone()).filter(|message| message["method"] == method).collect()
    }

    /// Waits until something has happened so often.
    pub(crate) fn wait_for(&self, kind: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} times {kind}"), || {
            Some(self.events_of(kind)).filter(|events| events.len() >= count)
        })
    }

    /// Waits until a message of this method was received so often.
    pub(crate) fn wait_received(&self, method: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} times {method}"), || {
            Some(self.received(method)).filter(|messages| messages.len() >= count)
        })
    }

    /// The processes that were started, in order.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let started = self.events_of("started").into_iter();
        started.filter_map(|event| i32::try_from(event["pid"].as_i64()?).ok()).collect()
    }

    /// Waits until none of its processes lives any more.
    pub(crate) fn wait_gone(&self) {
        eventually("all its processes are gone", || {
            let is_alive = |pid: &i32| Pid::from_raw(*pid).is_some_and(|pid| test_kill_process(pid).is_ok());
            (!self.pids().iter().any(is_alive)).then_some(())
        });
    }

    /// From now on `initialize` waits for [`go_on`](Self::go_on), and is then the last that is answered.
    pub(crate) fn hold(&self) {
        fs::write(self.log().with_extension("log.hold"), "").expect("a file");
    }

    /// Processes that are started from now on read nothing for so long.
    pub(crate) fn starts_in(&self, seconds: u32) {
        fs::write(self.log().with_extension("log.starts-in"), seconds.to_string()).expect("a file");
    }

    /// From now on it lists a tool more.
    pub(crate) fn offers_more(&self) {
        fs::write(self.log().with_extension("log.more"), "").expect("a file");
    }

    /// From now on it has a prompt, and processes that are started declare that.
    pub(crate) fn has_prompts(&self) {
        fs::write(self.log().with_extension("log.prompts"), "").expect("a file");
    }

    /// From now on it refuses to list tools, until it [`lists`](Self::lists).
    pub(crate) fn lists_nothing(&self) {
        fs::write(self.log().with_extension("log.unlisted"), "").expect("a file");
    }

    /// From now on it lists tools again.
    pub(crate) fn lists(&self) {
        fs::remove_file(self.log().with_extension("log.unlisted")).expect("a file");
    }

    /// Processes that are started from now on die at once, until it is [mended](Self::is_mended).
    pub(crate) fn breaks(&self) {
        fs::write(self.log().with_extension("log.broken"), "").expect("a file");
    }

    /// Processes that are started from now on are of its other era.
    pub(crate) fn turns(&self) {
        fs::write(self.log().with_extension("log.turned"), "").expect("a file");
    }

    /// Processes that are started from now on read all and say nothing, until it [speaks](Self::speaks).
    pub(crate) fn falls_silent(&self) {
        fs::write(self.log().with_extension("log.silent"), "").expect("a file");
    }

    /// Processes that are started from now on answer again.
    pub(crate) fn speaks(&self) {
        fs::remove_file(self.log().with_extension("log.silent")).expect("a file");
    }

    /// It refuses to initialize from now on.
    pub(crate) fn opens_nothing(&self) {
        fs::write(self.log().with_extension("log.down"), "").expect("a file");
    }

    /// It initializes again.
    pub(crate) fn opens(&self) {
        fs::remove_file(self.log().with_extension("log.down")).expect("a file");
    }

    /// Processes that are started from now on live again.
    pub(crate) fn is_mended(&self) {
        fs::remove_file(self.log().with_extension("log.broken")).expect("it is broken");
    }

    /// From now on it does not die of the method that it crashes at.
    pub(crate) fn crashes_no_more(&self) {
        fs::write(self.log().with_extension("log.sound"), "").expect("a file");
    }

    /// Ends a call of the tool `shut`, or of `flood`, which otherwise goes on for a minute.
    pub(crate) fn go_on(&self) {
        fs::write(self.log().with_extension("log.go"), "").expect("a file");
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("child.log")
    }
}
