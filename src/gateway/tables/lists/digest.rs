//! Digests that tell bytes apart: of capabilities, of pages, of owners.

use sha2::{Digest as _, Sha256};

/// A digest of bytes: the first half of their SHA-256.
pub(crate) type ContentDigest = [u8; 16];

pub(crate) fn digest(pieces: &[&[u8]]) -> ContentDigest {
    let mut sha256 = Sha256::new();
    for piece in pieces {
        sha256.update((piece.len() as u64).to_le_bytes());
        sha256.update(piece);
    }
    let whole: [u8; 32] = sha256.finalize().into();
    let mut half = ContentDigest::default();
    half.copy_from_slice(&whole[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_keep_pieces_apart() {
        assert_eq!(digest(&[b"ab", b"c"]), digest(&[b"ab", b"c"]));
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b"a"]), digest(&[b"a", b""]));
    }
}
