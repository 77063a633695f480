//! Sessions and streams, which revisions of before 2026 have.

use std::collections::HashSet;

use crate::doctor::facts::{Answer, Facts, Probe, clip};
use crate::doctor::rules::sessions as rules;
use crate::doctor::sheet::{Refusal, Sheet};

/// Ids of fewer characters hold less than about 80 random bits, however densely they are written.
const ID_CHARS_MIN: usize = 14;

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    if !facts.is_http() {
        return;
    }
    if !facts.session_ids.is_empty() {
        sheet.judge(&rules::SESSION_ID, faults(&facts.session_ids));
    }
    let four_hundred = Refusal::new(&[400], &[]);
    sheet.refused(facts, Probe::NoSession, &rules::SESSION_NEEDED, "a request without it", four_hundred);
    let what = "an invented id";
    sheet.refused(facts, Probe::UnknownSession, &rules::SESSION_UNKNOWN, what, Refusal::new(&[404], &[]));
    sheet.refused(facts, Probe::VersionHeader, &rules::VERSION_HEADER, "version 1900-01-01", four_hundred);
    end(facts, sheet);
    if let Some(exchange) =
        facts.answer(Probe::LegacyGet).filter(|exchange| exchange.answer != Answer::Silence)
    {
        let is_stream = exchange.status == Some(200) && exchange.media == "text/event-stream";
        let is_right = is_stream || exchange.status == Some(405);
        sheet.judge(&rules::GET_STREAM, (!is_right).then(|| format!("GET got {}", exchange.words())));
    }
    modern(facts, sheet);
}

fn end(facts: &Facts, sheet: &mut Sheet) {
    let Some(ended) = facts.answer(Probe::EndSession) else { return };
    match ended.status {
        Some(200..=299) => {
            let what = "a request after DELETE";
            // How ids are refused that are not known has a rule of its own.
            sheet.refused(facts, Probe::AfterEnd, &rules::SESSION_END, what, Refusal::new(&[], &[]));
        }
        Some(405) => sheet.kept(&rules::SESSION_END),
        _ => sheet.broken(&rules::SESSION_END, format!("DELETE got {}", ended.words())),
    }
}

fn modern(facts: &Facts, sheet: &mut Sheet) {
    if facts.modern.is_none() {
        return;
    }
    let given = facts.answer(Probe::Discover).and_then(|exchange| exchange.session_id.as_ref());
    sheet
        .judge(&rules::SESSION_ECHO, given.map(|_| "server/discover came with an Mcp-Session-Id".to_owned()));
    if facts.legacy.is_empty() {
        let what = "GET with a version of 2026";
        sheet.refused(facts, Probe::ModernGet, &rules::GET_GONE, what, Refusal::new(&[405], &[]));
    }
}

fn faults(ids: &[String]) -> Vec<String> {
    let mut seen = Vec::new();
    let unsendable = ids.iter().find(|id| id.is_empty() || !id.bytes().all(|b| (0x21..=0x7e).contains(&b)));
    if let Some(id) = unsendable {
        seen.push(format!("{:?} has other characters than visible ASCII", clip(id, 60)));
    }
    let distinct: HashSet<_> = ids.iter().collect();
    if distinct.len() < ids.len() {
        seen.push("two sessions have the same id".to_owned());
    }
    let is_short = |id: &&String| id.len() < ID_CHARS_MIN;
    if let Some(id) = ids.iter().find(is_short) {
        seen.push(format!("an id has {} characters, too few to be hard to guess", id.len()));
    } else if distinct.len() > 1 && changing(ids) < 12 {
        seen.push(format!("only {} characters differ between ids", changing(ids)));
    }
    seen
}

/// In how many places ids of one length differ.
fn changing(ids: &[String]) -> usize {
    let Some(first) = ids.first() else { return 0 };
    if ids.iter().any(|id| id.len() != first.len()) {
        return usize::MAX;
    }
    (0..first.len()).filter(|&at| ids.iter().any(|id| id.as_bytes()[at] != first.as_bytes()[at])).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_can_be_guessed_are_found() {
        let random = ["3f2a9c1e7b604d58a1c2e3f4a5b6c7d8", "b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2"];
        for (ids, expected) in [
            (&random[..], None),
            (&["session-000000000000000001", "session-000000000000000002"][..], Some("only 1 characters")),
            (&["1", "2"][..], Some("an id has 1")),
            (&[random[0], random[0]][..], Some("two sessions")),
            (&["naïve-3f2a9c1e7b604d58a1c2e3f4a5b6"][..], Some("\"naïve")),
            (&[random[0]][..], None),
        ] {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let found = faults(&ids);
            assert_eq!(found.is_empty(), expected.is_none(), "{ids:?}: {found:?}");
            assert!(
                found.first().is_none_or(|found| found.starts_with(expected.unwrap_or_default())),
                "{found:?}"
            );
        }
    }
}
