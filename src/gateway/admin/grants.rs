//! Sign-ins for operators: a page of all, the end of those that are chosen, and a copy of their store.
//!
//! Invariant: nothing of a token, and nothing that is sealed, is told.

use bytes::Bytes;
use http::StatusCode;
use identity::sealed::account::AccountRecord;
use identity::sealed::fingerprint::GrantId;
use identity::sealed::grant::GrantRecord;
use serde::Deserialize;
use status::{EndedGrants, GrantStatus, GrantsBackUp, GrantsPage};
use tokens::sealing::hex;

use super::answers::json_line;
use super::answers::{HttpAnswer, TEXT, page};
use crate::context::audit;
use crate::context::state::State;
use crate::grants::standing::BackUpError;
use crate::grants::{AccountsPage, Grants, GrantsError};

const JSON: &str = "application/json";
/// Accounts of one page.
const ACCOUNTS_MAX: usize = 200;
const NONE: &str = "there is no [sign_in]\n";

/// The sign-ins that are to end: all conditions hold. One has to be there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Chosen {
    /// The name of one.
    id: Option<String>,
    /// A subject, or the id of a principal.
    user: Option<String>,
    /// The id of a client, or its name.
    client: Option<String>,
    /// The public URL of an endpoint.
    endpoint: Option<String>,
    /// All of them.
    all: bool,
}

/// A page of sign-ins, behind the place that the query names.
pub(super) async fn list(state: &State, query: &str) -> HttpAnswer {
    let Some(grants) = state.grants.load_full() else { return page(StatusCode::NOT_FOUND, TEXT, NONE) };
    let after = query.strip_prefix("after=").filter(|after| !after.is_empty());
    match grants.accounts(after, ACCOUNTS_MAX).await {
        // A list that leaves somebody out would be taken for whole.
        Ok(AccountsPage { fault: Some(fault), .. }) => failed(&fault),
        Ok(found) => {
            let rows = found.accounts.iter();
            let rows = rows.flat_map(|(account, grants)| grants.iter().map(|grant| row(account, grant)));
            let told = GrantsPage { grants: rows.collect(), next: found.next };
            page(StatusCode::OK, JSON, json_line(&told))
        }
        Err(error) => failed(&error),
    }
}

/// Ends the sign-ins that `body` chooses.
pub(super) async fn revoke(state: &State, body: &Bytes) -> HttpAnswer {
    let Some(grants) = state.grants.load_full() else { return page(StatusCode::NOT_FOUND, TEXT, NONE) };
    let chosen = match serde_json::from_slice::<Chosen>(body) {
        Ok(chosen) if chosen.says_something() => chosen,
        Ok(_) => {
            return page(StatusCode::BAD_REQUEST, TEXT, "say which: id, user, client, endpoint, or all\n");
        }
        Err(error) => return page(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
    };
    let (ended, fault) = end_chosen(&grants, &chosen).await;
    state.metrics.sign_in.ended.with_label_values(&["operator"]).inc_by(ended);
    audit::act("end sign-ins by the admin listener", &format!("{ended} ended: {chosen:?}"));
    match fault {
        None => page(StatusCode::OK, JSON, json_line(&EndedGrants { ended })),
        Some(fault) => {
            let told = format!("{ended} ended, and there may be more that have not: {fault}\n");
            page(StatusCode::SERVICE_UNAVAILABLE, TEXT, told)
        }
    }
}

/// Ends all that are chosen, behind those that cannot be ended as well. Their number, and the fault of one that goes on.
async fn end_chosen(grants: &Grants, chosen: &Chosen) -> (u64, Option<GrantsError>) {
    let (mut after, mut ended, mut fault) = (None, 0, None);
    loop {
        let found = match grants.accounts(after.as_deref(), ACCOUNTS_MAX).await {
            Ok(found) => found,
            Err(error) => return (ended, Some(error)),
        };
        fault = found.fault.or(fault);
        for (account, of_account) in &found.accounts {
            let of_chosen = of_account.iter().filter(|grant| chosen.holds(account, grant));
            let ids: Vec<GrantId> = of_chosen.map(|grant| grant.id).collect();
            match grants.end_all(account.fingerprint(), &ids).await {
                Ok(done) => ended += done.len() as u64,
                Err(error) => fault = Some(error),
            }
        }
        after = found.next;
        if after.is_none() {
            return (ended, fault);
        }
    }
}

/// The copy that is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedBackUp {
    /// The name of a file that is not there yet, in the state directory.
    file: String,
}

/// Copies the store of this moment to the file that `body` names.
pub(super) async fn back_up(state: &State, body: &Bytes) -> HttpAnswer {
    let Some(grants) = state.grants.load_full() else { return page(StatusCode::NOT_FOUND, TEXT, NONE) };
    let wanted = match serde_json::from_slice::<WantedBackUp>(body) {
        Ok(wanted) => wanted,
        Err(error) => return page(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n")),
    };
    match grants.back_up(&wanted.file).await {
        Ok(done) => {
            let told = GrantsBackUp { file: done.path.display().to_string(), bytes: done.bytes };
            audit::act(
                "back up sign-ins by the admin listener",
                &format!("{}, {} bytes", told.file, told.bytes),
            );
            page(StatusCode::OK, JSON, json_line(&told))
        }
        Err(error @ (BackUpError::InRedis | BackUpError::Name)) => {
            page(StatusCode::BAD_REQUEST, TEXT, format!("{error}\n"))
        }
        Err(error) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n")),
    }
}

impl Chosen {
    fn says_something(&self) -> bool {
        let conditions = [&self.id, &self.user, &self.client, &self.endpoint];
        self.all || conditions.iter().any(|condition| condition.is_some())
    }

    fn holds(&self, account: &AccountRecord, grant: &GrantRecord) -> bool {
        let is = |wanted: &Option<String>, names: &[&str]| {
            wanted.as_ref().is_none_or(|wanted| names.contains(&wanted.as_str()))
        };
        is(&self.id, &[&hex(&grant.id.0)])
            && is(&self.user, &[&account.subject, &account.principal])
            && is(&self.client, &[&grant.client_id, &grant.client_name])
            && is(&self.endpoint, &[&grant.endpoint])
    }
}

fn row(account: &AccountRecord, grant: &GrantRecord) -> GrantStatus {
    GrantStatus {
        id: hex(&grant.id.0),
        principal: account.principal.clone(),
        user: account.subject.clone(),
        name: account.name.clone(),
        client_id: grant.client_id.clone(),
        client_name: grant.client_name.clone(),
        endpoint: grant.endpoint.clone(),
        scopes: grant.scopes.clone(),
        opened_s: grant.opened_s,
        used_s: grant.used_s,
        ends_s: grant.over_s(),
        checked_s: account.checked_s,
        unanswered_since_s: account.unanswered_since_s,
    }
}

fn failed(error: &GrantsError) -> HttpAnswer {
    page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{error}\n"))
}
