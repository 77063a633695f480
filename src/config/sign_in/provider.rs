//! The gateway as a client of the provider: its id there, and how it proves that it is itself.

use crate::findings::Findings;
use crate::secret::{SecretPlace, SecretSource};
use crate::section::section;
use crate::table::Table;
use crate::text::{checked, is_plain, texts};
use crate::value::choice;

section! {
    /// The keys of [`ProviderClient`].
    pub struct ProviderClientKeys {
        /// The id of the gateway at the provider. It cannot be an audience of an endpoint: ID tokens, which are for the gateway
        /// itself, would open it.
        #[example("trunkline")]
        id as "client_id": ProviderClientId,
        /// The secret that goes with it.
        #[example({ file = "/etc/trunkline/provider-secret" })]
        secret as "client_secret": Option<SecretPlace>,
        /// The private key, in PEM, with which the gateway signs instead of showing a secret: P-256 (ES256), or RSA from 2048 bits
        /// (RS256).
        #[example({ file = "/etc/trunkline/provider-key.pem" })]
        key as "client_key": Option<SecretPlace>,
        /// The id (`kid`) by which the provider knows `client_key`. Default: none is named.
        #[example("2026-11")]
        key_id as "client_key_id": Option<KeyId>,
        /// The proof that the gateway gives at the provider's token endpoint: `client_secret` in the header `Authorization`
        /// (`basic`) or in the body (`post`), or an assertion by `client_key` (`private_key_jwt`). Default: `basic` with
        /// `client_secret`, `private_key_jwt` with `client_key`. Needed where both are there.
        #[example("private_key_jwt")]
        authentication as "client_authentication": Option<ProviderAuthentication>,
    }
    check provider_client => ProviderClient;
}

/// The gateway as a client of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderClient {
    /// Its id there.
    pub id: String,
    /// The proof that it gives at the token endpoint.
    pub proof: ProviderProof,
}

/// The proof that the gateway is itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderProof {
    /// A secret in the header `Authorization`.
    Basic(SecretSource),
    /// A secret in the body.
    Post(SecretSource),
    /// An assertion (RFC 7523).
    PrivateKeyJwt {
        /// The private key, in PEM.
        key: SecretSource,
        /// The `kid` of assertions.
        key_id: Option<String>,
    },
}

impl ProviderProof {
    /// The source of its secret, whatever that is.
    pub fn source(&self) -> &SecretSource {
        match self {
            Self::Basic(source) | Self::Post(source) | Self::PrivateKeyJwt { key: source, .. } => source,
        }
    }
}

choice! {
    /// A way for the gateway to prove to the provider that it is itself.
    pub enum ProviderAuthentication {
        /// `client_secret` in the header `Authorization`.
        Basic = "basic",
        /// `client_secret` in the body.
        Post = "post",
        /// An assertion that `client_key` signs.
        PrivateKeyJwt = "private_key_jwt",
    }
}

texts! {
    /// The id of a client elsewhere.
    pub ProviderClientId -> String, "", |text: &str| checked(
        text,
        is_plain(text, 256),
        "not the id of a client: 1 to 256 visible ASCII characters",
    ), secret: true;
    /// The id of a key.
    pub KeyId -> String, "", |text: &str| checked(
        text,
        is_plain(text, 256),
        "not the id of a key: 1 to 256 visible ASCII characters",
    ), secret: true;
}

fn provider_client(keys: ProviderClientKeys, table: Table<'_>, findings: &mut Findings) -> ProviderClient {
    let has_both = table.has("client_secret") && table.has("client_key");
    if has_both && !table.has("client_authentication") {
        let message = "both `client_secret` and `client_key`: keep one, or say with `client_authentication` which counts";
        findings.error_at(table, "client_key", message);
    }
    if !table.has("client_key") {
        findings.error_at(table, "client_key_id", "`client_key_id` is of no use without `client_key`");
    }
    let by_keys = if table.has("client_key") {
        ProviderAuthentication::PrivateKeyJwt
    } else {
        ProviderAuthentication::Basic
    };
    let method = keys.authentication.unwrap_or(by_keys);
    let (needed, source) = match method {
        ProviderAuthentication::PrivateKeyJwt => ("client_key", keys.key),
        ProviderAuthentication::Basic | ProviderAuthentication::Post => ("client_secret", keys.secret),
    };
    if !table.has(needed) && !findings.is_misspelt(table) && table.has("client_id") {
        let at = findings.span(table, "client_authentication").unwrap_or_else(|| table.span());
        let message = if table.has("client_authentication") {
            format!("`{}` needs `{needed}`: write `{needed} = {{ file = \"…\" }}`", method.label())
        } else {
            "the provider would not know the gateway: write `client_secret = { file = \"…\" }`, or `client_key`".to_owned()
        };
        findings.error(at, message);
    }
    // The one that is missing has been reported.
    let source = source.unwrap_or_else(|| SecretSource::Env(String::new()));
    let proof = match method {
        ProviderAuthentication::Basic => ProviderProof::Basic(source),
        ProviderAuthentication::Post => ProviderProof::Post(source),
        ProviderAuthentication::PrivateKeyJwt => {
            ProviderProof::PrivateKeyJwt { key: source, key_id: keys.key_id }
        }
    };
    ProviderClient { id: keys.id, proof }
}
