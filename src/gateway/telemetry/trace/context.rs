//! W3C trace context: `traceparent`, `tracestate` and `baggage`, of headers or of `_meta`.
//!
//! A malformed context is as good as absent, and then its `tracestate` counts for nothing either. A call that is not
//! traced keeps both as they came; that is not decided here.

use http::HeaderValue;
use http::header::HeaderName;
use opentelemetry::trace::TraceState;
use protocol::fields::{FieldName, Fields, visible};
use protocol::text::shown;

use crate::telemetry::logs::cut;

/// The header that names a trace and a span of it.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with what tracing systems on the way have noted.
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The header with what the members of a trace tell each other.
pub(super) const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The length of `traceparent` in the one version there is.
const LENGTH: usize = 55;
/// The flag of traces that are recorded.
pub(super) const SAMPLED: u8 = 1;
/// The flag of trace ids that are random.
const RANDOM: u8 = 2;
/// More of a `tracestate` is handed on, but not kept with spans.
const STATE_BYTES_MAX: usize = 512;
/// A longer text in `_meta` does not become a header: so much of `baggage` has to pass everywhere.
const HEADER_BYTES_MAX: usize = 8192;

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
    pub(super) fn of(fields: &Fields) -> Option<Self> {
        let mut values = fields.all(FieldName::TraceParent);
        match (values.next(), values.next()) {
            (Some(value), None) => Self::read(value),
            _ => None,
        }
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Later versions may append to what this one says.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut fields = known.split(|byte| *byte == b'-');
        let mut next = |digits| number(fields.next()?, digits);
        let [version, trace_id, span_id, flags] = [next(2)?, next(32)?, next(16)?, next(2)?];
        let is_of_version = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        let is_valid = is_of_version && fields.next().is_none() && trace_id != 0 && span_id != 0;
        is_valid.then_some(Self {
            trace_id: trace_id.to_be_bytes(),
            span_id: u64::try_from(span_id).ok()?.to_be_bytes(),
            flags: u8::try_from(flags).ok()? & (SAMPLED | RANDOM),
        })
    }
}

/// The notes of tracing systems on the way.
#[derive(Clone, Debug)]
pub(super) struct TraceNotes {
    /// As it is handed on.
    pub(super) text: Box<str>,
    /// As it is kept with spans.
    pub(super) kept: TraceState,
}

impl TraceNotes {
    /// Those of the header. `None`: they say nothing that can be read.
    pub(super) fn of(fields: &Fields) -> Option<Self> {
        let mut whole = String::new();
        for value in fields.all(FieldName::TraceState) {
            let comma = if whole.is_empty() { "" } else { "," };
            whole = whole + comma + visible(value)?;
        }
        Self::read(whole)
    }

    pub(super) fn read(text: String) -> Option<Self> {
        let state = text.parse().ok()?;
        let kept = if text.len() > STATE_BYTES_MAX { TraceState::NONE } else { state };
        Some(Self { text: text.into(), kept })
    }
}

/// The header that says the same as a member of `_meta`. `None`: no header may say it.
pub(super) fn header_of(text: &str) -> Option<HeaderValue> {
    let fits = !text.is_empty() && text.len() <= HEADER_BYTES_MAX && visible(text.as_bytes()).is_some();
    text.parse().ok().filter(|_| fits)
}

/// A client's text as a span holds it: as much as is logged, with what is not seen spelled out.
pub(super) fn spelled(text: &str) -> String {
    shown(&cut(text))
}

/// The `traceparent` that names this span.
pub(super) fn traceparent(trace_id: &TraceId, span_id: SpanId, flags: u8) -> String {
    let (trace_id, span_id) = (u128::from_be_bytes(*trace_id), u64::from_be_bytes(span_id));
    format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
}

/// A number of so many hexadecimal digits, which are in lower case.
fn number(text: &[u8], digits: usize) -> Option<u128> {
    let is_spelled =
        text.len() == digits && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(std::str::from_utf8(text).ok().filter(|_| is_spelled)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn of(values: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, value.parse().expect("a value"));
        }
        Parent::of(&Fields::from(&headers))
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
        assert_eq!(traceparent(&parent.trace_id, parent.span_id, parent.flags), value);
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
            assert_eq!(
                TraceNotes::of(&Fields::from(&headers)).map(|notes| notes.kept.header()).as_deref(),
                kept,
                "{values:?}"
            );
        }
    }

    #[test]
    fn only_what_fits_becomes_a_header() {
        let (longest, too_long) = ("a".repeat(HEADER_BYTES_MAX), "a".repeat(HEADER_BYTES_MAX + 1));
        for (text, expected) in [
            ("k=v,l=%20", true),
            (&longest, true),
            (&too_long, false),
            ("", false),
            ("k=v\r\nx: 1", false),
            ("k=\u{e4}", false),
        ] {
            assert_eq!(header_of(text).is_some(), expected, "{text}");
        }
    }
}
