//! Joining the chunks in which a message arrives. One that arrives in one chunk is handed on as it came,
//! without a copy.

use bytes::{Bytes, BytesMut};

/// The chunks so far.
#[derive(Debug, Default)]
pub struct Chunks {
    first: Bytes,
    joined: BytesMut,
}

impl Chunks {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// True before the first byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a chunk. `expected_bytes` is set aside for the whole once there are two.
    pub fn push(&mut self, chunk: Bytes, expected_bytes: usize) {
        if self.is_empty() {
            self.first = chunk;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(expected_bytes.max(self.len() + chunk.len()));
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&chunk);
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
    fn joins_and_leaves_a_single_chunk_where_it_is() {
        for (chunks, whole) in [
            (&[][..], ""),
            (&["", ""][..], ""),
            (&["one"], "one"),
            (&["", "one", ""], "one"),
            (&["a", "", "bc", "d"], "abcd"),
        ] {
            let mut joined = Chunks::default();
            for chunk in chunks {
                joined.push(Bytes::from_static(chunk.as_bytes()), 0);
            }
            assert_eq!((joined.len(), &joined.into_bytes()[..]), (whole.len(), whole.as_bytes()));
        }
        let chunk = Bytes::from_static(b"where it is");
        let mut joined = Chunks::default();
        joined.push(chunk.clone(), 1024);
        assert_eq!(joined.into_bytes().as_ptr(), chunk.as_ptr());
    }
}
