//! The id that a request has towards its upstream where that is not its client's: no other request of this process has it.
//!
//! Clients choose ids that others choose as well, and an upstream that answers twice would give one client's reply to
//! another whose request has the same id. An id says which session and which of the client's own ids it stands for,
//! so that the rest of a reply finds back to its call when nobody remembers the call, as after a restart.
//!
//! Deliberately not here: where ids stand in messages. Invariant: what [`OwnId::new`] writes is ASCII without escapes, so
//! that it comes back as it was sent, and [`client_literal`] reads it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde_json::value::RawValue;

use protocol::json::{Span, is_integer};
use protocol::splice::Edit;

/// More of the client's id is not written into one, as servers need not take ids of any length. The rest of a reply to
/// such a call does not find back.
const INNER_BYTES_MAX: usize = 128;

/// What is in one beside the client's id, in bytes.
const OWN_BYTES_MAX: usize = PREFIX.len() + 16 + 1 + 16 + 1 + 8 + 1 + 1 + 1;

/// What all of them begin with, as JSON literals.
const PREFIX: &str = "\"trunkline-";

/// The id of a request towards its upstream, and the client's. Both are JSON literals.
#[derive(Clone, Debug)]
pub(crate) struct OwnId {
    sent: Bytes,
    client: Bytes,
}

/// Stands for a client's session with one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionTag(u32);

impl SessionTag {
    /// Of the client's session `id`. Other upstreams see another tag of the same session. It is the same in every process,
    /// and protects no secret: what a session may do is not decided by its id.
    pub(crate) fn new(id: u128, upstream: &str) -> Self {
        // FNV-1a, as each call needs it.
        let bytes = id.to_be_bytes().into_iter().chain(upstream.bytes());
        let digest = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(u32::try_from((digest >> 32) ^ (digest & u64::from(u32::MAX))).unwrap_or_default())
    }
}

impl OwnId {
    /// An id that no request had before, in the place of `client`, a literal.
    pub(crate) fn new(client: Bytes, session: SessionTag) -> Self {
        // Upstreams remember ids for longer than this process lives.
        static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let mut start = PREFIX.as_bytes().to_vec();
            push_hex(&mut start, getrandom::u64().unwrap_or_default(), 16);
            start.push(b'-');
            start
        });
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut sent = Vec::with_capacity(OWN_BYTES_MAX + client.len().min(INNER_BYTES_MAX));
        sent.extend_from_slice(&START);
        push_hex(&mut sent, NEXT.fetch_add(1, Ordering::Relaxed), 1);
        sent.push(b'-');
        push_hex(&mut sent, session.0.into(), 8);
        sent.push(b'-');
        write_inner(&mut sent, &client);
        sent.push(b'"');
        Self { sent: sent.into(), client }
    }

    /// The same, which keeps nothing of its request.
    pub(crate) fn kept(&self) -> Self {
        Self { sent: self.sent.clone(), client: Bytes::copy_from_slice(&self.client) }
    }

    /// What the upstream is sent.
    pub(crate) fn sent(&self) -> &Bytes {
        &self.sent
    }

    /// Puts the client's id where the upstream's answer has this one.
    pub(crate) fn restored(&self, span: Span) -> Edit {
        Edit { span, with: self.client.clone() }
    }
}

/// Whether a literal is an id that a gateway sent.
pub(crate) fn is_own(literal: &[u8]) -> bool {
    literal.starts_with(PREFIX.as_bytes())
}

/// The client's id that a literal stands for, if it is the id of a call in this session.
pub(crate) fn client_literal(literal: &[u8], session: SessionTag) -> Option<Bytes> {
    let text = std::str::from_utf8(literal).ok()?;
    let mut parts = text.strip_prefix(PREFIX)?.strip_suffix('"')?.splitn(4, '-').skip(2);
    let tag = parts.next()?;
    if tag != format!("{:08x}", session.0) {
        return None;
    }
    let (kind, inner) = parts.next()?.split_at_checked(1)?;
    let client = match kind {
        "n" => Some(Bytes::copy_from_slice(inner.as_bytes())),
        "s" => Some(Bytes::from(format!("\"{inner}\""))),
        "x" => hex(inner.as_bytes()),
        _ => None,
    };
    client.filter(|client| is_literal(client))
}

/// An upstream may have made up what stands there.
fn is_literal(client: &[u8]) -> bool {
    // Integers of any length are ids.
    (client.starts_with(b"\"") || is_integer(client)) && serde_json::from_slice::<&RawValue>(client).is_ok()
}

/// The client's literal in letters that no server spells otherwise.
fn write_inner(sent: &mut Vec<u8>, client: &[u8]) {
    let text = client.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    match (text, text.unwrap_or(client)) {
        (_, inner) if inner.len() > INNER_BYTES_MAX => sent.push(b'-'),
        (None, digits) if digits.iter().all(is_plain) => push(sent, b'n', digits),
        (Some(_), text) if text.iter().all(is_plain) => push(sent, b's', text),
        _ if client.len() > INNER_BYTES_MAX / 2 => sent.push(b'-'),
        _ => {
            sent.push(b'x');
            for byte in client {
                push_hex(sent, (*byte).into(), 2);
            }
        }
    }
}

fn push(sent: &mut Vec<u8>, kind: u8, plain: &[u8]) {
    sent.push(kind);
    sent.extend_from_slice(plain);
}

/// Appends a number in hexadecimal, with zeros before it to so many digits.
fn push_hex(sent: &mut Vec<u8>, number: u64, digits_min: u32) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(digits_min);
    for place in (0..digits).rev() {
        sent.push(b"0123456789abcdef"[((number >> (4 * place)) & 0xf) as usize]);
    }
}

fn hex(digits: &[u8]) -> Option<Bytes> {
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn says_whose_id_it_stands_for() {
        let session = SessionTag::new(7, "files");
        for client in ["7", "-7", "0", "\"\"", "\"a-b.c\"", "\"\\u00e9\"", "\"é\"", "\"a b\"", "\"\\\"\\\\\""]
        {
            let id = OwnId::new(Bytes::copy_from_slice(client.as_bytes()), session);
            let sent = std::str::from_utf8(id.sent()).expect("text");
            let unquoted = sent.trim_matches('"');
            assert!(
                unquoted.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte)),
                "{sent}"
            );
            assert!(is_own(id.sent()) && !is_own(client.as_bytes()));
            assert_eq!(client_literal(id.sent(), session).expect("an id"), client);
            for other in [SessionTag::new(8, "files"), SessionTag::new(7, "weather"), SessionTag::default()] {
                assert_eq!(client_literal(id.sent(), other), None, "{client}");
            }
        }
    }

    #[test]
    fn no_two_are_alike() {
        let [one, other] = [(); 2].map(|()| OwnId::new(Bytes::from_static(b"1"), SessionTag::default()));
        assert_ne!(one.sent(), other.sent());
    }

    #[test]
    fn what_no_gateway_wrote_stands_for_nothing() {
        let session = SessionTag::default();
        for literal in [
            "",
            "7",
            "\"trunkline-",
            "\"trunkline-1-2-00000000\"",
            "\"trunkline-1-2-00000000-\"",
            "\"trunkline-1-2-00000000-q1\"",
            "\"trunkline-1-2-00000000-x1\"",
            "\"trunkline-1-2-00000000-xzz\"",
            "\"trunkline-1-2-00000000-n1}\"",
            "\"trunkline-1-2-00000000-x\"",
            "\"trunkline-1-2-00000000-x7b7d\"",
        ] {
            assert_eq!(client_literal(literal.as_bytes(), session), None, "{literal}");
        }
    }

    #[test]
    fn no_length_of_an_id_makes_one_long() {
        let session = SessionTag::default();
        for (client, is_in_it) in [
            ("9".repeat(128), true),
            (format!("\"{}\"", "a".repeat(128)), true),
            (format!("\"{}\"", "/".repeat(62)), true),
            ("9".repeat(1024), false),
            (format!("\"{}\"", "a".repeat(1022)), false),
            (format!("\"{}\"", "/".repeat(63)), false),
        ] {
            let id = OwnId::new(Bytes::from(client.clone()), session);
            assert!(id.sent().len() < 200 && is_own(id.sent()), "{id:?}");
            assert_eq!(client_literal(id.sent(), session), is_in_it.then(|| client.into()), "{id:?}");
        }
    }

    proptest! {
        #[test]
        fn every_id_comes_back(text in "[a-z]{0,128}|.{0,40}", session: u128) {
            let client = Bytes::from(protocol::json::quote(&text));
            let session = SessionTag::new(session, "up");
            let id = OwnId::new(client.clone(), session);
            prop_assert!(id.sent().len() < 200);
            let is_short = client.len() <= INNER_BYTES_MAX / 2 || text.bytes().all(|byte| byte.is_ascii_lowercase());
            prop_assert_eq!(client_literal(id.sent(), session), Some(client).filter(|_| is_short));
        }
    }
}
