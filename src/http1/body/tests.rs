use proptest::prelude::*;

use super::*;

/// What became of a body that came in these pieces: its data, whether it ended, and what was left over.
fn read(framing: BodyEnd, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, Vec<u8>), HttpFault> {
    let mut decoder = Decoder::new(framing);
    let (mut data, mut over) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.step(rest)? {
                BodyStep::Data { skip, len } => {
                    assert!(len > 0);
                    data.extend_from_slice(&rest[skip..skip + len]);
                    rest = &rest[skip + len..];
                }
                BodyStep::More => break,
                BodyStep::End { skip } => {
                    over.extend_from_slice(&rest[skip..]);
                    break;
                }
            }
        }
    }
    if let [whole] = pieces {
        let (same, taken) = Decoder::new(framing).data(whole)?;
        assert_eq!((&*same, &whole[taken..]), (data.as_slice(), over.as_slice()));
    }
    Ok((data, decoder.is_over(), over))
}

/// The same verdict whole, a byte at a time, and in two pieces cut anywhere.
fn verdict(framing: BodyEnd, bytes: &[u8]) -> Result<(Vec<u8>, bool, Vec<u8>), HttpFault> {
    let whole = read(framing, &[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(framing, &single), whole, "byte by byte: {:?}", bytes.escape_ascii().to_string());
    for cut in 0..=bytes.len() {
        let (start, end) = bytes.split_at(cut);
        assert_eq!(
            read(framing, &[start, end]),
            whole,
            "cut at {cut}: {:?}",
            bytes.escape_ascii().to_string()
        );
    }
    whole
}

#[test]
fn a_length_is_counted() {
    assert_eq!(verdict(BodyEnd::Length(3), b"abcde"), Ok((b"abc".to_vec(), true, b"de".to_vec())));
    assert_eq!(verdict(BodyEnd::Length(3), b"ab"), Ok((b"ab".to_vec(), false, vec![])));
    assert_eq!(verdict(BodyEnd::Length(0), b"ab"), Ok((vec![], true, b"ab".to_vec())));
    assert_eq!(verdict(BodyEnd::ToEnd, b"ab"), Ok((b"ab".to_vec(), false, vec![])));
    let decoder = Decoder::new(BodyEnd::ToEnd);
    assert!(decoder.may_end_here() && !decoder.is_over() && decoder.left().is_none());
    let decoder = Decoder::new(BodyEnd::Length(3));
    assert!(!decoder.may_end_here() && decoder.left() == Some(3));
    assert!(!Decoder::new(BodyEnd::Chunked).may_end_here());
}

#[test]
fn chunks_are_joined() {
    for (bytes, data, over) in [
        ("0\r\n\r\n", "", ""),
        ("3\r\nabc\r\n0\r\n\r\n", "abc", ""),
        ("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nHTTP", "abc0123456789", "HTTP"),
        ("0003\r\nabc\r\n000\r\n\r\n", "abc", ""),
        ("3;a=b\r\nabc\r\n0;last\r\n\r\n", "abc", ""),
        ("3 \t;a=\"b c\"\r\nabc\r\n0 \r\n\r\n", "abc", ""),
        ("1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", "\r\n", ""),
        ("1\r\na\r\n0\r\nx: y\r\nz:\r\n\r\n", "a", ""),
    ] {
        let expected = Ok((data.as_bytes().to_vec(), true, over.as_bytes().to_vec()));
        assert_eq!(verdict(BodyEnd::Chunked, bytes.as_bytes()), expected, "{bytes:?}");
    }
}

#[test]
fn malformed_chunks_are_refused() {
    let long_line = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(CHUNK_LINE_BYTES_MAX));
    let long_trailer = format!("0\r\nx: {}\r\n\r\n", "y".repeat(TRAILER_BYTES_MAX));
    for (bytes, refusal) in [
        ("\r\n", HttpFault::Chunk),
        (";a\r\n", HttpFault::Chunk),
        (" 1\r\na\r\n", HttpFault::Chunk),
        ("+1\r\na\r\n", HttpFault::Chunk),
        ("-1\r\na\r\n", HttpFault::Chunk),
        ("0x1\r\na\r\n", HttpFault::Chunk),
        ("1g\r\na\r\n", HttpFault::Chunk),
        ("1 a\r\na\r\n", HttpFault::Chunk),
        ("1_0\r\n", HttpFault::Chunk),
        ("1\na\r\n0\r\n\r\n", HttpFault::LineEnd),
        ("1;a\na\r\n0\r\n\r\n", HttpFault::LineEnd),
        ("1\r\ra\r\n", HttpFault::Chunk),
        ("1;a\rb\r\na\r\n", HttpFault::Chunk),
        ("1;a\0\r\na\r\n", HttpFault::Chunk),
        ("1;a\x7f\r\na\r\n", HttpFault::Chunk),
        ("1\r\nab\r\n0\r\n\r\n", HttpFault::Chunk),
        ("1\r\na\n0\r\n\r\n", HttpFault::Chunk),
        ("1\r\na0\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx: y\n\r\n", HttpFault::LineEnd),
        ("0\r\n\n", HttpFault::LineEnd),
        ("0\r\n\rx", HttpFault::Chunk),
        ("0\r\n x: y\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx: y\r\n folded\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx: \0\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx: y\rz\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx\r\n\r\n", HttpFault::Chunk),
        ("0\r\nx : y\r\n\r\n", HttpFault::Chunk),
        ("0\r\n0\r\n\r\n", HttpFault::Chunk),
        ("0\r\nGET / HTTP/1.1\r\nx: y\r\n\r\n", HttpFault::Chunk),
        ("0\r\nGET http://a/ HTTP/1.1\r\n\r\n", HttpFault::Chunk),
        ("1000000000000000\r\n", HttpFault::Chunk),
        ("0000000000000001\r\na\r\n", HttpFault::Chunk),
        (&long_line, HttpFault::Chunk),
        (&long_trailer, HttpFault::Chunk),
    ] {
        let shown = &bytes[..bytes.len().min(40)];
        assert_eq!(read(BodyEnd::Chunked, &[bytes.as_bytes()]), Err(refusal), "{shown:?}");
        let single: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
        assert_eq!(read(BodyEnd::Chunked, &single), Err(refusal), "{shown:?}, byte by byte");
    }
}

#[test]
fn the_largest_chunk_is_counted_exactly() {
    let mut decoder = Decoder::new(BodyEnd::Chunked);
    assert_eq!(decoder.step(b"fffffffffffffff\r\nab"), Ok(BodyStep::Data { skip: 17, len: 2 }));
    assert_eq!(decoder.0, BodyPosition::Chunk(0x0fff_ffff_ffff_ffff - 2));
}

proptest! {
    #[test]
    fn what_was_cut_into_chunks_is_what_comes_out(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in prop::collection::vec(1_usize..20, 1..40),
        over in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes.extend_from_slice(&over);
        let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        prop_assert_eq!(read(BodyEnd::Chunked, &pieces), Ok((chunks.concat(), true, over)));
    }

    #[test]
    fn no_bytes_are_read_differently_in_pieces(
        bytes in "[0-3a;:x \t\r\n\u{0}]{0,30}", chunked in any::<bool>(),
    ) {
        let framing = if chunked { BodyEnd::Chunked } else { BodyEnd::Length(4) };
        let _ = verdict(framing, bytes.as_bytes());
    }
}
