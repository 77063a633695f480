//! The lists: their form, their order, how long they may be kept, and what they cost.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::doctor::facts::{Facts, ListEnd, ListKind, ListPage, Listing, Reached, clip};
use crate::doctor::measured::Measured;
use crate::doctor::rules::lists as rules;
use crate::doctor::sheet::Sheet;
use protocol::text::first_names;
use protocol::version::Era;

/// Tokens of a list that are worth a word. A model's context has 200 000 and more; a host has several
/// servers.
const TOKENS_MAX: usize = 10_000;
/// Pages of a list that are worth a word: each is a round trip before anything can be done.
const PAGES_MAX: usize = 5;
/// Tools, too: models choose worse among more.
const TOOLS_MAX: usize = 100;
const NOT_FOUND: i64 = -32601;
/// Of what is listed, members that may be absent.
const NEVER_NULL: [&str; 8] =
    ["title", "description", "outputSchema", "annotations", "arguments", "mimeType", "icons", "_meta"];

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    if facts.listings.is_empty() {
        return;
    }
    served(facts, sheet);
    let mut form = Vec::new();
    let (mut endless, mut many) = (Vec::new(), Vec::new());
    let mut duplicates = Vec::new();
    for kind in ListKind::ALL {
        let Some(listing) = facts.listing(kind) else { continue };
        form.extend(malformed(listing));
        endless.extend(unending(listing));
        many.extend(long(listing));
        duplicates.extend(twice(listing));
    }
    sheet.judge(&rules::LIST_FORM, form);
    sheet.judge(&rules::ENDLESS, endless);
    sheet.judge(&rules::PAGES, many);
    sheet.judge(&rules::DUPLICATES, duplicates);
    caching(facts, sheet);
    stability(facts, sheet);
    size(facts, sheet);
}

pub(super) fn is_ttl(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_u64)
}

pub(super) fn is_scope(value: Option<&Value>) -> bool {
    matches!(value.and_then(Value::as_str), Some("public" | "private"))
}

fn served(facts: &Facts, sheet: &mut Sheet) {
    let Some(introduction) = facts.introduction() else { return };
    let (mut broken, mut hidden) = (Vec::new(), Vec::new());
    for kind in ListKind::ALL {
        let Some(listing) = facts.listing(kind) else { continue };
        let is_declared = introduction.capabilities.get(kind.capability()).is_some();
        match (&listing.end, is_declared) {
            // Templates have no capability of their own; servers without any may not know the method.
            (ListEnd::Refused(error), true) if kind == ListKind::Templates && error.code == NOT_FOUND => {}
            (ListEnd::Refused(error), true) => {
                broken.push(format!("{} got error {}", kind.method(), error.code));
            }
            (ListEnd::Failed(why), true) => broken.push(format!("{}: {why}", kind.method())),
            (_, false) if listing.items().next().is_some() => {
                hidden.push(format!("{} has {} entries", kind.method(), listing.items().count()));
            }
            _ => {}
        }
    }
    sheet.judge(&rules::SERVED, broken);
    sheet.judge(&rules::UNDECLARED, hidden);
}

fn malformed(listing: &Listing) -> Vec<String> {
    let method = listing.kind.method();
    let mut seen = Vec::new();
    if let ListEnd::Malformed(why) = &listing.end {
        seen.push(format!("{method}: {why}"));
    }
    for (number, item) in listing.items().enumerate() {
        let key = listing.kind.key();
        let fault = match (item.is_object(), item.get(key).and_then(Value::as_str), item.get("name")) {
            (false, ..) => "is not an object".to_owned(),
            (_, None, _) => format!("has no {key}"),
            (_, Some(""), _) => format!("has an empty {key}"),
            (_, _, None | Some(Value::Null)) => "has no name".to_owned(),
            // Clients that check what they get take what is absent for absent, and null for a fault.
            _ => match NEVER_NULL.iter().find(|key| item.get(**key) == Some(&Value::Null)) {
                Some(key) => format!("has {key} null, which must be absent or have a value"),
                None => continue,
            },
        };
        seen.push(format!("{method}: entry {} {fault}", number + 1));
    }
    seen
}

fn unending(listing: &Listing) -> Option<String> {
    let method = listing.kind.method();
    match listing.end {
        ListEnd::Loop => Some(format!("{method} gives a cursor of before on page {}", listing.pages.len())),
        ListEnd::TooLong if brings_nothing_new(listing) => Some(format!(
            "{method} goes on after {} pages, although the last has nothing that was not there before",
            listing.pages.len()
        )),
        _ => None,
    }
}

fn brings_nothing_new(listing: &Listing) -> bool {
    let Some((last, earlier)) = listing.pages.split_last() else { return false };
    let key = |item: &Value| item.get(listing.kind.key()).and_then(Value::as_str).map(str::to_owned);
    let known: HashSet<_> = earlier.iter().flat_map(|page| &page.items).map(key).collect();
    last.items.iter().all(|item| known.contains(&key(item)))
}

fn long(listing: &Listing) -> Option<String> {
    let pages = listing.pages.len();
    let more = if listing.end == ListEnd::TooLong { "more than " } else { "" };
    let is_long = pages > PAGES_MAX || listing.end == ListEnd::TooLong;
    let entries = listing.items().count();
    (is_long && !brings_nothing_new(listing)).then(|| {
        format!(
            "{} has {more}{pages} pages of about {} entries",
            listing.kind.method(),
            entries / pages.max(1)
        )
    })
}

fn twice(listing: &Listing) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for key in listing.items().filter_map(|item| item.get(listing.kind.key())?.as_str()) {
        *counts.entry(key).or_default() += 1;
    }
    // A list that turns in circles repeats what is on it.
    if listing.end == ListEnd::Loop || (listing.end == ListEnd::TooLong && brings_nothing_new(listing)) {
        return Vec::new();
    }
    let twice = counts.into_iter().filter(|(_, count)| *count > 1);
    twice.map(|(key, count)| format!("{} {} times", clip(key, 100), count)).collect()
}

fn caching(facts: &Facts, sheet: &mut Sheet) {
    let listings: Vec<_> = ListKind::ALL
        .into_iter()
        .filter_map(|kind| facts.listing(kind))
        .filter(|listing| listing.era == Era::Modern && !listing.pages.is_empty())
        .collect();
    if listings.is_empty() {
        return;
    }
    let (mut missing, mut never, mut scopes) = (Vec::new(), Vec::new(), Vec::new());
    for listing in listings {
        let method = listing.kind.method();
        missing.extend(listing.pages.iter().find_map(hint_fault).map(|fault| format!("{method}: {fault}")));
        let has_items = listing.items().next().is_some();
        if has_items
            && listing.pages.iter().all(|page| page.ttl_ms.as_ref().and_then(Value::as_u64) == Some(0))
        {
            never.push(format!("{method} has ttlMs 0"));
        }
        if listing.pages.iter().any(|page| page.scope != listing.pages[0].scope) {
            scopes.push(format!("{method}, on {} pages", listing.pages.len()));
        }
    }
    sheet.judge(&rules::CACHE_HINTS, missing);
    sheet.judge(&rules::CACHE_NEVER, never);
    sheet.judge(&rules::CACHE_SCOPES, scopes);
}

fn hint_fault(page: &ListPage) -> Option<String> {
    let text = |value: &Option<Value>| value.as_ref().map(|value| clip(&value.to_string(), 40));
    let mut faults = Vec::new();
    if !is_ttl(page.ttl_ms.as_ref()) {
        faults.push(text(&page.ttl_ms).map_or("no ttlMs".to_owned(), |text| format!("ttlMs is {text}")));
    }
    if !is_scope(page.scope.as_ref()) {
        faults.push(
            text(&page.scope).map_or("no cacheScope".to_owned(), |text| format!("cacheScope is {text}")),
        );
    }
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// Several readings of the list of tools against the first of the same era.
fn stability(facts: &Facts, sheet: &mut Sheet) {
    let whole = |listing: &&Listing| listing.kind == ListKind::Tools && listing.end == ListEnd::Complete;
    let readings: Vec<_> = facts.listings.iter().filter(whole).collect();
    let (mut order, mut varies, mut definitions, mut eras) = (vec![], vec![], vec![], vec![]);
    let (mut is_compared, mut is_across) = (false, false);
    for (at, reading) in readings.iter().enumerate() {
        let Some(first) = readings[..at].iter().find(|first| first.era == reading.era) else {
            if at > 0 {
                is_across = true;
                eras.extend(difference(readings[0], reading));
            }
            continue;
        };
        is_compared = true;
        let place = match facts.reached {
            _ if reading.session == first.session => "read again",
            Reached::Program => "read in another process",
            Reached::Http { .. } => "read in another session",
        };
        definitions.extend(redefined(first, reading).map(|redefined| format!("{place}: {redefined}")));
        if let Some(difference) = difference(first, reading) {
            varies.push(format!("{place}: {difference}"));
        } else if let Some(difference) = reordered(first, reading) {
            order.push(format!("{place}: {difference}"));
        }
    }
    if let [before, after] = &facts.called.listings[..] {
        is_compared = true;
        varies.extend(difference(before, after).map(|difference| format!("after the call: {difference}")));
    }
    if is_compared {
        sheet.judge(&rules::VARIES, varies);
        sheet.judge(&rules::ORDER, order);
        sheet.judge(&rules::DEFINITIONS, definitions);
    }
    if is_across {
        sheet.judge(&rules::ERAS, eras);
    }
}

/// Which names only one of two readings has.
fn difference(first: &Listing, second: &Listing) -> Option<String> {
    let names = |listing: &Listing| -> HashSet<String> {
        listing.items().filter_map(|item| item.get("name")?.as_str()).map(str::to_owned).collect()
    };
    let (first, second) = (names(first), names(second));
    let shown = |names: &HashSet<String>, others: &HashSet<String>| {
        let mut only: Vec<_> = names.difference(others).map(|name| clip(name, 60)).collect();
        only.sort();
        (!only.is_empty()).then(|| first_names(&only, 5))
    };
    match (shown(&first, &second), shown(&second, &first)) {
        (None, None) => None,
        (Some(lost), None) => Some(format!("without {lost}")),
        (None, Some(new)) => Some(format!("with {new} in addition")),
        (Some(lost), Some(new)) => Some(format!("with {new} in place of {lost}")),
    }
}

/// Where two readings with the same names have them, or the members of one, in another order.
fn reordered(first: &Listing, second: &Listing) -> Option<String> {
    for (at, (a, b)) in first.items().zip(second.items()).enumerate() {
        if name(a) != name(b) {
            return Some(format!("entry {} is {} instead of {}", at + 1, name(b), name(a)));
        }
        // Members in another order are equal values and other bytes.
        let (text_of_a, text_of_b) = (a.to_string(), b.to_string());
        if a == b && text_of_a != text_of_b {
            return Some(format!("{} has its members in another order", name(a)));
        }
    }
    None
}

/// The first tool that both readings have and define differently, and the member that differs.
fn redefined(first: &Listing, second: &Listing) -> Option<String> {
    let known: HashMap<String, &Value> = first.items().map(|item| (name(item), item)).collect();
    second.items().find_map(|item| {
        let before = known.get(&name(item)).filter(|before| **before != item)?;
        Some(format!("{} differs in {}", name(item), clip(&place(before, item), 200)))
    })
}

fn name(item: &Value) -> String {
    clip(item.get("name").and_then(Value::as_str).unwrap_or_default(), 60)
}

/// The first member that differs between two values.
fn place(a: &Value, b: &Value) -> String {
    let below = |key: &str, (a, b): (&Value, &Value)| match place(a, b) {
        rest if rest.is_empty() || rest.starts_with('[') => format!("{key}{rest}"),
        rest => format!("{key}.{rest}"),
    };
    let nothing = &Value::Null;
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys = one.keys().chain(other.keys());
            let differing = keys.find(|key| one.get(*key) != other.get(*key));
            let values = |key: &String| (one.get(key).unwrap_or(nothing), other.get(key).unwrap_or(nothing));
            differing.map_or_else(String::new, |key| below(key, values(key)))
        }
        (Value::Array(one), Value::Array(other)) => {
            let values = |at: usize| (one.get(at).unwrap_or(nothing), other.get(at).unwrap_or(nothing));
            let differing = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at));
            differing.map_or_else(String::new, |at| below(&format!("[{at}]"), values(at)))
        }
        _ => String::new(),
    }
}

fn size(facts: &Facts, sheet: &mut Sheet) {
    let measured = Measured::of(facts);
    if facts.listing(ListKind::Tools).is_none_or(|listing| listing.pages.is_empty()) {
        return;
    }
    let mut seen = Vec::new();
    if measured.tools_tokens > TOKENS_MAX {
        let mut largest: Vec<_> =
            facts.tools().map(|tool| (crate::doctor::tokens::of_tool(tool), tool)).collect();
        largest.sort_by_key(|(tokens, _)| std::cmp::Reverse(*tokens));
        seen.push(format!("{} tools take about {} tokens", measured.tools, measured.tools_tokens));
        seen.extend(
            largest
                .into_iter()
                .take(5)
                .map(|(tokens, tool)| format!("{}: about {tokens}", super::tools::name(tool))),
        );
    } else if measured.tools > TOOLS_MAX {
        seen.push(format!("there are {} tools", measured.tools));
    }
    sheet.judge(&rules::LIST_SIZE, seen);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use client::{Introduction, RpcError};

    fn listing(era: Era, session: u8, pages: &[Value], end: ListEnd) -> Listing {
        let pages = pages.iter().map(|page| ListPage {
            items: page["tools"].as_array().cloned().unwrap_or_default(),
            ttl_ms: page.get("ttlMs").cloned(),
            scope: page.get("cacheScope").cloned(),
        });
        Listing { kind: ListKind::Tools, era, session, pages: pages.collect(), end }
    }

    fn broken(listings: Vec<Listing>) -> Vec<&'static str> {
        let introduction =
            Introduction::read(Era::Modern, "2026-07-28", json!({"capabilities": {"tools": {}}}));
        let facts = Facts { modern: Some(introduction), listings, ..Facts::default() };
        let mut sheet = Sheet::default();
        check(&facts, &mut sheet);
        sheet.outcomes.iter().filter(|outcome| !outcome.is_kept).map(|outcome| outcome.rule.id).collect()
    }

    fn page(names: &[&str]) -> Value {
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect();
        json!({"tools": tools, "ttlMs": 5, "cacheScope": "public"})
    }

    #[test]
    fn one_list_is_judged_by_its_pages() {
        let refused =
            ListEnd::Refused(RpcError { code: -32603, message: String::new(), data: None, status: None });
        for (pages, end, expected) in [
            (vec![page(&["a", "b"])], ListEnd::Complete, vec![]),
            (vec![page(&["a"]), page(&["a"])], ListEnd::Complete, vec!["duplicates"]),
            (vec![page(&["a"]), page(&["a"])], ListEnd::Loop, vec!["endless-list"]),
            (vec![page(&["a"]), page(&["b"])], ListEnd::TooLong, vec!["many-pages"]),
            (vec![page(&["a"]), page(&["b"]), page(&["a"])], ListEnd::TooLong, vec!["endless-list"]),
            (vec![page(&["a"]), page(&[])], ListEnd::TooLong, vec!["endless-list"]),
            (vec![], refused, vec!["capabilities"]),
            (vec![], ListEnd::Malformed("no tools".into()), vec!["list-form"]),
            (
                vec![json!({"tools": [7, {"name": ""}, {}], "ttlMs": 1, "cacheScope": "public"})],
                ListEnd::Complete,
                vec!["list-form"],
            ),
            (
                vec![json!({"tools": [], "ttlMs": -1, "cacheScope": "public"})],
                ListEnd::Complete,
                vec!["cache-hints"],
            ),
            (
                vec![json!({"tools": [], "ttlMs": 1.5, "cacheScope": "all"})],
                ListEnd::Complete,
                vec!["cache-hints"],
            ),
            (
                vec![json!({"tools": [{"name": "a"}], "ttlMs": 0, "cacheScope": "private"})],
                ListEnd::Complete,
                vec!["cache-never"],
            ),
            (
                vec![page(&["a"]), json!({"tools": [], "ttlMs": 1, "cacheScope": "private"})],
                ListEnd::Complete,
                vec!["cache-scopes"],
            ),
        ] {
            assert_eq!(
                broken(vec![listing(Era::Modern, 0, &pages, end.clone())]),
                expected,
                "{pages:?} {end:?}"
            );
        }
    }

    #[test]
    fn readings_are_compared_with_the_first_of_their_era() {
        let first = || listing(Era::Modern, 0, &[page(&["a", "b"])], ListEnd::Complete);
        let other = |era, session, names: &[&str]| listing(era, session, &[page(names)], ListEnd::Complete);
        for (second, expected) in [
            (other(Era::Modern, 0, &["a", "b"]), vec![]),
            (other(Era::Modern, 0, &["b", "a"]), vec!["order"]),
            (other(Era::Modern, 0, &["a"]), vec!["varying-list"]),
            (other(Era::Modern, 2, &["a", "b", "c"]), vec!["varying-list"]),
            (other(Era::Legacy, 1, &["a", "b"]), vec![]),
            (other(Era::Legacy, 1, &["a"]), vec!["eras-differ"]),
            (listing(Era::Modern, 0, &[page(&["x"])], ListEnd::TooLong), vec![]),
        ] {
            let what = format!("{second:?}");
            assert_eq!(broken(vec![first(), second]), expected, "{what}");
        }
        let mut turned = first();
        turned.pages[0].items[0] = json!({"inputSchema": {}, "name": "a"});
        assert_eq!(broken(vec![first(), turned]), ["order"]);
        let mut other = first();
        other.pages[0].items[1]["inputSchema"] = json!({"properties": {"n": {"default": 7}}});
        assert_eq!(broken(vec![first(), other]), ["varying-definitions"]);
    }
}
