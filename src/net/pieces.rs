//! Joining the pieces in which a message arrives. One that arrives in one piece is handed on as it came,
//! without a copy.

use bytes::{Bytes, BytesMut};

/// The pieces so far.
#[derive(Debug, Default)]
pub struct Pieces {
    first: Bytes,
    joined: BytesMut,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// True before the first byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a piece. `expected_bytes` is set aside for the whole once there are two.
    pub fn push(&mut self, piece: Bytes, expected_bytes: usize) {
        if self.is_empty() {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(expected_bytes.max(self.len() + piece.len()));
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&piece);
    }

    /// All of them as one.
    pub fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_and_leaves_a_single_piece_where_it_is() {
        for (pieces, whole) in [
            (&[][..], ""),
            (&["", ""][..], ""),
            (&["one"], "one"),
            (&["", "one", ""], "one"),
            (&["a", "", "bc", "d"], "abcd"),
        ] {
            let mut joined = Pieces::default();
            for piece in pieces {
                joined.push(Bytes::from_static(piece.as_bytes()), 0);
            }
            assert_eq!((joined.len(), &joined.into_bytes()[..]), (whole.len(), whole.as_bytes()));
        }
        let piece = Bytes::from_static(b"where it is");
        let mut joined = Pieces::default();
        joined.push(piece.clone(), 1024);
        assert_eq!(joined.into_bytes().as_ptr(), piece.as_ptr());
    }
}
