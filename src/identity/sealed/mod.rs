//! Kinds and seals: whatever sign-in gives away or stores is sealed, each kind under keys of its own.
//!
//! The keys are [`tokens::sealing`]'s: a file has up to 16, the first seals, all open, and each sealed text names its key. The
//! associated data is the kind and what the value belongs to: of texts the issuer, of a form also the browser, of a record
//! its name in the store.
//!
//! Invariants: none passes for another kind, none can be moved to another place, and none opens after its time. Nothing is
//! read of a text whose tag does not fit, and reading never panics.

pub mod access_token;
pub mod account;
pub mod authorization_code;
pub mod client_id;
pub mod cookies;
pub mod fingerprint;
pub mod form;
pub mod grant;
pub mod mark;
pub mod news;
pub mod refresh_token;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokens::fields::{FieldReader, FieldWriter};
use tokens::sealing::{KEY_BYTES, KEY_ID_BYTES, KeysError, NONCE_BYTES, SealingKeys, TAG_BYTES, hex};
use zeroize::Zeroizing;

/// Random bytes for one seal.
pub type Nonce = [u8; NONCE_BYTES];
/// The name of a key, which each sealed text begins with.
pub type KeyId = [u8; KEY_ID_BYTES];

/// The form of what is sealed; another form gets another number.
const VERSION: u8 = 1;

/// Defines the kinds, with the purpose of their keys, the prefix of their texts, and the most characters or bytes of them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $purpose:literal, $prefix:literal, $max:expr;)*) => {
        /// The kinds of what is sealed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The purpose of its keys.
            pub fn purpose(self) -> &'static str {
                match self { $(Self::$kind => $purpose,)* }
            }

            /// The beginning of its texts, by which people and scanners know them.
            pub fn prefix(self) -> &'static str {
                match self { $(Self::$kind => $prefix,)* }
            }

            /// Characters of a text, or bytes of a record.
            pub const fn size_max(self) -> usize {
                match self { $(Self::$kind => $max,)* }
            }
        }
    };
}

kinds! {
    /// A registration, which its client carries.
    ClientId = "sign-in client id", "tlc_", 1 << 10;
    /// The secret of a registration.
    ClientSecret = "sign-in client secret", "tls_", 64;
    /// An authorization code.
    AuthorizationCode = "sign-in code", "tlo_", 512;
    /// An access token.
    AccessToken = "sign-in access token", "tla_", 1 << 10;
    /// A refresh token.
    RefreshToken = "sign-in refresh token", "tlr_", 256;
    /// A cookie: the sign-in that is under way.
    SignInCookie = "sign-in cookie", "", 2 << 10;
    /// A cookie: answers that are remembered.
    ConsentCookie = "sign-in consent cookie", "", 3 << 10;
    /// A cookie: the person on the page of their own sign-ins.
    PageCookie = "sign-in page cookie", "", 1 << 10;
    /// A request within a form.
    Form = "sign-in form", "", 4 << 10;
    /// The forms on the page of one's own sign-ins.
    PageForm = "sign-in page form", "", 1 << 10;
    /// The record of a grant.
    Grant = "sign-in grant record", "", 8 << 10;
    /// The record of an account.
    Account = "sign-in account record", "", 64 << 10;
    /// The record of what happened to a grant, which gateways also tell each other.
    News = "sign-in news record", "", 128;
    /// The record that somebody has done something, or does it just now.
    Mark = "sign-in mark record", "", 128;
}

/// A value that is sealed as one kind.
pub trait Sealable: Sized {
    /// Its kind.
    const KIND: Kind;
    /// The time from which it does not open any more, in seconds of Unix time.
    fn expires_s(&self) -> Option<u64>;
    /// Writes its fields.
    fn write(&self, to: &mut FieldWriter);
    /// Reads them.
    fn read(from: &mut FieldReader<'_>) -> Option<Self>;
}

/// The cause for which something does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenFault {
    /// It is of another kind, place, issuer or key, was changed, or is nothing at all: nobody can tell.
    #[error("it was not made here, or its key is gone")]
    Unknown,
    /// It was made here, and its time is over.
    #[error("it has expired")]
    Expired,
}

/// The keys of all kinds.
#[derive(Clone, Debug)]
pub struct Seals(Vec<SealingKeys>);

impl Seals {
    /// The keys of a key file's text.
    pub fn from_text(text: &str) -> Result<Self, KeysError> {
        let keys = Kind::ALL.iter().map(|kind| SealingKeys::for_purpose(text, kind.purpose()));
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// Keys of random bytes, which end with the process.
    pub fn ephemeral(random: &[u8; KEY_BYTES]) -> Result<Self, KeysError> {
        Self::from_text(&Zeroizing::new(hex(random)))
    }

    /// A text that holds the value, of `A-Za-z0-9_-` alone. `None`: it would be too long.
    pub fn seal<S: Sealable>(&self, nonce: Nonce, belongs_to: &str, value: &S) -> Option<String> {
        let sealed = self.sealed(nonce, belongs_to, value)?;
        // Written once: no part of it is left behind.
        let mut text = String::with_capacity(S::KIND.prefix().len() + sealed.len().div_ceil(3) * 4);
        text.push_str(S::KIND.prefix());
        URL_SAFE_NO_PAD.encode_string(sealed, &mut text);
        (text.len() <= S::KIND.size_max()).then_some(text)
    }

    /// Opens what [`Self::seal`] made.
    pub fn open<S: Sealable>(&self, text: &str, belongs_to: &str, now_s: u64) -> Result<S, OpenFault> {
        if text.len() > S::KIND.size_max() {
            return Err(OpenFault::Unknown);
        }
        let encoded = text.strip_prefix(S::KIND.prefix()).ok_or(OpenFault::Unknown)?;
        let sealed = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| OpenFault::Unknown)?;
        self.opened(&sealed, belongs_to, now_s)
    }

    /// A record of the store that holds the value. `None`: it would be too long.
    pub fn seal_record<S: Sealable>(&self, nonce: Nonce, name: &str, value: &S) -> Option<Vec<u8>> {
        self.sealed(nonce, name, value).filter(|sealed| sealed.len() <= S::KIND.size_max())
    }

    /// Opens what [`Self::seal_record`] made under that name.
    pub fn open_record<S: Sealable>(&self, sealed: &[u8], name: &str, now_s: u64) -> Result<S, OpenFault> {
        if sealed.len() > S::KIND.size_max() {
            return Err(OpenFault::Unknown);
        }
        self.opened(sealed, name, now_s)
    }

    /// The name of the key that has sealed a text of this kind, if that key is none of these. Anybody can write such a text.
    pub fn unknown_key(&self, kind: Kind, text: &str) -> Option<KeyId> {
        let encoded = text.strip_prefix(kind.prefix()).filter(|_| text.len() <= kind.size_max())?;
        self.unknown_key_of_record(kind, &URL_SAFE_NO_PAD.decode(encoded).ok()?)
    }

    /// The name of the key that has sealed a record of this kind, if that key is none of these.
    pub fn unknown_key_of_record(&self, kind: Kind, sealed: &[u8]) -> Option<KeyId> {
        let (id, rest) = sealed.split_first_chunk()?;
        let is_long_enough = rest.len() >= NONCE_BYTES + TAG_BYTES;
        (is_long_enough && !self.keys(kind)?.has(*id)).then_some(*id)
    }

    /// The names of all keys, the one that seals first.
    pub fn key_names(&self) -> String {
        self.0.first().map(SealingKeys::names).unwrap_or_default()
    }

    /// True where another key than the newest has sealed the record, so that it has to be sealed anew when it is used.
    pub fn is_by_old_key(&self, kind: Kind, sealed: &[u8]) -> bool {
        let id = sealed.first_chunk::<KEY_ID_BYTES>();
        self.keys(kind).is_some_and(|keys| id != Some(&keys.sealing_id()))
    }

    /// A secret that goes with a public text, and is stored nowhere: its message authentication code.
    pub fn mac(&self, kind: Kind, text: &str) -> Option<Zeroizing<String>> {
        let keys = self.keys(kind)?;
        // Without a text to hide and with one nonce, the tag of this cipher is a keyed digest of the associated data.
        let tag = keys.seal([0; NONCE_BYTES], &associated(kind, text), &mut [])?;
        let code = URL_SAFE_NO_PAD.encode([&keys.sealing_id()[..], &tag].concat());
        Some(Zeroizing::new(format!("{}{code}", kind.prefix())))
    }

    /// True for what [`Self::mac`] made of the text, under any of the keys.
    pub fn is_mac_of(&self, kind: Kind, text: &str, presented: &str) -> bool {
        self.checked_mac(kind, text, presented).unwrap_or(false)
    }

    fn checked_mac(&self, kind: Kind, text: &str, presented: &str) -> Option<bool> {
        let encoded = presented.strip_prefix(kind.prefix()).filter(|text| text.len() <= kind.size_max())?;
        let code = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (id, tag) = code.split_first_chunk::<KEY_ID_BYTES>()?;
        let tag = <[u8; TAG_BYTES]>::try_from(tag).ok()?;
        let keys = self.keys(kind)?;
        Some(keys.open(*id, [0; NONCE_BYTES], &associated(kind, text), &mut [], tag))
    }

    fn keys(&self, kind: Kind) -> Option<&SealingKeys> {
        self.0.get(kind as usize)
    }

    fn sealed<S: Sealable>(&self, nonce: Nonce, belongs_to: &str, value: &S) -> Option<Vec<u8>> {
        let mut fields = FieldWriter::default();
        fields.small(VERSION);
        value.write(&mut fields);
        let record = Zeroizing::new(fields.finish()?);
        self.keys(S::KIND)?.seal_record_with(nonce, &associated(S::KIND, belongs_to), &record)
    }

    fn opened<S: Sealable>(&self, sealed: &[u8], belongs_to: &str, now_s: u64) -> Result<S, OpenFault> {
        let keys = self.keys(S::KIND).ok_or(OpenFault::Unknown)?;
        let record = keys.open_record(&associated(S::KIND, belongs_to), sealed).map(Zeroizing::new);
        let record = record.ok_or(OpenFault::Unknown)?;
        let mut fields = FieldReader::new(&record);
        let is_known = fields.small() == Some(VERSION);
        let value = S::read(&mut fields).filter(|_| is_known && fields.is_at_end());
        let value = value.ok_or(OpenFault::Unknown)?;
        if value.expires_s().is_some_and(|expires_s| expires_s <= now_s) {
            return Err(OpenFault::Expired);
        }
        Ok(value)
    }
}

fn associated(kind: Kind, belongs_to: &str) -> Vec<u8> {
    [kind.purpose().as_bytes(), b"\0", belongs_to.as_bytes()].concat()
}

#[cfg(test)]
mod tests;
