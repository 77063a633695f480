//! The `requestState` of a call that waits: what it names, sealed so that nobody else can make or change one.
//!
//! The key is this process's own and ends with it, as the calls do. That a state is used once is not seen here, but in
//! [`super::suspended`].

use std::sync::OnceLock;

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

/// The key that seals `requestState`.
#[derive(Debug, Default)]
pub(crate) struct StateSeal(OnceLock<Option<SealingKeys>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding([u8; BINDING_BYTES]);

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestState {
    pub parked: u64,
    /// Until when, in seconds of Unix time.
    pub expires_s: u64,
    pub binding: Binding,
}

impl Binding {
    /// Of a message of `principal` for the upstream of this key: method and `params`, however they are spelled, without
    /// what makes a retry of it. `None`: it is no message.
    pub(crate) fn of(
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

impl StateSeal {
    /// Seals a state. `None` only if the system has no randomness.
    pub(crate) fn seal(&self, stated: RequestState) -> Option<String> {
        let keys = self.keys()?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        let mut text = [0; TEXT_BYTES];
        text[..NUMBER_BYTES].copy_from_slice(&stated.parked.to_le_bytes());
        text[NUMBER_BYTES..2 * NUMBER_BYTES].copy_from_slice(&stated.expires_s.to_le_bytes());
        text[2 * NUMBER_BYTES..].copy_from_slice(&stated.binding.0);
        let tag = keys.seal(nonce, DOMAIN, &mut text)?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &tag[..], &text[..]].concat()))
    }

    /// Opens a state. `None`: it was not made here, or was changed.
    pub(crate) fn open(&self, state: &str) -> Option<RequestState> {
        let keys = self.keys()?;
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

    fn keys(&self) -> Option<&SealingKeys> {
        self.0.get_or_init(|| SealingKeys::ephemeral().ok()).as_ref()
    }
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
        let (seal, other) = (StateSeal::default(), StateSeal::default());
        let stated =
            RequestState { parked: 7, expires_s: 9, binding: binding("p", CALL).expect("a message") };
        let state = seal.seal(stated).expect("randomness");
        assert!(state.len() <= 128, "{}", state.len());
        assert_eq!(seal.open(&state), Some(stated));
        assert_eq!(other.open(&state), None, "another process has another key");
        assert_ne!(seal.seal(stated), Some(state.clone()));
        for index in 0..state.len() {
            let mut changed = state.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("text");
            assert_eq!(seal.open(&changed), None, "{index}");
        }
        for nonsense in ["", "a", "é", "AAAA", &"A".repeat(200)] {
            assert_eq!(seal.open(nonsense), None, "{nonsense}");
        }
    }
}
