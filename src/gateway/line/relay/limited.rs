//! The headers that tell a client how it is limited (draft-ietf-httpapi-ratelimit-headers).

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use protocol::error::Limited;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds the limit that refused a request. Its name is of characters that need no escapes.
pub(super) fn describe(headers: &mut HeaderMap, limited: &Limited) {
    let Limited { limit, quota, period, retry_after } = limited;
    let policy = format!("\"{limit}\";q={quota};w={}", whole_seconds(*period));
    let state = format!("\"{limit}\";r=0;t={}", whole_seconds(*retry_after));
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, state)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

/// Rounded up: who comes back then comes in time.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
