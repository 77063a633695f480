//! `[trace]`: where traces go.

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::ConfigError;
use super::file::File;
use super::resolve::Findings;
use super::value::{Key, Ratio};

/// Where traces go. What is left out is taken from the environment's `OTEL_*` variables.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenTrace {
    /// The URL that takes spans as OTLP over HTTP (protobuf), such as `http://127.0.0.1:4318/v1/traces`. Default:
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `/v1/traces` below `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[schemars(example = "http://127.0.0.1:4318/v1/traces")]
    pub(super) endpoint: Key<String>,
    /// Share of the calls that are traced, 0 to 1, where the client's `traceparent` does not decide it. Default:
    /// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`, else 1.
    pub(super) ratio: Key<Ratio>,
    /// Whether a client's `traceparent` decides if its call is traced. Default:
    /// `OTEL_TRACES_SAMPLER`, else true.
    pub(super) follow_parent: Key<bool>,
}

/// `[trace]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Where spans go: an `http` or `https` URL; `None`: the environment says.
    pub endpoint: Option<String>,
    /// Share of the calls that are traced; `None`: the environment says.
    pub ratio: Option<Ratio>,
    /// Whether a client's `traceparent` decides; `None`: the environment says.
    pub follow_parent: Option<bool>,
}

/// A URL that spans can be posted to. It holds no credentials, which would be shown wherever it is.
pub fn endpoint(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    Some(url).filter(|_| is_http && is_plain)
}

/// Checks `[trace]`.
pub(super) fn resolve(file: &File, findings: &mut Findings) -> Option<Trace> {
    let written = file.trace.value()?;
    let endpoint = written.endpoint.0.as_ref().map(|at| {
        if self::endpoint(&at.value).is_none() {
            let message =
                "not a URL, or one with credentials: write for example \"http://127.0.0.1:4318/v1/traces\"";
            let error = ConfigError::new(at.span.clone(), message);
            findings.errors.push(if at.value.contains('@') { error.secret() } else { error });
        }
        at.value.clone()
    });
    Some(Trace {
        endpoint,
        ratio: written.ratio.value().copied(),
        follow_parent: written.follow_parent.value().copied(),
    })
}
