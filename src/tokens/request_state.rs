//! The `requestState` of a call that waits: what it names, sealed so that nobody else can make or change one.
//!
//! Not here: the key, and that a state is used once (`gateway::bridge`).
//!
//! Invariants: a state has [`STATE_CHARS`] characters, all visible ASCII. Nothing is read of one whose tag does not fit,
//! and reading never panics.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::sealing::{NONCE_BYTES, SealingKeys, TAG_BYTES};
use protocol::canonical::canonical;
use protocol::json::{Document, Scratch};
use protocol::translation::members::Edits;

/// Keeps these texts apart from any other that a key might seal.
const DOMAIN: &[u8] = b"trunkline parked call\0";
/// Members of `params` that differ between a call and its retry.
const OF_ONE_ROUND: [&str; 3] = ["_meta", "inputResponses", "requestState"];
const NUMBER_BYTES: usize = size_of::<u64>();
const BINDING_BYTES: usize = 32;
const TEXT_BYTES: usize = 2 * NUMBER_BYTES + BINDING_BYTES;
/// Characters of a state.
pub const STATE_CHARS: usize = ((NONCE_BYTES + TAG_BYTES + TEXT_BYTES) * 4).div_ceil(3);

/// Whose a state is, and which message it goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding([u8; BINDING_BYTES]);

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestState {
    /// The number of the call that waits.
    pub parked: u64,
    /// Until when, in seconds of Unix time.
    pub expires_s: u64,
    /// Who may go on with it, and how.
    pub binding: Binding,
}

impl Binding {
    /// Of a message of `principal` for the upstream of this key: method and `params`, however they are spelled, without
    /// what makes a retry of it. `None`: it is no message.
    pub fn of(
        (upstream, principal): (&str, &str),
        message: &Bytes,
        (scratch, depth_max): (&mut Scratch, usize),
    ) -> Option<Self> {
        let root = scratch.index(message, depth_max).map(Document::root).ok()?;
        let method = message.slice(root.get("method")?.span());
        let params = root.object("params").map(|params| {
            let mut edits = Edits::default();
            edits.members(params, |key| OF_ONE_ROUND.contains(&key), "");
            edits.part(message, params)
        });
        let params = match params {
            Some(params) => canonical(&params, scratch, depth_max)?,
            None => "{}".to_owned(),
        };
        scratch.release();
        let mut digest = Sha256::new();
        for part in [upstream.as_bytes(), principal.as_bytes(), &method, params.as_bytes()] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Some(Self(digest.finalize().into()))
    }
}

/// Seals a state. `None` only if the cipher refuses, which it does at lengths far beyond a state's.
pub fn seal(keys: &SealingKeys, nonce: [u8; NONCE_BYTES], stated: RequestState) -> Option<String> {
    let mut text = [0; TEXT_BYTES];
    text[..NUMBER_BYTES].copy_from_slice(&stated.parked.to_le_bytes());
    text[NUMBER_BYTES..2 * NUMBER_BYTES].copy_from_slice(&stated.expires_s.to_le_bytes());
    text[2 * NUMBER_BYTES..].copy_from_slice(&stated.binding.0);
    let tag = keys.seal(nonce, DOMAIN, &mut text)?;
    Some(URL_SAFE_NO_PAD.encode([&nonce[..], &tag[..], &text[..]].concat()))
}

/// Opens a state. `None`: it was not made with the newest of these keys, or was changed.
pub fn open(keys: &SealingKeys, state: &str) -> Option<RequestState> {
    if state.len() != STATE_CHARS {
        return None;
    }
    let sealed = URL_SAFE_NO_PAD.decode(state).ok()?;
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let (tag, text) = rest.split_first_chunk::<TAG_BYTES>()?;
    let mut text: [u8; TEXT_BYTES] = text.try_into().ok()?;
    if !keys.open(keys.sealing_id(), *nonce, DOMAIN, &mut text, *tag) {
        return None;
    }
    let (parked, rest) = text.split_first_chunk::<NUMBER_BYTES>()?;
    let (expires_s, binding) = rest.split_first_chunk::<NUMBER_BYTES>()?;
    Some(RequestState {
        parked: u64::from_le_bytes(*parked),
        expires_s: u64::from_le_bytes(*expires_s),
        binding: Binding(binding.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1,"y":[]},"_meta":{"k":1}}}"#;

    fn binding(principal: &str, message: &str) -> Option<Binding> {
        let message = Bytes::copy_from_slice(message.as_bytes());
        Binding::of(("u", principal), &message, (&mut Scratch::default(), 16))
    }

    #[test]
    fn a_retry_is_bound_like_its_call_and_nothing_else_is() {
        let call = binding("p", CALL).expect("a message");
        for retry in [
            CALL,
            r#"{"id":"other","params":{"requestState":"s","inputResponses":{"q":{}},"arguments":{"y":[ ],"x":1.0},"name":"\u0061"},"method":"tools/call","jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(binding("p", retry), Some(call), "{retry}");
        }
        for other in [
            CALL.replace("tools/call", "prompts/get"),
            CALL.replace(r#""x":1"#, r#""x":2"#),
            CALL.replace(r#""name":"a""#, r#""name":"b""#),
        ] {
            assert_ne!(binding("p", &other), Some(call), "{other}");
        }
        assert_ne!(binding("q", CALL), Some(call));
        assert_eq!(binding("p", "{"), None);
    }

    #[test]
    fn only_what_was_sealed_here_opens() {
        let [keys, other] = ["7", "8"].map(|digit| SealingKeys::from_text(&digit.repeat(64)).expect("keys"));
        let stated =
            RequestState { parked: 7, expires_s: 9, binding: binding("p", CALL).expect("a message") };
        let state = seal(&keys, [9; NONCE_BYTES], stated).expect("sealed");
        assert_eq!(state.len(), STATE_CHARS);
        assert_eq!(open(&keys, &state), Some(stated));
        assert_eq!(open(&other, &state), None, "another process has another key");
        for index in 0..state.len() {
            let mut changed = state.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("text");
            assert_eq!(open(&keys, &changed), None, "{index}");
        }
        for nonsense in ["", "a", "é", "AAAA", &"A".repeat(200)] {
            assert_eq!(open(&keys, nonsense), None, "{nonsense}");
        }
    }
}
