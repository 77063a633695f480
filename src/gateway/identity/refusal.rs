//! Why credentials are refused: for metrics and logs. Clients are told nothing of it, as it would tell an attacker what
//! to change next.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialFault {
    /// `Authorization` occurs twice, or is not one `Bearer` credential.
    Header,
    /// The endpoint does not take credentials of this kind.
    Kind,
    /// No such API key.
    ApiKey,
    /// The token is longer than `token_bytes_max`.
    TokenSize,
    /// It is not a token: parts, base64 or JSON; a member occurs twice; or an extension that must be understood.
    TokenForm,
    /// It is signed in a way that its issuer or its key does not allow.
    Algorithm,
    /// Nobody knows its issuer.
    Issuer,
    /// Its issuer has no such key.
    UnknownKey,
    /// The signature is not of that key.
    Signature,
    /// It is for somebody else.
    Audience,
    /// It is over, or does not say when it is.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// Its claims name nobody, or are more than are kept; or it is bound to a key that nobody has shown.
    Claims,
    /// The certificate of the connection names nobody, or several.
    Certificate,
}

impl CredentialFault {
    /// All of them.
    pub(crate) const ALL: [Self; 14] = [
        Self::Header,
        Self::Kind,
        Self::ApiKey,
        Self::TokenSize,
        Self::TokenForm,
        Self::Algorithm,
        Self::Issuer,
        Self::UnknownKey,
        Self::Signature,
        Self::Audience,
        Self::Expired,
        Self::NotYet,
        Self::Claims,
        Self::Certificate,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Kind => "kind",
            Self::ApiKey => "api_key",
            Self::TokenSize => "token_size",
            Self::TokenForm => "token_form",
            Self::Algorithm => "algorithm",
            Self::Issuer => "issuer",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Claims => "claims",
            Self::Certificate => "certificate",
        }
    }
}
