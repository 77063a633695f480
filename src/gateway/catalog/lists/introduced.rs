//! How an upstream introduced itself, as an answer to `server/discover`: from what is remembered, where it does not answer
//! now.

use bytes::Bytes;

use crate::upstream::Upstream;
use crate::upstream::facts::EMPTY;
use protocol::error::UpstreamError;
use protocol::json::Scratch;
use protocol::translation::introduction;

/// Its words at `initialize`, in those of the modern era.
pub(super) fn in_legacy(upstream: &Upstream, depth_max: usize) -> Result<Bytes, UpstreamError> {
    let known = upstream.facts.known();
    let result = &known.legacy.introduction().ok_or_else(|| upstream.unasked())?.result;
    introduction::to_modern(result, (&mut Scratch::default(), depth_max)).ok_or(UpstreamError::Nonsense)
}

/// Its last words, in whichever era.
pub(super) fn last(upstream: &Upstream, depth_max: usize) -> Option<Bytes> {
    let modern = upstream.facts.known().modern.introduction().map(|said| said.result.clone());
    modern.filter(|result| *result != EMPTY).or_else(|| in_legacy(upstream, depth_max).ok())
}
