//! Settings of the provider.

use serde::Deserialize;

/// The one client of a provider, and whether tests may have it fail.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The id of the client.
    pub client_id: String,
    /// Its secret, which it shows by a header or in the body.
    pub client_secret: String,
    /// Addresses to which browsers may go back. Each counts to the letter.
    pub redirect_uris: Vec<String>,
    /// True where `POST /faults` makes it lie and fail, for tests. Anybody on the machine may then do so.
    #[serde(default)]
    pub takes_faults: bool,
}
