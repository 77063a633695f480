//! Where spans go and how: `[trace]` of the configuration, and the `OTEL_*` variables for what it leaves out.
//!
//! Without an endpoint in either, and with `OTEL_SDK_DISABLED`, nothing is traced. A variable that cannot be read
//! counts as not set and is warned of, as OpenTelemetry has it.

use std::path::PathBuf;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Uri};

use super::sampler::Sampler;
use net::tls;

const PROTOCOL: &str = "http/protobuf";
/// Spans that may wait, whatever is asked for.
const QUEUE_MAX: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
#[error("traces: {0}")]
pub struct TraceSettingsError(#[from] pub(super) tls::TlsSettingsError);

#[derive(Debug, PartialEq)]
pub(super) struct TraceSettings {
    pub(super) endpoint: Uri,
    /// Of every request, the media type among them.
    pub(super) headers: HeaderMap,
    /// The certificates that are believed of the receiver, if not those of the system.
    pub(super) ca: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// For one batch, with all that is tried for it.
    pub(super) batch_timeout: Duration,
    /// How long a span waits at most for others.
    pub(super) delay: Duration,
    pub(super) queue_max: usize,
    pub(super) batch_max: usize,
    pub(super) sampler: Sampler,
    pub(super) service_name: Option<String>,
}

/// The file of the certificates that are believed of the receiver, if one is named.
pub(crate) fn ca_of(config: Option<&config::Trace>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var(name).ok();
    TraceSettings::resolve(&config.cloned().unwrap_or_default(), &variable).0?.ca
}

struct Environment<'e> {
    variable: &'e dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl TraceSettings {
    /// The settings, `None` if nothing is traced, and what there is to warn of.
    pub(super) fn resolve(
        config: &config::Trace,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> (Option<Self>, Vec<String>) {
        let mut environment = Environment { variable, warnings: Vec::new() };
        let settings = environment.settings(config);
        (settings, environment.warnings)
    }
}

impl Environment<'_> {
    fn settings(&mut self, config: &config::Trace) -> Option<TraceSettings> {
        let is_disabled =
            self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let exporter = self.get("OTEL_TRACES_EXPORTER");
        if is_disabled || (config.endpoint.is_none() && exporter.as_deref() == Some("none")) {
            return None;
        }
        let endpoint = self.endpoint(config)?;
        if let Some((name, protocol)) = self.of_otlp("PROTOCOL").filter(|(_, protocol)| protocol != PROTOCOL)
        {
            self.warn(&name, &format!("\"{protocol}\" is not spoken here, {PROTOCOL} is"));
        }
        if let Some((name, _)) = self.of_otlp("COMPRESSION").filter(|(_, compression)| compression != "none")
        {
            self.warn(&name, "spans are not compressed");
        }
        let queue_max = self.number("OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(2048).clamp(1, QUEUE_MAX);
        Some(TraceSettings {
            endpoint,
            headers: self.headers(),
            ca: self.of_otlp("CERTIFICATE").map(|(_, path)| path.into()),
            timeout: self
                .of_otlp("TIMEOUT")
                .and_then(|(name, value)| self.time(&name, &value))
                .unwrap_or(10_000)
                .ms(),
            batch_timeout: self.number("OTEL_BSP_EXPORT_TIMEOUT").unwrap_or(30_000).ms(),
            delay: self.number("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(5_000).clamp(10, 600_000).ms(),
            queue_max,
            batch_max: self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(512).clamp(1, queue_max),
            sampler: self.sampler(config),
            service_name: self.get("OTEL_SERVICE_NAME"),
        })
    }

    fn endpoint(&mut self, config: &config::Trace) -> Option<Uri> {
        if let Some(endpoint) = &config.endpoint {
            return endpoint.parse().ok();
        }
        let whole = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (name, url) = match self.get(whole) {
            Some(url) => (whole, url),
            None => (base, format!("{}/v1/traces", self.get(base)?.trim_end_matches('/'))),
        };
        let endpoint = config::trace_endpoint(&url);
        if endpoint.is_none() {
            self.warn(name, "not an http or https URL without credentials; nothing is traced");
        }
        endpoint
    }

    /// The values are often secrets.
    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some((name, list)) = self.of_otlp("HEADERS") {
            for member in list.split(',').filter(|member| !member.trim().is_empty()) {
                match header(member) {
                    Some((key, value)) => drop(headers.insert(key, value)),
                    None => self.warn(&name, "one of its members is not a header, written `name=value`"),
                }
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers
    }

    fn sampler(&mut self, config: &config::Trace) -> Sampler {
        let name = "OTEL_TRACES_SAMPLER";
        let sampler = self.get(name);
        let (follows_parent, kind) = match sampler.as_deref() {
            None => (true, "always_on"),
            Some(sampler) => match sampler.strip_prefix("parentbased_") {
                Some(root) => (true, root),
                None => (false, sampler),
            },
        };
        let (follows_parent, ratio) = match kind {
            "always_on" => (follows_parent, 1.0),
            "always_off" => (follows_parent, 0.0),
            "traceidratio" => (follows_parent, self.sampler_ratio()),
            _ => {
                self.warn(name, "not known here; parentbased_always_on it is");
                (true, 1.0)
            }
        };
        let ratio = config.ratio.map_or(ratio, config::Ratio::get);
        Sampler::new(ratio, config.follow_parent.unwrap_or(follows_parent))
    }

    fn sampler_ratio(&mut self) -> f64 {
        let name = "OTEL_TRACES_SAMPLER_ARG";
        let Some(text) = self.get(name) else { return 1.0 };
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            _ => {
                self.warn(name, "not a number from 0 to 1");
                1.0
            }
        }
    }

    /// The variable for traces, or that for all signals.
    fn of_otlp(&self, what: &str) -> Option<(String, String)> {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn number(&mut self, name: &str) -> Option<usize> {
        let text = self.get(name)?;
        self.time(name, &text)
    }

    fn time(&mut self, name: &str, text: &str) -> Option<usize> {
        let number = text.trim().parse().ok().filter(|number| *number > 0);
        if number.is_none() {
            self.warn(name, "not a number above 0");
        }
        number
    }

    /// An empty variable is none.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn warn(&mut self, name: &str, why: &str) {
        self.warnings.push(format!("{name}: {why}"));
    }
}

trait Milliseconds {
    fn ms(self) -> Duration;
}

impl Milliseconds for usize {
    fn ms(self) -> Duration {
        Duration::from_millis(self as u64)
    }
}

fn header(member: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = member.split_once('=')?;
    let mut value = HeaderValue::from_bytes(&percent_decoded(value.trim())?).ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            u8::try_from(digit()? << 4 | digit()?).ok()?
        } else {
            byte
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: config::Trace = config::Trace { endpoint: None, ratio: None, follow_parent: None };

    fn resolve(config: &config::Trace, variables: &[(&str, &str)]) -> (Option<TraceSettings>, Vec<String>) {
        TraceSettings::resolve(config, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_endpoint_is_where_it_is_written_first() {
        let written = config::Trace { endpoint: Some("http://a/b".into()), ..NOTHING };
        let (whole, base) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        for (config, variables, endpoint, warnings) in [
            (&NOTHING, &[][..], None, 0),
            (&NOTHING, &[(base, "")], None, 0),
            (&NOTHING, &[(base, "http://c:4318")], Some("http://c:4318/v1/traces"), 0),
            (&NOTHING, &[(base, "http://c:4318/x/")], Some("http://c:4318/x/v1/traces"), 0),
            (&NOTHING, &[(base, "http://c"), (whole, "https://d/e")], Some("https://d/e"), 0),
            (&NOTHING, &[(whole, "http://d")], Some("http://d/"), 0),
            (&written, &[(base, "http://c"), (whole, "https://d/e")], Some("http://a/b"), 0),
            (&NOTHING, &[(base, "c:4318")], None, 1),
            (&NOTHING, &[(base, "ftp://c:4318")], None, 1),
            (&NOTHING, &[(whole, "http://me:secret@c/")], None, 1),
            (&written, &[("OTEL_SDK_DISABLED", "True")], None, 0),
            (&written, &[("OTEL_SDK_DISABLED", "no")], Some("http://a/b"), 0),
            (&NOTHING, &[(base, "http://c"), ("OTEL_TRACES_EXPORTER", "none")], None, 0),
            (&written, &[("OTEL_TRACES_EXPORTER", "none")], Some("http://a/b"), 0),
            (&written, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], Some("http://a/b"), 1),
            (&written, &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")], Some("http://a/b"), 1),
        ] {
            let (settings, warned) = resolve(config, variables);
            let found = settings.map(|settings| settings.endpoint.to_string());
            assert_eq!(found.as_deref(), endpoint, "{variables:?}");
            assert_eq!(warned.len(), warnings, "{warned:?}");
        }
    }

    #[test]
    fn what_is_configured_wins() {
        let ratio = |ratio| config::Ratio::new(ratio);
        for (configured, follows, variables, expected, warnings) in [
            (None, None, &[][..], Sampler::new(1.0, true), 0),
            (None, None, &[("OTEL_TRACES_SAMPLER", "always_on")], Sampler::new(1.0, false), 0),
            (None, None, &[("OTEL_TRACES_SAMPLER", "always_off")], Sampler::new(0.0, false), 0),
            (None, None, &[("OTEL_TRACES_SAMPLER", "parentbased_always_off")], Sampler::new(0.0, true), 0),
            (
                None,
                None,
                &[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")],
                Sampler::new(0.25, false),
                0,
            ),
            (
                None,
                None,
                &[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")],
                Sampler::new(1.0, true),
                1,
            ),
            (None, None, &[("OTEL_TRACES_SAMPLER", "jaeger_remote")], Sampler::new(1.0, true), 1),
            (ratio(0.5), Some(true), &[("OTEL_TRACES_SAMPLER", "always_off")], Sampler::new(0.5, true), 0),
            (ratio(0.5), None, &[("OTEL_TRACES_SAMPLER", "always_off")], Sampler::new(0.5, false), 0),
        ] {
            let config = config::Trace {
                endpoint: Some("http://a/".into()),
                ratio: configured,
                follow_parent: follows,
            };
            let (settings, warned) = resolve(&config, variables);
            assert_eq!(settings.map(|settings| settings.sampler), Some(expected), "{variables:?}");
            assert_eq!(warned.len(), warnings, "{warned:?}");
        }
    }

    #[test]
    fn the_rest_is_as_the_variables_say() {
        let (settings, warnings) = resolve(
            &NOTHING,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x=y"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20s3cret , a=b%2Cc,, d,é=1,e=%4"),
                ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
                ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000"),
                ("OTEL_BSP_SCHEDULE_DELAY", "0"),
                ("OTEL_BSP_EXPORT_TIMEOUT", "many"),
                ("OTEL_SERVICE_NAME", " edge "),
            ],
        );
        let settings = settings.expect("settings");
        let shown = format!("{settings:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        let headers: Vec<_> =
            settings.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(headers.len(), 3);
        assert!(headers.contains(&("authorization", b"Bearer s3cret")), "{headers:?}");
        assert!(headers.contains(&("a", b"b,c")), "{headers:?}");
        assert_eq!(settings.timeout, Duration::from_millis(250));
        assert_eq!(settings.batch_timeout, Duration::from_secs(30));
        assert_eq!(settings.delay, Duration::from_secs(5));
        assert_eq!((settings.queue_max, settings.batch_max), (100, 100));
        assert_eq!(settings.ca, Some("/ca.pem".into()));
        assert_eq!(settings.service_name.as_deref(), Some("edge"));
        assert_eq!(warnings.len(), 5, "{warnings:?}");
    }
}
