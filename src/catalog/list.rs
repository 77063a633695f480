//! One list of an endpoint, merged from the lists of its upstreams.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use super::List;
use super::discover::SERVER_INFO;
use super::fetch::{Fetcher, Item, Page, Part};
use crate::mapper::kind_of;
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::json::quote;
use crate::protocol::mapping::Field;
use crate::route::Naming;
use crate::route::directory::Directory;
use crate::snapshot::{Endpoint, Snapshot};
use crate::telemetry::metrics::Metrics;

/// Upstreams asked at once for one list.
const CONCURRENT_MAX: usize = 32;

/// Longer public names are left out: model APIs refuse them (the specification allows up to 128 characters).
const NAME_CHARS_MAX: usize = 128;

/// The result object of a list, as JSON. Fails only if no upstream answered.
pub async fn merged(
    fetcher: Fetcher<'_>,
    snapshot: &Snapshot,
    endpoint: &Rc<Arc<Endpoint>>,
    list: List,
    metrics: &Metrics,
) -> Result<String, Error> {
    let upstreams: Vec<_> =
        endpoint.members.iter().filter_map(|member| snapshot.upstreams.get(*member)).collect();
    let asked = upstreams.iter().map(|upstream| fetcher.list(upstream, list));
    let parts: Vec<_> = stream::iter(asked).buffered(CONCURRENT_MAX).collect().await;
    for (upstream, part) in upstreams.iter().zip(&parts) {
        if let Err(error) = part {
            let upstream = &upstream.config.name;
            metrics.lists_partial.with_label_values(&[upstream]).inc();
            // Once a list would be too often for more than this; the metric and the learning of names warn.
            tracing::debug!(upstream, list = list.method().label(), %error, "list answered without this upstream");
        }
    }
    if parts.iter().all(Result::is_err) {
        let only = parts.into_iter().next().and_then(Result::err).filter(|_| upstreams.len() == 1);
        return Err(only.unwrap_or(UpstreamError::NoneReachable).into());
    }
    Ok(merge(&endpoint.naming, &endpoint.names.directory(), list, &parts))
}

/// Joins the parts in order. A part that failed makes the list partial, and so at once stale.
fn merge(
    naming: &Naming,
    directory: &Directory,
    list: List,
    parts: &[Result<Part, UpstreamError>],
) -> String {
    let bytes: usize = parts.iter().flatten().flat_map(|part| &part.pages).map(|page| page.body.len()).sum();
    let mut json = String::with_capacity(bytes + bytes / 8 + 256);
    json.push_str(r#"{"resultType":"complete",""#);
    json.push_str(list.field());
    json.push_str("\":[");
    let start = json.len();
    let mut seen = HashSet::new();
    for (member, part) in parts.iter().enumerate() {
        for page in part.iter().flat_map(|part| &part.pages) {
            for item in &page.items {
                let before = json.len();
                if before > start {
                    json.push(',');
                }
                if write_item((naming, directory), list, (member, page, item), &mut seen, &mut json).is_none()
                {
                    json.truncate(before);
                }
            }
        }
    }
    let ttl_ms = parts.iter().map(|part| part.as_ref().map_or(0, |part| part.ttl_ms)).min().unwrap_or(0);
    // Whose `public` to believe is the operator's to say; nobody was asked, so nothing is public.
    let rest = format!(r#"],"ttlMs":{ttl_ms},"cacheScope":"private","_meta":{SERVER_INFO}}}"#);
    json + &rest
}

/// Writes one entry with its public names. `None`: it is hidden, has no name, or its name is taken.
fn write_item(
    (naming, directory): (&Naming, &Directory),
    list: List,
    (member, page, item): (usize, &Page, &Item),
    seen: &mut HashSet<String>,
    json: &mut String,
) -> Option<()> {
    let mut at = item.span.start;
    let mut is_named = false;
    for site in &item.sites {
        let kind = kind_of(site.field);
        let inner = site.literal.decode(&page.body)?;
        // The entry's own name comes under policy; other URIs in it only change their spelling.
        let is_own = !is_named && site.field == own_field(list);
        let public =
            if is_own { naming.public(kind, member, &inner)? } else { naming.spell(kind, member, &inner) };
        if is_own {
            is_named = true;
            let is_short = public.chars().count() <= NAME_CHARS_MAX || site.field == Field::Uri;
            // What is listed must be what a call of that name reaches.
            let leads_back =
                list == List::Templates || naming.leads_back(kind, &public, (member, &inner), directory);
            if !leads_back || !is_short || !seen.insert(public.clone().into_owned()) {
                return None;
            }
        }
        if public != inner {
            json.push_str(std::str::from_utf8(page.body.get(at..site.literal.span.start)?).ok()?);
            json.push_str(&quote(&public));
            at = site.literal.span.end;
        }
    }
    json.push_str(std::str::from_utf8(page.body.get(at..item.span.end)?).ok()?);
    is_named.then_some(())
}

/// The field that an entry is called by.
fn own_field(list: List) -> Field {
    match list {
        List::Tools => Field::ToolName,
        List::Prompts => Field::PromptName,
        List::Resources | List::Templates => Field::Uri,
    }
}
