//! Programs on their standard input and output: one process for what is asked, and one for every other version.

use std::time::Duration;

use super::lists::Dialect;
use super::stdio::{EXIT_TIMEOUT, StdioTransport};
use super::transport::ProbeTransport;
use super::{Inspection, discover, garbage, legacy, lists, modern, time};
use crate::doctor::facts::{Exchange, Facts, ListKind, Probe, Process, Reached};
use crate::doctor::introduction;
use client::server::StdioServer;
use net::tasks::Tasks;
use protocol::version::LEGACY;

/// Starts it, asks it everything, and ends it.
pub(super) async fn inspect(inspection: &mut Inspection<'_>, program: &StdioServer, tasks: &Tasks) {
    inspection.facts.reached = Reached::Program;
    inspection.say("starting the program");
    let program_io = match StdioTransport::start(program, true, tasks) {
        Ok(program_io) => program_io,
        Err(error) => {
            let name = program.name.to_string_lossy();
            inspection.facts.not_inspected = Some(format!("{name:?} cannot be started: {error}"));
            return;
        }
    };
    let transport = ProbeTransport::Stdio(&program_io);
    inspection.probe(&transport, Probe::Discover, &discover()).await;
    inspection.facts.modern = inspection.facts.answer(Probe::Discover).and_then(introduction::modern);
    let mut newest = None;
    if inspection.facts.modern.is_some() {
        inspection.say("asking by the rules of 2026");
        program_io.count_remarks().await;
        modern::inquire(inspection, &transport).await;
        time(inspection, &transport, Some(&Dialect::Modern)).await;
    } else {
        program_io.set_modern(false);
        newest = legacy::open(inspection, &transport, LEGACY[0]).await;
        if let Some(dialect) = &newest {
            inspection.say("asking by the rules of before 2026");
            legacy::begin(inspection, &transport, dialect).await;
            legacy::inquire(inspection, &transport, dialect).await;
            time(inspection, &transport, newest.as_ref()).await;
        }
    }
    if inspection.facts.modern.is_none() && newest.is_none() {
        inspection.facts.not_inspected = Some(mute(&program_io, &inspection.facts).await);
        return;
    }
    garbage(inspection, &transport, newest.as_ref()).await;
    inspection.say("ending its input");
    let mut process = program_io.close(EXIT_TIMEOUT).await;
    other_processes(inspection, program, tasks, &mut process).await;
    inspection.facts.process = Some(process);
}

/// Every other version needs a process of its own: the first `initialize` settles what it speaks.
async fn other_processes(
    inspection: &mut Inspection<'_>,
    program: &StdioServer,
    tasks: &Tasks,
    process: &mut Process,
) {
    let is_newest_done = inspection.facts.answer(Probe::Initialize(LEGACY[0])).is_some();
    let versions = LEGACY.iter().skip(usize::from(is_newest_done));
    for (version, session) in versions.zip(2..) {
        inspection.say(&format!("starting it again for {version}"));
        let Ok(program_io) = StdioTransport::start(program, false, tasks) else { return };
        let transport = ProbeTransport::Stdio(&program_io);
        let dialect = legacy::open(inspection, &transport, version).await;
        if session == 2
            && let Some(dialect) = &dialect
        {
            legacy::begin(inspection, &transport, dialect).await;
            program_io.count_remarks().await;
            if inspection.facts.modern.is_some() {
                legacy::inquire(inspection, &transport, dialect).await;
            } else if lists::again(&inspection.facts, 1) > 0 {
                let listing =
                    lists::read(&transport, inspection.budget, dialect, ListKind::Tools, session).await;
                inspection.facts.listings.extend(listing);
            }
        }
        // One that did not exit the first time is not waited for again.
        let ended =
            program_io.close(if process.exit.is_some() { EXIT_TIMEOUT } else { Duration::ZERO }).await;
        process.noise.total += ended.noise.total;
        // The first was asked by the rules of 2026, which is wrong for a server of before.
        if session == 2 && inspection.facts.modern.is_none() {
            process.remarks = ended.remarks;
        }
        if dialect.is_none() {
            // One that does not know the newest does not know the others in another way.
            return;
        }
    }
}

/// Why a program that was started is not heard of.
async fn mute(program_io: &StdioTransport, facts: &Facts) -> String {
    let (words, ended) = tokio::join!(program_io.last_words(), program_io.ended());
    let mut said = if words.is_empty() { String::new() } else { format!("; the last it said: {words}") };
    if let Some(line) = program_io.noise() {
        said = format!("{said}; on standard output it wrote {line:?}");
    }
    if let Some(status) = ended {
        return format!("the program ended ({status}){said}");
    }
    let answer = facts.answer(Probe::Initialize(LEGACY[0]));
    let answer = answer.map_or("nothing".to_owned(), Exchange::words);
    format!("the program is no MCP server: initialize got {answer}{said}")
}
