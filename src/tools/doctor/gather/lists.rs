//! Reading a list to its end, or as far as one can.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::transport::{Budget, ProbeTransport};
use crate::doctor::facts::{Answer, Facts, ListEnd, ListKind, ListPage, Listing, clip};
use crate::doctor::request::ProbeRequest;
use protocol::version::Era;

/// More pages than servers have, as a limit.
const PAGES_MAX: usize = 10;
/// Longer lists are not read a second time.
const PAGES_AGAIN_MAX: usize = 3;
/// What is kept of one list.
const ITEMS_MAX: usize = 20_000;
const BYTES_MAX: usize = 32 << 20;

/// How the server is spoken to.
#[derive(Clone, Debug)]
pub(super) enum Dialect {
    /// Every request stands for itself.
    Modern,
    /// In a session of this version.
    Legacy { version: String, session_id: Option<String> },
}

impl Dialect {
    /// A request.
    pub(super) fn ask(&self, id: impl Into<Value>, method: &str, params: Value) -> ProbeRequest {
        match self {
            Self::Modern => ProbeRequest::modern(id, method, params),
            Self::Legacy { version, session_id } => {
                ProbeRequest::legacy(id, method, params).in_session(version, session_id.as_deref())
            }
        }
    }

    pub(super) fn era(&self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy { .. } => Era::Legacy,
        }
    }
}

/// Reads a list. `session` tells lists of one session from those of another.
pub(super) async fn read(
    transport: &ProbeTransport<'_>,
    budget: &Budget,
    dialect: &Dialect,
    kind: ListKind,
    session: u8,
) -> Option<Listing> {
    let mut listing =
        Listing { kind, era: dialect.era(), session, pages: Vec::new(), end: ListEnd::Complete };
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let (mut items, mut bytes) = (0, 0);
    loop {
        let params = cursor.as_ref().map_or(json!({}), |cursor| json!({ "cursor": cursor }));
        let id = format!("{}-{}", kind.member(), listing.pages.len());
        let Some(exchange) = transport.ask(budget, &dialect.ask(id, kind.method(), params)).await else {
            // What was not read to its end is not judged as if it had none.
            return None;
        };
        bytes += exchange.bytes;
        let result = match exchange.answer {
            Answer::Result(result) => result,
            Answer::Error(error) => return Some(ended(listing, ListEnd::Refused(error))),
            _ => return Some(ended(listing, ListEnd::Failed(exchange.words()))),
        };
        let next = match page(&result, kind) {
            Ok((page, next)) => {
                items += page.items.len();
                listing.pages.push(page);
                next
            }
            Err(why) => return Some(ended(listing, ListEnd::Malformed(why))),
        };
        let Some(next) = next else { return Some(listing) };
        if !seen.insert(next.clone()) {
            return Some(ended(listing, ListEnd::Loop));
        }
        if listing.pages.len() >= PAGES_MAX || items > ITEMS_MAX || bytes > BYTES_MAX {
            return Some(ended(listing, ListEnd::TooLong));
        }
        cursor = Some(next);
    }
}

/// How often the tools are worth reading again: not at all if there are none, or more pages than the requests are
/// worth.
pub(super) fn again(facts: &Facts, times: usize) -> usize {
    let is_worth = |listing: &Listing| {
        listing.end == ListEnd::Complete
            && listing.pages.len() <= PAGES_AGAIN_MAX
            && listing.items().next().is_some()
    };
    if facts.listing(ListKind::Tools).is_some_and(is_worth) { times } else { 0 }
}

fn ended(mut listing: Listing, end: ListEnd) -> Listing {
    listing.end = end;
    listing
}

/// A page and the cursor of the next.
fn page(result: &Value, kind: ListKind) -> Result<(ListPage, Option<String>), String> {
    let member = kind.member();
    let items = match result.get(member) {
        Some(Value::Array(items)) => items.clone(),
        Some(other) => return Err(format!("{member} is not an array but {}", clip(&other.to_string(), 60))),
        None => return Err(format!("the result has no {member}")),
    };
    let next = match result.get("nextCursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) => Some(cursor.clone()),
        Some(other) => {
            return Err(format!("nextCursor is not a string but {}", clip(&other.to_string(), 60)));
        }
    };
    let page =
        ListPage { items, ttl_ms: result.get("ttlMs").cloned(), scope: result.get("cacheScope").cloned() };
    Ok((page, next))
}
