//! The keys that seal session ids, and the text they are kept in.
//!
//! One key a line, 64 hexadecimal digits, newest first; empty lines and lines that begin with `#` say nothing.
//! The first key seals, all of them open: that is how keys are rotated without ending sessions. What each
//! key needs is computed once, when it is read.
//!
//! Deliberately not here: files (`gateway::session::key_file`) and what is sealed (the other modules).
//!
//! Invariant: nothing that is printed, logged or returned as an error holds a byte of a key.

use std::fmt::{self, Write as _};

use aes_gcm_siv::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm_siv::{Aes256GcmSiv, Nonce, Tag};
use sha2::{Digest as _, Sha256};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes by which a sealed text is longer than what it seals.
pub const TAG_BYTES: usize = 16;
/// Bytes of the name that a key has in session ids.
pub const KEY_ID_BYTES: usize = 4;
/// Keys of one file.
pub const KEYS_MAX: usize = 16;
/// Keeps the digest that names a key apart from any other digest of it.
const KEY_ID_DOMAIN: &[u8] = b"trunkline session key id\0";
/// Keeps derived keys apart from any other digest of a key.
const PURPOSE_DOMAIN: &[u8] = b"trunkline key for one purpose\0";

/// At least one key, newest first.
#[derive(Clone)]
pub struct SealingKeys {
    keys: Vec<SealingKey>,
}

#[derive(Clone)]
struct SealingKey {
    id: [u8; KEY_ID_BYTES],
    cipher: Aes256GcmSiv,
}

/// Why a text holds no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// A line is something else.
    #[error("line {line}: not a key, which is 64 hexadecimal digits")]
    NotAKey {
        /// Counted from 1.
        line: usize,
    },
    /// There is none.
    #[error("no key in it: `trunkline session-key FILE` makes one")]
    None,
    /// There are more than can be meant.
    #[error("line {line}: more than {KEYS_MAX} keys: remove the oldest")]
    TooMany {
        /// The first line that is too much, counted from 1.
        line: usize,
    },
}

impl SealingKeys {
    /// The keys of a text, of which there must be one.
    pub fn from_text(text: &str) -> Result<Self, KeysError> {
        let keys = parse(text)?;
        if keys.is_empty() {
            return Err(KeysError::None);
        }
        Ok(Self { keys: keys.iter().map(SealingKey::new).collect() })
    }

    /// Keys for one purpose, derived from those of a text, of which there must be one. None of another purpose, and none of
    /// [`Self::from_text`], opens what these seal. They keep the names of the keys that they come from.
    pub fn for_purpose(text: &str, purpose: &str) -> Result<Self, KeysError> {
        let mut keys = Self::from_text(text)?;
        for (key, root) in keys.keys.iter_mut().zip(parse(text)?) {
            key.cipher = Aes256GcmSiv::new(&derived(&root, purpose).into());
        }
        Ok(keys)
    }

    /// One random key that nobody else knows and that ends with the process.
    pub fn ephemeral() -> Result<Self, getrandom::Error> {
        Ok(Self { keys: vec![SealingKey::new(&random_key()?)] })
    }

    /// The name of the newest key, which seals.
    pub fn sealing_id(&self) -> [u8; KEY_ID_BYTES] {
        self.keys.first().map_or_else(Default::default, |key| key.id)
    }

    /// True where one of the keys has this name.
    pub fn has(&self, id: [u8; KEY_ID_BYTES]) -> bool {
        self.keys.iter().any(|key| key.id == id)
    }

    /// The names of all keys, the one that seals first.
    pub fn names(&self) -> String {
        let names: Vec<String> = self.keys.iter().map(|key| hex(&key.id)).collect();
        names.join(",")
    }

    /// Seals `text` in place with the newest key. `None` only if it is longer than the cipher can take.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], clear: &[u8], text: &mut [u8]) -> Option<[u8; TAG_BYTES]> {
        let key = self.keys.first()?;
        let tag = key.cipher.encrypt_inout_detached(&Nonce::from(nonce), clear, text.into()).ok()?;
        Some(tag.into())
    }

    /// Opens `text` in place with the key of that name. False, and `text` as it was, if none fits.
    pub fn open(
        &self,
        id: [u8; KEY_ID_BYTES],
        nonce: [u8; NONCE_BYTES],
        clear: &[u8],
        text: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> bool {
        let (nonce, tag) = (Nonce::from(nonce), Tag::from(tag));
        // Two keys may by chance have the same name.
        self.keys
            .iter()
            .filter(|key| key.id == id)
            .any(|key| key.cipher.decrypt_inout_detached(&nonce, clear, (&mut *text).into(), &tag).is_ok())
    }

    /// The name of the key, a nonce, the text under the key, its tag.
    pub fn seal_record(&self, clear: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        self.seal_record_with(nonce, clear, text)
    }

    /// The same with a nonce of the caller's.
    pub fn seal_record_with(&self, nonce: [u8; NONCE_BYTES], clear: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let mut text = text.to_vec();
        let tag = self.seal(nonce, clear, &mut text)?;
        Some([&self.sealing_id()[..], &nonce, &text, &tag].concat())
    }

    /// Opens what [`Self::seal_record`] made.
    pub fn open_record(&self, clear: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (id, rest) = sealed.split_first_chunk::<KEY_ID_BYTES>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (text, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let mut text = text.to_vec();
        self.open(*id, *nonce, clear, &mut text, *tag).then_some(text)
    }
}

impl SealingKey {
    fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let digest = Sha256::new().chain_update(KEY_ID_DOMAIN).chain_update(bytes).finalize();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        Self { id, cipher: Aes256GcmSiv::new(&(*bytes).into()) }
    }
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("count", &self.keys.len()).finish_non_exhaustive()
    }
}

/// The key for a purpose: one-step derivation (NIST SP 800-56C), of a key that is random already.
fn derived(root: &[u8; KEY_BYTES], purpose: &str) -> [u8; KEY_BYTES] {
    let digest = Sha256::new().chain_update(1_u32.to_be_bytes()).chain_update(root);
    digest.chain_update(PURPOSE_DOMAIN).chain_update(purpose).finalize().into()
}

/// A new key. Fails only if the system has no randomness.
pub fn random_key() -> Result<[u8; KEY_BYTES], getrandom::Error> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key)?;
    Ok(key)
}

/// The keys of a text in its order; none is not an error here.
pub fn parse(text: &str) -> Result<Vec<[u8; KEY_BYTES]>, KeysError> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (line, written) = (index + 1, line.trim());
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        if keys.len() == KEYS_MAX {
            return Err(KeysError::TooMany { line });
        }
        keys.push(decode(written).ok_or(KeysError::NotAKey { line })?);
    }
    Ok(keys)
}

fn decode(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |index: usize| char::from(*pair.get(index)?).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(key)
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(digit: &str) -> String {
        format!("{}\n", digit.repeat(64))
    }

    #[test]
    fn reads_key_files() {
        let refused = |line| Err(KeysError::NotAKey { line });
        let many = |count: usize| (0..count).map(|_| line("a")).collect::<String>();
        for (text, expected) in [
            (line("a"), Ok(1)),
            (line("a").trim_end().to_owned(), Ok(1)),
            (format!("# newest\r\n\n  {}  # \n", "#"), Err(KeysError::None)),
            (format!("# newest\r\n{}\r\n\n{}", "Ab".repeat(32), line("0")), Ok(2)),
            (many(16), Ok(16)),
            (format!("\n{}", many(17)), Err(KeysError::TooMany { line: 18 })),
            (String::new(), Err(KeysError::None)),
            (format!("{}\nsecret", line("a")), refused(3)),
            ("g".repeat(64), refused(1)),
            ("a".repeat(63), refused(1)),
            ("a".repeat(65), refused(1)),
            ("é".repeat(32), refused(1)),
            (format!("{} {}", "a".repeat(64), "b".repeat(64)), refused(1)),
        ] {
            assert_eq!(SealingKeys::from_text(&text).map(|keys| keys.keys.len()), expected, "{text:?}");
        }
    }

    #[test]
    fn the_first_seals_and_all_open() {
        let (old, new) = (line("1"), line("2"));
        let old_only = SealingKeys::from_text(&old).expect("keys");
        let both = SealingKeys::from_text(&format!("{new}{old}")).expect("keys");
        let new_only = SealingKeys::from_text(&new).expect("keys");
        for (sealer, opener, opens) in [
            (&old_only, &both, true),
            (&both, &new_only, true),
            (&both, &old_only, false),
            (&old_only, &new_only, false),
        ] {
            let mut text = *b"sealed";
            let tag = sealer.seal([7; 12], b"clear", &mut text).expect("sealed");
            assert_ne!(&text, b"sealed");
            let sealed = text;
            assert_eq!(opener.open(sealer.sealing_id(), [7; 12], b"clear", &mut text, tag), opens);
            assert_eq!(text, if opens { *b"sealed" } else { sealed });
            assert!(!opener.open(sealer.sealing_id(), [7; 12], b"other", &mut text, tag));
        }
    }

    #[test]
    fn keys_of_one_purpose_open_nothing_of_another() {
        let text = format!("{}{}", line("2"), line("1"));
        let (code, token) =
            (SealingKeys::for_purpose(&text, "code"), SealingKeys::for_purpose(&text, "token"));
        let (code, token) = (code.expect("keys"), token.expect("keys"));
        let plain = SealingKeys::from_text(&text).expect("keys");
        assert_eq!((code.names(), code.sealing_id()), (plain.names(), plain.sealing_id()));
        let sealed = code.seal_record_with([7; 12], b"clear", b"text").expect("sealed");
        assert_eq!(code.open_record(b"clear", &sealed).as_deref(), Some(&b"text"[..]));
        assert_eq!(code.open_record(b"other", &sealed), None);
        assert_eq!(
            (token.open_record(b"clear", &sealed), plain.open_record(b"clear", &sealed)),
            (None, None)
        );
        let old = SealingKeys::for_purpose(&line("2"), "code").expect("keys");
        assert!(old.open_record(b"clear", &sealed).is_some());
    }

    #[test]
    fn shows_nothing_of_a_key() {
        let keys = SealingKeys::from_text(&line("a")).expect("keys");
        assert_eq!(format!("{keys:?}"), "Keys { count: 1, .. }");
        let error = SealingKeys::from_text("deadbeef").expect_err("no key");
        assert!(!format!("{error} {error:?}").contains("deadbeef"));
    }
}
