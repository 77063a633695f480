//! The pages below `/sign-in/`: a person's own sign-ins, which they can end.
//!
//! The person who looks at them has come back from the provider in this browser, a quarter of an hour ago at most.

use std::collections::HashMap;

use http::Method;
use identity::browser_cookies::BrowserCookie;
use identity::oauth_error::Answer;
use identity::pages::{
    CONSENT_PATH, END_ALL_PATH, END_PATH, FORM_FIELD, GRANT_FIELD, KnownBy, SIGN_INS_PATH, SIGN_OUT_PATH,
    SignInRow, SignInsPage, SignedOutPage, Trouble, sign_ins, signed_out,
};
use identity::sealed::account::AccountRecord;
use identity::sealed::cookies::{PAGE_LIFE_S, PageCookie, VisitPurpose};
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::form::{PageForm, place};
use identity::sealed::grant::GrantRecord;
use identity::uri::Uri;
use tokens::sealing::hex;

use super::desk::{SignInDesk, SignInRequest};
use super::reply::{not_allowed, page, page_of, redirect, with_cookies};
use super::visit::CALLBACK_PATH;
use crate::access::auth::sign_in::settings::SignIn;
use crate::clock::now_s;
use crate::grants::GrantsError;
use crate::telemetry::logs::time::to_the_minute;

/// A person whose page is open in this browser.
struct OpenPage {
    person: PageCookie,
    /// The value of the cookie, which forms are bound to.
    cookie: String,
}

impl SignInDesk {
    pub(super) async fn pages(&self, request: &SignInRequest) -> Answer {
        let is_get = request.method == Method::GET;
        let is_post = request.method == Method::POST;
        match &*request.path {
            CALLBACK_PATH if is_get => self.callback(request).await,
            CONSENT_PATH if is_post => self.consent(request).await,
            SIGN_INS_PATH if is_get => self.own_sign_ins(0, request).await,
            END_PATH | END_ALL_PATH | SIGN_OUT_PATH if is_post => self.end_own(request).await,
            CALLBACK_PATH | SIGN_INS_PATH => not_allowed("GET"),
            CONSENT_PATH | END_PATH | END_ALL_PATH | SIGN_OUT_PATH => not_allowed("POST"),
            _ => page_of(&Trouble::NoSuchPage, &request.id),
        }
    }

    /// Somebody has come back from the provider to see their sign-ins.
    pub(super) fn open_page(&self, account: &AccountRecord, request: &SignInRequest) -> Answer {
        let person = PageCookie {
            principal: account.principal.clone(),
            name: account.name.clone(),
            expires_s: now_s().saturating_add(PAGE_LIFE_S),
        };
        let sealed =
            SignIn::nonce().and_then(|nonce| self.settings.seals.seal(nonce, self.issuer(), &person));
        let Some(sealed) = sealed else { return page_of(&Trouble::StoreAway, &request.id) };
        tracing::info!(target: "audit", client = %request.client, principal = account.principal, "sees their sign-ins");
        let cookie = self.settings.cookies.set(BrowserCookie::Page, &sealed, PAGE_LIFE_S);
        with_cookies(redirect(format!("{}{SIGN_INS_PATH}", self.issuer())), [cookie])
    }

    async fn own_sign_ins(&self, ended: usize, request: &SignInRequest) -> Answer {
        let Some(open) = self.open_page_of(request) else {
            return match self.metadata_of_provider().await {
                Ok(metadata) => match self.begin_visit(&metadata, VisitPurpose::SignIns, None, request) {
                    Some(visit) => with_cookies(redirect(visit.url), visit.cookies),
                    None => page_of(&Trouble::StoreAway, &request.id),
                },
                Err(fault) => self.provider_page(&fault, request),
            };
        };
        match self.grants_of(&open.person.principal).await {
            Ok(grants) => self.list(&open, &grants, ended, request),
            Err(fault) => self.store_page(&fault, request),
        }
    }

    fn list(&self, open: &OpenPage, grants: &[GrantRecord], ended: usize, request: &SignInRequest) -> Answer {
        let form = PageForm {
            principal: open.person.principal.clone(),
            expires_s: now_s().saturating_add(PAGE_LIFE_S),
        };
        let place = place(self.issuer(), &open.cookie);
        let sealed = SignIn::nonce().and_then(|nonce| self.settings.seals.seal(nonce, &place, &form));
        let Some(sealed) = sealed else { return page_of(&Trouble::StoreAway, &request.id) };
        let hosts: HashMap<&str, String> =
            grants.iter().filter_map(|grant| Some((&*grant.client_id, host_of(grant)?))).collect();
        let texts: Vec<(String, String, String)> = grants
            .iter()
            .map(|grant| (to_the_minute(grant.opened_s), to_the_minute(grant.used_s), hex(&grant.id.0)))
            .collect();
        let rows: Vec<SignInRow<'_>> = grants
            .iter()
            .zip(&texts)
            .map(|(grant, (since, last_used, id))| SignInRow {
                client: &grant.client_name,
                known_by: match hosts.get(&*grant.client_id) {
                    Some(host) => KnownBy::Host(host),
                    None if self.settings.known_client(&grant.client_id).is_some() => KnownBy::Configuration,
                    None => KnownBy::Nothing,
                },
                endpoint: &grant.endpoint,
                since,
                last_used,
                grant: id,
            })
            .collect();
        page(&sign_ins(&SignInsPage { person: &open.person.name, rows: &rows, form: &sealed, ended }))
    }

    async fn end_own(&self, request: &SignInRequest) -> Answer {
        let parameters = match self.form_of(request) {
            Ok(parameters) => parameters,
            Err(answer) => return answer,
        };
        let Some(open) = self.open_page_of(request) else {
            return redirect(format!("{}{SIGN_INS_PATH}", self.issuer()));
        };
        let place = place(self.issuer(), &open.cookie);
        let form = parameters.get(FORM_FIELD).unwrap_or_default();
        let form = self.settings.seals.open::<PageForm>(form, &place, now_s());
        if !form.is_ok_and(|form| form.principal == open.person.principal) {
            self.refused(request, "form", "the form is of another browser or person, or too old");
            return page_of(&Trouble::OtherBrowser, &request.id);
        }
        let forget = || [self.settings.cookies.end(BrowserCookie::Page)];
        if request.path == SIGN_OUT_PATH {
            return with_cookies(page(&signed_out(SignedOutPage::Here)), forget());
        }
        let grants = match self.grants_of(&open.person.principal).await {
            Ok(grants) => grants,
            Err(fault) => return self.store_page(&fault, request),
        };
        let named = parameters.get(GRANT_FIELD);
        let all = request.path == END_ALL_PATH;
        let chosen: Vec<GrantId> =
            grants.iter().map(|grant| grant.id).filter(|id| all || named == Some(&hex(&id.0))).collect();
        let ended = match grants.first() {
            Some(grant) => self.grants.end_all(grant.account, &chosen).await,
            None => Ok(Vec::new()),
        };
        let ended = match ended {
            Ok(ended) => ended.len(),
            Err(fault) => return self.store_page(&fault, request),
        };
        self.series.ended.with_label_values(&["person"]).inc_by(ended as u64);
        tracing::info!(target: "audit", client = %request.client, principal = open.person.principal, ended, "sign-ins ended by their person");
        if all {
            return with_cookies(page(&signed_out(SignedOutPage::Everywhere)), forget());
        }
        self.own_sign_ins(ended, request).await
    }

    /// The person whose page is open in this browser.
    fn open_page_of(&self, request: &SignInRequest) -> Option<OpenPage> {
        let cookie =
            self.settings.cookies.find(BrowserCookie::Page, request.cookies.iter().map(Vec::as_slice))?;
        let person = self.settings.seals.open(cookie, self.issuer(), now_s()).ok()?;
        Some(OpenPage { person, cookie: cookie.to_owned() })
    }

    /// The grants of a principal that were used, the newest first.
    async fn grants_of(&self, principal: &str) -> Result<Vec<GrantRecord>, GrantsError> {
        let issuer = &self.settings.issuer.config.issuer;
        let Some(subject) = principal.split_once(' ').map(|(_, subject)| subject) else {
            return Ok(Vec::new());
        };
        let Some(held) = self.grants.account(Fingerprint::of(&[issuer, subject])).await? else {
            return Ok(Vec::new());
        };
        let mut grants = self.grants.of_account(&held.value).await?;
        grants.retain(|grant| grant.generation > 0 && grant.principal == principal);
        grants.reverse();
        Ok(grants)
    }
}

/// The host of the document of a grant's client.
fn host_of(grant: &GrantRecord) -> Option<String> {
    let uri = Uri::read(&grant.client_id).ok().filter(Uri::is_web)?;
    uri.host.map(str::to_ascii_lowercase)
}
