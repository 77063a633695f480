//! Cursors of the gateway's own pages: a position, and a digest of the list it is a position in.
//!
//! A cursor needs no memory: it holds as long as the list is the same, on whatever worker or replica, and is refused
//! once it is another. Clients have no use for what is in it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::tables::lists::cache::ContentDigest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCursor {
    /// Which page; the first is 0.
    pub page: usize,
    pub digest: ContentDigest,
}

impl PageCursor {
    /// As a client is given it: characters that need no escape in JSON.
    pub(crate) fn write(self) -> String {
        let page = u32::try_from(self.page).unwrap_or(u32::MAX);
        URL_SAFE_NO_PAD.encode([&page.to_be_bytes()[..], &self.digest].concat())
    }

    /// Reads what a client gives back. `None`: it was never given out.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (page, digest) = bytes.split_first_chunk::<4>()?;
        let page = usize::try_from(u32::from_be_bytes(*page)).ok()?;
        Some(Self { page, digest: digest.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        for page in [0, 1, 70_000] {
            let cursor = PageCursor { page, digest: [7; 16] };
            assert_eq!(PageCursor::read(&cursor.write()), Some(cursor));
        }
        for text in ["", "x", "AAAA", "====", "\u{e9}", &"A".repeat(1000)] {
            assert_eq!(PageCursor::read(text), None, "{text}");
        }
    }
}
