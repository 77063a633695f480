//! Asking the provider again: whether a person still may, and in which groups they are now.
//!
//! It is asked for each account, not for each grant: at a refresh, and off the line when a token is used whose account was last
//! checked long ago. One gateway asks at a time, since a refresh token of the provider may be good once.
//!
//! Invariants: only what the provider says of its refresh token, or a `require` that fails, ends anything; who loses a race
//! overwrites nothing; a refresh token that was given is stored before anything else happens.

use std::time::Duration;

use identity::sealed::access_token::{AccessToken, KnownOfPrincipal};
use identity::sealed::account::{AccountRecord, CheckDue};
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::grant::GrantRecord;
use tokens::sealing::hex;
use tokio::time::sleep;

use super::desk::SignInDesk;
use super::person::{ExpectedPerson, PersonFault};
use crate::access::auth::sign_in::faults::ProviderFault;
use crate::access::auth::sign_in::settings::SignIn;
use crate::clock::now_s;
use crate::grants::{Grants, GrantsError, Held, Written};

/// The time for which one gateway has the right to ask about an account: longer than its requests, and all tries to store what
/// came of them, may take.
const TURN_LIFE_S: u64 = 120;
/// So often somebody else may have changed the account while the provider answered.
const ATTEMPTS_MAX: usize = 8;
/// Tries to store what the provider said, and the pause between two: within the turn.
const KEEP_TRIES_MAX: u32 = 30;
const KEEP_PAUSE: Duration = Duration::from_secs(1);

/// An account, after the check that was due.
#[derive(Debug)]
pub(super) enum CheckedAccount {
    Good(Box<Held<AccountRecord>>),
    /// The provider has not answered for too long.
    Overdue,
    /// Its grants have ended.
    Gone,
}

/// The facts that are known of the principal of a token now, where the token itself says too little for the rules of now. `None`: the
/// sign-in has ended.
pub(crate) async fn known_of(
    settings: &SignIn,
    grants: &Grants,
    token: &AccessToken,
) -> Result<Option<KnownOfPrincipal>, GrantsError> {
    let Some(grant) = grants.grant(token.grant).await? else { return Ok(None) };
    let Some(account) = grants.account(grant.value.account).await? else { return Ok(None) };
    let is_of_provider = account.value.issuer == settings.issuer.config.issuer;
    let names_it = account.value.grants.contains(&token.grant);
    if !is_of_provider || !names_it || account.value.principal != token.principal {
        return Ok(None);
    }
    // A reload asks for more than the person has.
    if settings.require.unmet(&account.value.claims).is_some() {
        return Ok(None);
    }
    let scopes = settings.scopes.grant(&scopes_of(token, &grant.value), &account.value.groups).granted;
    Ok(Some(known(settings, &account.value, scopes)))
}

/// The scopes of a token: a refresh may have asked for fewer than were granted.
fn scopes_of(token: &AccessToken, grant: &GrantRecord) -> Vec<String> {
    match &token.known {
        Some(known) => known.scopes.clone(),
        None => grant.scopes.clone(),
    }
}

/// The facts of an account that a token says.
pub(super) fn known(settings: &SignIn, account: &AccountRecord, scopes: Vec<String>) -> KnownOfPrincipal {
    let named = &settings.named;
    let is_group_named = |group: &str| named.has_group(group);
    account.known(scopes, is_group_named, |claim| named.has_claim(claim), named.fingerprint())
}

/// A token was used: its account is asked about if that is due, off the line.
pub(crate) fn note_use(desk: SignInDesk, grant: GrantId) {
    let Some(under_way) = desk.settings.memory.begin_check(Fingerprint::of(&[&hex(&grant.0)])) else {
        return;
    };
    let tasks = desk.fetcher.tasks.clone();
    tasks.spawn(async move {
        let checked = desk.check_grant(grant).await;
        if let Err(error) = checked {
            tracing::debug!(%error, "an account cannot be checked now");
        }
        drop(under_way);
    });
}

impl SignInDesk {
    async fn check_grant(&self, grant: GrantId) -> Result<(), GrantsError> {
        let Some(held) = self.grants.grant(grant).await? else { return Ok(()) };
        if let Some(account) = self.grants.account(held.value.account).await? {
            self.check_account(account, false).await?;
        }
        Ok(())
    }

    /// Asks the provider about an account if that is due, or cannot wait.
    pub(super) async fn check_account(
        &self,
        account: Held<AccountRecord>,
        is_forced: bool,
    ) -> Result<CheckedAccount, GrantsError> {
        // A token of one issuer goes to no other, and what one says is not believed of the other's people.
        if account.value.issuer != self.settings.issuer.config.issuer {
            return Ok(CheckedAccount::Gone);
        }
        match self.due(&account.value) {
            CheckDue::No if is_forced => {}
            CheckDue::No | CheckDue::Never => return Ok(CheckedAccount::Good(Box::new(account))),
            CheckDue::Yes | CheckDue::Overdue => {}
        }
        let name = account.value.fingerprint();
        let Some(turn) = self.grants.take_turn(name, TURN_LIFE_S).await? else {
            // Another asks just now; meanwhile all goes on by the last answer, where that is enough.
            if is_forced {
                return Err(GrantsError::Contended(account.value.principal));
            }
            return Ok(match self.due(&account.value) {
                CheckDue::Overdue => CheckedAccount::Overdue,
                _ => CheckedAccount::Good(Box::new(account)),
            });
        };
        let checked = self.check_in_turn(name, is_forced).await;
        self.grants.end_turn(turn).await;
        checked
    }

    async fn check_in_turn(&self, name: Fingerprint, is_forced: bool) -> Result<CheckedAccount, GrantsError> {
        // Another may have asked while the turn was waited for.
        let Some(account) = self.grants.account(name).await? else { return Ok(CheckedAccount::Gone) };
        let is_forced = is_forced && self.settings.require.unmet(&account.value.claims).is_some();
        let token = match (self.due(&account.value), &account.value.refresh_token) {
            (CheckDue::Yes | CheckDue::Overdue, Some(token)) => token.clone(),
            (CheckDue::No, Some(token)) if is_forced => token.clone(),
            _ => return Ok(CheckedAccount::Good(Box::new(account))),
        };
        let asked = self.ask_again(&account.value, &token).await;
        match asked {
            Ok(found) => self.keep(&account, &found).await,
            Err(PersonFault::Requirement { claim, .. }) => {
                self.end_account(&account.value, "require", &format!("{claim} does not hold any more")).await
            }
            Err(PersonFault::Provider(ProviderFault::Ended(said))) => {
                // A sign-in meanwhile has brought another token: then that one counts.
                match self.grants.account(name).await? {
                    Some(now) if !is_token(&now.value, token.expose()) => {
                        Ok(CheckedAccount::Good(Box::new(now)))
                    }
                    _ => self.end_account(&account.value, "provider", &said).await,
                }
            }
            Err(PersonFault::Provider(fault)) => self.note_unanswered(account, &fault).await,
        }
    }

    async fn ask_again(
        &self,
        account: &AccountRecord,
        token: &identity::presented::Presented,
    ) -> Result<AccountRecord, PersonFault> {
        let metadata = self.metadata_of_provider().await?;
        let tokens = self.refresh(&metadata, token).await?;
        let expected = ExpectedPerson { nonce: None, before: Some(account) };
        match self.person_of(&metadata, &tokens, expected).await {
            // The old token may be spent: the new one is kept although nothing else of the answer is believed.
            Err(PersonFault::Provider(fault)) if tokens.refresh_token.is_some() => {
                let kept = AccountRecord {
                    refresh_token: tokens.refresh_token.clone(),
                    unanswered_since_s: account.unanswered_since_s.or(Some(now_s())),
                    ..account.clone()
                };
                self.note_provider_fault(&fault);
                tracing::warn!(error = %fault, principal = account.principal, "the provider's answer about an account is not used");
                Ok(kept)
            }
            found => found,
        }
    }

    /// Stores what the provider said, with the grants that stand there by then.
    async fn keep(
        &self,
        asked: &Held<AccountRecord>,
        found: &AccountRecord,
    ) -> Result<CheckedAccount, GrantsError> {
        let is_believed = found.unanswered_since_s.is_none();
        self.series.checks.with_label_values(&[if is_believed { "ok" } else { "error" }]).inc();
        if is_believed {
            self.grants.note_provider_answer();
        }
        let mut tries = 0;
        loop {
            // A token that was given is not given again: a store that is away for a moment must not lose it.
            match self.try_to_keep(asked, found).await {
                Err(error) if tries < KEEP_TRIES_MAX => {
                    tries += 1;
                    tracing::warn!(%error, "the provider's answer is not stored yet");
                    sleep(KEEP_PAUSE).await;
                }
                kept => return kept,
            }
        }
    }

    /// An earlier try may have stored it, though its answer got lost, or have failed at what follows: that is done in any case.
    async fn try_to_keep(
        &self,
        asked: &Held<AccountRecord>,
        found: &AccountRecord,
    ) -> Result<CheckedAccount, GrantsError> {
        let mut held = asked.clone();
        for _ in 0..ATTEMPTS_MAX {
            let next = AccountRecord { grants: held.value.grants.clone(), ..found.clone() };
            let written = self.grants.replace_account(&held, &next).await?;
            let Some(now) = self.grants.account(found.fingerprint()).await? else {
                return Ok(CheckedAccount::Gone);
            };
            // Some of its grants have ended. Anything else is as new as this, or newer: a sign-in has brought other tokens.
            if written == Written::Late && is_as_asked(&now.value, &asked.value) {
                held = now;
                continue;
            }
            if self.names_of(&asked.value) != self.names_of(found) {
                self.grants.note_change(&now.value).await?;
                tracing::info!(target: "audit", principal = found.principal, "groups or claims changed");
            }
            return Ok(match self.due(&now.value) {
                CheckDue::Overdue => CheckedAccount::Overdue,
                _ => CheckedAccount::Good(Box::new(now)),
            });
        }
        Err(GrantsError::Contended(found.principal.clone()))
    }

    /// Remembers since when the provider does not answer.
    async fn note_unanswered(
        &self,
        mut account: Held<AccountRecord>,
        fault: &ProviderFault,
    ) -> Result<CheckedAccount, GrantsError> {
        self.series.checks.with_label_values(&["error"]).inc();
        self.note_provider_fault(fault);
        tracing::warn!(error = %fault, principal = account.value.principal, "the provider cannot be asked about an account");
        if account.value.unanswered_since_s.is_none() {
            let next = AccountRecord { unanswered_since_s: Some(now_s()), ..account.value.clone() };
            // Another writer was faster, and knows more.
            if self.grants.replace_account(&account, &next).await? == Written::Done {
                account.value = next;
            }
            account = match self.grants.account(account.value.fingerprint()).await? {
                Some(now) => now,
                None => return Ok(CheckedAccount::Gone),
            };
        }
        Ok(match self.due(&account.value) {
            CheckDue::Overdue => CheckedAccount::Overdue,
            _ => CheckedAccount::Good(Box::new(account)),
        })
    }

    /// Ends the grants of an account as it was when the provider was asked about it.
    async fn end_account(
        &self,
        account: &AccountRecord,
        kind: &'static str,
        why: &str,
    ) -> Result<CheckedAccount, GrantsError> {
        let name = account.fingerprint();
        let ended = self.grants.end_all(name, &account.grants).await?;
        self.series.checks.with_label_values(&["ended"]).inc();
        self.grants.note_provider_answer();
        tracing::info!(target: "audit", principal = account.principal, kind, why, grants = ended.len(), "sign-ins ended");
        // A sign-in meanwhile was judged by itself, and goes on.
        let left = self.grants.account(name).await?;
        Ok(left.map_or(CheckedAccount::Gone, |left| CheckedAccount::Good(Box::new(left))))
    }

    fn due(&self, account: &AccountRecord) -> CheckDue {
        let config = &self.settings.config;
        account.check_due(now_s(), config.recheck_interval.as_secs(), config.provider_patience.as_secs())
    }

    /// The facts of a person that rules name.
    pub(super) fn names_of(&self, account: &AccountRecord) -> KnownOfPrincipal {
        known(&self.settings, account, Vec::new())
    }
}

/// True while the account says what it said when the provider was asked about it.
fn is_as_asked(now: &AccountRecord, asked: &AccountRecord) -> bool {
    let spent = asked.refresh_token.as_ref();
    now.checked_s == asked.checked_s && spent.is_some_and(|spent| is_token(now, spent.expose()))
}

fn is_token(account: &AccountRecord, token: &str) -> bool {
    account.refresh_token.as_ref().is_some_and(|now| now.is(token))
}

#[cfg(test)]
mod tests {
    use identity::presented::Presented;

    use super::*;

    fn account(token: &str, checked_s: u64) -> AccountRecord {
        AccountRecord {
            issuer: "https://login.example.com".into(),
            subject: "ann".into(),
            principal: "jwt:https://login.example.com ann".into(),
            name: "Ann".into(),
            groups: vec![],
            claims: vec![],
            refresh_token: Some(Presented::new(token)),
            checked_s,
            unanswered_since_s: None,
            grants: vec![GrantId([1; 16])],
        }
    }

    #[test]
    fn an_answer_overwrites_what_was_asked_about_alone() {
        let asked = account("given once for good", 5);
        let is_overwritten = |now: &AccountRecord| is_as_asked(now, &asked);
        let ended = AccountRecord { grants: vec![], ..asked.clone() };
        let unanswered = AccountRecord { unanswered_since_s: Some(7), ..asked.clone() };
        assert!(is_overwritten(&asked) && is_overwritten(&ended) && is_overwritten(&unanswered));
        // A sign-in at a provider that gives no other token, and at one that does.
        assert!(!is_overwritten(&account("given once for good", 6)) && !is_overwritten(&account("next", 5)));
        let without = AccountRecord { refresh_token: None, ..asked.clone() };
        assert!(!is_overwritten(&without));
    }
}
