//! A report for people: what to fix first, why, and what is good. Pure.
//!
//! Whatever comes from the server is shown through [`shown`]. Colours are in the text; who prints it takes
//! them away where they are not wanted.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::Style;

use super::measured::{Latency, Measured};
use super::report::Report;
use super::rule::{Area, Severity};
use super::sheet::RuleOutcome;
use crate::terminal::paint::{BAD, FAINT, GOOD, STRONG, USE, WARNING, painted};
use protocol::text::{shown, wrapped};
use protocol::version::Era;

/// What is shown of a finding's places, unless all are wanted.
const PLACES_MAX: usize = 5;
const WIDTH_MIN: usize = 20;
const PLAIN: Style = Style::new();
/// Longer lines are hard to read.
const WIDTH_MAX: usize = 100;

impl Report {
    /// The report as text for a terminal of so many columns. `is_long`: every place and every good thing,
    /// too.
    pub fn text(&self, width: usize, is_long: bool) -> String {
        let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
        let mut page = ReportPage { text: String::new(), width };
        self.head(&mut page);
        let findings = self.findings();
        let mut previous = None;
        for outcome in findings {
            let severity = outcome.rule.severity;
            if previous != Some(severity) {
                page.blank();
                page.line(STRONG, heading(severity));
                previous = Some(severity);
            }
            page.finding(outcome, self.era(), is_long);
        }
        self.good(&mut page, is_long);
        if self.is_inspected() || !self.outcomes.is_empty() {
            page.blank();
            self.sum(&mut page);
        }
        page.text
    }

    fn head(&self, page: &mut ReportPage) {
        let introduction = self.facts.introduction();
        let name = introduction.and_then(|found| found.title.as_ref().or(found.name.as_ref()));
        let release = introduction.and_then(|found| found.server_version.as_ref());
        let mut title = name.map(|name| shown(name)).unwrap_or_default();
        if let Some(release) = release {
            let _ = write!(title, " {}", shown(release));
        }
        let title = title.trim();
        if title.is_empty() {
            page.line(STRONG, &shown(&self.server));
        } else {
            page.line(STRONG, title);
            page.line(FAINT, &shown(&self.server));
        }
        if let Some(why) = &self.facts.not_inspected {
            page.blank();
            page.line(BAD, &format!("✗ Not inspected: {}", shown(why)));
            return;
        }
        let versions = self.versions();
        if !versions.is_empty() {
            let versions: Vec<_> = versions.iter().map(|version| shown(version)).collect();
            page.line(FAINT, &format!("speaks {}", versions.join(", ")));
        }
        page.line(FAINT, &has(&self.measured));
        if let Some(latency) = self.measured.latency {
            page.line(FAINT, &format!("answers in {}", took(latency)));
        }
        if let Some(latency) = self.measured.calls {
            page.line(FAINT, &format!("the tool took {}", took(latency)));
        }
        if let Some(why) = &self.facts.cut_short {
            page.blank();
            page.line(WARNING, &format!("! Not everything was inspected: {}", shown(why)));
        }
    }

    fn good(&self, page: &mut ReportPage, is_long: bool) {
        let kept: Vec<_> = self.outcomes.iter().filter(|outcome| outcome.is_kept).collect();
        if kept.is_empty() {
            return;
        }
        page.blank();
        page.line(STRONG, "Good");
        for area in Area::ALL {
            let rules = kept.iter().map(|outcome| outcome.rule).filter(|rule| rule.area == area);
            let goods: Vec<_> = if is_long {
                rules.map(|rule| format!("{} ({})", rule.good, rule.id)).collect()
            } else {
                let goods: Vec<_> = rules.map(|rule| rule.good).collect();
                if goods.is_empty() { Vec::new() } else { vec![goods.join("; ")] }
            };
            for good in goods {
                page.marked(GOOD, "✓", area.word(), &good);
            }
        }
    }

    fn sum(&self, page: &mut ReportPage) {
        let [errors, warnings, advice] = Severity::ALL.map(|severity| self.count(severity));
        let ignored = if self.ignored > 0 { format!(", {} ignored", self.ignored) } else { String::new() };
        let text = format!(
            "{}, {}, {} of advice{ignored}; {} kept; {} made",
            counted(errors, "error", "errors"),
            counted(warnings, "warning", "warnings"),
            counted(advice, "piece", "pieces"),
            counted(self.kept(), "rule", "rules"),
            counted(self.facts.requests as usize, "request", "requests"),
        );
        let style = if errors > 0 || !self.is_inspected() {
            BAD
        } else if warnings > 0 {
            WARNING
        } else {
            GOOD
        };
        page.line(style, &text);
    }
}

struct ReportPage {
    text: String,
    width: usize,
}

impl ReportPage {
    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn line(&mut self, style: Style, text: &str) {
        self.hanging("", 0, style, text);
    }

    /// Wrapped text behind a mark and a word, which stand above it where there is little room.
    fn marked(&mut self, style: Style, mark: &str, word: &str, text: &str) {
        let mark = painted(style, mark);
        if self.width < 40 {
            let _ = writeln!(self.text, "{mark} {}", painted(FAINT, word));
            self.hanging("  ", 2, PLAIN, text);
        } else {
            self.hanging(&format!("{mark} {}", painted(FAINT, format!("{word:<9}"))), 11, PLAIN, text);
        }
    }

    fn finding(&mut self, outcome: &RuleOutcome, era: Era, is_long: bool) {
        let rule = outcome.rule;
        let (style, mark) = look(rule.severity);
        let mark = format!("{} ", painted(style, mark));
        self.hanging(&mark, 2, STRONG, &format!("{} ({})", rule.bad, rule.id));
        let places_max = if is_long { usize::MAX } else { PLACES_MAX };
        let mut places: Vec<_> = outcome.items.iter().take(places_max).map(|item| shown(item)).collect();
        let more = outcome.items_total - places.len();
        if more > 0 {
            places.push(format!("and {more} more"));
        }
        for place in places {
            self.hanging("    – ", 6, PLAIN, &place);
        }
        for (label, text) in [("why:", rule.why), ("fix:", rule.fix)] {
            self.hanging(&format!("    {} ", painted(FAINT, label)), 9, PLAIN, text);
        }
        if let Some(link) = rule.link(era) {
            // A link that is cut is none.
            let _ = writeln!(self.text, "    {}", painted(USE, link));
        }
    }

    /// Wrapped text behind `head`, which is as wide as `indent`.
    fn hanging(&mut self, head: &str, indent: usize, style: Style, text: &str) {
        for (number, line) in wrapped(text, self.width.saturating_sub(indent)).iter().enumerate() {
            let line = painted(style, line);
            let _ = match number {
                0 => writeln!(self.text, "{head}{line}"),
                _ => writeln!(self.text, "{:indent$}{line}", ""),
            };
        }
    }
}

fn heading(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "Fix first",
        Severity::Warning => "Fix next",
        Severity::Advice => "Could be better",
    }
}

fn look(severity: Severity) -> (Style, &'static str) {
    match severity {
        Severity::Error => (BAD, "✗"),
        Severity::Warning => (WARNING, "!"),
        Severity::Advice => (USE, "·"),
    }
}

fn has(measured: &Measured) -> String {
    let mut parts = Vec::new();
    if measured.tools > 0 {
        parts.push(format!(
            "{} ({}, about {} tokens)",
            counted(measured.tools, "tool", "tools"),
            bytes(measured.tools_bytes),
            measured.tools_tokens
        ));
    }
    for (count, one, many) in [
        (measured.prompts, "prompt", "prompts"),
        (measured.resources, "resource", "resources"),
        (measured.templates, "resource template", "resource templates"),
    ] {
        if count > 0 {
            parts.push(counted(count, one, many));
        }
    }
    if parts.is_empty() { "lists nothing".to_owned() } else { format!("has {}", parts.join(", ")) }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn bytes(count: usize) -> String {
    match count {
        0..1000 => format!("{count} bytes"),
        1000..10_000 => format!("{}.{} kB", count / 1000, count % 1000 / 100),
        10_000..1_000_000 => format!("{} kB", count / 1000),
        _ => format!("{}.{} MB", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

fn took(latency: Latency) -> String {
    if latency.count == 1 {
        return time(latency.median);
    }
    format!("{} (median of {}), at most {}", time(latency.median), latency.count, time(latency.most))
}

fn time(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::Facts;
    use crate::doctor::rules::access::{CLEAR_TEXT, ORIGIN};
    use protocol::text::columns;

    fn report(items: Vec<String>) -> Report {
        let items_total = items.len() + 3;
        let mut report = Report::of("http://host/\u{1b}[2J", Facts::default(), &[]);
        report.outcomes = vec![
            RuleOutcome { rule: &CLEAR_TEXT, is_kept: true, items: vec![], items_total: 0 },
            RuleOutcome { rule: &ORIGIN, is_kept: false, items, items_total },
        ];
        report
    }

    #[test]
    fn nothing_is_wider_than_the_terminal_or_obeyed_by_it() {
        for width in [0, 20, 39, 40, 80, 500] {
            let items =
                vec!["\u{1b}]0;title\u{7} 天気予報天気予報天気予報天気予報天気予報 \u{202e}".to_owned()];
            let text = anstream::adapter::strip_str(&report(items).text(width, true)).to_string();
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
            let limit = width.clamp(WIDTH_MIN, WIDTH_MAX);
            let wide = text.lines().find(|line| columns(line) > limit && !line.contains("https://"));
            assert_eq!(wide, None, "at {width}");
        }
    }

    #[test]
    fn long_lists_of_places_are_cut_short_and_counted() {
        let items: Vec<_> = (0..8).map(|number| format!("place {number}")).collect();
        let short = report(items.clone()).text(80, false);
        assert!(
            short.contains("place 4") && !short.contains("place 5") && short.contains("and 6 more"),
            "{short}"
        );
        let long = report(items).text(80, true);
        assert!(long.contains("place 7") && long.contains("and 3 more"), "{long}");
    }
}
