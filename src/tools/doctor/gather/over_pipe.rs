//! Programs on their standard input and output: one process for what is asked, and one for every other version.

use std::time::Duration;

use super::lists::Tongue;
use super::pipe::{EXIT_TIMEOUT, Pipe};
use super::wire::Wire;
use super::{Inquiry, discover, garbage, legacy, lists, modern, time};
use crate::doctor::facts::{Exchange, Facts, Kind, Probe, Process, Reached};
use crate::doctor::introduction;
use client::server::Program;
use net::tasks::Tasks;
use protocol::version::LEGACY;

/// Starts it, asks it everything, and ends it.
pub(super) async fn inspect(inquiry: &mut Inquiry<'_>, program: &Program, tasks: &Tasks) {
    inquiry.facts.reached = Reached::Program;
    inquiry.say("starting the program");
    let pipe = match Pipe::start(program, true, tasks) {
        Ok(pipe) => pipe,
        Err(error) => {
            let name = program.name.to_string_lossy();
            inquiry.facts.not_inspected = Some(format!("{name:?} cannot be started: {error}"));
            return;
        }
    };
    let wire = Wire::Pipe(&pipe);
    inquiry.probe(&wire, Probe::Discover, &discover()).await;
    inquiry.facts.modern = inquiry.facts.answer(Probe::Discover).and_then(introduction::modern);
    let mut newest = None;
    if inquiry.facts.modern.is_some() {
        inquiry.say("asking by the rules of 2026");
        pipe.count_remarks().await;
        modern::inquire(inquiry, &wire).await;
        time(inquiry, &wire, Some(&Tongue::Modern)).await;
    } else {
        pipe.set_modern(false);
        newest = legacy::open(inquiry, &wire, LEGACY[0]).await;
        if let Some(tongue) = &newest {
            inquiry.say("asking by the rules of before 2026");
            legacy::begin(inquiry, &wire, tongue).await;
            legacy::inquire(inquiry, &wire, tongue).await;
            time(inquiry, &wire, newest.as_ref()).await;
        }
    }
    if inquiry.facts.modern.is_none() && newest.is_none() {
        inquiry.facts.not_inspected = Some(mute(&pipe, &inquiry.facts).await);
        return;
    }
    garbage(inquiry, &wire, newest.as_ref()).await;
    inquiry.say("ending its input");
    let mut process = pipe.close(EXIT_TIMEOUT).await;
    other_processes(inquiry, program, tasks, &mut process).await;
    inquiry.facts.process = Some(process);
}

/// Every other version needs a process of its own: the first `initialize` settles what it speaks.
async fn other_processes(inquiry: &mut Inquiry<'_>, program: &Program, tasks: &Tasks, process: &mut Process) {
    let is_newest_done = inquiry.facts.answer(Probe::Initialize(LEGACY[0])).is_some();
    let versions = LEGACY.iter().skip(usize::from(is_newest_done));
    for (version, session) in versions.zip(2..) {
        inquiry.say(&format!("starting it again for {version}"));
        let Ok(pipe) = Pipe::start(program, false, tasks) else { return };
        let wire = Wire::Pipe(&pipe);
        let tongue = legacy::open(inquiry, &wire, version).await;
        if session == 2
            && let Some(tongue) = &tongue
        {
            legacy::begin(inquiry, &wire, tongue).await;
            pipe.count_remarks().await;
            if inquiry.facts.modern.is_some() {
                legacy::inquire(inquiry, &wire, tongue).await;
            } else if lists::again(&inquiry.facts, 1) > 0 {
                let listing = lists::read(&wire, inquiry.budget, tongue, Kind::Tools, session).await;
                inquiry.facts.listings.extend(listing);
            }
        }
        // One that did not exit the first time is not waited for again.
        let ended = pipe.close(if process.exit.is_some() { EXIT_TIMEOUT } else { Duration::ZERO }).await;
        process.noise.total += ended.noise.total;
        // The first was asked by the rules of 2026, which is wrong for a server of before.
        if session == 2 && inquiry.facts.modern.is_none() {
            process.remarks = ended.remarks;
        }
        if tongue.is_none() {
            // One that does not know the newest does not know the others in another way.
            return;
        }
    }
}

/// Why a program that was started is not heard of.
async fn mute(pipe: &Pipe, facts: &Facts) -> String {
    let (words, ended) = tokio::join!(pipe.last_words(), pipe.ended());
    let mut said = if words.is_empty() { String::new() } else { format!("; the last it said: {words}") };
    if let Some(line) = pipe.noise() {
        said = format!("{said}; on standard output it wrote {line:?}");
    }
    if let Some(status) = ended {
        return format!("the program ended ({status}){said}");
    }
    let answer = facts.answer(Probe::Initialize(LEGACY[0]));
    let answer = answer.map_or("nothing".to_owned(), Exchange::words);
    format!("the program is no MCP server: initialize got {answer}{said}")
}
