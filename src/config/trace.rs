//! `[trace]`: where traces go.

use http::Uri;

use super::section::section;
use super::text::texts;
use super::value::Ratio;

section! {
    /// Where traces go. What is left out is taken from the environment's `OTEL_*` variables. Takes effect at the next
    /// start.
    #[derive(Default)]
    pub struct Trace {
        /// The URL that takes spans as OTLP over HTTP (protobuf). Credentials for it go into
        /// `OTEL_EXPORTER_OTLP_HEADERS`. Default: `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `/v1/traces` below
        /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
        #[example("http://127.0.0.1:4318/v1/traces")]
        endpoint: Option<SpansUrl>,
        /// Share of the calls that are traced, 0 to 1, where the client's `traceparent` does not decide it. Default:
        /// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`, else 1.
        #[example(0.001)]
        ratio: Option<Ratio>,
        /// Whether a client's `traceparent` decides if its call is traced. Default: `OTEL_TRACES_SAMPLER`, else true.
        #[example(true)]
        follow_parent: Option<bool>,
    }
}

texts! {
    /// A URL that spans can be posted to.
    pub SpansUrl -> String, "^https?://[^@]+$", |text: &str| match endpoint(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("not a URL, or one with credentials: write for example \"http://127.0.0.1:4318/v1/traces\"".into())
        }
    };
}

/// A URL that spans can be posted to. It holds no credentials, which would be shown wherever it is.
pub fn endpoint(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    Some(url).filter(|_| is_http && is_plain)
}
