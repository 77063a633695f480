//! `requestState` of calls of several principals over one connection: its server cannot tell them apart, so the gateway seals
//! each state for the principal whose call it is of, and gives it back for no other.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;

use protocol::envelope::Envelope;
use protocol::json::{Document, Scratch, Span, quote};
use protocol::splice::{Edit, Segments, splice};
use tokens::sealing::{SealingKeys, hex};

/// Keeps these texts apart from any other that a key might seal.
const DOMAIN: &[u8] = b"trunkline state of a shared process\0";
const MEMBER: &[u8] = b"\"requestState\"";
/// What a client is told whose state was not given to it here.
pub(crate) const NOT_ITS_STATE: &str =
    "no call waits for this requestState any more: call again without requestState";

/// The principal of a call.
#[derive(Debug)]
pub(crate) struct StateOwner {
    keys: Arc<StateKeys>,
    /// What a state is sealed with.
    clear: Box<[u8]>,
    json_depth_max: usize,
}

/// The key that seals: one connection's, or one upstream's.
pub(crate) struct StateKeys(SealingKeys);

/// The state is another's, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotItsState;

impl std::fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateKeys")
    }
}

impl StateKeys {
    /// New ones. `None`: the system has no randomness.
    pub(crate) fn new() -> Option<Arc<Self>> {
        Some(Arc::new(Self(SealingKeys::ephemeral().ok()?)))
    }
}

impl StateOwner {
    pub(crate) fn new(keys: &Arc<StateKeys>, principal: &str, json_depth_max: usize) -> Arc<Self> {
        let clear = [DOMAIN, principal.as_bytes()].concat().into();
        Arc::new(Self { keys: Arc::clone(keys), clear, json_depth_max })
    }

    /// The answer to a call of this principal, whose state, if it has one, is sealed. `None`: it cannot be.
    pub(crate) fn sealed(&self, answer: Segments) -> Option<Segments> {
        if answer.iter().all(|piece| memmem::find(piece, MEMBER).is_none()) {
            return Some(answer);
        }
        let answer = answer.to_bytes();
        let mut scratch = Scratch::default();
        let root = scratch.index(&answer, self.json_depth_max).map(Document::root).ok()?;
        let Some(state) = root.get("result").and_then(|result| result.get("requestState")) else {
            return Some(answer.into());
        };
        let text = state.as_literal()?.decode(&answer)?;
        let sealed = self.keys.0.seal_record(&self.clear, text.as_bytes())?;
        Some(edited(&answer, state.span(), &hex(&sealed)))
    }

    /// A request of this principal with the state that its server gave. `None`: it has no state.
    pub(crate) fn opened(&self, request: &Bytes) -> Result<Option<(Bytes, Envelope)>, NotItsState> {
        let mut scratch = Scratch::default();
        let root =
            scratch.index(request, self.json_depth_max).map(Document::root).map_err(|_| NotItsState)?;
        let Some(state) = root.get("params").and_then(|params| params.get("requestState")) else {
            return Ok(None);
        };
        let span = state.span();
        let sealed = state.as_literal().and_then(|literal| unhex(&literal.decode(request)?));
        let text = sealed.and_then(|sealed| self.keys.0.open_record(&self.clear, &sealed));
        let text = text.and_then(|text| String::from_utf8(text).ok()).ok_or(NotItsState)?;
        let request = edited(request, span, &text).to_bytes();
        let envelope = Envelope::parse(&mut scratch, &request, self.json_depth_max);
        Ok(Some((request, envelope.map_err(|_| NotItsState)?)))
    }
}

fn edited(message: &Bytes, span: Span, text: &str) -> Segments {
    splice(message, &[Edit { span, with: quote(text).into() }])
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str =
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"a\"b"}}"#;

    fn owner(keys: &Arc<StateKeys>, principal: &str) -> Arc<StateOwner> {
        StateOwner::new(keys, principal, 16)
    }

    #[test]
    fn a_state_comes_back_for_its_principal_alone() {
        let keys = StateKeys::new().expect("keys");
        let sealed =
            owner(&keys, "one").sealed(Bytes::from_static(ANSWER.as_bytes()).into()).expect("sealed");
        let sealed: serde_json::Value = serde_json::from_slice(&sealed.to_bytes()).expect("JSON");
        let state = sealed["result"]["requestState"].as_str().expect("a state").to_owned();
        assert_ne!(state, "a\"b");
        let retry = |state: &str| {
            Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"x","requestState":{}}}}}"#,
                quote(state)
            ))
        };
        let (opened, envelope) =
            owner(&keys, "one").opened(&retry(&state)).expect("its own").expect("a state");
        assert_eq!(opened, retry("a\"b"));
        assert!(envelope.is_continued);
        let others = [owner(&keys, "two"), owner(&StateKeys::new().expect("keys"), "one")];
        for other in others {
            assert_eq!(other.opened(&retry(&state)).err(), Some(NotItsState));
        }
        assert_eq!(owner(&keys, "one").opened(&retry("a\"b")).err(), Some(NotItsState));
    }

    #[test]
    fn what_has_no_state_stays_as_it_is() {
        let owner = owner(&StateKeys::new().expect("keys"), "one");
        for answer in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":{"requestState":"x"}}}"#,
        ] {
            let same = owner.sealed(Bytes::from_static(answer.as_bytes()).into()).expect("an answer");
            assert_eq!(same.to_bytes(), answer);
        }
        let request = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#);
        assert!(matches!(owner.opened(&request), Ok(None)));
    }
}
