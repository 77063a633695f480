//! What Prometheus reads: its text format 0.0.4, to the byte as the `prometheus` crate writes it.
//!
//! What is the same in every scrape, heads, labels and bounds, is text before the first one. Invariant: lines go into one
//! buffer, and writing one allocates nothing.

use std::fmt::Write as _;
use std::io::Write as _;

use prometheus::proto::MetricType;

use super::sharded::Distribution;

/// Whole numbers below are written as they are; beyond, the format has no more digits than an `f64`.
const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// What stands before the series of a metric.
pub(crate) fn head(name: &str, help: &str, kind: MetricType) -> String {
    let mut text = format!("# HELP {name} ");
    escape(help, false, &mut text);
    let _ = writeln!(text, "\n# TYPE {name} {}", label_of(kind));
    text
}

/// What kind of metric it is, as it is written.
pub(crate) fn label_of(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

/// The labels of a series, without the braces.
pub(crate) fn labels<'l>(pairs: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{separator}{name}=\"");
        escape(value, true, &mut text);
        text.push('"');
    }
    text
}

fn escape(value: &str, escapes_quotes: bool, text: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if escapes_quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

/// Where one series is written.
pub(crate) struct SeriesLines<'t> {
    pub text: &'t mut Vec<u8>,
    /// The metric.
    pub name: &'t str,
    /// The upper bounds of its buckets, as they are written.
    pub bounds: &'t [Box<str>],
    /// As [`labels`] wrote them.
    pub labels: &'t str,
}

impl SeriesLines<'_> {
    /// The only line of a counter or a gauge.
    pub(crate) fn sample(&mut self, value: impl SampleValue) {
        self.line("", value);
    }

    /// All lines of a histogram.
    pub(crate) fn histogram(&mut self, counted: &Distribution) {
        let begin = self.text.len();
        let le = if self.labels.is_empty() { "le=\"" } else { ",le=\"" };
        self.push(&[self.name, "_bucket{", self.labels, le]);
        let beginning = begin..self.text.len();
        for (bound, count) in self.bounds.iter().zip(&counted.cumulative) {
            self.push(&[bound, "\"} "]);
            count.write(self.text);
            self.text.push(b'\n');
            self.text.extend_from_within(beginning.clone());
        }
        self.push(&["+Inf\"} "]);
        counted.count.write(self.text);
        self.text.push(b'\n');
        self.line("_sum", counted.sum);
        self.line("_count", counted.count);
    }

    fn line(&mut self, suffix: &str, value: impl SampleValue) {
        let [open, close] = if self.labels.is_empty() { ["", " "] } else { ["{", "} "] };
        self.push(&[self.name, suffix, open, self.labels, close]);
        value.write(self.text);
        self.text.push(b'\n');
    }

    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.text.extend_from_slice(part.as_bytes());
        }
    }
}

/// The value of a sample.
pub(crate) trait SampleValue {
    fn write(self, text: &mut Vec<u8>);
}

impl SampleValue for u64 {
    fn write(self, text: &mut Vec<u8>) {
        if self < EXACT_MAX {
            text.extend_from_slice(itoa::Buffer::new().format(self).as_bytes());
        } else {
            #[expect(clippy::cast_precision_loss, reason = "the format knows nothing else")]
            (self as f64).write(text);
        }
    }
}

impl SampleValue for i64 {
    fn write(self, text: &mut Vec<u8>) {
        if self < 0 {
            text.push(b'-');
        }
        self.unsigned_abs().write(text);
    }
}

impl SampleValue for f64 {
    fn write(self, text: &mut Vec<u8>) {
        // Memory cannot fail to be written to.
        let _ = write!(text, "{self}");
    }
}
