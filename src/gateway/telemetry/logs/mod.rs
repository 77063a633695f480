//! Log lines: text for people, one JSON object a line, or logfmt; on standard error or in files.
//!
//! Calls that succeed write nothing here unless there is an access log. Lines about refused and failed calls are bounded
//! per second and worker; what is left out is counted and told in one line when there is room again. No line holds a
//! body or a key; of the headers only the name of what was called, without a URI's query, and the id of the request.
//! Nobody who logs waits for a disk or a pipe.
//!
//! | file | what it is |
//! |---|---|
//! | `events.rs` | what is logged, made into lines |
//! | `line.rs` | a line in each form, with everything in it that is not ours spelled out |
//! | `sink.rs` | the threads that write |
//! | `place.rs` | files and standard error |
//! | `failures.rs` | lines about calls that did not succeed |
//! | `time.rs` | moments as text |
//!
//! The process has one log. It is begun once, and a reload may change all of it.

mod events;
mod failures;
pub(super) mod line;
mod place;
mod sink;
pub(crate) mod time;

use std::borrow::Cow;
use std::fs::File;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use prometheus::IntCounter;

use self::events::{Form, LogSubscriber};
use self::sink::{Enqueued, FlushPriority, Sink, Watcher, WriteFault};
use crate::clock;
use config::{Log, LogFormat, LogLevel};
use protocol::text::is_seen;

pub(crate) use self::failures::{Failure, FailureLog, LineBudget, is_list};
pub(crate) use self::place::LogError;

/// How long the end of the process waits for lines to be written.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);
/// How much of a client's name is logged.
const NAME_CHARS_MAX: usize = 128;

static LOGS: OnceLock<Logs> = OnceLock::new();

struct Logs {
    standard_error: Arc<Sink>,
    is_stderr_journal: bool,
    lines: ArcSwap<Sink>,
    /// Where lines about calls go; `None`: where the others do.
    access: ArcSwapOption<Sink>,
    form: ArcSwap<Form>,
    config: Mutex<Log>,
    /// Lines that could not be written, until there is a counter.
    lost: AtomicU64,
    lost_total: OnceLock<IntCounter>,
}

/// The place where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// The journal of systemd.
    Journal,
    File(PathBuf),
    Terminal,
    /// A pipe, or what else standard error is.
    Other,
}

/// New places for lines, not yet in use.
#[derive(Debug)]
pub(crate) struct Opened {
    log: Log,
    lines: Change,
    access: Change,
}

#[derive(Debug)]
enum Change {
    None,
    /// The file, or for lines standard error and for access lines the place of the others.
    To(Option<(PathBuf, File)>),
}

/// Looks at the files of `log` as [`start`] would open them, and makes none.
pub(crate) fn look(log: &Log) -> Vec<LogError> {
    let paths = log.file.clone().into_iter().chain(access_path(log));
    paths.filter_map(|path| place::look(&path).err()).collect()
}

/// Starts logging. Called once, before the first line.
pub fn start(log: &Log) -> Result<(), LogError> {
    if LOGS.get().is_some() {
        return Ok(());
    }
    let stderr = place::standard_error()?;
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let is_stderr_journal = place::is_journal(&stderr, stream.as_deref());
    let standard_error = open_sink(None, stderr, log.buffer_bytes_max)?;
    let file = log.file.as_deref().map(place::open).transpose()?;
    let access = access_path(log).map(|path| place::open(&path)).transpose()?;
    let logs = Logs {
        form: ArcSwap::from_pointee(form_of(log, is_stderr_journal)),
        is_stderr_journal,
        lines: ArcSwap::new(match (file, &log.file) {
            (Some(file), path) => open_sink(path.clone(), file, log.buffer_bytes_max)?,
            (None, _) => Arc::clone(&standard_error),
        }),
        access: ArcSwapOption::new(
            access.map(|file| open_sink(access_path(log), file, log.buffer_bytes_max)).transpose()?,
        ),
        standard_error,
        config: Mutex::new(log.clone()),
        lost: AtomicU64::new(0),
        lost_total: OnceLock::new(),
    };
    if LOGS.set(logs).is_ok() {
        events::set_level(log.level);
        // Only a test may have set another one.
        let _ = tracing::subscriber::set_global_default(LogSubscriber);
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            tracing::error!(thread = thread.name(), "{panic}");
        }));
    }
    Ok(())
}

/// Counts here what could not be written, now and before.
pub(crate) fn count_in(lost_total: &IntCounter) {
    let Some(logs) = LOGS.get() else { return };
    if logs.lost_total.set(lost_total.clone()).is_ok() {
        lost_total.inc_by(logs.lost.swap(0, Ordering::Relaxed));
    }
}

/// Opens what a new configuration names and the old one did not. Nothing changes before
/// [`take_effect`](Opened::take_effect).
pub(crate) fn open(log: &Log) -> Result<Opened, LogError> {
    let old = LOGS.get().map(|logs| logs.config.lock().clone());
    let change = |old: Option<PathBuf>, new: Option<PathBuf>| {
        if old == new {
            return Ok(Change::None);
        }
        let opened = new.map(|path| place::open(&path).map(|file| (path, file)));
        opened.transpose().map(Change::To)
    };
    let (lines, access) = match &old {
        Some(old) => {
            (change(old.file.clone(), log.file.clone())?, change(access_path(old), access_path(log))?)
        }
        None => (Change::None, Change::None),
    };
    Ok(Opened { log: log.clone(), lines, access })
}

impl Opened {
    /// From now on lines are written as the new configuration has it. A level that was set by hand stays unless the
    /// configuration's changes.
    pub(crate) fn take_effect(self) {
        let Some(logs) = LOGS.get() else { return };
        let Self { log, lines, access } = self;
        let bytes_max = log.buffer_bytes_max;
        let open = |(path, file)| {
            let sink = open_sink(Some(path), file, bytes_max);
            sink.inspect_err(|error| tracing::error!(%error, "the log stays where it is")).ok()
        };
        match lines {
            Change::None => {}
            Change::To(file) => {
                let sink = file.map_or(Some(Arc::clone(&logs.standard_error)), open);
                let old = sink.map(|sink| logs.lines.swap(sink));
                old.iter().filter(|old| !Arc::ptr_eq(old, &logs.standard_error)).for_each(|old| old.close());
            }
        }
        match access {
            Change::None => {}
            Change::To(None) => logs.access.swap(None).iter().for_each(|old| old.close()),
            Change::To(Some(place)) => {
                if let Some(sink) = open(place) {
                    logs.access.swap(Some(sink)).iter().for_each(|old| old.close());
                }
            }
        }
        logs.sinks().iter().for_each(|sink| sink.set_bytes_max(bytes_max));
        logs.form.store(Arc::new(form_of(&log, logs.is_stderr_journal)));
        let old = std::mem::replace(&mut *logs.config.lock(), log.clone());
        if old.level != log.level {
            events::set_level(log.level);
        }
    }
}

/// Opens the files anew, as who moves them away asks for. One that cannot be opened stays as it is.
pub(crate) fn reopen() {
    let Some(logs) = LOGS.get() else { return };
    let config = logs.config.lock().clone();
    let lines = config.file.clone().map(|path| (path, logs.lines.load_full()));
    let access = access_path(&config).zip(logs.access.load_full());
    for (path, sink) in lines.into_iter().chain(access) {
        match place::open(&path) {
            Ok(file) => sink.replace(file),
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::error!(
                    error = format!("{error:#}"),
                    "the log file is not opened anew; the old one is kept"
                );
            }
        }
    }
}

/// Changes the least severe level that is logged, until a reload brings another or the process ends.
pub(crate) fn set_level(level: LogLevel) {
    events::set_level(level);
}

/// Waits until what was logged is written, but for no place that does not take it.
pub fn finish() {
    let Some(logs) = LOGS.get() else { return };
    let deadline = clock::now() + PATIENCE_AT_END;
    logs.sinks().iter().for_each(|sink| sink.wait_written(deadline));
}

/// The place where lines go that are not about calls.
pub(crate) fn place() -> LogPlace {
    let Some(logs) = LOGS.get() else { return LogPlace::Other };
    let config = logs.config.lock();
    match &config.file {
        Some(file) => LogPlace::File(file.clone()),
        None if logs.is_stderr_journal || config.journal == Some(true) => LogPlace::Journal,
        None if std::io::stderr().is_terminal() => LogPlace::Terminal,
        None => LogPlace::Other,
    }
}

pub(super) fn is_shared(log: &Log) -> bool {
    access_path(log).is_none()
}

pub(super) fn is_access_in_journal(log: &Log) -> bool {
    let is_stderr_journal = LOGS.get().is_some_and(|logs| logs.is_stderr_journal);
    is_shared(log) && form_of(log, is_stderr_journal).is_journal
}

pub(super) fn push_access(line: &[u8]) {
    let Some(logs) = LOGS.get() else { return };
    let sink = || logs.access.load_full().unwrap_or_else(|| logs.lines.load_full());
    logs.push(sink, line, FlushPriority::Gather);
}

/// False for what moves the cursor, ends a line, turns the direction of the text around, or cannot be seen.
pub(crate) fn may_be_logged(c: char) -> bool {
    if c.is_ascii() { !c.is_ascii_control() } else { is_seen(c) }
}

/// As much of a client's text as is logged, as [`cut`] has it. The line spells out what is not seen.
pub(crate) fn shorten(text: &str) -> String {
    cut(text).into_owned()
}

/// What is logged of a name: at most 128 characters, and of a URI neither who uses it, nor its query or fragment, all of
/// which may be secrets.
pub(crate) fn cut(name: &str) -> Cow<'_, str> {
    let name = name.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = name.split_once("://") else { return beginning(name, NAME_CHARS_MAX).into() };
    let rest = rest.split('#').next().unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => beginning(&format!("{scheme}://{}", &rest[at + 1..]), NAME_CHARS_MAX).to_owned().into(),
        None => beginning(&name[..scheme.len() + "://".len() + rest.len()], NAME_CHARS_MAX).into(),
    }
}

/// So many characters of a text at most.
pub(crate) fn beginning(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end])
}

impl Logs {
    fn sinks(&self) -> Vec<Arc<Sink>> {
        let mut sinks = vec![Arc::clone(&self.standard_error), self.lines.load_full()];
        sinks.extend(self.access.load_full());
        sinks
    }

    fn push(&self, sink: impl Fn() -> Arc<Sink>, line: &[u8], priority: FlushPriority) {
        // A place that was closed has been replaced.
        let taken = match sink().push(line, priority) {
            Enqueued::Closed => sink().push(line, priority),
            taken => taken,
        };
        if taken != Enqueued::Yes {
            self.count_lost(1);
        }
    }

    fn count_lost(&self, lines: u64) {
        match self.lost_total.get() {
            Some(total) => total.inc_by(lines),
            None => drop(self.lost.fetch_add(lines, Ordering::Relaxed)),
        }
    }
}

/// Where lines about calls go, if not where the others do.
fn access_path(log: &Log) -> Option<PathBuf> {
    let path = log.access.as_ref()?.file.as_ref()?;
    (log.file.as_ref() != Some(path)).then(|| path.clone())
}

fn form_of(log: &Log, is_stderr_journal: bool) -> Form {
    let is_stderr = log.file.is_none();
    Form {
        format: log.format,
        is_journal: is_stderr && log.journal.unwrap_or(is_stderr_journal),
        has_colours: is_stderr && std::io::stderr().is_terminal(),
    }
}

fn form() -> Form {
    let plain = Form { format: LogFormat::Text, is_journal: false, has_colours: false };
    LOGS.get().map_or(plain, |logs| **logs.form.load())
}

fn push(line: &[u8]) {
    let Some(logs) = LOGS.get() else { return };
    logs.push(|| logs.lines.load_full(), line, FlushPriority::Now);
}

/// `path`: none for standard error, which nobody can be told of.
fn open_sink(path: Option<PathBuf>, file: File, bytes_max: usize) -> Result<Arc<Sink>, LogError> {
    let count = |lines| {
        if let Some(logs) = LOGS.get() {
            logs.count_lost(lines);
        }
    };
    let tell = move |fault: WriteFault<'_>| match (fault, &path) {
        (WriteFault::Failed(error), Some(path)) => tell_on_standard_error(path, error),
        (WriteFault::Failed(_), None) => {}
        (WriteFault::Lost(lines), path) => {
            let place =
                path.as_ref().map_or_else(|| "standard error".into(), |path| path.display().to_string());
            tracing::warn!(lines, place, "log lines are lost: the place was full, or slow to take them");
        }
    };
    Sink::open(file, bytes_max, Watcher { count, tell: Box::new(tell) }).map_err(LogError::Start)
}

fn tell_on_standard_error(path: &std::path::Path, error: &std::io::Error) {
    let Some(logs) = LOGS.get() else { return };
    let form = Form { is_journal: logs.is_stderr_journal, ..form() };
    let mut line = Vec::new();
    let fields = [("file", &*path.display().to_string()), ("error", &*error.to_string())];
    events::write_own(&mut line, form, "a log file cannot be written to; its lines are left out", fields);
    logs.push(|| Arc::clone(&logs.standard_error), &line, FlushPriority::Now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_names() {
        for hidden in ['\u{200b}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{e0041}', '\u{202e}', '\u{7f}'] {
            assert!(!may_be_logged(hidden), "{hidden:?}");
        }
        assert!("aä天👍 ".chars().all(may_be_logged));
        assert_eq!(shorten(&"ä".repeat(500)).chars().count(), 128);
        for (name, expected) in [
            ("file:///a?token=x", "file:///a"),
            ("https://host/a@b#token=x", "https://host/a@b"),
            ("https://host#token=x?y", "https://host"),
            ("postgres://me:secret@db:5432/table?x", "postgres://db:5432/table"),
            ("postgres://me:sec@ret@db", "postgres://db"),
            ("c#_format", "c#_format"),
            ("a@b", "a@b"),
            ("://@", "://"),
            ("", ""),
        ] {
            assert_eq!(shorten(name), expected, "{name}");
        }
    }
}
