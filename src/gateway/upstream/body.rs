//! Bodies of replies that must be complete before they can be used.

use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::exchange::{Reply, UpstreamClient};
use super::incoming::Incoming;
use super::{Upstream, pool};
use crate::access::limit::shares::{NoShare, Share};
use crate::clock;
use net::chunks::Chunks;
use protocol::error::{Error, GatewayError, PolicyError, UpstreamError};
use protocol::media::Media;

/// How much of a failed reply is read to see whether it is an error of JSON-RPC.
const FAILED_BYTES_MAX: usize = 64 * 1024;

/// Reads a reply that must be complete before it can be handed on, and counts it as long as it is held.
pub(crate) async fn collect(
    body: &mut Incoming,
    bytes_max: usize,
    deadline: Instant,
    mut held: Share,
) -> Result<(Bytes, Share), Error> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(UpstreamError::TooLarge.into());
    }
    if let Incoming::Whole(whole) = body {
        let whole = whole.take().unwrap_or_default();
        held.grow(whole.len()).map_err(no_memory)?;
        return Ok((whole, held));
    }
    let read = async {
        let mut pieces = Chunks::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| UpstreamError::Reset)?.into_data() else { continue };
            if pieces.len() + data.len() > bytes_max {
                return Err(UpstreamError::TooLarge.into());
            }
            held.grow(data.len()).map_err(no_memory)?;
            pieces.push(data, 0);
            if body.is_end_stream() {
                break;
            }
        }
        Ok(pieces.into_bytes())
    };
    let whole: Result<Bytes, Error> =
        clock::until(deadline, read).await.unwrap_or(Err(UpstreamError::TimedOut.into()));
    Ok((whole?, held))
}

/// What is told to whom there is no memory for a message.
pub(crate) fn no_memory(none: NoShare) -> Error {
    match none {
        NoShare::NothingLeft => GatewayError::Buffers.into(),
        NoShare::TooMuchOfPayer => PolicyError::Buffers.into(),
    }
}

/// Reads the answer in a reply that is no stream, and says what it says of the replica. What comes with another status
/// than success may be anything.
pub(crate) async fn collect_answer(
    client: &UpstreamClient,
    upstream: &Upstream,
    reply: Reply,
    deadline: Instant,
    mut is_answer: impl FnMut(&Bytes) -> bool,
) -> Result<(Bytes, Share), UpstreamError> {
    let Reply { head, mut body, mut lease, .. } = reply;
    let limits = client.limits();
    let bytes_max = if head.status.is_success() { limits.message_bytes_max } else { FAILED_BYTES_MAX };
    let (whole, held) =
        match collect(&mut body, bytes_max, deadline, limits.budget.open(upstream.payer())).await {
            Ok(collected) => collected,
            Err(Error::Upstream(error)) => {
                pool::note_error(lease.as_mut(), &error);
                return Err(error);
            }
            Err(_) => return Err(UpstreamError::TooManyConnections),
        };
    if head.status.is_success() && !is_answer(&whole) {
        // The connection is out of step.
        upstream.series.mismatched.inc();
        pool::note_error(lease.as_mut(), &UpstreamError::Nonsense);
        return Err(UpstreamError::Nonsense);
    }
    if head.status.is_server_error()
        && head.media == Media::Json
        && let Some(lease) = &mut lease
    {
        // An error of JSON-RPC is an answer, whatever its status.
        let is_busy = head.status == StatusCode::SERVICE_UNAVAILABLE;
        lease.in_flight.decide(is_busy || is_answer(&whole));
    }
    pool::give_back(lease, clock::now());
    Ok((whole, held))
}
