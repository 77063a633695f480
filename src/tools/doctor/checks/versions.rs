//! Which revisions the server speaks, and how it says so.

use serde_json::Value;

use crate::doctor::facts::{Exchange, Facts, Probe, clip};
use crate::doctor::introduction;
use crate::doctor::request::NO_VERSION;
use crate::doctor::rules::versions as rules;
use crate::doctor::sheet::{Refusal, Sheet};
use protocol::version::{LEGACY, MODERN};

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    let has_legacy = !facts.legacy.is_empty();
    if facts.is_http_sse {
        sheet.broken(&rules::HTTP_SSE, "GET opens a stream, and POST is not understood");
        if !has_legacy {
            sheet.broken(&rules::LEGACY, refusal(facts, Probe::Initialize(LEGACY[0]), "initialize"));
            return;
        }
    }
    match &facts.modern {
        Some(_) => sheet.kept(&rules::MODERN),
        None => sheet.broken(&rules::MODERN, refusal(facts, Probe::Discover, "server/discover")),
    }
    if has_legacy {
        sheet.kept(&rules::LEGACY);
    } else {
        sheet.broken(&rules::LEGACY, refusal(facts, Probe::Initialize(LEGACY[0]), "initialize"));
        hint(facts, sheet);
    }
    discover(facts, sheet);
    unknown_version(facts, sheet);
    negotiation(facts, sheet);
    let info = facts.introduction();
    let is_named = info.is_some_and(|info| info.name.is_some() && info.server_version.is_some());
    sheet.judge(&rules::SERVER_INFO, (!is_named).then(|| "no name, or no version, in serverInfo".to_owned()));
}

fn refusal(facts: &Facts, probe: Probe, what: &str) -> String {
    let words = facts.answer(probe).map_or("nothing".to_owned(), Exchange::words);
    format!("{what} got {words}")
}

fn discover(facts: &Facts, sheet: &mut Sheet) {
    if facts.modern.is_none() {
        return;
    }
    let Some(exchange) = facts.answer(Probe::Discover) else { return };
    let Some(result) = exchange.result() else {
        sheet.broken(&rules::DISCOVER, format!("server/discover got {}", exchange.words()));
        return;
    };
    let mut seen = Vec::new();
    let versions = result.get("supportedVersions").and_then(Value::as_array);
    if versions.is_none_or(|versions| versions.is_empty() || !versions.iter().all(Value::is_string)) {
        seen.push("supportedVersions is not an array of versions".to_owned());
    } else if !versions.is_some_and(|versions| versions.iter().any(|version| version == MODERN[0])) {
        seen.push(format!("supportedVersions lacks {}, which it was asked in and answered", MODERN[0]));
    }
    if !result.get("capabilities").is_some_and(Value::is_object) {
        seen.push("capabilities is not an object".to_owned());
    }
    if result.get("resultType").and_then(Value::as_str) != Some("complete") {
        seen.push("resultType is not \"complete\"".to_owned());
    }
    if !super::lists::is_ttl(result.get("ttlMs")) || !super::lists::is_scope(result.get("cacheScope")) {
        seen.push("ttlMs or cacheScope is missing or not valid".to_owned());
    }
    sheet.judge(&rules::DISCOVER, seen);
}

fn unknown_version(facts: &Facts, sheet: &mut Sheet) {
    let what = format!("version {NO_VERSION}");
    sheet.refused(
        facts,
        Probe::UnknownVersion,
        &rules::UNKNOWN_VERSION,
        &what,
        Refusal::new(&[400], &[-32022]),
    );
    let error = facts.answer(Probe::UnknownVersion).and_then(Exchange::error);
    if let Some(error) = error.filter(|error| error.code == -32022) {
        let supported = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
        let is_list = supported.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string));
        if !is_list {
            sheet.broken(&rules::UNKNOWN_VERSION, "the error has no data.supported");
        }
    }
}

/// A revision that is asked for is answered with itself or with another that the server has.
fn negotiation(facts: &Facts, sheet: &mut Sheet) {
    if facts.legacy.is_empty() {
        return;
    }
    let mut seen = Vec::new();
    let has = |version: &str| {
        facts.legacy.iter().any(|(asked, found)| *asked == version && found.version == version)
    };
    for (asked, found) in &facts.legacy {
        if found.version != *asked && LEGACY.contains(&found.version.as_str()) && !has(&found.version) {
            // It named a version which it did not keep to when it was asked for that.
            let was_asked = facts.legacy.iter().any(|(asked, _)| *asked == found.version);
            if was_asked {
                seen.push(format!("asked for {asked}, it names {}, which it does not speak", found.version));
            }
        }
        if !LEGACY.contains(&found.version.as_str()) && !MODERN.contains(&found.version.as_str()) {
            seen.push(format!(
                "asked for {asked}, it names {:?}, which there is not",
                clip(&found.version, 40)
            ));
        }
        if MODERN.contains(&found.version.as_str()) {
            seen.push(format!("asked for {asked}, it names {}, which has no initialize", found.version));
        }
    }
    if let Some(exchange) = facts.answer(Probe::InitializeUnknown) {
        match introduction::legacy(exchange) {
            Some(found) if found.version == NO_VERSION => {
                seen.push(format!("asked for {NO_VERSION}, it agrees, although there is no such version"));
            }
            Some(_) => {}
            None => seen.push(format!("asked for {NO_VERSION}, it gave {}", exchange.words())),
        }
    }
    sheet.judge(&rules::NEGOTIATION, seen);
}

/// Whether a server that knows no `initialize` says at least what it knows.
fn hint(facts: &Facts, sheet: &mut Sheet) {
    let Some(exchange) = facts.answer(Probe::Initialize(LEGACY[0])) else { return };
    let names_version = exchange.error().is_some_and(|error| {
        let data = error.data.as_ref().map(Value::to_string).unwrap_or_default();
        MODERN.iter().any(|version| error.message.contains(version) || data.contains(version))
    });
    sheet.judge(
        &rules::INITIALIZE_HINT,
        (!names_version).then(|| format!("initialize got {}, without a version", exchange.words())),
    );
}
