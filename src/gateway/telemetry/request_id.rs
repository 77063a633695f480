//! Names of requests, by which a client's report is found in the logs.

use std::cell::Cell;
use std::fmt;

use http::header::HeaderName;
use protocol::fields::{FieldName, Fields};

/// The header that carries it.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A longer one of a client is not taken.
const CLIENT_BYTES_MAX: usize = 128;
/// One that is no longer, as a UUID is, needs no memory of its own.
const SHORT_BYTES_MAX: usize = 38;

#[derive(Clone, Debug)]
pub(crate) enum RequestId {
    Client(ClientId),
    /// What the gateway does.
    Own {
        thread: u64,
        number: u64,
    },
}

/// What a client calls a request: visible ASCII.
#[derive(Clone, Debug)]
pub(crate) struct ClientId(IdText);

#[derive(Clone, Debug)]
enum IdText {
    /// So many of the bytes.
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Box<str>),
}

#[derive(Debug)]
pub(crate) struct RequestIds {
    thread: u64,
    next: Cell<u64>,
}

impl Default for RequestIds {
    /// Names that no other thread or process gives.
    fn default() -> Self {
        // Without randomness they are still distinct within the thread.
        Self { thread: getrandom::u64().unwrap_or_default(), next: Cell::new(0) }
    }
}

impl RequestIds {
    /// What the client says if it can be written anywhere as it is, else one that is new.
    pub(crate) fn name(&self, fields: &Fields) -> RequestId {
        let number = self.next.get().wrapping_add(1);
        self.next.set(number);
        of_client(fields).unwrap_or(RequestId::Own { thread: self.thread, number })
    }

    /// A number that nobody can foresee, and another for every request.
    pub(crate) fn random(&self) -> u64 {
        let mut mixed = self.thread.wrapping_add(self.next.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn of_client(fields: &Fields) -> Option<RequestId> {
    let mut values = fields.all(FieldName::XRequestId);
    let (value, None) = (values.next()?, values.next()) else { return None };
    let is_sane = (1..=CLIENT_BYTES_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(value).ok().filter(|_| is_sane)?;
    Some(RequestId::Client(text.into()))
}

impl From<&str> for ClientId {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        Self(match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(short), Ok(length)) => {
                short.copy_from_slice(text.as_bytes());
                IdText::Short(length, bytes)
            }
            _ => IdText::Long(text.into()),
        })
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            IdText::Short(length, bytes) => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
            IdText::Long(text) => text,
        })
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::Own { thread: 0, number: 0 }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(id) => id.fmt(f),
            Self::Own { thread, number } => write!(f, "{thread:016x}{number:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn takes_what_is_sane() {
        let long = "x".repeat(CLIENT_BYTES_MAX);
        let longer = format!("{long}x");
        let (short, not_short) = ("s".repeat(SHORT_BYTES_MAX), "n".repeat(SHORT_BYTES_MAX + 1));
        let cases: &[(&[&[u8]], Option<&str>)] = &[
            (&[b"abc-1"], Some("abc-1")),
            (&[b"a=\"b\\"], Some("a=\"b\\")),
            (&[short.as_bytes()], Some(&short)),
            (&[not_short.as_bytes()], Some(&not_short)),
            (&[long.as_bytes()], Some(&long)),
            (&[longer.as_bytes()], None),
            (&[b""], None),
            (&[b"two words"], None),
            (&[b"tab\there"], None),
            (&[b"\xc3\xa4"], None),
            (&[b"one", b"two"], None),
            (&[], None),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in *values {
                headers.append(X_REQUEST_ID, HeaderValue::from_bytes(value).expect("a header"));
            }
            let ids = RequestIds { thread: 0xab, next: Cell::new(0) };
            let own = "00000000000000ab0000000000000001";
            assert_eq!(ids.name(&Fields::from(&headers)).to_string(), expected.unwrap_or(own), "{values:?}");
        }
    }

    #[test]
    fn randomness_is_spread_evenly() {
        let ids = RequestIds::default();
        let below = (0..10_000).filter(|_| {
            ids.name(&Fields::default());
            ids.random() < u64::MAX / 10
        });
        let below = below.count();
        assert!((800..1200).contains(&below), "{below} of 10000 are below a tenth");
    }
}
