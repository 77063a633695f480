//! One line of a log: text for people, one JSON object, or logfmt.
//!
//! Whatever a value holds, it stays within its field: what could end a line, forge a field or move a cursor is spelled
//! out as JSON spells it (`\n`, `\u001b`). A value that is not there is `null` or a bare `-`; a value that is `-` is
//! quoted. A long value is cut.

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::time::SystemTime;

use super::may_be_logged;
use config::LogFormat;

/// The most bytes that one value takes, as it is written.
const VALUE_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug)]
pub(in crate::telemetry) struct Line<'b> {
    format: LogFormat,
    out: &'b mut Vec<u8>,
    /// Nothing stands before the next field that it must be separated from.
    is_first: bool,
}

/// When a string has quotes, where its form leaves the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    Always,
    WhereNeeded,
}

impl<'b> Line<'b> {
    /// A line behind what `out` holds.
    pub(in crate::telemetry) fn begin(format: LogFormat, out: &'b mut Vec<u8>) -> Self {
        if format == LogFormat::Json {
            out.push(b'{');
        }
        Self { format, out, is_first: true }
    }

    pub(in crate::telemetry) fn end(self) {
        if self.format == LogFormat::Json {
            self.out.push(b'}');
        }
        self.out.push(b'\n');
    }

    /// The fields up to [`close`](Self::close) belong together. Only JSON shows it.
    pub(super) fn open(&mut self, key: &str) {
        if self.format == LogFormat::Json {
            self.key(key);
            self.out.push(b'{');
            self.is_first = true;
        }
    }

    /// Ends what [`open`](Self::open) began.
    pub(super) fn close(&mut self) {
        if self.format == LogFormat::Json {
            self.out.push(b'}');
            self.is_first = false;
        }
    }

    /// A word of ours without a key, where the line is text.
    pub(in crate::telemetry) fn plain(&mut self, word: &str) {
        self.separate();
        self.out.extend_from_slice(word.as_bytes());
    }

    /// Goes on right behind what stands there.
    pub(super) fn glue(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A moment without a key, where the line is text.
    pub(in crate::telemetry) fn moment(&mut self, at: SystemTime) {
        self.separate();
        super::time::write(self.out, at);
    }

    pub(super) fn message(&mut self, text: &dyn Display) {
        match self.format {
            LogFormat::Json => self.quoted("message", text, Quotes::Always),
            LogFormat::Logfmt => self.quoted("msg", text, Quotes::WhereNeeded),
            LogFormat::Text => {
                self.separate();
                // Only a `Display` that fails by itself, and one that is too long, ends early.
                let _ = write!(Escaped::new(self.out), "{text}");
            }
        }
    }

    /// A string, quoted in text.
    pub(super) fn string(&mut self, key: &str, value: &str) {
        self.quoted(key, &value, Quotes::Always);
    }

    /// A string, quoted where it has to be.
    pub(in crate::telemetry) fn word(&mut self, key: &str, value: &dyn Display) {
        self.quoted(key, value, Quotes::WhereNeeded);
    }

    /// A number, or what else is the same in every form.
    pub(in crate::telemetry) fn number(&mut self, key: &str, value: impl Display) {
        self.key(key);
        // Writing to memory does not fail.
        let _ = write!(self.out, "{value}");
    }

    pub(in crate::telemetry) fn time(&mut self, key: &str, at: SystemTime) {
        self.key(key);
        let is_json = self.format == LogFormat::Json;
        if is_json {
            self.out.push(b'"');
        }
        super::time::write(self.out, at);
        if is_json {
            self.out.push(b'"');
        }
    }

    /// A value that is not there.
    pub(in crate::telemetry) fn none(&mut self, key: &str) {
        self.number(key, if self.format == LogFormat::Json { "null" } else { "-" });
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(if self.format == LogFormat::Json { b',' } else { b' ' });
        }
    }

    fn key(&mut self, key: &str) {
        self.separate();
        if self.format == LogFormat::Json {
            self.out.push(b'"');
            self.out.extend_from_slice(key.as_bytes());
            self.out.extend_from_slice(b"\":");
        } else {
            self.out.extend_from_slice(key.as_bytes());
            self.out.push(b'=');
        }
    }

    fn quoted(&mut self, key: &str, value: &dyn Display, quotes: Quotes) {
        self.key(key);
        let start = self.out.len();
        self.out.push(b'"');
        let mut escaped = Escaped::new(self.out);
        let _ = write!(escaped, "{value}");
        let needs_quotes = escaped.needs_quotes;
        let may_be_bare = match self.format {
            LogFormat::Json => false,
            LogFormat::Text => quotes == Quotes::WhereNeeded,
            LogFormat::Logfmt => true,
        };
        let is_misleading = matches!(&self.out[start + 1..], b"" | b"-");
        if may_be_bare && !needs_quotes && !is_misleading {
            self.out.remove(start);
        } else {
            self.out.push(b'"');
        }
    }
}

/// Spells out what must not stand in a line as it is.
struct Escaped<'b> {
    out: &'b mut Vec<u8>,
    end_max: usize,
    needs_quotes: bool,
}

impl<'b> Escaped<'b> {
    fn new(out: &'b mut Vec<u8>) -> Self {
        Self { end_max: out.len() + VALUE_BYTES_MAX, out, needs_quotes: false }
    }

    fn push(&mut self, c: char) {
        let is_safe = c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
        self.needs_quotes |= !is_safe;
        match c {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', c as u8]),
            '\n' => self.out.extend_from_slice(b"\\n"),
            '\r' => self.out.extend_from_slice(b"\\r"),
            '\t' => self.out.extend_from_slice(b"\\t"),
            c if may_be_logged(c) => self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            }
        }
    }
}

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.out.len() >= self.end_max {
                return Err(fmt::Error);
            }
            self.push(c);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [LogFormat; 3] = [LogFormat::Text, LogFormat::Json, LogFormat::Logfmt];

    fn line_of(format: LogFormat, fields: &[(&str, &str)]) -> String {
        let mut out = Vec::new();
        let mut line = Line::begin(format, &mut out);
        for (key, value) in fields {
            line.word(key, value);
        }
        line.end();
        String::from_utf8(out).expect("a line is UTF-8")
    }

    /// A reader of `key=value`, written apart from the writer: what it finds is what anybody's would find.
    fn fields_of(line: &str) -> Option<Vec<(String, String)>> {
        let mut rest = line.strip_suffix('\n')?;
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=')?;
            let end = match value.strip_prefix('"') {
                Some(quoted) => {
                    let mut is_escaped = false;
                    let close = quoted.char_indices().find(|(_, c)| {
                        let is_close = *c == '"' && !is_escaped;
                        is_escaped = *c == '\\' && !is_escaped;
                        is_close
                    });
                    close?.0 + 2
                }
                None => value.find(' ').unwrap_or(value.len()),
            };
            let (value, more) = value.split_at(end);
            let value = if value.starts_with('"') { serde_json::from_str(value).ok()? } else { value.into() };
            fields.push((key.to_owned(), value));
            rest = if more.is_empty() { more } else { more.strip_prefix(' ')? };
        }
        Some(fields)
    }

    #[test]
    fn writes_each_form() {
        for (format, expected) in [
            (LogFormat::Text, "a=one b=\"two words\" c=\"-\" d=- e=1.5\n"),
            (LogFormat::Logfmt, "a=one b=\"two words\" c=\"-\" d=- e=1.5\n"),
            (LogFormat::Json, "{\"a\":\"one\",\"b\":\"two words\",\"c\":\"-\",\"d\":null,\"e\":1.5}\n"),
        ] {
            let mut out = Vec::new();
            let mut line = Line::begin(format, &mut out);
            line.word("a", &"one");
            line.word("b", &"two words");
            line.word("c", &"-");
            line.none("d");
            line.number("e", 1.5);
            line.end();
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn spells_out_what_terminals_and_readers_obey() {
        for (value, expected) in [
            ("", r#"k="""#),
            ("a=b", r#"k="a=b""#),
            ("\u{1b}[31m\r\n", r#"k="\u001b[31m\r\n""#),
            ("say \"hi\\", r#"k="say \"hi\\""#),
            ("\u{9b}x\u{202e}\u{61c}", r#"k="\u009bx\u202e\u061c""#),
            ("Ö", "k=\"Ö\""),
        ] {
            assert_eq!(line_of(LogFormat::Logfmt, &[("k", value)]).trim_end_matches('\n'), expected);
        }
    }

    #[test]
    fn cuts_long_values() {
        for format in FORMATS {
            let line = line_of(format, &[("k", &"\u{1}".repeat(100_000)), ("l", "v")]);
            assert!(line.len() < VALUE_BYTES_MAX + 64, "{} bytes", line.len());
        }
    }

    proptest! {
        #[test]
        fn every_value_is_read_as_it_was_written(values in proptest::collection::vec(any::<String>(), 1..4)) {
            let keys = ["a", "b", "c"];
            let fields: Vec<(&str, &str)> = keys.into_iter().zip(values.iter().map(String::as_str)).collect();
            for format in FORMATS {
                let line = line_of(format, &fields);
                prop_assert!(line.ends_with('\n') && line.trim_end_matches('\n').chars().all(may_be_logged));
                let found: Vec<(String, String)> = if format == LogFormat::Json {
                    let object: serde_json::Map<String, serde_json::Value> =
                        serde_json::from_str(&line).expect("an object");
                    object.into_iter().map(|(key, value)| (key, value.as_str().unwrap_or("?").to_owned())).collect()
                } else {
                    fields_of(&line).expect("fields")
                };
                let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                prop_assert_eq!(&found, &fields);
            }
        }
    }
}
