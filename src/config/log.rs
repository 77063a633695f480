//! `[log]`: which lines are written, how and where.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::resolve::{Findings, absolute};
use super::value::{Count, GIB, KIB, Key, Ratio, Size};

/// What is logged, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenLog {
    /// Form of the lines.
    #[schemars(extend("default" = "text"))]
    pub(super) format: Key<LogFormat>,
    /// Least severe level that is logged.
    #[schemars(extend("default" = "info"))]
    pub(super) level: Key<LogLevel>,
    /// The file that lines are added to, an absolute path; it is opened anew on SIGHUP. Default: standard error.
    #[schemars(example = "/var/log/trunkline/trunkline.log")]
    pub(super) file: Key<String>,
    /// Lines on standard error begin with their severity as the journal reads it, such as `<6>`, and have no time.
    /// Default: true where standard error is the journal.
    pub(super) journal: Key<bool>,
    /// What may wait for each place that lines go to, in bytes; what does not fit is left out and counted.
    #[schemars(extend("default" = "1MiB"))]
    pub(super) buffer_bytes_max: Key<Size<{ 64 * KIB }, GIB>>,
    /// Lines a second about refused or failed calls, in each of the logs; the rest are counted in one line.
    #[schemars(extend("default" = 100))]
    pub(super) refusals_per_second_max: Key<Count<0, 1_000_000>>,
    /// Which decisions of rules are logged, with target `audit`: `refusals`, `all`, which is a line for each call, or
    /// `none`. Of refusals at most `refusals_per_second_max` lines a second.
    #[schemars(extend("default" = "refusals"))]
    pub(super) audit: Key<Audit>,
    /// One line for each call. Default: none.
    pub(super) access: Key<WrittenAccess>,
}

/// One line for each call.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenAccess {
    /// Form of the lines. Default: that of the other lines.
    pub(super) format: Key<LogFormat>,
    /// The file that lines are added to, an absolute path; it is opened anew on SIGHUP. Default: where the other
    /// lines go.
    #[schemars(example = "/var/log/trunkline/access.log")]
    pub(super) file: Key<String>,
    /// Share of the answered calls that are written, 0 to 1; refused and failed ones are written up to
    /// `refusals_per_second_max`. Default: 1.
    pub(super) success_ratio: Key<Ratio>,
    /// What a line says, in this order. Default: everything.
    pub(super) fields: Key<Vec<AccessField>>,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Form of the lines.
    pub format: LogFormat,
    /// Least severe level that is logged.
    pub level: LogLevel,
    /// The file that lines are added to, an absolute path; `None`: standard error.
    pub file: Option<PathBuf>,
    /// Whether lines on standard error are for the journal; `None`: as standard error is.
    pub journal: Option<bool>,
    /// What may wait for each place that lines go to, in bytes.
    pub buffer_bytes_max: usize,
    /// Lines a second about refused or failed calls; the rest are counted in one line.
    pub refusals_per_second_max: usize,
    /// Which decisions of rules are logged.
    pub audit: Audit,
    /// One line for each call.
    pub access: Option<Access>,
}

/// `[log.access]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Form of the lines.
    pub format: LogFormat,
    /// The file that lines are added to, an absolute path; `None`: where the other lines go.
    pub file: Option<PathBuf>,
    /// Share of the answered calls that are written.
    pub success_ratio: Ratio,
    /// What a line says, distinct, in this order.
    pub fields: Vec<AccessField>,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
    /// `key=value` pairs.
    Logfmt,
}

/// Severity of log lines, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs an operator.
    Error,
    /// What may need one.
    Warn,
    /// What happens to the process.
    Info,
    /// What happens to each call.
    Debug,
    /// Everything.
    Trace,
}

/// Which decisions of rules are logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Audit {
    /// None.
    None,
    /// What was refused.
    #[default]
    Refusals,
    /// Every one.
    All,
}

/// Something that a line about a call may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessField {
    /// When it ended.
    Time,
    /// The id of the request: the client's `X-Request-Id`, or one of the gateway's.
    RequestId,
    /// The id of its trace, where it has one.
    TraceId,
    /// The client's address.
    Client,
    /// Who called.
    Principal,
    /// The endpoint's path.
    Endpoint,
    /// The method of the message.
    Method,
    /// What was called, as the client calls it.
    Name,
    /// The upstream that it went to.
    Upstream,
    /// The protocol revision.
    Version,
    /// The HTTP status of the answer.
    Status,
    /// Why it failed.
    Error,
    /// Bytes of the request's body.
    RequestBytes,
    /// Bytes of the answer's body.
    ReplyBytes,
    /// From the request's head to the end of its reply.
    DurationMs,
}

impl AccessField {
    /// Every field, in the default order.
    pub const ALL: [Self; 15] = [
        Self::Time,
        Self::RequestId,
        Self::TraceId,
        Self::Client,
        Self::Principal,
        Self::Endpoint,
        Self::Method,
        Self::Name,
        Self::Upstream,
        Self::Version,
        Self::Status,
        Self::Error,
        Self::RequestBytes,
        Self::ReplyBytes,
        Self::DurationMs,
    ];
}

/// Fills in the defaults.
pub(super) fn resolve(written: &WrittenLog, findings: &mut Findings) -> Log {
    let format = written.format.value().copied().unwrap_or(LogFormat::Text);
    let access = written.access.value().map(|access| Access {
        format: access.format.value().copied().unwrap_or(format),
        file: absolute(&access.file, "/var/log/trunkline/access.log", findings),
        success_ratio: access.success_ratio.value().copied().unwrap_or(Ratio::ONE),
        fields: fields(&access.fields, findings),
    });
    Log {
        format,
        level: written.level.value().copied().unwrap_or(LogLevel::Info),
        file: absolute(&written.file, "/var/log/trunkline/trunkline.log", findings),
        journal: written.journal.value().copied(),
        buffer_bytes_max: written.buffer_bytes_max.or(1 << 20),
        refusals_per_second_max: written.refusals_per_second_max.or(100),
        audit: written.audit.value().copied().unwrap_or_default(),
        access,
    }
}

fn fields(written: &Key<Vec<AccessField>>, findings: &mut Findings) -> Vec<AccessField> {
    let Some(fields) = written.value() else { return AccessField::ALL.to_vec() };
    let is_twice = fields.iter().enumerate().any(|(index, field)| fields[..index].contains(field));
    if fields.is_empty() || is_twice {
        let span = written.span().unwrap_or_default();
        findings.error(span, "`fields` needs at least one field, and each once");
    }
    fields.clone()
}
