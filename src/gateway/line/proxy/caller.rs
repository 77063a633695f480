//! Who calls: the credentials of a request, checked before its body is awaited.

use std::rc::Rc;

use super::Proxy;
use super::context::RequestContext;
use crate::access::auth::authenticator::{AuthError, Authenticated, Proviso};
use crate::access::auth::caller_cache::{CachedCaller, digest};
use crate::access::caller::Caller;
use crate::clock::{self, now_s};
use crate::context::call::Call;
use crate::context::peer::Peer;
use crate::identity::Principal;
use crate::identity::refusal::CredentialFault;
use crate::sign_in;
use crate::snapshot::Endpoint;
use identity::sealed::access_token::AccessToken;
use protocol::error::{Error, GatewayError, PolicyError};
use protocol::head::{Head, HeaderField};

impl Proxy {
    /// Finds out who calls at the endpoint of this index, or why it is refused.
    pub(super) async fn authenticate(&self, cx: &mut RequestContext<'_>, index: usize) -> Result<(), Error> {
        let RequestContext { view, endpoint, head, call, .. } = cx;
        if endpoint.auth.is_open() {
            call.caller = Some(Rc::clone(&view.anonymous[index]));
            return Ok(());
        }
        let is_presented = endpoint.auth.goes_by(head.authorization);
        let credential = match head.authorization {
            HeaderField::One(value) if is_presented => Some(value.as_bytes()),
            _ => None,
        };
        // What is no credential at all must not pass for the certificate.
        let is_known_kind = credential.is_some() || !is_presented;
        let remembered = &call.peer().remembered;
        let found = remembered.find(endpoint.id, credential, call.started).filter(|_| is_known_kind);
        let caller = match found {
            Some(caller) => caller,
            None => Box::pin(self.check(endpoint, head, credential, call)).await?,
        };
        call.caller = Some(caller);
        Ok(())
    }

    /// Checks what this connection has not presented before.
    async fn check(
        &self,
        endpoint: &Endpoint,
        head: &Head<'_>,
        credential: Option<&[u8]>,
        call: &Call,
    ) -> Result<Rc<Caller>, Error> {
        let digest = credential.map(digest);
        if let Some(digest) = digest
            && let Some(known) = self.worker.callers.borrow_mut().find(endpoint.id, digest, call.started)
        {
            call.peer().remembered.keep(Rc::clone(&known));
            return Ok(Rc::clone(&known.caller));
        }
        let Authenticated { principal, proviso, ends_s } = self.identify(endpoint, head, call).await?;
        self.note_use(proviso.as_ref());
        require_scopes(endpoint, &principal)?;
        let ends = ends_s.and_then(clock::moment_of);
        let class = endpoint.policy.class_of(&principal);
        let counts = self.worker.state.callers.of(&principal);
        let grant = match &proviso {
            Some(Proviso::Grant(in_force)) => Some(in_force.clone()),
            _ => None,
        };
        let caller = Rc::new(Caller { grant, ..Caller::new(principal, class, ends, counts) });
        let known = Rc::new(CachedCaller {
            endpoint: endpoint.id,
            credential: credential.map(Box::from),
            caller: Rc::clone(&caller),
            proviso,
        });
        if let Some(digest) = digest {
            self.worker.callers.borrow_mut().keep(digest, Rc::clone(&known));
        }
        call.peer().remembered.keep(known);
        Ok(caller)
    }

    async fn identify(
        &self,
        endpoint: &Endpoint,
        head: &Head<'_>,
        call: &Call,
    ) -> Result<Authenticated, Error> {
        let peer = call.peer();
        let servers = &self.worker.state.tls;
        let check = || endpoint.auth.check(head.authorization, peer.certificate(servers), now_s());
        let mut checked = check();
        if let Err(AuthError::AskIssuer(issuer)) = &checked {
            issuer.ask().await;
            checked = check();
        }
        if let Err(AuthError::AskAccount(token)) = checked {
            checked = self.ask_account(endpoint, &token).await?;
        }
        let refusal = match checked {
            Ok(checked) => return Ok(checked),
            Err(AuthError::Missing) => return Err(PolicyError::NoCredentials.into()),
            Err(AuthError::AskIssuer(issuer)) if !issuer.has_keys() => {
                return Err(GatewayError::TokenKeys.into());
            }
            Err(AuthError::AskIssuer(_)) => CredentialFault::UnknownKey,
            Err(AuthError::AskAccount(_)) => CredentialFault::SignInEnded,
            Err(AuthError::Wrong(refusal)) => refusal,
        };
        let refused = self.refuse_credentials(endpoint, peer, refusal);
        Err(if endpoint.auth.shows_key(head.authorization) { PolicyError::BadKey.into() } else { refused })
    }

    /// Whom the token of a sign-in lets in by what its account's record says.
    async fn ask_account(
        &self,
        endpoint: &Endpoint,
        token: &AccessToken,
    ) -> Result<Result<Authenticated, AuthError>, Error> {
        let settings = self.worker.view().snapshot.sign_ins.settings.clone();
        let grants = self.worker.state.grants.load_full();
        let Some((settings, grants)) = settings.zip(grants) else {
            return Ok(Err(CredentialFault::Kind.into()));
        };
        match sign_in::known_of(&settings, &grants, token).await {
            Ok(Some(known)) => Ok(endpoint.auth.signed_in(token, known)),
            Ok(None) => Ok(Err(CredentialFault::SignInEnded.into())),
            Err(error) => {
                tracing::warn!(%error, "a token cannot be brought up to date");
                Err(GatewayError::SignIns.into())
            }
        }
    }

    /// Has the account behind a sign-in asked about, if that is due.
    fn note_use(&self, proviso: Option<&Proviso>) {
        let Some(Proviso::Grant(in_force)) = proviso else { return };
        let settings = self.worker.view().snapshot.sign_ins.settings.clone();
        if let Some(desk) = settings.and_then(|settings| self.desk(&settings)) {
            sign_in::note_use(desk, in_force.grant());
        }
    }

    pub(super) fn refuse_credentials(
        &self,
        endpoint: &Endpoint,
        peer: &Peer,
        refusal: CredentialFault,
    ) -> Error {
        self.worker.state.metrics.credentials.refused.count(refusal);
        self.worker.audit.refused_credentials(endpoint, peer.address, refusal);
        PolicyError::BadCredentials.into()
    }
}

fn require_scopes(endpoint: &Endpoint, principal: &Principal) -> Result<(), PolicyError> {
    let required = &endpoint.config.scopes;
    if required.iter().all(|scope| principal.has_scope(scope)) {
        Ok(())
    } else {
        let asked = principal.step_up_to_all(required);
        Err(asked.map_or(PolicyError::Forbidden, |required| PolicyError::Scope { required }))
    }
}
