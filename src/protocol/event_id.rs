//! Ids of server-sent events as sessions over several upstreams have them.
//!
//! An event of a reply is `p.<upstream>.<inner>`: a client that resumes with one is sent to that upstream alone. An
//! event of the client's own stream is `g.<cursor>`: the last id of every upstream that was heard of on it, so that one
//! id resumes all of them. Clients have no use for what is in either. With one upstream its ids are used as they are.
//!
//! Deliberately absent: which of these an endpoint uses, and whether an id was ever given out.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};

const POST: &[u8] = b"p.";
const GET: &[u8] = b"g.";
/// Longer ids are not given out: clients send them back in a header.
pub const ID_BYTES_MAX: usize = 512;

/// The id that a client resumes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventId {
    /// An event of a reply.
    Post {
        /// The name of the upstream.
        upstream: Box<str>,
        /// The upstream's own id.
        inner: Bytes,
    },
    /// An event of the client's stream: names of upstreams, each with its own last id.
    Get(Vec<(Box<str>, Bytes)>),
    /// Neither: an upstream's own, or nobody's.
    Other,
}

/// The id of an event of a reply.
pub fn spell_post(upstream: &str, inner: &[u8]) -> Bytes {
    let mut id = BytesMut::with_capacity(POST.len() + upstream.len() + 1 + inner.len());
    for piece in [POST, upstream.as_bytes(), b".", inner] {
        id.extend_from_slice(piece);
    }
    id.freeze()
}

/// The id of an event of the client's stream. `None`: it would be too long, or there is nothing in it.
pub fn spell_get<'a>(last_ids: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<Bytes> {
    let mut cursor = Vec::new();
    for text in last_ids.flat_map(|(upstream, inner)| [upstream.as_bytes(), inner]) {
        let length = u16::try_from(text.len()).ok()?;
        cursor.extend_from_slice(&length.to_be_bytes());
        cursor.extend_from_slice(text);
        if cursor.len() > ID_BYTES_MAX {
            return None;
        }
    }
    if cursor.is_empty() {
        return None;
    }
    let id = [GET, URL_SAFE_NO_PAD.encode(cursor).as_bytes()].concat();
    (id.len() <= ID_BYTES_MAX).then(|| id.into())
}

/// Reads what a client gives back.
pub fn read(id: &[u8]) -> EventId {
    let read = || {
        if let Some(cursor) = id.strip_prefix(GET).filter(|_| id.len() <= ID_BYTES_MAX) {
            return read_cursor(&URL_SAFE_NO_PAD.decode(cursor).ok()?).map(EventId::Get);
        }
        let rest = id.strip_prefix(POST)?;
        let dot = memchr::memchr(b'.', rest)?;
        let (upstream, inner) = (read_name(&rest[..dot])?, Bytes::copy_from_slice(&rest[dot + 1..]));
        Some(EventId::Post { upstream, inner })
    };
    read().unwrap_or(EventId::Other)
}

fn read_cursor(mut cursor: &[u8]) -> Option<Vec<(Box<str>, Bytes)>> {
    let mut last_ids = Vec::new();
    while !cursor.is_empty() {
        let upstream = read_name(take(&mut cursor)?)?;
        last_ids.push((upstream, Bytes::copy_from_slice(take(&mut cursor)?)));
    }
    (!last_ids.is_empty()).then_some(last_ids)
}

fn take<'c>(cursor: &mut &'c [u8]) -> Option<&'c [u8]> {
    let (length, rest) = cursor.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    *cursor = rest;
    Some(text)
}

fn read_name(name: &[u8]) -> Option<Box<str>> {
    Some(std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_replies_come_back_as_they_were() {
        for (upstream, inner, expected) in [
            ("files", &b"7"[..], &b"p.files.7"[..]),
            ("a-b", b"x.y.z", b"p.a-b.x.y.z"),
            ("a", b"", b"p.a."),
            ("a", b"\xc3\xa4 \xff", b"p.a.\xc3\xa4 \xff"),
        ] {
            let id = spell_post(upstream, inner);
            assert_eq!(id, expected);
            let inner = Bytes::copy_from_slice(inner);
            assert_eq!(read(&id), EventId::Post { upstream: upstream.into(), inner });
        }
    }

    #[test]
    fn cursors_come_back_as_they_were() {
        let long = [b'x'; 360];
        for last_ids in [
            &[("files", &b"7"[..])][..],
            &[("a", b""), ("b", b"\xff\x00")],
            &[("a", b"g.AAAA"), ("b", b"p.x.1"), ("c", b"\n")],
            &[("a", &long)],
        ] {
            let id = spell_get(last_ids.iter().copied()).expect("an id");
            assert!(id.len() <= ID_BYTES_MAX && id.iter().all(u8::is_ascii_graphic), "{id:?}");
            let expected = last_ids.iter().map(|(name, id)| ((*name).into(), Bytes::copy_from_slice(id)));
            assert_eq!(read(&id), EventId::Get(expected.collect()));
        }
    }

    #[test]
    fn what_does_not_fit_has_no_id() {
        let (long, very_long) = ([b'x'; 400], vec![b'x'; 70_000]);
        for last_ids in [&[][..], &[("a", &long[..])], &[("a", &very_long)], &[("a", &long[..200]); 2]] {
            assert_eq!(spell_get(last_ids.iter().copied()), None);
        }
    }

    #[test]
    fn what_was_never_given_out_is_another_id() {
        let long = format!("g.{}", "A".repeat(600));
        for id in [
            "",
            "7",
            "p.",
            "p.a",
            "p..7",
            "P.a.7",
            "g.",
            "g.!",
            "g.AA",
            "g.AAA",
            "g.AAEhAAI",
            "g.AAAAAA",
            "g.AAEhAAABEw",
            &long,
        ] {
            assert_eq!(read(id.as_bytes()), EventId::Other, "{id}");
        }
        assert_eq!(read(b"p.\xff.7"), EventId::Other);
    }
}
