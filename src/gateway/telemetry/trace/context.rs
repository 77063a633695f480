//! W3C trace context: the headers `traceparent` and `tracestate`.
//!
//! What is malformed is as good as absent, and then its `tracestate` counts for nothing either. Whose call is not
//! traced keeps its headers as they came; that is not decided here.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceState;

/// The header that names a trace and a span of it.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what tracing systems on the way have noted.
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of `traceparent` in the one version there is.
const LENGTH: usize = 55;
/// The flag of traces that are recorded.
pub(super) const SAMPLED: u8 = 1;
/// The flag of trace ids that are random.
const RANDOM: u8 = 2;
/// More of a `tracestate` is handed on, but not kept with spans.
const STATE_BYTES_MAX: usize = 512;

pub(super) type TraceId = [u8; 16];
pub(super) type SpanId = [u8; 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// Those flags that have a meaning.
    pub(super) flags: u8,
}

impl Parent {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::read(value.as_bytes()),
            _ => None,
        }
    }

    /// Whether it is recorded.
    pub(super) fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Later versions may append to what this one says.
    fn read(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut version = [0];
        let mut flags = [0];
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        let mut fields = known.split(|byte| *byte == b'-');
        for field in [&mut version[..], &mut trace_id, &mut span_id, &mut flags] {
            decode(fields.next()?, field)?;
        }
        let is_of_version = match version[0] {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        let is_valid = is_of_version && fields.next().is_none() && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, flags: flags[0] & (SAMPLED | RANDOM) })
    }
}

/// What a `tracestate` says, to be kept with spans. `None`: it says nothing that can be read.
pub(super) fn state(headers: &HeaderMap) -> Option<TraceState> {
    let mut whole = String::new();
    for value in headers.get_all(TRACESTATE) {
        let comma = if whole.is_empty() { "" } else { "," };
        whole = whole + comma + value.to_str().ok()?;
    }
    let state = whole.parse().ok()?;
    Some(if whole.len() > STATE_BYTES_MAX { TraceState::NONE } else { state })
}

/// The `traceparent` that names this span.
pub(super) fn traceparent(trace_id: &TraceId, span_id: SpanId, flags: u8) -> Option<HeaderValue> {
    let mut text = String::with_capacity(LENGTH);
    text.push_str("00-");
    encode(trace_id, &mut text);
    text.push('-');
    encode(&span_id, &mut text);
    text.push('-');
    encode(&[flags], &mut text);
    text.try_into().ok()
}

fn encode(bytes: &[u8], text: &mut String) {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    for byte in bytes {
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

/// Digits are in lower case.
fn decode(text: &[u8], bytes: &mut [u8]) -> Option<()> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != bytes.len() * 2 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn of(values: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, value.parse().expect("a value"));
        }
        Parent::of(&headers)
    }

    #[test]
    fn what_is_malformed_is_absent() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for (value, flags) in [
            (good.clone(), Some(1)),
            (format!("00-{TRACE}-{SPAN}-00"), Some(0)),
            (format!("00-{TRACE}-{SPAN}-03"), Some(3)),
            (format!("00-{TRACE}-{SPAN}-f9"), Some(1)),
            // A later version.
            (format!("01-{TRACE}-{SPAN}-01"), Some(1)),
            (format!("cc-{TRACE}-{SPAN}-01-more"), Some(1)),
            (format!("cc-{TRACE}-{SPAN}-01more"), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("00-{TRACE}-{SPAN}-0"), None),
            (format!("00-{TRACE}-{SPAN}-0g"), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00_{TRACE}_{SPAN}_01"), None),
            (format!("00-{SPAN}-{TRACE}-01"), None),
            (format!(" 00-{TRACE}-{SPAN}-1"), None),
            ("00-1-2-01".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(of(&[&value]).map(|parent| parent.flags), flags, "{value}");
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[&good, &good]), None);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let value = format!("00-{TRACE}-{SPAN}-01");
        let parent = of(&[&value]).expect("a parent");
        assert!(parent.is_sampled());
        let written = traceparent(&parent.trace_id, parent.span_id, parent.flags).expect("a value");
        assert_eq!(written, value);
    }

    #[test]
    fn a_state_is_kept_as_far_as_it_can_be_read() {
        let long = ["a", "b", "c"].map(|key| format!("{key}={}", "1".repeat(200))).join(",");
        let too_long = format!("a={}", "1".repeat(600));
        for (values, kept) in [
            (&["a=1,b=2"][..], Some("a=1,b=2")),
            (&["a=1", "b=2"], Some("a=1,b=2")),
            (&[], Some("")),
            (&["no member"], None),
            (&[&long], Some("")),
            // No value may be as long as this.
            (&[&too_long], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRACESTATE, value.parse().expect("a value"));
            }
            assert_eq!(state(&headers).map(|state| state.header()).as_deref(), kept, "{values:?}");
        }
    }
}
