//! What this crate makes of bytes, and what hyper makes of the same ones.
//!
//! Whatever is read here, hyper reads as the same message, with the same body and the same rest, in whatever pieces it
//! comes. Whatever hyper reads and this crate refuses stands in [`STRICTNESSES`], with its reason; nothing stands anywhere
//! for what this crate reads and hyper refuses.
//!
//! | file | what it is |
//! |---|---|
//! | `messages.rs` | requests and replies, and what becomes of them by chance |
//! | `ours.rs` | a connection read by this crate, as both sides of the gateway do it |
//! | `theirs.rs` | the same connection read by hyper |

#[cfg(test)]
mod messages;
mod ours;
mod theirs;

use http::HeaderMap;
use http::header::CONNECTION;

use crate::{BodyEnd, HttpFault};

/// Makes the beginning of a head, or of trailers, whole: hyper refuses none before.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A message as a reader understands it.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    /// Method and target of a request, status of a reply.
    start: String,
    fields: HeaderMap,
    /// How long the body is, where that is known beforehand.
    length: Option<u64>,
    body: Vec<u8>,
}

/// What follows the last message of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rest {
    /// Nothing.
    Over,
    /// What nobody reads, behind the last request that its client meant to send.
    Closed,
    /// The beginning of a head.
    Head,
    /// A message whose body ends with the connection before its time.
    Body,
    /// What is refused, and begins here.
    Refused(HttpFault, usize),
}

/// What hyper refuses, it refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HyperRest {
    /// It waits for more, or for nothing.
    Open,
    Refused,
}

/// What this crate refuses of what hyper reads.
struct Strictness {
    fault: HttpFault,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for people, and for the test that all of them are met")
    )]
    reason: &'static str,
    /// Whether a message that begins here has it.
    applies: fn(&[u8]) -> bool,
}

/// Each stands in the table of the crate, or says where else.
const STRICTNESSES: [Strictness; 13] = [
    Strictness { fault: HttpFault::LineEnd, reason: "a bare line feed", applies: has_bare_line_feed },
    Strictness {
        fault: HttpFault::Length,
        reason: "a length twice",
        applies: |bytes| values(bytes, "content-length").len() > 1,
    },
    Strictness {
        fault: HttpFault::Length,
        reason: "a list of lengths, or one with a leading zero",
        applies: |bytes| values(bytes, "content-length").iter().any(|value| !is_plain(value)),
    },
    Strictness {
        fault: HttpFault::TwoFramings,
        reason: "a length beside chunks",
        applies: |bytes| {
            ["content-length", "transfer-encoding"].iter().all(|name| !values(bytes, name).is_empty())
        },
    },
    Strictness {
        fault: HttpFault::Coding,
        reason: "a coding twice",
        applies: |bytes| values(bytes, "transfer-encoding").len() > 1,
    },
    Strictness {
        fault: HttpFault::Coding,
        reason: "a coding other than chunked",
        applies: |bytes| {
            values(bytes, "transfer-encoding").iter().any(|value| !value.eq_ignore_ascii_case(b"chunked"))
        },
    },
    Strictness {
        fault: HttpFault::Head,
        reason: "a coding in HTTP/1.0, where hyper does not look at it: the status forbids a body",
        applies: |bytes| bytes.starts_with(b"HTTP/1.0") && !values(bytes, "transfer-encoding").is_empty(),
    },
    Strictness {
        fault: HttpFault::Head,
        reason: "a switch of protocols",
        applies: |bytes| bytes.starts_with(b"HTTP/1") && bytes.get(9..12) == Some(b"101"),
    },
    Strictness {
        fault: HttpFault::Head,
        reason: "an empty line before a reply",
        applies: |bytes| bytes.starts_with(b"\r\n"),
    },
    Strictness {
        fault: HttpFault::Chunk,
        reason: "a chunk's size of more than 15 digits",
        applies: |bytes| {
            lines(bytes).any(|line| line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() > 15)
        },
    },
    Strictness {
        fault: HttpFault::Chunk,
        reason: "a control byte in the extension of a chunk",
        applies: |bytes| {
            lines(bytes).any(|line| line.contains(&b';') && line.iter().copied().any(is_control))
        },
    },
    Strictness {
        fault: HttpFault::Chunk,
        reason: "a long extension of a chunk",
        applies: |bytes| {
            let with_end = |line: &[u8]| line.len() + b"\r\n".len();
            lines(bytes).any(|line| line.contains(&b';') && with_end(line) > crate::CHUNK_LINE_BYTES_MAX)
        },
    },
    Strictness {
        fault: HttpFault::Head,
        reason: "more empty lines before a request than `edge` passes over",
        applies: |bytes| bytes.starts_with(&b"\r\n".repeat(ours::BLANK_LINES_MAX + 1)),
    },
];

/// Whether that is refused on purpose.
fn is_strictness(fault: HttpFault, bytes: &[u8]) -> bool {
    STRICTNESSES.iter().any(|strictness| strictness.fault == fault && (strictness.applies)(bytes))
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Of a field, wherever it stands: a body may look like a head.
fn values<'b>(bytes: &'b [u8], name: &str) -> Vec<&'b [u8]> {
    let named = lines(bytes).filter_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        value.strip_prefix(b":").filter(|_| found.eq_ignore_ascii_case(name.as_bytes()))
    });
    named.map(<[u8]>::trim_ascii).collect()
}

/// A number as it is written by `to_string`, of at most 63 bits.
fn is_plain(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    text.parse::<i64>().is_ok_and(|number| number >= 0 && number.to_string() == text)
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn has_bare_line_feed(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || bytes[at - 1] != b'\r'))
}

/// Whether `close` stands beside bytes beyond ASCII, where hyper does not look for it.
fn hides_close(request: &Message) -> bool {
    request.fields.get_all(CONNECTION).iter().any(|value| value.to_str().is_err())
}

/// Checks one connection with requests, in these pieces. Returns what is made of it here.
fn compare_requests(bytes: &[u8], pieces: &[&[u8]]) -> (Vec<Message>, Rest) {
    let shown = bytes.escape_ascii();
    let (ours, rest) = ours::requests(pieces);
    let (theirs, their_rest) = theirs::requests(pieces);
    let shared = ours.len().min(theirs.len());
    assert_eq!(ours[..shared], theirs[..shared], "{shown}");
    assert_eq!(shared, ours.len(), "hyper does not read {:?} of {shown}", &ours[shared..]);
    match rest {
        Rest::Refused(fault, at) if theirs.len() > shared || their_rest == HyperRest::Open => {
            let is_alike = theirs.len() == shared
                && theirs::requests(&[bytes, HEAD_END]) == (theirs, HyperRest::Refused);
            let is_expected = is_alike || is_strictness(fault, &bytes[at..]);
            assert!(is_expected, "{fault:?} at {at}, but hyper goes on: {shown}");
        }
        Rest::Refused(..) => {}
        Rest::Closed if ours.last().is_some_and(hides_close) => return (ours, rest),
        _ => assert_eq!(theirs.len(), shared, "{rest:?}, but hyper goes on: {shown}"),
    }
    // A head is looked at when it is whole; hyper may look at its beginning.
    if matches!(rest, Rest::Body | Rest::Over | Rest::Closed) {
        assert_eq!(their_rest, HyperRest::Open, "{rest:?}, but hyper refuses: {shown}");
    }
    (ours, rest)
}

/// Checks a connection that begins with a reply, in these pieces. Returns what is made of it here.
fn compare_replies(bytes: &[u8], pieces: &[&[u8]]) -> Result<Option<ours::Reply>, (HttpFault, usize)> {
    let shown = bytes.escape_ascii();
    let ours = ours::reply(pieces);
    let theirs = theirs::reply(pieces, true);
    match &ours {
        Ok(Some(reply)) => {
            assert_eq!(theirs, Ok(Some(reply.message.clone())), "{shown}");
            if reply.framing != BodyEnd::ToEnd {
                // It ends where hyper needs nothing more, and no byte before.
                let (taken, _) = bytes.split_at(reply.taken);
                assert_eq!(theirs::reply(&[taken], false), theirs, "{shown}");
                let cut = theirs::reply(&[&taken[..taken.len() - 1]], false);
                assert_eq!(cut, Ok(None), "hyper needs no {} bytes of {shown}", taken.len());
            }
        }
        Ok(None) => assert!(!matches!(theirs, Ok(Some(_))), "no whole reply, but for hyper: {shown}"),
        Err((fault, at)) => {
            let is_alike = theirs.is_err()
                || theirs == Ok(None) && theirs::reply(&[bytes, HEAD_END], true).is_err()
                || is_strictness(*fault, &bytes[*at..]);
            assert!(is_alike, "{fault:?} at {at}, but hyper reads {theirs:?}: {shown}");
        }
    }
    ours
}

/// The same whole, a byte at a time, and cut like this.
fn however_cut<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    sizes: &[usize],
    check: impl Fn(&[u8], &[&[u8]]) -> T,
) -> T {
    let whole = check(bytes, &[bytes]);
    for sizes in [&[1], sizes] {
        assert_eq!(check(bytes, &cut(bytes, sizes)), whole, "cut by {sizes:?}: {}", bytes.escape_ascii());
    }
    whole
}

/// The bytes in pieces of these sizes, in turn.
fn cut<'b>(bytes: &'b [u8], sizes: &[usize]) -> Vec<&'b [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at(rest.len().min(*size));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// That hyper reads the same requests of these bytes, whole and in pieces of these sizes.
///
/// # Panics
/// If it does not.
pub fn check_requests(bytes: &[u8], sizes: &[usize]) {
    however_cut(bytes, sizes, compare_requests);
}

/// That hyper reads the same reply of these bytes, whole and in pieces of these sizes.
///
/// # Panics
/// If it does not.
pub fn check_replies(bytes: &[u8], sizes: &[usize]) {
    let _ = however_cut(bytes, sizes, compare_replies);
}

#[cfg(test)]
mod tests;
