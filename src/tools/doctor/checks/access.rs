//! Who can reach the server, and what it tells those whom it does not let in.

use crate::doctor::challenge;
use crate::doctor::facts::{Answer, Facts, Probe, Reached};
use crate::doctor::rules::access as rules;
use crate::doctor::sheet::{Refusal, Sheet};

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    let Reached::Http { is_tls, is_loopback } = facts.reached else { return };
    if facts.exchanges.values().any(|exchange| exchange.status.is_some()) {
        let is_open = !is_tls && !is_loopback;
        sheet.judge(
            &rules::CLEAR_TEXT,
            is_open.then(|| "the URL begins with http:// and is not of this machine".to_owned()),
        );
    }
    let what = "a request with Origin: http://page.example";
    sheet.refused(facts, Probe::ForeignOrigin, &rules::ORIGIN, what, Refusal::new(&[], &[]));
    let what = "a request with Host: page.example";
    sheet.refused(facts, Probe::ForeignHost, &rules::HOST, what, Refusal::new(&[], &[]));
    door(facts, sheet);
    if let Some(exchange) = facts.answer(Probe::WithoutKey) {
        let is_open = matches!(exchange.answer, Answer::Result(_));
        sheet.judge(
            &rules::OPEN_WITHOUT_KEY,
            is_open.then(|| format!("a request without Authorization got {}", exchange.words())),
        );
    }
}

fn door(facts: &Facts, sheet: &mut Sheet) {
    let Some(door) = &facts.door else { return };
    let seen = match door.challenges.as_slice() {
        [] => Some("HTTP 401 without WWW-Authenticate".to_owned()),
        challenges if !challenges.iter().any(|challenge| challenge::is_bearer(challenge)) => {
            Some(format!("HTTP 401 with WWW-Authenticate: {}", challenges.join(", ")))
        }
        _ => None,
    };
    sheet.judge(&rules::CHALLENGE, seen);
    let Some(metadata) = &door.metadata else { return };
    let url = door.metadata_url.as_deref().unwrap_or_default();
    let fault = match metadata {
        Ok(metadata) => challenge::fault(metadata, facts.url.as_ref()),
        Err(why) => Some(why.clone()),
    };
    sheet.judge(&rules::METADATA, fault.map(|why| format!("{url}: {why}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::facts::{AccessFacts, Exchange};

    fn broken(facts: &Facts) -> Vec<&'static str> {
        let mut sheet = Sheet::default();
        check(facts, &mut sheet);
        sheet.outcomes.iter().filter(|outcome| !outcome.is_kept).map(|outcome| outcome.rule.id).collect()
    }

    #[test]
    fn doors_are_judged_by_what_they_say() {
        for (challenges, metadata, expected) in [
            (vec![], None, vec!["challenge"]),
            (vec!["Bearer"], None, vec![]),
            (vec!["Basic realm=x"], None, vec!["challenge"]),
            (vec!["Bearer"], Some(Err("got HTTP 404".to_owned())), vec!["resource-metadata"]),
            (vec!["Bearer"], Some(Ok(json!({}))), vec!["resource-metadata"]),
        ] {
            let door = AccessFacts {
                challenges: challenges.into_iter().map(str::to_owned).collect(),
                metadata,
                ..AccessFacts::default()
            };
            let facts = Facts {
                reached: Reached::Http { is_tls: true, is_loopback: false },
                door: Some(door),
                ..Facts::default()
            };
            assert_eq!(broken(&facts), expected);
        }
    }

    #[test]
    fn clear_text_matters_on_a_network_only() {
        for (is_tls, is_loopback, expected) in
            [(false, false, vec!["clear-text"]), (true, false, vec![]), (false, true, vec![])]
        {
            let mut facts = Facts { reached: Reached::Http { is_tls, is_loopback }, ..Facts::default() };
            let exchange = Exchange {
                status: Some(200),
                ..Exchange::failed(Answer::Nothing, std::time::Duration::ZERO)
            };
            facts.exchanges.insert(Probe::Discover, exchange);
            assert_eq!(broken(&facts), expected);
        }
    }
}
