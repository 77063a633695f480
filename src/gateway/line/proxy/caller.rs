//! Who calls: the credentials of a request, checked before its body is awaited.

use std::rc::Rc;

use super::Proxy;
use super::context::RequestContext;
use crate::access::auth::authenticator::{AuthError, Authenticated};
use crate::access::auth::caller_cache::{CachedCaller, digest};
use crate::access::caller::Caller;
use crate::clock::{self, now_s};
use crate::context::call::Call;
use crate::context::peer::Peer;
use crate::identity::Principal;
use crate::identity::refusal::CredentialFault;
use crate::snapshot::Endpoint;
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
        let Authenticated { principal, keys, ends_s } = self.identify(endpoint, head, call).await?;
        require_scopes(endpoint, &principal)?;
        let ends = ends_s.and_then(clock::moment_of);
        let class = endpoint.policy.class_of(&principal);
        let counts = self.worker.state.callers.of(&principal);
        let caller = Rc::new(Caller::new(principal, class, ends, counts));
        let known = Rc::new(CachedCaller {
            endpoint: endpoint.id,
            credential: credential.map(Box::from),
            caller: Rc::clone(&caller),
            keys,
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
        let refusal = match checked {
            Ok(checked) => return Ok(checked),
            Err(AuthError::Missing) => return Err(PolicyError::NoCredentials.into()),
            Err(AuthError::AskIssuer(issuer)) if !issuer.has_keys() => {
                return Err(GatewayError::TokenKeys.into());
            }
            Err(AuthError::AskIssuer(_)) => CredentialFault::UnknownKey,
            Err(AuthError::Wrong(refusal)) => refusal,
        };
        Err(self.refuse_credentials(endpoint, peer, refusal))
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
    } else if principal.may_get_scopes() {
        Err(PolicyError::Scope { required: required.join(" ").into() })
    } else {
        Err(PolicyError::Forbidden)
    }
}
