//! The access log: one line for each call, when its reply has ended.
//!
//! Of answered calls a share is written; refused, failed and cancelled ones are written up to the same bound per second
//! and worker as their lines in the other log, so that nobody fills a disk with them. A line is made in memory that the
//! worker keeps, and handed over without waiting.

use std::cell::{Cell, RefCell};
use std::time::SystemTime;

use prometheus::IntCounter;

use super::call_record::CallRecord;
use super::logs::line::Line;
use super::logs::{self, LineBudget, cut};
use crate::clock;
use crate::identity::Principal;
use config::{Access, AccessField, Log, LogFormat};
use protocol::error::Reason;

/// By what a line among others says that it is about a call.
const TARGET: &str = "access";

#[derive(Debug)]
pub(crate) struct AccessLog {
    form: RefCell<Option<AccessLineFormat>>,
    /// Answered calls whose number is below are written; all with `None`.
    below: Cell<Option<u64>>,
    failures: LineBudget,
    line: RefCell<Vec<u8>>,
}

#[derive(Debug)]
struct AccessLineFormat {
    access: Access,
    /// Lines stand among others, and say that they are about calls.
    is_shared: bool,
    is_journal: bool,
}

impl AccessLog {
    pub(crate) fn new(log: &Log, dropped_total: IntCounter) -> Self {
        let this = Self {
            form: RefCell::default(),
            below: Cell::new(Some(0)),
            failures: LineBudget::new(0, dropped_total),
            line: RefCell::default(),
        };
        this.refresh(log);
        this
    }

    pub(crate) fn refresh(&self, log: &Log) {
        let form = log.access.clone().map(|access| AccessLineFormat {
            is_shared: logs::is_shared(log),
            is_journal: logs::is_access_in_journal(log),
            access,
        });
        self.below.set(form.as_ref().map_or(Some(0), |form| below(form.access.success_ratio.get())));
        self.failures.set_max(log.refusals_per_second_max);
        self.form.replace(form);
    }

    /// Whether the call that begins, of this random number, is to be written even if it is answered.
    pub(crate) fn takes_success(&self, random: u64) -> bool {
        self.below.get().is_none_or(|below| random < below)
    }

    /// Writes a line, if there is a log.
    pub(crate) fn write(&self, call: &CallRecord<'_>) {
        let form = self.form.borrow();
        let Some(form) = form.as_ref() else { return };
        if call.reason.is_some() {
            let Some(dropped) = self.failures.admit(clock::now()) else { return };
            if dropped > 0 {
                tracing::warn!(dropped, "lines about calls were left out of the access log");
            }
        }
        let mut line = self.line.borrow_mut();
        line.clear();
        form.write(call, clock::calendar(), &mut line);
        logs::push_access(&line);
    }
}

/// `None`: all.
fn below(ratio: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of 2⁶⁴, of which rounding is no part that counts"
    )]
    let below = (ratio * u64::MAX as f64) as u64;
    (ratio < 1.0).then_some(below)
}

impl AccessLineFormat {
    fn write(&self, call: &CallRecord<'_>, at: SystemTime, out: &mut Vec<u8>) {
        let format = self.access.format;
        if self.is_journal {
            out.extend_from_slice(b"<6>");
        }
        let mut line = Line::begin(format, out);
        let has_time = !self.is_journal;
        if format == LogFormat::Text {
            // As the other lines look.
            if has_time && self.access.fields.contains(&AccessField::Time) {
                line.moment(at);
            }
            if self.is_shared {
                line.plain(if has_time { " INFO access: call" } else { "access: call" });
            }
        } else if self.is_shared {
            line.word("target", &TARGET);
        }
        for field in &self.access.fields {
            match field {
                AccessField::Time if has_time && format != LogFormat::Text => line.time("time", at),
                AccessField::Time => {}
                _ => write_field(&mut line, *field, call),
            }
        }
        line.end();
    }
}

fn write_field(line: &mut Line<'_>, field: AccessField, call: &CallRecord<'_>) {
    let mut word = |key, value: Option<&str>| match value {
        Some(value) => line.word(key, &value),
        None => line.none(key),
    };
    let principal = match call.principal {
        Principal::Anonymous => None,
        principal @ Principal::Known(_) => Some(cut(principal.name())),
    };
    match field {
        AccessField::Time => {}
        AccessField::RequestId => line.word("request_id", call.request_id),
        AccessField::TraceId => match call.trace_id {
            Some(id) => line.word("trace_id", &format_args!("{:032x}", u128::from_be_bytes(id))),
            None => line.none("trace_id"),
        },
        AccessField::Client => line.word("client", &call.client),
        AccessField::Principal => word("principal", principal.as_deref()),
        AccessField::Endpoint => word("endpoint", call.endpoint),
        AccessField::Method => word("method", Some(call.method)),
        AccessField::Name => word("name", call.name.map(cut).as_deref()),
        AccessField::Upstream => word("upstream", call.upstream),
        AccessField::Version => word("version", call.version),
        AccessField::Status => match call.status {
            Some(status) => line.number("status", status),
            None => line.none("status"),
        },
        AccessField::Error => word("error", call.reason.map(Reason::label)),
        AccessField::RequestBytes => line.number("request_bytes", call.request_bytes),
        AccessField::ReplyBytes => line.number("reply_bytes", call.reply_bytes),
        AccessField::DurationMs => {
            let micros = call.ended.duration_since(call.started).as_micros();
            line.number("duration_ms", format_args!("{}.{:03}", micros / 1000, micros % 1000));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::telemetry::request_id::RequestId;

    const TIME: &str = "1970-01-01T00:00:00.000000Z";

    fn form(format: LogFormat, fields: &[AccessField]) -> AccessLineFormat {
        let access = Access {
            format,
            file: None,
            success_ratio: config::Ratio::new(1.0).expect("a share"),
            fields: fields.to_vec(),
        };
        AccessLineFormat { access, is_shared: false, is_journal: false }
    }

    fn line(form: &AccessLineFormat, name: Option<&str>) -> String {
        let principal = Principal::api_key("ci");
        let started = clock::now();
        let call = CallRecord {
            message: None,
            request_id: &RequestId::Client("r=1".into()),
            started,
            ended: started + Duration::from_micros(12_034),
            endpoint: Some("/mcp"),
            method: "tools/call",
            name,
            upstream: None,
            principal: &principal,
            client: IpAddr::from([203, 0, 113, 7]),
            version: Some("2026-07-28"),
            request_bytes: 120,
            reply_bytes: 0,
            status: Some(200),
            reason: Some(Reason::Cancelled),
            trace_id: Some([0x0a; 16]),
        };
        let mut out = Vec::new();
        form.write(&call, UNIX_EPOCH, &mut out);
        String::from_utf8(out).expect("a line is UTF-8").trim_end_matches('\n').to_owned()
    }

    #[test]
    fn every_field_in_each_form() {
        let error = Reason::Cancelled.label();
        let pairs = format!(
            r#"request_id="r=1" trace_id={} client=203.0.113.7 principal=ci endpoint=/mcp method=tools/call name=echo upstream=- version=2026-07-28 status=200 error={error} request_bytes=120 reply_bytes=0 duration_ms=12.034"#,
            "0a".repeat(16)
        );
        let line = |format| line(&form(format, &AccessField::ALL), Some("echo?token=1"));
        assert_eq!(line(LogFormat::Text), format!("{TIME} {pairs}"));
        assert_eq!(line(LogFormat::Logfmt), format!("time={TIME} {pairs}"));
        let json: serde_json::Value = serde_json::from_str(&line(LogFormat::Json)).expect("JSON");
        assert_eq!(json.as_object().expect("an object").len(), AccessField::ALL.len());
        assert_eq!((&json["upstream"], &json["status"]), (&serde_json::Value::Null, &200.into()));
        assert_eq!(json["duration_ms"], 12.034);
    }

    #[test]
    fn fields_are_chosen_and_in_order() {
        let fields = [AccessField::Status, AccessField::Name, AccessField::Time];
        assert_eq!(line(&form(LogFormat::Logfmt, &fields), None), format!("status=200 name=- time={TIME}"));
        assert_eq!(
            line(&form(LogFormat::Text, &fields), Some("a b")),
            format!("{TIME} status=200 name=\"a b\"")
        );
    }

    #[test]
    fn lines_among_others_say_what_they_are() {
        let mut shared = form(LogFormat::Text, &[AccessField::Time, AccessField::Status]);
        shared.is_shared = true;
        assert_eq!(line(&shared, None), format!("{TIME}  INFO access: call status=200"));
        shared.is_journal = true;
        assert_eq!(line(&shared, None), "<6>access: call status=200");
        shared.access.format = LogFormat::Json;
        assert_eq!(line(&shared, None), r#"<6>{"target":"access","status":200}"#);
    }

    #[test]
    fn shares_of_numbers() {
        let is_below = |ratio, random| below(ratio).is_none_or(|below| random < below);
        for (ratio, random, expected) in [
            (0.0, 0, false),
            (1.0, u64::MAX, true),
            (0.5, u64::MAX / 4, true),
            (0.5, u64::MAX / 4 * 3, false),
            (0.01, u64::MAX / 50, false),
        ] {
            assert_eq!(is_below(ratio, random), expected, "{ratio} {random}");
        }
    }
}
