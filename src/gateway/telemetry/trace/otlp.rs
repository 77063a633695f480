//! One batch of spans, as OTLP over HTTP: encoded, posted, and what the receiver says to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use http_body_util::Full;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;

use super::settings::TraceSettings;
use crate::telemetry::logs::shorten;
use net::fetch::Fetcher;
use net::http_client::HttpError;
use net::tls::Connector;

/// Nobody says more than this about a batch.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// A receiver that wants more time than this gets no more than this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Receiver<'s> {
    pub(super) settings: &'s TraceSettings,
    pub(super) tls: Option<&'s Arc<Connector>>,
    pub(super) fetcher: Fetcher,
    pub(super) resource: ResourceAttributesWithSchema,
}

/// Why a batch was not taken.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) why: String,
    /// Whether it may be taken later, and when to ask at the earliest.
    pub(super) again: Option<Duration>,
}

/// Who we are: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or just this program.
pub(super) fn resource(settings: &TraceSettings, version: &'static str) -> ResourceAttributesWithSchema {
    let ours = [KeyValue::new("service.name", "trunkline"), KeyValue::new("service.version", version)];
    let mut resource = Resource::builder_empty()
        .with_attributes(ours)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    if let Some(name) = &settings.service_name {
        resource = resource.with_service_name(name.clone());
    }
    (&resource.build()).into()
}

impl Receiver<'_> {
    pub(super) fn encode(&self, spans: Vec<SpanData>) -> Bytes {
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    /// Posts a batch. Returns how many of its spans were not taken.
    pub(super) async fn post(&self, batch: Bytes, deadline: Instant) -> Result<u64, Rejection> {
        let mut request = Request::new(Full::new(batch));
        *request.method_mut() = http::Method::POST;
        self.settings.endpoint.clone_into(request.uri_mut());
        self.settings.headers.clone_into(request.headers_mut());
        let answer = self.fetcher.fetch(request, self.tls, ANSWER_BYTES_MAX, deadline).await;
        let answer = answer.map_err(|error| Rejection::of_fetch(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(rejected(answer.body()));
        }
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let wanted =
            answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let wanted = Duration::from_secs(wanted.unwrap_or(0)).min(RETRY_AFTER_MAX);
        Err(Rejection { why: format!("the receiver answered {status}"), again: is_passing.then_some(wanted) })
    }
}

impl Rejection {
    fn of_fetch(error: &HttpError) -> Self {
        let is_passing = match error {
            HttpError::Unreachable(_) | HttpError::ConnectTimedOut(_) | HttpError::TimedOut => true,
            HttpError::Proxy { fault, .. } => fault.may_pass(),
            _ => false,
        };
        Self { why: error.to_string(), again: is_passing.then_some(Duration::ZERO) }
    }
}

/// How many spans the receiver did not take, as far as its answer can be read.
fn rejected(answer: &[u8]) -> u64 {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let Some(partial) = partial else { return 0 };
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
    if rejected > 0 {
        let why = shorten(&partial.error_message);
        tracing::debug!(rejected, why, "the receiver of traces did not take all spans");
    }
    rejected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_the_commit() {
        let config = config::Trace { endpoint: Some("http://a/b".into()), ratio: None, follow_parent: None };
        let settings = TraceSettings::resolve(&config, &|_| None).0.expect("an endpoint");
        let version = "1.2.3+20260203040506.0a1b2c3d";
        let told = format!("{:?}", resource(&settings, version));
        assert!(told.contains("service.version") && told.contains(version), "{told}");
    }
}
