//! Programs on their standard input and output: one process for what is asked, and one for every other version.

use std::time::Duration;

use super::Inspection;
use super::spoken_era::SpokenEra;
use super::stdio::{EXIT_TIMEOUT, StdioTransport};
use crate::doctor::facts::{Exchange, Probe, Process, Reached};
use crate::doctor::introduction;
use client::server::StdioServer;
use protocol::version::{Era, LEGACY};

impl Inspection<'_> {
    /// Starts it, asks it everything, and ends it.
    pub(super) async fn inspect_stdio(&mut self, program: &StdioServer) {
        self.facts.reached = Reached::Program;
        self.say("starting the program");
        let mut program_io = match StdioTransport::start(program, Era::Modern, &self.tasks) {
            Ok(program_io) => program_io,
            Err(error) => {
                let name = program.name.to_string_lossy();
                self.facts.not_inspected = Some(format!("{name:?} cannot be started: {error}"));
                return;
            }
        };
        self.probe(&mut program_io, Probe::Discover, &SpokenEra::Modern.idle("discover")).await;
        self.facts.modern = self.facts.answer(Probe::Discover).and_then(introduction::modern);
        let dialect = if self.facts.modern.is_some() {
            self.say("asking by the rules of 2026");
            program_io.count_remarks().await;
            self.inquire_modern(&mut program_io, false).await;
            SpokenEra::Modern
        } else {
            program_io.era = Era::Legacy;
            let Some(dialect) = self.open_session(&mut program_io, LEGACY[0]).await else {
                self.facts.not_inspected = Some(self.why_mute(&mut program_io).await);
                return;
            };
            self.say("asking by the rules of before 2026");
            self.begin_session(&mut program_io, &dialect).await;
            self.inquire_in_session(&mut program_io, &dialect).await;
            dialect
        };
        self.time(&mut program_io, &dialect).await;
        self.garbage(&mut program_io, &dialect).await;
        self.say("ending its input");
        let mut process = program_io.close(EXIT_TIMEOUT).await;
        if self.facts.modern.is_some() {
            self.read_tools_in_another(program, &mut process).await;
        }
        self.ask_other_processes(program, &mut process).await;
        self.facts.process = Some(process);
    }

    /// Reads the tools in a second process: each may define them otherwise.
    async fn read_tools_in_another(&mut self, program: &StdioServer, process: &mut Process) {
        self.say("starting it again for its tools");
        let Ok(mut program_io) = StdioTransport::start(program, Era::Modern, &self.tasks) else { return };
        self.read_tools_again(&mut program_io, &SpokenEra::Modern, 1, 1).await;
        let ended = program_io.close(patience(process)).await;
        process.noise.total += ended.noise.total;
    }

    /// Every other version needs a process of its own: the first `initialize` settles what it speaks.
    async fn ask_other_processes(&mut self, program: &StdioServer, process: &mut Process) {
        let is_newest_done = self.facts.answer(Probe::Initialize(LEGACY[0])).is_some();
        let versions = LEGACY.iter().skip(usize::from(is_newest_done));
        for (version, session) in versions.zip(2..) {
            self.say(&format!("starting it again for {version}"));
            let Ok(mut program_io) = StdioTransport::start(program, Era::Legacy, &self.tasks) else { return };
            let dialect = self.open_session(&mut program_io, version).await;
            if session == 2
                && let Some(dialect) = &dialect
            {
                self.begin_session(&mut program_io, dialect).await;
                program_io.count_remarks().await;
                if self.facts.modern.is_some() {
                    self.inquire_in_session(&mut program_io, dialect).await;
                } else {
                    self.read_tools_again(&mut program_io, dialect, session, 1).await;
                }
            }
            let ended = program_io.close(patience(process)).await;
            process.noise.total += ended.noise.total;
            // The first was asked by the rules of 2026, which is wrong for a server of before.
            if session == 2 && self.facts.modern.is_none() {
                process.remarks = ended.remarks;
            }
            if dialect.is_none() {
                // One that does not know the newest does not know the others in another way.
                return;
            }
        }
    }

    /// Why a program that was started is not heard of.
    async fn why_mute(&self, program_io: &mut StdioTransport) -> String {
        let (words, ended) = program_io.end().await;
        let mut said = if words.is_empty() { String::new() } else { format!("; the last it said: {words}") };
        if let Some(line) = program_io.noise() {
            said = format!("{said}; on standard output it wrote {line:?}");
        }
        if let Some(status) = ended {
            return format!("the program ended ({status}){said}");
        }
        let answer = self.facts.answer(Probe::Initialize(LEGACY[0]));
        let answer = answer.map_or("nothing".to_owned(), Exchange::words);
        format!("the program is no MCP server: initialize got {answer}{said}")
    }
}

/// How long the end of another process is waited for: one that did not exit the first time is not waited for again.
fn patience(process: &Process) -> Duration {
    if process.exit.is_some() { EXIT_TIMEOUT } else { Duration::ZERO }
}
