//! How a message says where its body ends.

use crate::HttpFault;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After so many bytes; none at all with 0.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// With the connection.
    ToEnd,
}

/// The fields of a head that frame its body, as they come by.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    length: Option<u64>,
    is_chunked: bool,
}

impl FramingFields {
    /// Takes in a `Content-Length`.
    ///
    /// # Errors
    /// If there was one before, if there is a coding, or if it is not one plain number.
    pub fn note_length(&mut self, value: &[u8]) -> Result<(), HttpFault> {
        if self.is_chunked {
            return Err(HttpFault::TwoFramings);
        }
        if self.length.is_some() {
            return Err(HttpFault::Length);
        }
        self.length = Some(length(value)?);
        Ok(())
    }

    /// Takes in a `Transfer-Encoding` of a message of HTTP/1.`minor`.
    ///
    /// # Errors
    /// If there is a length, if there was one before, or if it is not `chunked`.
    pub fn note_coding(&mut self, value: &[u8], minor: u8) -> Result<(), HttpFault> {
        if self.length.is_some() {
            return Err(HttpFault::TwoFramings);
        }
        if minor == 0 {
            return Err(HttpFault::Head);
        }
        if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(HttpFault::Coding);
        }
        self.is_chunked = true;
        Ok(())
    }

    /// Of a request.
    pub fn of_request(self) -> BodyEnd {
        if self.is_chunked { BodyEnd::Chunked } else { BodyEnd::Length(self.length.unwrap_or(0)) }
    }

    /// Of a reply with this status to anything but HEAD and CONNECT.
    pub fn of_reply(self, status: u16) -> BodyEnd {
        match (status, self.length) {
            (100..200 | 204 | 304, _) => BodyEnd::Length(0),
            _ if self.is_chunked => BodyEnd::Chunked,
            (_, Some(length)) => BodyEnd::Length(length),
            (_, None) => BodyEnd::ToEnd,
        }
    }
}

/// Digits and nothing else, the first no zero unless it is alone; at most 63 bits.
fn length(value: &[u8]) -> Result<u64, HttpFault> {
    let (b"0" | [b'1'..=b'9', ..]) = value else { return Err(HttpFault::Length) };
    let number = value.iter().try_fold(0_i64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(digit.into())
    });
    number.and_then(|number| u64::try_from(number).ok()).ok_or(HttpFault::Length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_one_plain_number() {
        for (value, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("18446744073709551616", None),
            ("", None),
            ("00", None),
            ("07", None),
            ("+7", None),
            ("-7", None),
            ("7 ", None),
            ("7,7", None),
            ("0x7", None),
            ("7.0", None),
            ("\u{663}", None),
        ] {
            assert_eq!(length(value.as_bytes()), expected.ok_or(HttpFault::Length), "{value:?}");
        }
    }

    #[test]
    fn a_message_has_one_framing_said_once() {
        let (mut fields, seven) = (FramingFields::default(), b"7");
        assert_eq!(fields.note_length(seven), Ok(()));
        assert_eq!(fields.note_length(seven), Err(HttpFault::Length));
        assert_eq!(fields.note_coding(b"chunked", 1), Err(HttpFault::TwoFramings));
        let mut fields = FramingFields::default();
        assert_eq!(fields.note_coding(b"Chunked", 1), Ok(()));
        assert_eq!(fields.note_coding(b"chunked", 1), Err(HttpFault::Coding));
        assert_eq!(fields.note_length(seven), Err(HttpFault::TwoFramings));
        for (coding, minor) in [
            ("chunked, chunked", 1),
            ("gzip", 1),
            ("gzip, chunked", 1),
            ("chunked ", 1),
            ("xchunked", 1),
            ("", 1),
        ] {
            let refused = FramingFields::default().note_coding(coding.as_bytes(), minor);
            assert_eq!(refused, Err(HttpFault::Coding), "{coding:?}");
        }
    }

    #[test]
    fn the_status_says_whether_there_is_a_body() {
        let bare = FramingFields::default();
        let seven = FramingFields { length: Some(7), is_chunked: false };
        let chunked = FramingFields { length: None, is_chunked: true };
        for status in [100, 103, 204, 304] {
            for fields in [bare, seven, chunked] {
                assert_eq!(fields.of_reply(status), BodyEnd::Length(0), "{status}");
            }
        }
        for status in [200, 202, 404, 500] {
            assert_eq!(bare.of_reply(status), BodyEnd::ToEnd);
            assert_eq!(seven.of_reply(status), BodyEnd::Length(7));
            assert_eq!(chunked.of_reply(status), BodyEnd::Chunked);
        }
        assert_eq!(bare.of_request(), BodyEnd::Length(0));
        assert_eq!(seven.of_request(), BodyEnd::Length(7));
        assert_eq!(chunked.of_request(), BodyEnd::Chunked);
    }
}
