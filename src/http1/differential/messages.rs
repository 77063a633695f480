//! Requests and replies as they should be, and what becomes of them by chance: bytes turned, lost and put in, lines
//! doubled, and what is known to be dangerous.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What readers have been seen to disagree about.
const DANGEROUS: [&[u8]; 53] = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n\r\n\r\n\r\n\r\n",
    b"\n\n",
    b"\n\r\n",
    b"\r\r\n",
    b"\r\n ",
    b"\r\n\t",
    b"\0",
    b"\t",
    b" ",
    b"\x0b",
    b"\x0c",
    b"\x7f",
    b"\x80",
    b"\xff",
    b":",
    b" :",
    b",",
    b";",
    b";\n",
    b"0",
    b"00",
    b"+",
    b"-",
    b"_",
    b"0x",
    b"1",
    b"ffffffffffffffff",
    b"18446744073709551616",
    b"9223372036854775808",
    b"chunked",
    b"Chunked",
    b" chunked",
    b"xchunked",
    b"chunked, ",
    b"identity",
    b", identity",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"HTTP/1.2",
    b"HTTP/2.0",
    b"0\r\n\r\n",
    b"0\r\n",
    b"a\r\n",
    b"nonsense\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET http://a/ HTTP/1.1\r\nX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// Lines that a head, or trailers, may have once more.
const LINES: [&[u8]; 22] = [
    b"Content-Length: 0\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 05\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length : 5\r\n",
    b"Content-Length:\r\n",
    b"content-length:\x0b5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding:\r\n chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: x, keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b"X: y\n",
    b" folded: x\r\n",
    b": x\r\n",
    b"nonsense\r\n",
];

/// What a client sends on a connection.
pub(super) fn requests() -> impl Strategy<Value = Bytes> {
    spoiled(prop::collection::vec(request(), 1..4).prop_map(|messages| messages.concat()))
}

/// What a server sends on a connection.
pub(super) fn replies() -> impl Strategy<Value = Bytes> {
    let interim =
        select(vec!["", "", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"]);
    let whole = (interim, reply(), prop::option::weighted(0.2, reply()));
    spoiled(
        whole.prop_map(|(interim, reply, more)| [interim.into(), reply, more.unwrap_or_default()].concat()),
    )
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = select(vec!["POST", "POST", "GET", "DELETE", "HEAD", "m!"]);
    let target = select(vec!["/mcp", "/mcp?a=b", "/", "*", "http://a/mcp", "/\u{e9}", "/%00"]);
    (method, target, version(), rest(false)).prop_map(|(method, target, version, rest)| {
        [format!("{method} {target} {version}\r\n").as_bytes(), &rest].concat()
    })
}

fn reply() -> impl Strategy<Value = Vec<u8>> {
    let status = select(vec![
        "200 OK",
        "200 OK",
        "202",
        "101 Switching",
        "204 No Content",
        "304 Not Modified",
        "404 ",
        "999 \u{e9}",
    ]);
    (version(), status, rest(true))
        .prop_map(|(version, status, rest)| [format!("{version} {status}\r\n").as_bytes(), &rest].concat())
}

fn version() -> impl Strategy<Value = &'static str> {
    prop_oneof![7 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")]
}

/// Fields and body.
fn rest(may_end_with_connection: bool) -> impl Strategy<Value = Vec<u8>> {
    let form = if may_end_with_connection { 0..8 } else { 0..7 };
    let fields = prop::collection::vec(field(), 0..4);
    let trailers = prop::collection::vec(field(), 0..2);
    (fields, form, prop::collection::vec(piece(), 0..4), extension(), trailers).prop_map(
        |(fields, form, pieces, extension, trailers)| {
            let (body, fields) = (pieces.concat(), fields.concat());
            match form {
                0..3 => [&fields[..], format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), &body]
                    .concat(),
                3..6 => {
                    let chunks = pieces.iter().filter(|piece| !piece.is_empty());
                    let chunks = chunks.map(|piece| {
                        [format!("{:x}{extension}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
                    });
                    let chunks: Vec<u8> = chunks.flatten().collect();
                    let end = [b"0\r\n", &trailers.concat()[..], b"\r\n"].concat();
                    [b"Transfer-Encoding: chunked\r\n", &fields[..], b"\r\n", &chunks, &end].concat()
                }
                6 => [&fields[..], b"\r\n"].concat(),
                _ => [&fields[..], b"\r\n", &body].concat(),
            }
        },
    )
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
        "Host: a\r\n",
        "X: \t y \t\r\n",
        "X:\r\n",
        "X: \u{e9}\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Connection: x, CLOSE\r\n",
        "Connection: \u{e9}, close\r\n",
        "Connection: \u{e9}, keep-alive\r\n",
        "Expect: 100-continue\r\n",
        "Mcp-Session-Id: 1\r\n",
    ]);
    prop_oneof![
        3 => known.prop_map(|line| line.as_bytes().to_vec()),
        1 => ("[!#-'*+.0-9A-Z^-z|~-]{1,8}", "[ -~\t]{0,12}").prop_map(|(name, value)| format!("x{name}: {value}\r\n").into()),
    ]
}

fn extension() -> impl Strategy<Value = String> {
    let short = select(vec!["", "", "", ";a=b", " \t;a=\"b c\"", " ", ";"]);
    prop_oneof![20 => short.prop_map(str::to_owned), 1 => Just(";x".repeat(150))]
}

/// A piece of a body, which may look like framing.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        select(&DANGEROUS[..]).prop_map(<[u8]>::to_vec),
        select(&LINES[..]).prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..20),
    ]
}

#[derive(Clone, Debug)]
enum Mutation {
    Turn(Index, u8),
    Insert(Index, &'static [u8]),
    Replace(Index, &'static [u8]),
    Lose(Index, usize),
    /// A line comes twice.
    Double(Index),
    /// A line comes between two others.
    Line(Index, &'static [u8]),
    /// Nothing comes from here on.
    End(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    prop_oneof![
        2 => (at(), 0..8_u32).prop_map(|(at, bit)| Mutation::Turn(at, 1 << bit)),
        3 => (at(), select(&DANGEROUS[..])).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        2 => (at(), select(&DANGEROUS[..])).prop_map(|(at, piece)| Mutation::Replace(at, piece)),
        2 => (at(), 1..5_usize).prop_map(|(at, count)| Mutation::Lose(at, count)),
        1 => at().prop_map(Mutation::Double),
        3 => (at(), select(&LINES[..])).prop_map(|(at, line)| Mutation::Line(at, line)),
        3 => at().prop_map(Mutation::End),
    ]
}

/// As it is shown where a test fails, too.
fn spoiled(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Bytes> {
    (bytes, prop::collection::vec(mutation(), 0..4)).prop_map(|(mut bytes, mutations)| {
        for mutation in mutations {
            spoil(&mut bytes, &mutation);
        }
        bytes.into()
    })
}

fn spoil(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let end = bytes.len();
    // Where lines begin.
    let starts: Vec<usize> = (0..end).filter(|at| *at == 0 || bytes[at - 1] == b'\n').collect();
    let place = |at: &Index| at.index(end + 1);
    let line = |at: &Index| if starts.is_empty() { 0 } else { starts[at.index(starts.len())] };
    let (range, piece) = match mutation {
        Mutation::Turn(at, bits) => {
            let turned = bytes.get(place(at)).map(|byte| vec![byte ^ bits]);
            (place(at)..(place(at) + 1).min(end), turned.unwrap_or_default())
        }
        Mutation::Insert(at, piece) => (place(at)..place(at), piece.to_vec()),
        Mutation::Replace(at, piece) => (place(at)..(place(at) + piece.len()).min(end), piece.to_vec()),
        Mutation::Lose(at, count) => (place(at)..(place(at) + count).min(end), Vec::new()),
        Mutation::Double(at) => {
            let next = starts.iter().find(|start| **start > line(at)).unwrap_or(&end);
            (line(at)..line(at), bytes[line(at)..*next].to_vec())
        }
        Mutation::Line(at, piece) => (line(at)..line(at), piece.to_vec()),
        Mutation::End(at) => (place(at)..end, Vec::new()),
    };
    bytes.splice(range, piece);
}
