//! The session id that a client carries: a sealed record of what `initialize` settled.
//!
//! A version byte and the name of the key in clear, a nonce, the record under AES-256-GCM-SIV with the clear
//! part as associated data, its tag; all in base64url. The record itself is a list of fields, each of fixed
//! length or after its length. Endpoint and principal are compared with those of the request, never read
//! back, so that long ones are kept as digests.
//!
//! Invariants: an id has at most [`TOKEN_CHARS_MAX`] characters, all visible ASCII, whatever went into it.
//! Nothing is read from a record whose tag does not fit, and reading never panics.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::fields::FieldReader;
use crate::grant::{ClientInfo, Grant, NoSession, SessionId};
use crate::sealing::{KEY_ID_BYTES, NONCE_BYTES, SealingKeys, TAG_BYTES};
use protocol::json::{Document, JsonKind, Scratch};
use protocol::version::LegacyVersion;

/// Characters of a session id.
pub const TOKEN_CHARS_MAX: usize = 1024;
/// Bytes that are kept of each text about the client.
pub const CLIENT_TEXT_BYTES_MAX: usize = 64;
/// Bytes of capabilities that are kept as they are.
pub const CAPABILITIES_BYTES_MAX: usize = 512;

const VERSION: u8 = 1;
const CLEAR_BYTES: usize = 1 + KEY_ID_BYTES;
const HEAD_BYTES: usize = CLEAR_BYTES + NONCE_BYTES;
const SEALED_BYTES_MAX: usize = TOKEN_CHARS_MAX / 4 * 3;
const RECORD_BYTES_MAX: usize = SEALED_BYTES_MAX - HEAD_BYTES - TAG_BYTES;

/// Endpoints and principals longer than this are kept as digests.
const COMPARED_BYTES_MAX: usize = 64;
const DIGEST_BYTES: usize = 32;
/// In place of a length: a digest follows.
const IS_DIGEST: u8 = u8::MAX;

/// Client capabilities that decide what an upstream may ask for or offers.
const KNOWN_CAPABILITIES: [&str; 4] = ["roots", "sampling", "elicitation", "tasks"];
/// `{}` with every known capability as `"name":{},`.
const KNOWN_BYTES_MAX: usize = 2 + 4 * 6 + 5 + 8 + 11 + 5;
const JSON_DEPTH_MAX: usize = 128;

const FIXED_BYTES_MAX: usize =
    16 + 1 + 2 * 8 + 3 * (1 + CLIENT_TEXT_BYTES_MAX) + 2 * (1 + COMPARED_BYTES_MAX) + 2;
const _: () = assert!(FIXED_BYTES_MAX + KNOWN_BYTES_MAX <= RECORD_BYTES_MAX);
const _: () = assert!(COMPARED_BYTES_MAX >= DIGEST_BYTES && COMPARED_BYTES_MAX < IS_DIGEST as usize);

/// Seals `grant`. `None` only if the cipher refuses, which it does at lengths far beyond a record's.
pub fn seal(keys: &SealingKeys, nonce: [u8; NONCE_BYTES], grant: &Grant) -> Option<String> {
    let mut sealed = Vec::with_capacity(SEALED_BYTES_MAX);
    sealed.push(VERSION);
    sealed.extend_from_slice(&keys.sealing_id());
    sealed.extend_from_slice(&nonce);
    write_record(grant, &mut sealed);
    let (head, record) = sealed.split_at_mut_checked(HEAD_BYTES)?;
    let tag = keys.seal(nonce, head.get(..CLEAR_BYTES)?, record)?;
    sealed.extend_from_slice(&tag);
    Some(URL_SAFE_NO_PAD.encode(&sealed))
}

/// Opens a session id for a request of `principal` to `endpoint`. Whether it is still valid is not asked here.
pub fn open(keys: &SealingKeys, token: &str, endpoint: &str, principal: &str) -> Result<Grant, NoSession> {
    let mut sealed = [0; SEALED_BYTES_MAX];
    if token.len() > TOKEN_CHARS_MAX {
        return Err(NoSession::Unknown);
    }
    let bytes = URL_SAFE_NO_PAD.decode_slice(token, &mut sealed).map_err(|_| NoSession::Unknown)?;
    let sealed = sealed.get_mut(..bytes).ok_or(NoSession::Unknown)?;
    let record = open_record(keys, sealed).ok_or(NoSession::Unknown)?;
    read_record(record, endpoint, principal).unwrap_or(Err(NoSession::Unknown))
}

/// `text` cut where a character ends, to be kept in a session id.
pub fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(CLIENT_TEXT_BYTES_MAX)).unwrap_or_default()
}

/// Capabilities as a record of `grant` can keep them: whole, or only those that are known, or only their names.
pub fn fit_capabilities(grant: &Grant) -> Box<str> {
    let mut others = Vec::new();
    write_record(&Grant { capabilities: "".into(), ..grant.clone() }, &mut others);
    let room = (RECORD_BYTES_MAX - others.len()).min(CAPABILITIES_BYTES_MAX);
    let text = grant.capabilities.as_bytes();
    let mut scratch = Scratch::default();
    let Some(object) = scratch.index(text, JSON_DEPTH_MAX).ok().map(Document::root) else {
        return "{}".into();
    };
    if object.kind() != JsonKind::Object {
        return "{}".into();
    }
    if text.len() <= room {
        return grant.capabilities.clone();
    }
    let known = |value_of: fn(&str) -> &str| {
        let member = |name| {
            let value = object.get(name).filter(|value| value.is_object())?;
            Some(format!("\"{name}\":{}", value_of(std::str::from_utf8(value.raw()).ok()?)))
        };
        let members: Vec<String> = KNOWN_CAPABILITIES.into_iter().filter_map(member).collect();
        format!("{{{}}}", members.join(","))
    };
    let with_values = known(|value| value);
    if with_values.len() <= room { with_values.into() } else { known(|_| "{}").into() }
}

fn open_record<'s>(keys: &SealingKeys, sealed: &'s mut [u8]) -> Option<&'s [u8]> {
    let (head, rest) = sealed.split_at_mut_checked(HEAD_BYTES)?;
    let (clear, nonce) = head.split_at_checked(CLEAR_BYTES)?;
    let (&version, id) = clear.split_first()?;
    let (record, tag) = rest.split_at_mut_checked(rest.len().checked_sub(TAG_BYTES)?)?;
    let is_open = version == VERSION
        && keys.open(id.try_into().ok()?, nonce.try_into().ok()?, clear, record, (&*tag).try_into().ok()?);
    is_open.then_some(record)
}

/// Writes what is sealed of `grant`, whose capabilities must [fit](fit_capabilities).
pub fn write_record(grant: &Grant, out: &mut Vec<u8>) {
    out.extend_from_slice(&grant.id.0.to_be_bytes());
    out.push(grant.version as u8);
    out.extend_from_slice(&grant.issued_s.to_be_bytes());
    out.extend_from_slice(&grant.expires_s.to_be_bytes());
    write_compared(&grant.endpoint, out);
    write_compared(&grant.principal, out);
    for text in [&grant.client.name, &grant.client.title, &grant.client.version] {
        let text = cut(text);
        out.push(u8::try_from(text.len()).unwrap_or_default());
        out.extend_from_slice(text.as_bytes());
    }
    let capabilities = grant.capabilities.as_bytes();
    out.extend_from_slice(&u16::try_from(capabilities.len()).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(capabilities);
}

fn write_compared(text: &str, out: &mut Vec<u8>) {
    match u8::try_from(text.len()) {
        Ok(bytes) if text.len() <= COMPARED_BYTES_MAX => {
            out.push(bytes);
            out.extend_from_slice(text.as_bytes());
        }
        _ => {
            out.push(IS_DIGEST);
            out.extend_from_slice(&Sha256::digest(text));
        }
    }
}

/// What was sealed, for a request of `principal` to `endpoint`. `None` if it is no record: it was sealed by us, but by a
/// version that wrote something else.
pub fn read_record(record: &[u8], endpoint: &str, principal: &str) -> Option<Result<Grant, NoSession>> {
    let mut rest = FieldReader::new(record);
    let id = SessionId(u128::from_be_bytes(rest.array()?));
    let [version] = rest.array()?;
    let version = LegacyVersion::ALL.into_iter().find(|known| *known as u8 == version)?;
    let issued_s = u64::from_be_bytes(rest.array()?);
    let expires_s = u64::from_be_bytes(rest.array()?);
    if !(is_as_written(&mut rest, endpoint)? & is_as_written(&mut rest, principal)?) {
        return Some(Err(NoSession::Foreign));
    }
    let client = ClientInfo {
        name: short_text(&mut rest)?,
        title: short_text(&mut rest)?,
        version: short_text(&mut rest)?,
    };
    let bytes = rest.length()?;
    let capabilities = rest.take(bytes).filter(|_| bytes <= CAPABILITIES_BYTES_MAX)?;
    let capabilities = std::str::from_utf8(capabilities).ok()?.into();
    let (endpoint, principal) = (endpoint.into(), principal.into());
    rest.is_at_end().then_some(Ok(Grant {
        id,
        endpoint,
        version,
        client,
        capabilities,
        principal,
        issued_s,
        expires_s,
    }))
}

fn short_text(rest: &mut FieldReader<'_>) -> Option<Box<str>> {
    let bytes = rest.small()?;
    let text = rest.take(bytes.into()).filter(|text| text.len() <= CLIENT_TEXT_BYTES_MAX)?;
    std::str::from_utf8(text).ok().map(Into::into)
}

/// True where `text` was written here.
fn is_as_written(rest: &mut FieldReader<'_>, text: &str) -> Option<bool> {
    let bytes = rest.small()?;
    if bytes == IS_DIGEST {
        return Some(rest.take(DIGEST_BYTES)? == Sha256::digest(text).as_slice());
    }
    Some(rest.take(bytes.into())? == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    fn keys() -> SealingKeys {
        SealingKeys::from_text(&"7".repeat(64)).expect("keys")
    }

    fn grant() -> Grant {
        Grant {
            id: SessionId(0x1234_5678_9abc_def0_1234_5678_9abc_def0),
            endpoint: "/mcp".into(),
            version: LegacyVersion::V2025_06_18,
            client: ClientInfo { name: "client".into(), title: "".into(), version: "1.0".into() },
            capabilities: r#"{"roots":{}}"#.into(),
            principal: "key:ci".into(),
            issued_s: 1_000,
            expires_s: 2_000,
        }
    }

    fn sealed(grant: &Grant) -> String {
        let grant = Grant { capabilities: fit_capabilities(grant), ..grant.clone() };
        seal(&keys(), NONCE, &grant).expect("sealed")
    }

    #[test]
    fn opens_for_its_endpoint_and_principal_only() {
        let long = "/x".repeat(200);
        let other_long = format!("{}y", &long[..399]);
        for own in ["", "/mcp", &long[..64], &long[..65], &long] {
            let grant = Grant { endpoint: own.into(), principal: own.into(), ..grant() };
            let token = sealed(&grant);
            assert_eq!(open(&keys(), &token, own, own), Ok(grant), "{own}");
            for other in ["/other", &other_long, &long[..63]] {
                for (endpoint, principal) in [(other, own), (own, other), (other, other)] {
                    assert_eq!(open(&keys(), &token, endpoint, principal), Err(NoSession::Foreign), "{own}");
                }
            }
        }
    }

    #[test]
    fn what_was_not_sealed_here_does_not_open() {
        let token = sealed(&grant());
        let with = |change: fn(&mut String)| {
            let mut token = token.clone();
            change(&mut token);
            token
        };
        for bad in [
            String::new(),
            "a".to_owned(),
            "0f3c6a5e-7b1d-4c80-9d2e-1f2a3b4c5d6e".to_owned(),
            "é".repeat(40),
            "A".repeat(TOKEN_CHARS_MAX),
            "A".repeat(TOKEN_CHARS_MAX + 1),
            "A".repeat(1 << 20),
            with(|token| token.push('A')),
            with(|token| token.push('=')),
            with(|token| token.insert(0, ' ')),
            with(|token| token.make_ascii_lowercase()),
        ] {
            let opened = open(&keys(), &bad, "/mcp", "key:ci");
            assert_eq!(opened, Err(NoSession::Unknown), "{} characters", bad.len());
        }
        let other = SealingKeys::from_text(&"8".repeat(64)).expect("keys");
        assert_eq!(open(&other, &token, "/mcp", "key:ci"), Err(NoSession::Unknown));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let token = sealed(&grant());
        for end in 0..token.len() {
            assert_eq!(open(&keys(), &token[..end], "/mcp", "key:ci"), Err(NoSession::Unknown), "{end}");
        }
        let bytes = URL_SAFE_NO_PAD.decode(&token).expect("base64");
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let token = URL_SAFE_NO_PAD.encode(bytes);
            assert_eq!(open(&keys(), &token, "/mcp", "key:ci"), Err(NoSession::Unknown), "bit {bit}");
        }
    }

    #[test]
    fn capabilities_are_kept_as_far_as_there_is_room() {
        let padding = |bytes: usize| "x".repeat(bytes);
        let experimental = format!(r#""experimental":{{"a":"{}"}}"#, padding(600));
        let long_roots = format!(r#""roots":{{"a":"{}"}}"#, padding(600));
        for (written, kept) in [
            (r#"{"roots":{"listChanged":true}, "x":1}"#.to_owned(), None),
            (format!(r#"{{"x":"{}"}}"#, padding(CAPABILITIES_BYTES_MAX - 8)), None),
            (format!(r#"{{"x":"{}"}}"#, padding(CAPABILITIES_BYTES_MAX - 7)), Some("{}")),
            (
                format!(r#"{{{experimental},"elicitation":{{ "url":{{}}}},"sampling":true}}"#),
                Some(r#"{"elicitation":{ "url":{}}}"#),
            ),
            (
                format!(r#"{{{long_roots},"tasks":{{"list":{{}}}},"sampling":{{}}}}"#),
                Some(r#"{"roots":{},"sampling":{},"tasks":{}}"#),
            ),
            (r"[1]".to_owned(), Some("{}")),
            ("not JSON".to_owned(), Some("{}")),
            (String::new(), Some("{}")),
        ] {
            let grant = Grant { capabilities: written.as_str().into(), ..grant() };
            let kept = kept.unwrap_or(&written);
            assert_eq!(&*fit_capabilities(&grant), kept);
            let opened = open(&keys(), &sealed(&grant), "/mcp", "key:ci").expect("opens");
            assert_eq!(&*opened.capabilities, kept);
        }
    }

    #[test]
    fn texts_about_the_client_are_cut_where_a_character_ends() {
        for (text, bytes) in
            [("a".repeat(64), 64), ("a".repeat(65), 64), ("é".repeat(40), 64), ("€".repeat(40), 63)]
        {
            let client = ClientInfo { name: text.as_str().into(), title: "".into(), version: "".into() };
            let opened =
                open(&keys(), &sealed(&Grant { client, ..grant() }), "/mcp", "key:ci").expect("opens");
            assert_eq!(&*opened.client.name, &text[..bytes]);
        }
    }

    #[test]
    fn a_record_with_longer_texts_than_are_kept_is_none() {
        let client = |name: String| ClientInfo { name: name.into(), ..ClientInfo::default() };
        let long = Grant { capabilities: "x".repeat(CAPABILITIES_BYTES_MAX + 1).into(), ..grant() };
        let mut record = Vec::new();
        write_record(&long, &mut record);
        assert_eq!(read_record(&record, "/mcp", "key:ci"), None);
        for (bytes, is_one) in [(CLIENT_TEXT_BYTES_MAX, true), (CLIENT_TEXT_BYTES_MAX + 1, false)] {
            record.clear();
            write_record(
                &Grant { client: client("x".repeat(CLIENT_TEXT_BYTES_MAX)), ..grant() },
                &mut record,
            );
            // Its length, and the text.
            let at = 16 + 1 + 2 * 8 + (1 + "/mcp".len()) + (1 + "key:ci".len());
            record[at] = u8::try_from(bytes).expect("short");
            record.splice(at + 1..=at + CLIENT_TEXT_BYTES_MAX, vec![b'y'; bytes]);
            assert_eq!(read_record(&record, "/mcp", "key:ci").is_some(), is_one, "{bytes}");
        }
    }

    #[test]
    fn the_longest_record_fits() {
        let wide = || "\u{10ffff}".repeat(500).into();
        let capabilities = KNOWN_CAPABILITIES.map(|name| format!(r#""{name}":{{"a":"{}"}}"#, "x".repeat(99)));
        let grant = Grant {
            endpoint: "/e".repeat(32).into(),
            principal: "p".repeat(64).into(),
            client: ClientInfo { name: wide(), title: wide(), version: wide() },
            capabilities: format!("{{{}}}", capabilities.join(",")).into(),
            expires_s: u64::MAX,
            ..grant()
        };
        let token = sealed(&grant);
        assert!(token.len() <= TOKEN_CHARS_MAX, "{}", token.len());
        let opened = open(&keys(), &token, &grant.endpoint, &grant.principal).expect("opens");
        assert_eq!(&*opened.capabilities, r#"{"roots":{},"sampling":{},"elicitation":{},"tasks":{}}"#);
    }

    proptest! {
        #[test]
        fn any_grant_survives_and_fits(
            id in any::<u128>(), endpoint in ".{0,90}", principal in ".{0,90}", name in ".{0,90}",
            title in ".{0,90}", experimental in "[a-z]{0,600}", issued_s in any::<u64>(), nonce in any::<[u8; 12]>(),
        ) {
            let grant = Grant {
                id: SessionId(id),
                endpoint: endpoint.into(),
                principal: principal.into(),
                client: ClientInfo { name: cut(&name).into(), title: cut(&title).into(), version: "1".into() },
                capabilities: format!(r#"{{"experimental":{{"{experimental}":{{}}}},"roots":{{}}}}"#).into(),
                issued_s,
                ..grant()
            };
            let grant = Grant { capabilities: fit_capabilities(&grant), ..grant };
            let token = seal(&keys(), nonce, &grant).expect("sealed");
            prop_assert!(token.len() <= TOKEN_CHARS_MAX);
            prop_assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(open(&keys(), &token, &grant.endpoint, &grant.principal), Ok(grant));
        }

        #[test]
        fn random_texts_never_open(token in ".{0,1100}", bytes in prop::collection::vec(any::<u8>(), 0..800)) {
            prop_assert_eq!(open(&keys(), &token, "/mcp", ""), Err(NoSession::Unknown));
            let token = URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(open(&keys(), &token, "/mcp", ""), Err(NoSession::Unknown));
        }

        #[test]
        fn random_records_never_panic(record in prop::collection::vec(any::<u8>(), 0..800)) {
            let _ = read_record(&record, "/mcp", "");
        }
    }
}
