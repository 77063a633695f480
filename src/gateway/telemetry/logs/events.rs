//! What `tracing` hands over, made into lines. Spans are not logged.

use std::cell::RefCell;
use std::fmt::{self, Debug, Display};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::line::Line;
use crate::clock;
use config::{LogFormat, LogLevel};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) format: LogFormat,
    /// They go to the journal, which wants their severity and has a clock of its own.
    pub(super) is_journal: bool,
    pub(super) has_colours: bool,
}

/// Takes events for which somebody asked.
pub(super) struct LogSubscriber;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

pub(super) fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    tracing_core::callsite::rebuild_interest_cache();
}

pub(super) fn level() -> LogLevel {
    let levels = LogLevel::ALL.iter().copied();
    levels.into_iter().find(|level| *level as u8 == LEVEL.load(Ordering::Relaxed)).unwrap_or(LogLevel::Trace)
}

fn least(level: LogLevel) -> Level {
    LEVELS[level as usize].level
}

/// What a level is called, and how it is painted on a terminal.
struct LevelForm {
    level: Level,
    /// The severity of syslog, as the journal reads it at the beginning of a line.
    severity: &'static str,
    word: &'static str,
    padded: &'static str,
    painted: &'static str,
}

/// In the order of [`LogLevel`].
#[rustfmt::skip]
static LEVELS: [LevelForm; 5] = [
    LevelForm { level: Level::ERROR, severity: "<3>", word: "error", padded: "ERROR", painted: "\u{1b}[31mERROR\u{1b}[0m" },
    LevelForm { level: Level::WARN, severity: "<4>", word: "warn", padded: " WARN", painted: "\u{1b}[33m WARN\u{1b}[0m" },
    LevelForm { level: Level::INFO, severity: "<6>", word: "info", padded: " INFO", painted: "\u{1b}[32m INFO\u{1b}[0m" },
    LevelForm { level: Level::DEBUG, severity: "<7>", word: "debug", padded: "DEBUG", painted: "\u{1b}[34mDEBUG\u{1b}[0m" },
    LevelForm { level: Level::TRACE, severity: "<7>", word: "trace", padded: "TRACE", painted: "\u{1b}[35mTRACE\u{1b}[0m" },
];

fn form_of(level: Level) -> &'static LevelForm {
    let [.., least] = &LEVELS;
    LEVELS.iter().find(|form| form.level == level).unwrap_or(least)
}

/// How the names of our crates begin.
const OURS: &str = "trunkline";

/// Ours by the level that is set, decisions and acts always, and of libraries what may need an operator.
fn is_wanted(target: &str, level: Level) -> bool {
    let least = least(self::level());
    match target {
        "audit" => level <= Level::INFO,
        _ if target.starts_with(OURS) => level <= least,
        _ => level <= least.min(Level::WARN),
    }
}

impl Subscriber for LogSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && is_wanted(metadata.target(), *metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(least(level()).max(Level::INFO)))
    }

    fn event(&self, event: &Event<'_>) {
        thread_local!(static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        let write = |out: &mut Vec<u8>| {
            out.clear();
            write(out, event);
            super::push(out);
        };
        // Borrowed already: a value that is being written logs itself.
        LINE.with(|line| match line.try_borrow_mut() {
            Ok(mut line) => write(&mut line),
            Err(_) => write(&mut Vec::new()),
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn write(out: &mut Vec<u8>, event: &Event<'_>) {
    let form = super::form();
    let metadata = event.metadata();
    let mut line = begin(form, out, (*metadata.level(), metadata.target()), clock::calendar());
    event.record(&mut MessageVisitor(&mut line));
    event.record(&mut Others(&mut line));
    end(line);
}

/// A line that does not come from `tracing`.
pub(super) fn write_own(out: &mut Vec<u8>, form: Form, message: &str, fields: [(&str, &str); 2]) {
    let mut line = begin(form, out, (Level::ERROR, module_path!()), clock::calendar());
    line.message(&message);
    for (key, value) in fields {
        line.string(key, value);
    }
    end(line);
}

/// Decisions and acts stand out among what else is told of.
fn severity(level: Level, target: &str) -> &'static str {
    if level == Level::INFO && target == "audit" { "<5>" } else { form_of(level).severity }
}

fn begin<'b>(form: Form, out: &'b mut Vec<u8>, (level, target): (Level, &str), at: SystemTime) -> Line<'b> {
    if form.is_journal {
        out.extend_from_slice(severity(level, target).as_bytes());
    }
    let mut line = Line::begin(form.format, out);
    match form.format {
        LogFormat::Json => {
            if !form.is_journal {
                line.time("timestamp", at);
            }
            line.string("level", level.as_str());
            line.string("target", target);
            line.open("fields");
        }
        LogFormat::Logfmt => {
            if !form.is_journal {
                line.time("time", at);
            }
            line.word("level", &form_of(level).word);
            line.word("target", &target);
        }
        LogFormat::Text => {
            if !form.is_journal {
                line.moment(at);
                line.plain(if form.has_colours { form_of(level).painted } else { form_of(level).padded });
            }
            line.plain(target);
            line.glue(":");
        }
    }
    line
}

fn end(mut line: Line<'_>) {
    line.close();
    line.end();
}

/// Shows what is written with `Debug`, which for what was logged with `%` is what it displays.
struct Shown<'v>(&'v dyn Debug);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const MESSAGE: &str = "message";

struct MessageVisitor<'l, 'b>(&'l mut Line<'b>);

impl Visit for MessageVisitor<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == MESSAGE {
            self.0.message(&Shown(value));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.0.message(&value);
        }
    }
}

struct Others<'l, 'b>(&'l mut Line<'b>);

impl Others<'_, '_> {
    fn number(&mut self, field: &Field, value: impl Display) {
        self.0.number(key(field), value);
    }
}

fn key(field: &Field) -> &'static str {
    let name = field.name();
    name.strip_prefix("r#").unwrap_or(name)
}

impl Visit for Others<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != MESSAGE {
            self.0.word(key(field), &Shown(value));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != MESSAGE {
            self.0.string(key(field), value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.number(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.number(field, value);
        } else {
            self.0.word(key(field), &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn lines_of_each_form() {
        let text = |format, is_journal| {
            let form = Form { format, is_journal, has_colours: false };
            let mut out = Vec::new();
            let mut line = begin(form, &mut out, (Level::WARN, "trunkline_net::tls"), UNIX_EPOCH);
            line.message(&"it went\nwrong");
            line.string("place", "a b");
            line.number("times", 3);
            end(line);
            String::from_utf8(out).expect("a line is UTF-8")
        };
        let time = "1970-01-01T00:00:00.000000Z";
        for (format, is_journal, expected) in [
            (
                LogFormat::Text,
                false,
                format!(r#"{time}  WARN trunkline_net::tls: it went\nwrong place="a b" times=3"#),
            ),
            (LogFormat::Text, true, r#"<4>trunkline_net::tls: it went\nwrong place="a b" times=3"#.into()),
            (
                LogFormat::Json,
                false,
                format!(
                    r#"{{"timestamp":"{time}","level":"WARN","target":"trunkline_net::tls","fields":{{"message":"it went\nwrong","place":"a b","times":3}}}}"#
                ),
            ),
            (
                LogFormat::Logfmt,
                false,
                format!(
                    r#"time={time} level=warn target=trunkline_net::tls msg="it went\nwrong" place="a b" times=3"#
                ),
            ),
            (
                LogFormat::Logfmt,
                true,
                r#"<4>level=warn target=trunkline_net::tls msg="it went\nwrong" place="a b" times=3"#.into(),
            ),
        ] {
            assert_eq!(text(format, is_journal), format!("{expected}\n"));
        }
    }

    #[test]
    fn severities_are_those_of_the_journal() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(|level| severity(level, "trunkline")), ["<3>", "<4>", "<6>", "<7>", "<7>"]);
        assert_eq!(severity(Level::INFO, "audit"), "<5>");
    }

    #[test]
    fn libraries_are_heard_only_when_something_is_wrong() {
        for (target, level, expected) in [
            ("trunkline", Level::INFO, true),
            ("trunkline_gateway::edge", Level::DEBUG, false),
            ("other", Level::INFO, false),
            ("audit", Level::INFO, true),
            ("h2::codec", Level::WARN, true),
            ("h2::codec", Level::INFO, false),
        ] {
            assert_eq!(is_wanted(target, level), expected, "{target} {level}");
        }
    }
}
