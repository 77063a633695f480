//! `/token`: a code is used once, a refresh token has one successor.
//!
//! Invariants: what is opened and whose it is, and that its grant goes on, is judged before anything is fetched or stored for a
//! client; the next state is stored before the client sees a token; who loses a race judges anew, and gets what the winner got.

use identity::client::{ClientFault, check_url};
use identity::client_auth::ShownClient;
use identity::oauth_error::{Answer, ErrorCode, Fault, OAuthError};
use identity::parameters::Parameters;
use identity::scope;
use identity::sealed::access_token::AccessToken;
use identity::sealed::account::AccountRecord;
use identity::sealed::authorization_code::AuthorizationCode;
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::grant::GrantRecord;
use identity::sealed::news::News;
use identity::sealed::refresh_token::RefreshToken;
use identity::sealed::{OpenFault, Sealable};
use identity::server_metadata::TOKEN_PATH;
use identity::token_request::{self, TokenRequest, Use, check_code, unanswered, use_code, use_refresh_token};
use identity::uri::Uri;
use zeroize::Zeroizing;

use super::account_check::{CheckedAccount, known};
use super::desk::{SignInDesk, SignInRequest};
use crate::access::auth::sign_in::settings::SignIn;
use crate::clock::now_s;
use crate::grants::{GrantsError, Held, Written};

/// So often somebody else may have used the same grant meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// The code or token that a request shows, opened.
enum ShownGrant {
    Code(AuthorizationCode),
    Refresh(RefreshToken),
}

impl ShownGrant {
    fn grant(&self) -> GrantId {
        match self {
            Self::Code(code) => code.grant,
            Self::Refresh(token) => token.grant,
        }
    }
}

impl From<GrantsError> for OAuthError {
    fn from(_: GrantsError) -> Self {
        let why = "the gateway cannot reach the place where it keeps sign-ins: try again later, the sign-in goes on";
        Self::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Gateway).retry_after(5)
    }
}

impl SignInDesk {
    pub(super) async fn token(&self, request: &SignInRequest) -> Answer {
        let mut has_tried_basic = false;
        match self.tokens_for(request, &mut has_tried_basic).await {
            Ok(answer) => answer,
            Err(error) => {
                self.series.token_errors.with_label_values(&[error.code.word()]).inc();
                self.refused(request, "token", &error.to_string());
                error.answer(has_tried_basic)
            }
        }
    }

    async fn tokens_for(
        &self,
        request: &SignInRequest,
        has_tried_basic: &mut bool,
    ) -> Result<Answer, OAuthError> {
        let parameters = Parameters::of_form(request.content_type.as_deref(), &request.body)?;
        let shown = ShownClient::read(request.authorization.as_deref(), &parameters)?;
        *has_tried_basic = shown.has_tried_basic();
        let asked = TokenRequest::read(&parameters)?;
        // One that is unknown here registers anew if it hears that first. Nothing is fetched for it.
        if Uri::read(&shown.id).is_ok_and(|uri| uri.is_web()) {
            check_url(&shown.id).map_err(ClientFault::from)?;
        } else {
            self.find_client(Some(&shown.id), request.client).await.map_err(OAuthError::from)?;
        }
        let opened = self.opened(&asked, &shown).await?;
        if self.grants.grant(opened.grant()).await?.is_none() {
            return Err(ended());
        }
        self.prove(&shown, TOKEN_PATH, request).await?;
        match (&asked, &opened) {
            (TokenRequest::Code { redirect_uri, verifier, resource, .. }, ShownGrant::Code(code)) => {
                let use_it = |record: Option<&GrantRecord>| match check_code(
                    code,
                    &shown.id,
                    redirect_uri.as_deref(),
                    verifier,
                ) {
                    Ok(checked) => use_code(checked, record, resource.as_deref(), now_s()),
                    Err(error) => Use::Refuse(error),
                };
                self.go_on(code.grant, use_it, None).await
            }
            (TokenRequest::Refresh { scope, resource, .. }, ShownGrant::Refresh(token)) => {
                let reuse_s = self.settings.config.refresh_reuse.as_secs();
                let use_it = |record: Option<&GrantRecord>| {
                    use_refresh_token(token, record, &shown.id, resource.as_deref(), now_s(), reuse_s)
                };
                self.go_on(token.grant, use_it, scope.as_deref()).await
            }
            _ => Err(OAuthError::new(ErrorCode::ServerError, "the request was read in two ways")),
        }
    }

    /// Opens the code or refresh token, and sees whose it is: before a document of the client is fetched.
    async fn opened(&self, asked: &TokenRequest, shown: &ShownClient) -> Result<ShownGrant, OAuthError> {
        let of_another = || OAuthError::new(ErrorCode::InvalidGrant, "it is of another client");
        match asked {
            TokenRequest::Code { code, .. } => {
                let code: AuthorizationCode = self.open(code.expose()).await?;
                if code.client.is_of(&[&shown.id]) { Ok(ShownGrant::Code(code)) } else { Err(of_another()) }
            }
            TokenRequest::Refresh { token, .. } => {
                let token: RefreshToken = self.open(token.expose()).await?;
                if token.client.is_of(&[&shown.id]) {
                    Ok(ShownGrant::Refresh(token))
                } else {
                    Err(of_another())
                }
            }
        }
    }

    async fn open<S: Sealable>(&self, text: &str) -> Result<S, OAuthError> {
        let seals = &self.settings.seals;
        let why = match seals.open(text, self.issuer(), now_s()) {
            Ok(opened) => return Ok(opened),
            Err(OpenFault::Expired) => "its time is over",
            Err(OpenFault::Unknown) => {
                self.grants.unless_elsewhere(seals.unknown_key(S::KIND, text)).await?;
                "it was not issued here, or its key is gone"
            }
        };
        Err(OAuthError::new(ErrorCode::InvalidGrant, why))
    }

    /// Checks that the client is the one it names. An assertion counts once.
    pub(super) async fn prove(
        &self,
        shown: &ShownClient,
        path: &str,
        request: &SignInRequest,
    ) -> Result<(), OAuthError> {
        let found = self.find_client(Some(&shown.id), request.client).await.map_err(OAuthError::from)?;
        let is_signed = self.is_signed_by(&found.client, shown, request.client).await?;
        let url = format!("{}{path}", self.issuer());
        let audiences = [self.issuer(), &url];
        let used = shown.check(&found.client, &self.settings.seals, &audiences, now_s(), |_| is_signed)?;
        if let Some(used) = used {
            let what = ["assertion", &shown.id, &used.jti];
            if !self.grants.is_first_use(&what, used.until_s).await? {
                return Err(OAuthError::new(ErrorCode::InvalidClient, "the assertion was used before"));
            }
        }
        Ok(())
    }

    /// Uses a grant by the record that stands there, until nobody else has changed it meanwhile.
    async fn go_on(
        &self,
        grant: GrantId,
        use_it: impl Fn(Option<&GrantRecord>) -> Use,
        scope: Option<&str>,
    ) -> Result<Answer, OAuthError> {
        for _ in 0..ATTEMPTS_MAX {
            // Before the account is read: what changes it meanwhile is news to this token.
            let now_s = now_s();
            let held = self.grants.grant(grant).await?;
            // A store that was set back must not revive it.
            if self.grants.news.of(grant) == Some(News::Ended) {
                self.grants.end(grant).await?;
                return Err(ended());
            }
            let (next, is_again) = match use_it(held.as_ref().map(|held| &held.value)) {
                Use::Refuse(error) => return Err(error),
                Use::End(error) => {
                    if self.grants.end(grant).await?.is_some() {
                        self.series.ended.with_label_values(&["reuse"]).inc();
                        tracing::info!(target: "audit", grant = ?grant, why = %error, "sign-in ended");
                    }
                    return Err(error);
                }
                Use::Next(next) => (Some(next), false),
                Use::Again => (held.as_ref().map(|held| held.value.clone()), true),
            };
            let (Some(held), Some(next)) = (held, next) else { continue };
            let account = self.account_for(&held.value).await?;
            // Until its code was used, a grant was short-lived.
            let idle_max_s = self.settings.config.grant_idle_max.as_secs();
            let next = GrantRecord { idle_max_s, ..next };
            let scopes = scope::narrowed(scope, &next.scopes)?;
            let scopes = self.settings.scopes.grant(&scopes, &account.groups).granted;
            let answer = self.issue(&next, &account, &scopes, now_s)?;
            if is_again || self.is_written(&held, &next).await? {
                let kind = if is_again { "again" } else { "next" };
                self.series.tokens.with_label_values(&[kind]).inc();
                return Ok(answer);
            }
        }
        let why = "the sign-in is used by too many at once: try again";
        Err(OAuthError::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Client).retry_after(1))
    }

    /// True if the next state of a grant was written. The answer of a store may get lost after it has done so.
    async fn is_written(&self, held: &Held<GrantRecord>, next: &GrantRecord) -> Result<bool, GrantsError> {
        match self.grants.replace_grant(held, next).await {
            Ok(written) => Ok(written == Written::Done),
            Err(error) => match self.grants.grant(next.id).await? {
                Some(now) if now.value == *next => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// The account of a grant, asked about if that is due.
    async fn account_for(&self, grant: &GrantRecord) -> Result<AccountRecord, OAuthError> {
        let account = self.grants.account(grant.account).await?.ok_or_else(ended)?;
        let account = unless_missing(account, grant)?;
        // A reload may ask for more than the provider said at the last check: then it is asked again.
        let is_forced = self.settings.require.unmet(&account.value.claims).is_some();
        let account = match self.check_account(account, is_forced).await? {
            CheckedAccount::Good(account) => account.value,
            CheckedAccount::Overdue => return Err(unanswered()),
            CheckedAccount::Gone => return Err(ended()),
        };
        match self.settings.require.unmet(&account.claims) {
            None => Ok(account),
            // The provider was asked in vain, so nothing ends.
            Some(_) if account.unanswered_since_s.is_some() => Err(unanswered()),
            Some(_) => Err(ended()),
        }
    }

    /// The answer with an access token, and with the refresh token of the generation that stands in `grant`.
    fn issue(
        &self,
        grant: &GrantRecord,
        account: &AccountRecord,
        scopes: &[String],
        now_s: u64,
    ) -> Result<Answer, OAuthError> {
        let failed = || OAuthError::new(ErrorCode::ServerError, "the gateway cannot make a token");
        let life_s = self.settings.config.access_token_lifetime.as_secs();
        let client = Fingerprint::of(&[&grant.client_id]);
        let access = AccessToken {
            grant: grant.id,
            endpoint: Fingerprint::of(&[&grant.endpoint]),
            client,
            principal: grant.principal.clone(),
            issued_s: now_s,
            expires_s: now_s.saturating_add(life_s).min(grant.ends_s),
            known: Some(known(&self.settings, account, scopes.to_vec())),
        };
        let refresh =
            RefreshToken { grant: grant.id, generation: grant.generation, client, expires_s: grant.ends_s };
        let expires_in_s = access.expires_in_s(now_s);
        let nonce = || SignIn::nonce().ok_or_else(failed);
        let seals = &self.settings.seals;
        let access = access.issue(seals, nonce()?, self.issuer()).map(Zeroizing::new).ok_or_else(failed)?;
        let refresh = seals.seal(nonce()?, self.issuer(), &refresh).map(Zeroizing::new).ok_or_else(failed)?;
        Ok(token_request::answer(&access, expires_in_s, &refresh, scopes))
    }
}

/// An account that does not name a grant has lost it.
fn unless_missing(
    account: Held<AccountRecord>,
    grant: &GrantRecord,
) -> Result<Held<AccountRecord>, OAuthError> {
    if account.value.grants.contains(&grant.id) && account.value.principal == grant.principal {
        return Ok(account);
    }
    Err(ended())
}

fn ended() -> OAuthError {
    OAuthError::new(ErrorCode::InvalidGrant, "the sign-in has ended")
}
