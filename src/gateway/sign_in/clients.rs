//! The ways in which a client is known: by the configuration, by the registration that its id holds, or by the document at its id.

use std::net::IpAddr;

use identity::client::{Client, ClientFault, ClientIdKind, ClientSource};
use identity::oauth_error::{ErrorCode, Fault, OAuthError};
use identity::pages::KnownBy;
use identity::sealed::Kind;

use super::desk::SignInDesk;
use crate::access::auth::sign_in::faults::DocumentError;
use crate::grants::GrantsError;

/// A client that may be used.
#[derive(Clone, Debug)]
pub(super) struct FoundClient {
    pub client: Client,
    /// The operator has consented for all.
    pub is_consent_given: bool,
}

/// The reason that there is no client.
#[derive(Debug)]
pub(super) enum NoClient {
    /// It is refused.
    Refused(ClientFault),
    /// Its document cannot be had now, or is none.
    Document(DocumentError),
    /// It cannot be told now.
    Store(GrantsError),
}

impl From<ClientFault> for NoClient {
    fn from(fault: ClientFault) -> Self {
        Self::Refused(fault)
    }
}

impl From<GrantsError> for NoClient {
    fn from(fault: GrantsError) -> Self {
        Self::Store(fault)
    }
}

impl From<NoClient> for OAuthError {
    /// A document that cannot be had now is no reason for a client to register anew.
    fn from(none: NoClient) -> Self {
        match none {
            NoClient::Refused(fault) => fault.into(),
            NoClient::Store(fault) => fault.into(),
            NoClient::Document(error) if error.is_passing => {
                let why = "the document of the client cannot be had now";
                Self::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Client).retry_after(10)
            }
            NoClient::Document(error) => Self::new(
                ErrorCode::InvalidClient,
                format!("the document of the client is refused: {}", error.why),
            ),
        }
    }
}

impl SignInDesk {
    /// The client of this id. `asker` is charged for a fetch.
    pub(super) async fn find_client(&self, id: Option<&str>, asker: IpAddr) -> Result<FoundClient, NoClient> {
        let settings = &self.settings;
        let kind = ClientIdKind::of(id, |id| settings.known_client(id).is_some())?;
        let id = id.ok_or(ClientFault::Missing)?;
        // Before anything is fetched.
        if settings.denied.bars(id) {
            return Err(ClientFault::Denied.into());
        }
        let mut is_consent_given = false;
        let client = match kind {
            ClientIdKind::Configured => {
                let known = settings.known_client(id).ok_or(ClientFault::Unknown)?;
                is_consent_given = known.is_consent_given;
                known.client.clone()
            }
            ClientIdKind::Registered if settings.config.registration => {
                match Client::registered(id, &settings.seals, self.issuer()) {
                    Ok(client) => client,
                    Err(fault) => {
                        let key = settings.seals.unknown_key(Kind::ClientId, id);
                        self.grants.unless_elsewhere(key).await?;
                        return Err(fault.into());
                    }
                }
            }
            ClientIdKind::Document if settings.config.client_documents == config::ClientDocuments::Fetch => {
                let document = self.document(id, asker).await.map_err(NoClient::Document)?;
                (*document).clone()
            }
            // The configuration knows of none of these.
            ClientIdKind::Registered | ClientIdKind::Document => return Err(ClientFault::Unknown.into()),
        };
        // A holder of its keys can be it.
        if client.keys_url().is_some_and(|url| settings.denied.bars(url)) {
            return Err(ClientFault::Denied.into());
        }
        Ok(FoundClient { client, is_consent_given })
    }
}

/// The extent to which the name of a client can be believed. `host` is the host of its document.
pub(super) fn known_by<'h>(client: &Client, host: Option<&'h str>) -> KnownBy<'h> {
    match (&client.source, host) {
        (ClientSource::Document { .. }, Some(host)) => KnownBy::Host(host),
        (ClientSource::Configured { .. }, _) => KnownBy::Configuration,
        _ => KnownBy::Nothing,
    }
}
