//! Event streams: the same events whole and in pieces, and none longer than it may be.

use bytes::Bytes;
use protocol::sse::Events;

const EVENT_BYTES_MAX: usize = 512;

/// The first bytes are the sizes of the pieces.
pub fn events(input: &[u8]) {
    let Some((sizes, stream)) = super::sizes(input) else { return };
    let whole = read(std::iter::once(stream));
    assert_eq!(read(super::pieces(stream, &sizes)), whole);
    assert_eq!(read(super::pieces(stream, &[1])), whole);
}

/// What is read of a stream, and whether it could be read to its end.
fn read<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> (Vec<String>, bool) {
    let mut events = Events::new(EVENT_BYTES_MAX);
    let mut seen = Vec::new();
    for piece in pieces {
        events.push(Bytes::copy_from_slice(piece));
        while let Some(event) = events.next() {
            let Ok(event) = event else { return (seen, false) };
            let data = event.data.as_deref().unwrap_or_default();
            assert!(data.len() <= EVENT_BYTES_MAX);
            seen.push(format!("{event:?}"));
        }
    }
    seen.extend(events.finish().map(|last| format!("{last:?}")));
    (seen, true)
}
