//! Splices: a text with edits is the text with these edits, however long it is and in whatever pieces it comes out.

use bytes::Bytes;
use protocol::splice::{Edit, splice};

/// Each edit is three bytes: how much stays before it, how much it takes away, how much it brings. The rest is the text,
/// as often as the first byte says.
pub fn splices(input: &[u8]) {
    let Some((&[times, count], rest)) = input.split_first_chunk::<2>() else { return };
    let count = usize::from(count % 8).min(rest.len() / 3);
    let (shapes, text) = rest.split_at(3 * count);
    let text = Bytes::from(text.repeat(1 + usize::from(times)));
    let (mut edits, mut expected, mut at) = (Vec::new(), Vec::new(), 0);
    for shape in shapes.chunks_exact(3) {
        let begin = text.len().min(at + usize::from(shape[0]) * 17);
        let end = text.len().min(begin + usize::from(shape[1]));
        let with = Bytes::from(vec![b'#'; usize::from(shape[2])]);
        expected.extend_from_slice(&text[at..begin]);
        expected.extend_from_slice(&with);
        edits.push(Edit { span: begin..end, with });
        at = end;
    }
    expected.extend_from_slice(&text[at..]);
    let mut segments = splice(&text, &edits);
    assert_eq!(segments.len(), expected.len() as u64);
    assert_eq!(*segments.to_bytes(), *expected);
    let mut out = Vec::new();
    while let Some(piece) = segments.pop_at_most(1 + usize::from(times)) {
        assert!(piece.len() <= 1 + usize::from(times));
        out.extend_from_slice(&piece);
    }
    assert_eq!(out, expected);
}
