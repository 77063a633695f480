//! The number that a message answers, found while the message passes, whether it can be read as a whole or not: it may
//! be too long to be held, nested too deeply, no JSON, or joined with another in one line.

use super::member_scan::{MemberReader, MemberScan};

/// The longest key that is told from others.
const KEY_BYTES_MAX: usize = 6;

/// Follows one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerNumber {
    scan: MemberScan,
    found: FoundMembers,
}

#[derive(Clone, Copy, Debug, Default)]
struct FoundMembers {
    key: [u8; KEY_BYTES_MAX],
    /// The length of the key at hand, whose beginning that is.
    key_bytes: usize,
    /// The digits of the id at hand so far; `None`: it is no number of ours.
    number: Option<u64>,
    has_digits: bool,
    /// The last id.
    id: Option<u64>,
    ids: usize,
    is_request: bool,
    /// Only a real reader could tell a key or an id.
    has_escapes: bool,
    /// The number that an object answers which is over, and how many do.
    answered: Option<u64>,
    answers: usize,
}

impl AnswerNumber {
    /// The number that one whole message answers.
    #[must_use]
    pub fn of(message: &[u8]) -> Option<u64> {
        let mut scan = Self::default();
        scan.push(message);
        scan.number()
    }

    /// Follows the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.scan.push(bytes, &mut self.found);
    }

    /// The number, once the message has passed. `None`: it asks something, or names no number, or leaves in doubt which.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let mut found = self.found;
        // Brackets may be missing.
        found.end_object();
        found.answered.filter(|_| found.answers == 1)
    }
}

impl MemberReader for FoundMembers {
    fn end_member(&mut self) {
        self.key_bytes = 0;
    }

    fn begin_key(&mut self) {
        self.key_bytes = 0;
    }

    fn key(&mut self, bytes: &[u8]) {
        if let Some(rest) = self.key.get_mut(self.key_bytes..) {
            let count = rest.len().min(bytes.len());
            rest[..count].copy_from_slice(&bytes[..count]);
        }
        self.key_bytes = self.key_bytes.saturating_add(bytes.len());
    }

    fn wants(&mut self) -> bool {
        let key = self.key.get(..self.key_bytes).unwrap_or_default();
        self.is_request |= key == b"method";
        (self.number, self.has_digits) = (Some(0), false);
        key == b"id"
    }

    fn value(&mut self, bytes: &[u8], _at: usize) {
        for byte in bytes {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
            self.number = self.number.and_then(|number| number.checked_mul(10)?.checked_add(digit?));
            self.has_digits = true;
        }
    }

    fn end_value(&mut self) {
        self.ids = self.ids.saturating_add(1);
        self.id = self.number.filter(|_| self.has_digits);
    }

    fn escape(&mut self) {
        self.has_escapes = true;
    }

    fn end_object(&mut self) -> bool {
        let Self { id, ids, is_request, has_escapes, answered, answers, .. } = *self;
        let answer = id.filter(|_| ids == 1 && !is_request && !has_escapes);
        // Whoever answers twice answers one call.
        let is_another = answer.is_some() && answer != answered;
        let answers = answers.saturating_add(usize::from(is_another));
        *self = Self { answered: answer.or(answered), answers, ..Self::default() };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_found_in_what_cannot_be_read() {
        let deep = format!(r#"{{"jsonrpc":"2.0","result":{}{},"id":7}}"#, "[".repeat(999), "]".repeat(999));
        for (message, number) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"mean":NaN}}"#.as_bytes(), Some(7)),
            (deep.as_bytes(), Some(7)),
            (b"{\"jsonrpc\":\"2.0\", \"id\" : 70 ,\"result\":\"caf\xe9\tx\"}", Some(70)),
            (br#"{"id":18446744073709551615,"error":}"#, Some(u64::MAX)),
            (br#"{"id":18446744073709551616,"error":}"#, None),
            (br#"{"id":7,"method":"roots/list","params":{"a":NaN}}"#, None),
            (br#"{"result":{"id":7},"error":NaN}"#, None),
            (br#"{"id":"7","result":NaN}"#, None),
            (br#"{"id":-7,"result":NaN}"#, None),
            (br#"{"id":,"result":NaN}"#, None),
            (br#"{"id":[7],"result":NaN}"#, None),
            (br#"{"id":7,"id":8,"result":NaN}"#, None),
            (br#"{"id":7,"\u0069d":8,"result":NaN}"#, None),
            (br#"{"identity":7,"x":NaN}"#, None),
            (br#"{"i":7}"#, None),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7", None),
            (br#"{"id":7,"result":{}}{"method":"notifications/message","params":{}}"#, Some(7)),
            (br#"{"method":"notifications/message","params":{}} {"id":7,"result":{}}"#, Some(7)),
            (br#"{"id":7,"result":{}}{"id":8,"result":{}}"#, None),
            (br#"{"id":7,"result":{}}{"id":7,"result":{}}"#, Some(7)),
            (br#"{"id":7,"method":"ping"}{"id":8,"method":"ping"}"#, None),
            (b"starting {", None),
            (b"", None),
        ] {
            let text = String::from_utf8_lossy(message);
            assert_eq!(AnswerNumber::of(message), number, "{text}");
            for cut in 0..message.len() {
                let mut scan = AnswerNumber::default();
                scan.push(&message[..cut]);
                scan.push(&message[cut..]);
                assert_eq!(scan.number(), number, "{text} cut at {cut}");
            }
        }
    }
}
