//! The header fields of a client's request, where they stand in the bytes that they came in.
//!
//! It finds and hands out; it judges nothing. Names are compared without regard to case, as both versions of HTTP have it.
//! Invariant: each field lies within the bytes.

use std::cell::Cell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// How many fields most requests have no more than.
const USUAL_FIELDS: usize = 16;
/// Memory for more fields is not kept for the next head.
const SPARE_FIELDS_MAX: usize = 4 * USUAL_FIELDS;

/// A field that somebody here looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the name of its field")]
pub enum FieldName {
    Accept,
    AccessControlRequestHeaders,
    Authorization,
    Baggage,
    ContentEncoding,
    ContentType,
    Forwarded,
    Host,
    LastEventId,
    McpMethod,
    McpName,
    /// Any `Mcp-Param-*`.
    McpParam,
    McpProtocolVersion,
    McpSessionId,
    Origin,
    TraceParent,
    TraceState,
    XForwardedFor,
    XRequestId,
    /// One that says only how the message is sent.
    Framing,
    /// Any other.
    Other,
}

impl FieldName {
    /// Which one has this name, which is a token (RFC 9110, 5.6.2).
    pub fn of(name: &[u8]) -> Self {
        let is = |known: &str| is_name(name, known.as_bytes());
        match name.len() {
            4 if is("host") => Self::Host,
            6 if is("accept") => Self::Accept,
            6 if is("origin") => Self::Origin,
            7 if is("baggage") => Self::Baggage,
            8 if is("mcp-name") => Self::McpName,
            9 if is("forwarded") => Self::Forwarded,
            10 if is("mcp-method") => Self::McpMethod,
            10 if is("tracestate") => Self::TraceState,
            10 if is("connection") || is("keep-alive") => Self::Framing,
            11 if is("traceparent") => Self::TraceParent,
            12 if is("content-type") => Self::ContentType,
            12 if is("x-request-id") => Self::XRequestId,
            13 if is("authorization") => Self::Authorization,
            13 if is("last-event-id") => Self::LastEventId,
            14 if is("mcp-session-id") => Self::McpSessionId,
            14 if is("content-length") => Self::Framing,
            15 if is("x-forwarded-for") => Self::XForwardedFor,
            16 if is("content-encoding") => Self::ContentEncoding,
            17 if is("transfer-encoding") => Self::Framing,
            20 if is("mcp-protocol-version") => Self::McpProtocolVersion,
            30 if is("access-control-request-headers") => Self::AccessControlRequestHeaders,
            10.. if name[..10].eq_ignore_ascii_case(b"mcp-param-") => Self::McpParam,
            _ => Self::Other,
        }
    }
}

/// Whether a token is this name, which is as long and in small letters, without regard to case. Eight bytes are compared at
/// once: of all that a token may hold, only a capital letter differs from a small one, or from a hyphen, in this bit alone.
#[inline]
fn is_name(token: &[u8], name: &[u8]) -> bool {
    let small = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) | u64::from_ne_bytes([0x20; 8]);
    let (Some(end), Some(name_end)) = (token.last_chunk(), name.last_chunk()) else {
        return token.eq_ignore_ascii_case(name);
    };
    let (chunks, name_chunks) = (token.as_chunks().0, name.as_chunks().0);
    let is_small = |(token, name): (&[u8; 8], &[u8; 8])| small(token) == u64::from_ne_bytes(*name);
    is_small((end, name_end)) && chunks.iter().zip(name_chunks).all(is_small)
}

impl FieldName {
    /// The name of one of MCP, which needs no memory.
    fn header_name(self) -> Option<HeaderName> {
        match self {
            Self::McpMethod => Some(HeaderName::from_static("mcp-method")),
            Self::McpName => Some(HeaderName::from_static("mcp-name")),
            Self::McpProtocolVersion => Some(HeaderName::from_static("mcp-protocol-version")),
            Self::McpSessionId => Some(HeaderName::from_static("mcp-session-id")),
            Self::Baggage => Some(HeaderName::from_static("baggage")),
            Self::TraceParent => Some(HeaderName::from_static("traceparent")),
            Self::TraceState => Some(HeaderName::from_static("tracestate")),
            _ => None,
        }
    }
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct FieldLine<'f> {
    /// Which one it is.
    pub known: FieldName,
    /// Its name as it is spelled.
    pub name: &'f [u8],
    /// Its value, without the blanks around it.
    pub value: &'f [u8],
}

/// Where a field lies.
#[derive(Clone, Copy, Debug)]
struct FieldPlace {
    known: FieldName,
    name: (usize, usize),
    value: (usize, usize),
}

/// Where the fields lie in a head that is being read. Its memory is its thread's, which uses it for the next head.
#[derive(Clone, Debug, Default)]
pub struct FieldPlaces(Vec<FieldPlace>);

thread_local! {
    static SPARE: Cell<Vec<FieldPlace>> = const { Cell::new(Vec::new()) };
}

impl Drop for FieldPlaces {
    fn drop(&mut self) {
        if (1..=SPARE_FIELDS_MAX).contains(&self.0.capacity()) {
            self.0.clear();
            SPARE.set(std::mem::take(&mut self.0));
        }
    }
}

impl FieldPlaces {
    /// Of a head in which nothing was found yet.
    pub fn begin() -> Self {
        let mut places = SPARE.take();
        places.reserve(USUAL_FIELDS);
        Self(places)
    }

    /// True if there is one of those that are known.
    pub fn has(&self, known: FieldName) -> bool {
        self.0.iter().any(|place| place.known == known)
    }

    /// Notes a field whose name and value are parts of `bytes`, unless it says only how the message is sent.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], name: &[u8], value: &[u8]) {
        let known = FieldName::of(name);
        if known == FieldName::Framing {
            return;
        }
        let start = |part: &[u8]| part.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
        let (name_start, value_start) = (start(name), start(value));
        // Whatever is no part of the bytes reads as empty.
        self.0.push(FieldPlace {
            known,
            name: (name_start, name_start.wrapping_add(name.len())),
            value: (value_start, value_start.wrapping_add(value.len())),
        });
    }
}

/// The fields of a request, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    bytes: Bytes,
    places: FieldPlaces,
}

impl Fields {
    /// Those that were noted in these bytes.
    pub fn new(bytes: Bytes, places: FieldPlaces) -> Self {
        Self { bytes, places }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.0.is_empty()
    }

    /// The bytes of which they are parts.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = FieldLine<'_>> {
        self.places.0.iter().map(|place| self.field(place))
    }

    /// All of them, each with its value as text, if it is visible ASCII, blanks and tabs.
    pub fn iter_with_text(&self) -> impl Iterator<Item = (FieldLine<'_>, Option<&str>)> {
        // One look at all of them costs less than one at each.
        let end = self.places.0.last().map_or(0, |last| last.value.1);
        let head = self.bytes.get(..end).and_then(visible);
        self.places.0.iter().map(move |place| {
            let field = self.field(place);
            let text = match head {
                Some(head) => head.get(place.value.0..place.value.1),
                None => visible(field.value),
            };
            (field, text)
        })
    }

    /// The values of one of those that are known.
    pub fn all(&self, known: FieldName) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.places.0.iter().filter(move |place| place.known == known).map(|place| self.part(place.value))
    }

    /// The first value of one of those that are known.
    pub fn first(&self, known: FieldName) -> Option<&[u8]> {
        self.all(known).next()
    }

    /// The value of one of those that are known, if there is exactly one.
    pub fn only(&self, known: FieldName) -> Option<&[u8]> {
        let mut values = self.all(known);
        values.next().filter(|_| values.next().is_none())
    }

    /// The values of whatever has this name.
    pub fn named<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        let is = |field: &FieldLine<'_>| field.name.eq_ignore_ascii_case(name.as_bytes());
        self.iter().filter(is).map(|field| field.value)
    }

    /// Keeps those for which `wants` is true.
    pub fn retain(&mut self, wants: impl Fn(FieldLine<'_>) -> bool) {
        let Self { bytes, places } = self;
        places.0.retain(|place| wants(field(bytes, place)));
    }

    /// Writes those for which `wants` is true as lines of HTTP/1.1.
    pub fn write_lines(&self, out: &mut Vec<u8>, wants: impl Fn(FieldName) -> bool) {
        let mut run = Range::default();
        for place in self.places.0.iter().filter(|place| wants(place.known)) {
            let (start, end) = (place.name.0, place.value.1);
            if self.bytes.get(end..).is_none_or(|rest| !rest.starts_with(b"\r\n")) {
                out.extend_from_slice(self.bytes.get(std::mem::take(&mut run)).unwrap_or_default());
                let FieldLine { name, value, .. } = self.field(place);
                write_line(out, name, value);
                continue;
            }
            // Lines that follow each other are copied as one.
            if run.end != start {
                out.extend_from_slice(self.bytes.get(run).unwrap_or_default());
                run = start..start;
            }
            run.end = end + 2;
        }
        out.extend_from_slice(self.bytes.get(run).unwrap_or_default());
    }

    /// Adds those for which `wants` is true to a map, whose values share memory with each other alone: it may be kept longer
    /// than these.
    pub fn append_to(&self, headers: &mut HeaderMap, wants: impl Fn(FieldName) -> bool) {
        let mut wanted = self.places.0.iter().filter(|place| wants(place.known)).peekable();
        if wanted.peek().is_none() {
            return;
        }
        let end = self.places.0.last().map_or(0, |last| last.value.1);
        let bytes = Bytes::copy_from_slice(self.bytes.get(..end).unwrap_or_default());
        for place in wanted {
            let name =
                place.known.header_name().or_else(|| HeaderName::from_bytes(self.part(place.name)).ok());
            let value = HeaderValue::from_maybe_shared(bytes.slice_ref(part(&bytes, place.value)));
            if let (Some(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
    }

    fn field(&self, place: &FieldPlace) -> FieldLine<'_> {
        field(&self.bytes, place)
    }

    fn part(&self, place: (usize, usize)) -> &[u8] {
        part(&self.bytes, place)
    }
}

fn field<'f>(bytes: &'f [u8], place: &FieldPlace) -> FieldLine<'f> {
    FieldLine { known: place.known, name: part(bytes, place.name), value: part(bytes, place.value) }
}

/// Writes a field as a line of HTTP/1.1.
#[inline]
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn part(bytes: &[u8], (start, end): (usize, usize)) -> &[u8] {
    bytes.get(start..end).unwrap_or_default()
}

/// A value as text, if it is visible ASCII, blanks and tabs.
pub fn visible(value: &[u8]) -> Option<&str> {
    // Nothing below a blank but the tab is ever in a value, nor is DEL.
    simdutf8::basic::from_utf8(value).ok().filter(|value| value.is_ascii())
}

/// What HTTP/2 brings.
impl From<&HeaderMap> for Fields {
    fn from(headers: &HeaderMap) -> Self {
        let lengths = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
        let mut bytes = BytesMut::with_capacity(lengths.sum());
        let mut places = FieldPlaces::begin();
        let mut put = |part: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(part);
            (start, bytes.len())
        };
        for (name, value) in headers {
            let name = name.as_str().as_bytes();
            let at = put(name);
            put(b": ");
            let value = put(value.as_bytes());
            put(b"\r\n");
            places.0.push(FieldPlace { known: FieldName::of(name), name: at, value });
        }
        Self { bytes: bytes.freeze(), places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(head: &'static str) -> Fields {
        let mut places = FieldPlaces::begin();
        for line in head.split_terminator("\r\n") {
            let (name, value) = line.split_once(':').expect("a colon");
            places.push(head.as_bytes(), name.as_bytes(), value.trim().as_bytes());
        }
        Fields::new(Bytes::from_static(head.as_bytes()), places)
    }

    #[test]
    fn names_are_known_in_any_case() {
        for (name, known) in [
            ("HOST", FieldName::Host),
            ("Mcp-Name", FieldName::McpName),
            ("mcp-param-x", FieldName::McpParam),
            ("Mcp-Param-", FieldName::McpParam),
            ("mcp-paramx", FieldName::Other),
            ("MCP-Protocol-Version", FieldName::McpProtocolVersion),
            ("X-Request-ID", FieldName::XRequestId),
            ("x", FieldName::Other),
            ("", FieldName::Other),
        ] {
            assert_eq!(FieldName::of(name.as_bytes()), known, "{name}");
        }
    }

    #[test]
    fn values_are_found_by_name() {
        let fields = fields("Accept: a\r\nX-Y:  b \r\naccept:c\r\n");
        assert_eq!(fields.all(FieldName::Accept).collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(fields.first(FieldName::Host), None);
        assert_eq!((fields.only(FieldName::Accept), fields.only(FieldName::Host)), (None, None));
        assert_eq!(fields.named("x-y").collect::<Vec<_>>(), [b"b"]);
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn lines_are_written_as_they_came() {
        let fields = fields("Host: h\r\nA: 1\r\nB:2\r\nAccept: x\r\nC: 3 \r\nD: 4\r\n");
        let mut out = Vec::new();
        fields.write_lines(&mut out, |known| known == FieldName::Other);
        assert_eq!(String::from_utf8_lossy(&out), "A: 1\r\nB:2\r\nC: 3\r\nD: 4\r\n");
    }

    #[test]
    fn a_map_says_the_same() {
        let fields = fields("Host: h\r\nA: 1\r\na: 2\r\n");
        let mut map = HeaderMap::new();
        fields.append_to(&mut map, |_| true);
        let again = Fields::from(&map);
        let mut out = Vec::new();
        again.write_lines(&mut out, |_| true);
        assert_eq!(String::from_utf8_lossy(&out), "host: h\r\na: 1\r\na: 2\r\n");
    }
}
