//! HTTP/1.1 as bytes: where a head ends and what it says, how long the body is, where its data lie.
//!
//! Pure: bytes go in, values come out. No sockets, no clock, no buffers of its own.
//!
//! It refuses rather than repairs. Whatever two readers could see differently is an error. A client that sent it gets the
//! status, and its connection ends; from an upstream each is 502. Sections are of RFC 9112, unless another is named.
//!
//! | input | verdict | status | section |
//! |---|---|---|---|
//! | a line of a head, of a chunk's size or of trailers that ends with a bare line feed | [`HttpFault::LineEnd`] | 400 | 2.2 |
//! | a bare carriage return, a control byte, a space before a colon, a folded line | [`HttpFault::Head`] | 400 | 2.2, 5.1, 5.2 |
//! | an empty line before a reply | [`HttpFault::Head`] | 502 | 2.2 |
//! | a head over [`HEAD_BYTES_MAX`], of a request over `header_bytes_max` | [`HttpFault::HeadSize`] | 431 | 3, 6585 5 |
//! | more than [`FIELDS_MAX`] fields | [`HttpFault::HeadSize`] | 431 | 5, 6585 5 |
//! | `Content-Length` twice, even with the same value | [`HttpFault::Length`] | 400 | 6.3 |
//! | a length with a sign, a blank, a comma, a leading zero, or over 63 bits | [`HttpFault::Length`] | 400 | 6.3 |
//! | `Content-Length` beside `Transfer-Encoding` | [`HttpFault::TwoFramings`] | 400 | 6.1 |
//! | a coding other than `chunked`, once | [`HttpFault::Coding`] | 501 | 6.1 |
//! | `Transfer-Encoding` in HTTP/1.0 | [`HttpFault::Head`] | 400 | 6.1 |
//! | a chunk's size with no digit, over 15 digits, or anything but an extension behind it | [`HttpFault::Chunk`] | 400 | 7.1 |
//! | extensions of a chunk over [`CHUNK_LINE_BYTES_MAX`] | [`HttpFault::Chunk`] | 400 | 7.1.1 |
//! | trailers over [`TRAILER_BYTES_MAX`] | [`HttpFault::Chunk`] | 400 | 7.1.2 |
//! | data of a chunk that are not followed by CRLF | [`HttpFault::Chunk`] | 400 | 7.1 |
//! | a trailer that is no field: a next request, perhaps, for who stops reading before it | [`HttpFault::Chunk`] | 400 | 7.1.2 |
//! | a switch of protocols that nobody asked for | [`HttpFault::Head`] | 502 | 9110 15.2.2 |
//! | `keep-alive` of HTTP/1.0 beside bytes beyond ASCII | it is not taken: the connection ends | – | 9.3 |
//!
//! What is a head and yet no request that the gateway takes is refused by those who ask for it:
//!
//! | input | by | status | section |
//! |---|---|---|---|
//! | up to four empty lines before a request are passed over; more | `gateway::edge::http1` | 400 | 2.2 |
//! | more than `headers_max` fields | `gateway::edge::http1` | 431 | 6585 5 |
//! | `TRACE`, `CONNECT` | `gateway::edge::http1` | 405 | 9110 9.3.6, 9.3.8 |
//! | no `Host`, two, a malformed one, or another than the target's | `gateway::access::auth` | 400 | 3.2 |
//! | a `Host` that is not served here | `gateway::access::auth` | 403 | 9110 7.2 |
//! | more than 16 interim heads before a reply | `gateway::upstream::http1` | 502 | 9110 15.2 |

pub mod body;
#[cfg(any(test, fuzzing))]
pub mod differential;
pub mod framing;
pub mod head;

pub use body::{BodyStep, Decoder};
pub use framing::BodyEnd;
pub use head::{RequestHead, ResponseHead};

/// The longest head of a reply.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most fields of a head.
pub const FIELDS_MAX: usize = 128;
/// The longest line that tells the size of a chunk, with its end.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// The most bytes of trailers, which are dropped.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Why a message is not read on. What follows on its connection cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpFault {
    /// The head is not HTTP/1.
    #[error("the head is not valid HTTP/1.1")]
    Head,
    /// The head is too long or has too many fields.
    #[error("the head is too large")]
    HeadSize,
    /// A line ends with a line feed alone.
    #[error("a line ends without a carriage return")]
    LineEnd,
    /// The length of the body is unclear.
    #[error("`Content-Length` is not one plain number")]
    Length,
    /// A body with a length and chunks.
    #[error("both `Content-Length` and `Transfer-Encoding` are there")]
    TwoFramings,
    /// A coding that is not understood.
    #[error("`Transfer-Encoding` is something other than `chunked`")]
    Coding,
    /// The chunks of the body are not well formed.
    #[error("the body is not well formed in chunks")]
    Chunk,
}
