//! Which calls failed lately, and who calls: tables, and one kind of failed calls in full. Pure.

use status::{CallerStatus, FailedCalls, Status};

use super::listing::{count_cell, is_in, name, name_column, number, plain, text, words};
use super::palette::Look;
use super::table::{By, Column, Row, TableCell};
use super::text::StyledText;
use crate::admin_client::figures::{UNKNOWN, count, share, span};

pub(super) const ERRORS: &[Column] = &[
    text("OUTCOME", 9, 9, 2),
    name_column("CALL", 48),
    plain("REASON", 12, 26, 1),
    number("CALLS", 7, 3),
    plain("LAST", 8, 12, 4),
    plain("UPSTREAM", 8, 24, 5),
    plain("PRINCIPAL", 9, 28, 6),
    plain("ENDPOINT", 8, 28, 7),
    plain("METHOD", 10, 24, 8),
];

pub(super) const CALLERS: &[Column] = &[
    name_column("PRINCIPAL", 48),
    number("CALLS", 9, 0),
    number("ERRORS", 8, 2),
    number("ERR %", 7, 3),
    number("REFUSED", 8, 1),
];

/// The latest calls that did not succeed.
pub(super) fn errors(status: &Status, now_s: u64, filter: &str) -> Vec<Row> {
    let row = |error: &FailedCalls| {
        let look = match error.outcome.as_str() {
            "failed" => Look::Bad,
            "refused" => Look::Warning,
            _ => Look::Faint,
        };
        let cells = vec![
            (TableCell::Text(outcome(error).to_owned(), look), By::Text(error.outcome.clone())),
            name(called(error)),
            words(&error.reason),
            count_cell(Some(error.calls)),
            words(&format!("{} ago", span(now_s.saturating_sub(error.at_s)))),
            known(error.upstream.as_deref()),
            known(error.principal.as_deref()),
            known(error.endpoint.as_deref()),
            words(&error.method),
        ];
        Row { id: error_id(error), cells }
    };
    let fits = |error: &&FailedCalls| {
        let places = [&error.name, &error.upstream, &error.endpoint, &error.principal];
        let texts = places.into_iter().flatten().chain([&error.method, &error.reason]);
        texts.into_iter().any(|text| is_in(filter, text))
    };
    status.recent_errors.iter().filter(fits).map(row).collect()
}

/// Principals: those that call most, then those that are refused most.
pub(super) fn callers(status: &Status, filter: &str) -> Vec<Row> {
    let busiest = &status.callers.busiest;
    let is_new = |caller: &&CallerStatus| busiest.iter().all(|other| other.principal != caller.principal);
    let all = busiest.iter().chain(status.callers.most_refused.iter().filter(is_new));
    let row = |caller: &CallerStatus| {
        let principal = caller.principal.as_deref().unwrap_or("anonymous");
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let failing = (caller.calls > 0).then(|| caller.errors as f64 / caller.calls as f64);
        let cells = vec![
            name(principal),
            count_cell(Some(caller.calls)),
            count_cell(Some(caller.errors)),
            (TableCell::Text(share(failing), Look::Plain), By::Number(failing.unwrap_or(-1.0))),
            count_cell(Some(caller.refused)),
        ];
        Row { id: principal.to_owned(), cells }
    };
    all.map(row).filter(|row| is_in(filter, &row.id)).collect()
}

/// What stands for calls that failed alike.
pub(super) fn error_id(error: &FailedCalls) -> String {
    let FailedCalls { endpoint, upstream, method, name, reason, principal, .. } = error;
    format!("{endpoint:?} {upstream:?} {method} {name:?} {reason} {principal:?}")
}

/// What was called: a tool or the like, or only a method.
fn called(error: &FailedCalls) -> &str {
    error.name.as_deref().unwrap_or(&error.method)
}

fn outcome(error: &FailedCalls) -> &str {
    match error.outcome.as_str() {
        known @ ("failed" | "refused" | "cancelled") => known,
        _ => UNKNOWN,
    }
}

fn known(text: Option<&str>) -> (TableCell, By) {
    words(text.unwrap_or(UNKNOWN))
}

impl StyledText {
    /// Calls that failed alike.
    pub(super) fn failed_calls(&mut self, error: &FailedCalls, now_s: u64) {
        let ago = |at_s: u64| format!("{} ago", span(now_s.saturating_sub(at_s)));
        self.title(&format!("{} {}", outcome(error), called(error)));
        self.fact("reason", &error.reason);
        if let Some(message) = &error.message {
            self.fact("message", message);
        }
        self.fact("calls", &count(error.calls));
        self.fact("last", &ago(error.at_s));
        self.fact("first", &ago(error.first_s));
        self.fact("method", &error.method);
        for (label, text) in
            [("endpoint", &error.endpoint), ("upstream", &error.upstream), ("principal", &error.principal)]
        {
            self.fact(label, text.as_deref().unwrap_or(UNKNOWN));
        }
        self.fact("request id", &error.request_id);
        self.fact("", "docs/reference/errors.md says what each reason means.");
    }
}
