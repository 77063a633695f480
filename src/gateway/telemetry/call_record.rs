//! What is known of a call when its reply has ended: what its access log line, its spans and its metrics are made of.

use std::net::IpAddr;
use std::time::Instant;

use crate::identity::Principal;
use crate::telemetry::request_id::RequestId;
use protocol::error::Reason;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRecord<'c> {
    pub request_id: &'c RequestId,
    /// When its headers were read.
    pub started: Instant,
    /// When its reply ended.
    pub ended: Instant,
    pub endpoint: Option<&'c str>,
    pub method: &'static str,
    /// What it called, as the client calls it; as the client wrote it, control characters and all.
    pub name: Option<&'c str>,
    pub upstream: Option<&'c str>,
    pub principal: &'c Principal,
    pub client: IpAddr,
    /// The protocol revision it follows, as far as it was known.
    pub version: Option<&'static str>,
    /// Bytes of its body that were read.
    pub request_bytes: u64,
    /// Bytes of its reply's body that were on their way to the client.
    pub reply_bytes: u64,
    /// The HTTP status of the answer; `None` if the client left before.
    pub status: Option<u16>,
    /// Why it failed; `None` for an answered one.
    pub reason: Option<Reason>,
    /// Why it failed, for operators.
    pub message: Option<&'c str>,
    /// The trace its spans belong to, if it is traced.
    pub trace_id: Option<[u8; 16]>,
}
