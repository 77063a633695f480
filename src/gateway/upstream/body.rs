//! Bodies of replies that must be complete before they can be used.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::time::timeout_at;

use super::incoming::Incoming;
use crate::access::limit::byte_budget::{ByteBudget, Reservation};
use net::chunks::Chunks;
use protocol::error::{Error, GatewayError, UpstreamError};

/// Reads a reply that must be complete before it can be handed on, and counts it as long as it is held.
pub(crate) async fn collect(
    body: &mut Incoming,
    bytes_max: usize,
    deadline: Instant,
    budget: &Arc<ByteBudget>,
) -> Result<(Bytes, Reservation), Error> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(UpstreamError::TooLarge.into());
    }
    let mut held = budget.reservation();
    let read = async {
        let mut pieces = Chunks::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| UpstreamError::Reset)?.into_data() else { continue };
            if pieces.len() + data.len() > bytes_max {
                return Err(UpstreamError::TooLarge.into());
            }
            if !held.grow(data.len()) {
                return Err(GatewayError::Buffers.into());
            }
            pieces.push(data, 0);
            if body.is_end_stream() {
                break;
            }
        }
        Ok(pieces.into_bytes())
    };
    let whole: Result<Bytes, Error> =
        timeout_at(deadline.into(), read).await.unwrap_or(Err(UpstreamError::TimedOut.into()));
    Ok((whole?, held))
}
