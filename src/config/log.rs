//! `[log]`: which lines are written, how and where.

use super::array::Distinct;
use super::findings::Findings;
use super::section::section;
use super::table::Table;
use super::text::AbsolutePath;
use super::value::{Count, GIB, KIB, Ratio, Size, choice};

section! {
    /// What is logged, and how.
    pub struct Log {
        /// Form of the lines.
        format: LogFormat = "text",
        /// Least severe level that is logged.
        level: LogLevel = "info",
        /// The file that lines are added to, an absolute path; it is opened anew on SIGHUP. Default: standard error.
        #[example("/var/log/trunkline/trunkline.log")]
        file: Option<AbsolutePath>,
        /// Lines on standard error begin with their severity as the journal reads it, such as `<6>`, and have no time.
        /// Default: true where standard error is the journal.
        #[example(true)]
        journal: Option<bool>,
        /// What may wait for each place that lines go to; what does not fit is left out and counted.
        buffer_bytes_max: Size<{ 64 * KIB }, GIB> = "1MiB",
        /// Lines a second about refused or failed calls, in each of the logs and for each worker; the rest are counted
        /// in one line.
        refusals_per_second_max: Count<0, 1_000_000> = 100,
        /// Which decisions of rules are logged, with target `audit`: `refusals`, `all`, which is a line for each call, or
        /// `none`. Of refusals at most `refusals_per_second_max` lines a second.
        audit: Audit = "refusals",
        /// One line for each call. Default: none.
        access: Option<Access>,
    }
    check check_log;
}

section! {
    /// One line for each call. Default: none.
    pub struct Access {
        /// Form of the lines. Default: that of the other lines.
        #[example("json")]
        format: LogFormat => LogFormat::Text,
        /// The file that lines are added to, an absolute path; it is opened anew on SIGHUP. Default: where the other
        /// lines go.
        #[example("/var/log/trunkline/access.log")]
        file: Option<AbsolutePath>,
        /// Share of the answered calls that are written, 0 to 1; refused and failed ones are written up to
        /// `refusals_per_second_max`.
        success_ratio: Ratio = 1.0,
        /// What a line says, in this order. Default: everything.
        #[example(["time", "principal", "method", "name", "status", "duration_ms"])]
        fields: Distinct<AccessField, 1> => AccessField::ALL.to_vec(),
    }
}

choice! {
    /// Form of log lines.
    pub enum LogFormat {
        /// Lines for people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
        /// `key=value` pairs.
        Logfmt = "logfmt",
    }
}

choice! {
    /// Severity of log lines, most severe first.
    pub enum LogLevel {
        /// What needs an operator.
        Error = "error",
        /// What may need one.
        Warn = "warn",
        /// What happens to the process.
        Info = "info",
        /// What happens to each call.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Which decisions of rules are logged.
    pub enum Audit {
        /// None.
        None = "none",
        /// What was refused.
        Refusals = "refusals",
        /// Every one.
        All = "all",
    }
}

choice! {
    /// Something that a line about a call may say.
    #[derive(PartialOrd, Ord)]
    pub enum AccessField {
        /// When it ended.
        Time = "time",
        /// The id of the request: the client's `X-Request-Id`, or one of the gateway's.
        RequestId = "request_id",
        /// The id of its trace, where it has one.
        TraceId = "trace_id",
        /// The client's address.
        Client = "client",
        /// Who called.
        Principal = "principal",
        /// The endpoint's path.
        Endpoint = "endpoint",
        /// The method of the message.
        Method = "method",
        /// What was called, as the client calls it.
        Name = "name",
        /// The upstream that it went to.
        Upstream = "upstream",
        /// The protocol revision.
        Version = "version",
        /// The HTTP status of the answer.
        Status = "status",
        /// Why it failed.
        Error = "error",
        /// Bytes of the request's body.
        RequestBytes = "request_bytes",
        /// Bytes of the answer's body.
        ReplyBytes = "reply_bytes",
        /// From the request's head to the end of its reply.
        DurationMs = "duration_ms",
    }
}

fn check_log(mut log: Log, table: Table<'_>, _: &mut Findings) -> Log {
    if let Some(access) = &mut log.access
        && !table.table("access").has("format")
    {
        access.format = log.format;
    }
    log
}
