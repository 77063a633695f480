//! A client id that was registered here: the registration itself, sealed, so that nothing is stored.
//!
//! It never expires: clients register once and keep the id. It is good as long as its key stands in the file.

use tokens::fields::{FieldReader, FieldWriter};

use super::{Kind, Nonce, Sealable, Seals};
use zeroize::Zeroizing;

/// The way in which a client proves at `/token` that it is itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// It does not: a public client, which has PKCE alone.
    None,
    /// A secret in the header `Authorization`.
    Basic,
    /// A secret in the body.
    Post,
    /// An assertion that it signs.
    PrivateKeyJwt,
}

impl AuthMethod {
    /// All of them, in the order of the metadata.
    pub const ALL: [Self; 4] = [Self::None, Self::Basic, Self::Post, Self::PrivateKeyJwt];

    /// Its name in metadata.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    /// The method of that name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.word() == word)
    }

    /// True where the client has a secret.
    pub fn has_secret(self) -> bool {
        matches!(self, Self::Basic | Self::Post)
    }
}

/// A registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredClient {
    /// The time of the registration, in seconds of Unix time; two registrations are never alike.
    pub registered_s: u64,
    /// As the client calls itself; may be empty.
    pub name: String,
    /// All that it may use.
    pub redirect_uris: Vec<String>,
    /// The proof that it is itself.
    pub auth_method: AuthMethod,
}

impl Sealable for RegisteredClient {
    const KIND: Kind = Kind::ClientId;

    fn expires_s(&self) -> Option<u64> {
        None
    }

    fn write(&self, to: &mut FieldWriter) {
        to.number(self.registered_s);
        to.small(self.auth_method as u8);
        to.text(&self.name);
        to.texts(&self.redirect_uris);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        let registered_s = from.number()?;
        let method = from.small()?;
        let auth_method = AuthMethod::ALL.into_iter().find(|known| *known as u8 == method)?;
        Some(Self { registered_s, auth_method, name: from.text()?, redirect_uris: from.texts()? })
    }
}

impl RegisteredClient {
    /// The id of the client, and its secret where it has one. `None`: the id would be too long.
    pub fn issue(
        &self,
        seals: &Seals,
        nonce: Nonce,
        issuer: &str,
    ) -> Option<(String, Option<Zeroizing<String>>)> {
        let id = seals.seal(nonce, issuer, self)?;
        let has_secret = self.auth_method.has_secret();
        let secret = if has_secret { Some(seals.mac(Kind::ClientSecret, &id)?) } else { None };
        Some((id, secret))
    }
}

/// True for an id of the form of those that are registered here, whoever made it.
pub fn looks_registered(client_id: &str) -> bool {
    client_id.starts_with(Kind::ClientId.prefix())
}
