//! Problems of sign-in: each with its cause and what it is to people.

use super::advice::Advice;
use crate::gateway::Status;
use crate::problem::{Problem, error, warning};

/// Records that are this share of all that may be, in percent, get a warning.
const RECORDS_WARNING_PERCENT: u64 = 90;

pub(super) fn of_sign_in(status: &Status, advice: &Advice<'_>, found: &mut Vec<Problem>) {
    let Some(sign_in) = &status.sign_in else { return };
    let subject = "sign-in store";
    if let Some(fault) = &sign_in.store_fault {
        let what = format!(
            "{}; nobody can sign in or renew, tokens that clients have are good to their end",
            fault.reason
        );
        let problem = error(subject, what).since(Some(fault.since_s)).word("store");
        let log = advice.log_lines("-1h", "store of sign-ins|cannot be kept");
        found.push(problem.advice_if(log).runbook("TrunklineSignInStoreFailing"));
    }
    if let Some(fault) = &sign_in.room_fault {
        let what = format!("{}; nobody new can sign in, who is signed in goes on", fault.reason);
        let problem = error(subject, what).since(Some(fault.since_s)).word("full");
        found.push(problem.runbook("TrunklineSignInStoreFull"));
    } else if let Some(store) = sign_in.store.as_ref().filter(|store| store.records_max > 0)
        && store.records.saturating_mul(100) / store.records_max >= RECORDS_WARNING_PERCENT
    {
        let what =
            format!("has {} of {} records; then nobody new can sign in", store.records, store.records_max);
        found.push(warning(subject, what).word("full").runbook("TrunklineSignInStoreFull"));
    }
    for fault in &sign_in.redis_faults {
        found.push(warning(subject, fault).word("redis"));
    }
    if let Some(fault) = &sign_in.provider_fault {
        let what = format!(
            "{}; nobody can sign in, clients get new tokens for as long as `provider_patience`",
            fault.reason
        );
        let problem = error("sign-in provider", what).since(Some(fault.since_s)).word("provider");
        let log = advice.log_lines("-1h", "the provider|sign-in refused");
        found.push(problem.advice_if(log).runbook("TrunklineSignInProviderFailing"));
    }
}
