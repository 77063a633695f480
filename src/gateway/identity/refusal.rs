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
    /// The certificate of the connection names nobody, or several, or would not be believed any more.
    Certificate,
    /// No token of sign-in: it was made elsewhere, changed, or its key is gone.
    SignIn,
    /// Its sign-in was ended.
    SignInEnded,
}

impl CredentialFault {
    /// All of them.
    pub(crate) const ALL: [Self; 16] = [
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
        Self::SignIn,
        Self::SignInEnded,
    ];

    /// Its text for an operator.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Header => "`Authorization` is not one `Bearer` credential",
            Self::Kind => "the endpoint takes no credentials of this kind: see its `auth`",
            Self::ApiKey => "no [[api_key]] has the digest of this key",
            Self::TokenSize => "the token is longer than `token_bytes_max`",
            Self::TokenForm => "it is no token (JWT) that can be read",
            Self::Algorithm => "the token is signed in a way that its issuer or its key does not allow",
            Self::Issuer => "the `iss` of the token is the `issuer` of no [[jwt]]",
            Self::UnknownKey => "the issuer has no key with the `kid` of the token",
            Self::Signature => "the signature of the token is not that of the issuer's key",
            Self::Audience => {
                "the `aud` of the token is neither the `public_url` of the endpoint nor one of `audiences`"
            }
            Self::Expired => "it has expired, or its `exp` says nothing",
            Self::NotYet => "the `nbf` or `iat` of the token lies in the future",
            Self::Claims => "the claims of the token name nobody or too much, or bind it to a key (`cnf`)",
            Self::Certificate => {
                "the client's certificate names nobody, several, or not as it should, or `client_ca` has its authority no longer"
            }
            Self::SignIn => {
                "no token of [sign_in] here: it was issued elsewhere or changed, or its key stands no longer in the file"
            }
            Self::SignInEnded => "its sign-in was ended",
        }
    }

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
            Self::SignIn => "sign_in",
            Self::SignInEnded => "sign_in_ended",
        }
    }
}
