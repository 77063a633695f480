//! `/revoke`: whichever token of a grant is shown, its grant ends.

use identity::client_auth::ShownClient;
use identity::oauth_error::{Answer, OAuthError};
use identity::parameters::Parameters;
use identity::revocation;
use identity::sealed::Kind;
use identity::server_metadata::REVOKE_PATH;

use super::desk::{SignInDesk, SignInRequest};

impl SignInDesk {
    pub(super) async fn revoke(&self, request: &SignInRequest) -> Answer {
        let mut has_tried_basic = false;
        match self.revoked(request, &mut has_tried_basic).await {
            Ok(answer) => answer,
            Err(error) => {
                self.refused(request, "revoke", &error.to_string());
                error.answer(has_tried_basic)
            }
        }
    }

    async fn revoked(
        &self,
        request: &SignInRequest,
        has_tried_basic: &mut bool,
    ) -> Result<Answer, OAuthError> {
        let parameters = Parameters::of_form(request.content_type.as_deref(), &request.body)?;
        let shown = ShownClient::read(request.authorization.as_deref(), &parameters)?;
        *has_tried_basic = shown.has_tried_basic();
        let token = revocation::read(&parameters)?;
        let grant = revocation::grant_of(&token, &shown.id, &self.settings.seals, self.issuer())?;
        // Nothing is fetched or stored for a token that is nobody's (RFC 7009 §2.2), nor for one whose sign-in has ended.
        let Some(grant) = grant else {
            for kind in [Kind::AccessToken, Kind::RefreshToken] {
                let key = self.settings.seals.unknown_key(kind, token.expose());
                self.grants.unless_elsewhere(key).await?;
            }
            return Ok(revocation::answer());
        };
        if self.grants.grant(grant).await?.is_some() {
            self.prove(&shown, REVOKE_PATH, request).await?;
        }
        if let Some(ended) = self.grants.end(grant).await? {
            self.series.ended.with_label_values(&["client"]).inc();
            tracing::info!(
                target: "audit", principal = ended.principal, client_id = ended.client_id, endpoint = ended.endpoint,
                "sign-in ended by its client"
            );
        }
        Ok(revocation::answer())
    }
}
