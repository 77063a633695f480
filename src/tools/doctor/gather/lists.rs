//! Reading a list to its end, or as far as one can.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Inspection;
use super::spoken_era::SpokenEra;
use super::transport::ProbeTransport;
use crate::doctor::facts::{Answer, ListEnd, ListKind, ListPage, Listing, clip};

/// More pages than servers have, as a limit.
const PAGES_MAX: usize = 10;
/// Longer lists are not read a second time.
const PAGES_AGAIN_MAX: usize = 3;
/// What is kept of one list.
const ITEMS_MAX: usize = 20_000;
const BYTES_MAX: usize = 32 << 20;

impl Inspection<'_> {
    /// Reads a list. `session` tells lists of one session from those of another.
    pub(super) async fn read_list(
        &mut self,
        transport: &mut impl ProbeTransport,
        dialect: &SpokenEra,
        kind: ListKind,
        session: u8,
    ) {
        let mut listing =
            Listing { kind, era: dialect.era(), session, pages: Vec::new(), end: ListEnd::Complete };
        // What was not read to its end is not judged as if it had none.
        if let Some(end) = self.read_pages(transport, dialect, &mut listing).await {
            listing.end = end;
            self.facts.listings.push(listing);
        }
    }

    /// Reads the tools again, so many times, if they are worth it: not if there are none, or more pages than the requests
    /// are worth.
    pub(super) async fn read_tools_again(
        &mut self,
        transport: &mut impl ProbeTransport,
        dialect: &SpokenEra,
        session: u8,
        times: usize,
    ) {
        let is_worth = |listing: &Listing| {
            listing.end == ListEnd::Complete
                && listing.pages.len() <= PAGES_AGAIN_MAX
                && listing.items().next().is_some()
        };
        if self.facts.listing(ListKind::Tools).is_some_and(is_worth) {
            for _ in 0..times {
                self.read_list(transport, dialect, ListKind::Tools, session).await;
            }
        }
    }

    /// How the list ended; `None` if no more may be asked.
    async fn read_pages(
        &mut self,
        transport: &mut impl ProbeTransport,
        dialect: &SpokenEra,
        listing: &mut Listing,
    ) -> Option<ListEnd> {
        let kind = listing.kind;
        let mut params = json!({});
        let mut seen = HashSet::new();
        let (mut items, mut bytes) = (0, 0);
        loop {
            let id = format!("{}-{}", kind.member(), listing.pages.len());
            let exchange = self.ask(transport, &dialect.ask(id, kind.method(), params)).await?;
            bytes += exchange.bytes;
            let result = match exchange.answer {
                Answer::Result(result) => result,
                Answer::Error(error) => return Some(ListEnd::Refused(error)),
                _ => return Some(ListEnd::Failed(exchange.words())),
            };
            let (page, next) = match page(&result, kind) {
                Ok(page) => page,
                Err(why) => return Some(ListEnd::Malformed(why)),
            };
            items += page.items.len();
            listing.pages.push(page);
            let Some(cursor) = next else { return Some(ListEnd::Complete) };
            params = json!({ "cursor": cursor });
            if !seen.insert(cursor) {
                return Some(ListEnd::Loop);
            }
            if listing.pages.len() >= PAGES_MAX || items > ITEMS_MAX || bytes > BYTES_MAX {
                return Some(ListEnd::TooLong);
            }
        }
    }
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
