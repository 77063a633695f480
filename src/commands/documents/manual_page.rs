//! A manual page, as roff with the `man` macros.
//!
//! Text is plain, but that what stands between backquotes becomes bold. Nothing in it is ever taken for a macro. Pages are
//! ASCII: other characters are spelled as roff does, so that no reader has to guess an encoding.

use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::document_writer::DocumentWriter;

/// Makes apostrophes come out as such; once, at the top of a page.
const APOSTROPHE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
/// How wide the terms of entries are.
const INDENT: &str = "4";

pub(super) struct ManualPage(String);

impl ManualPage {
    /// A page with its title line.
    pub(super) fn new(name: &str, section: &str) -> Self {
        let mut page = Self(APOSTROPHE.to_owned());
        let source = concat!("trunkline ", env!("CARGO_PKG_VERSION"));
        page.add(Roff::new().control("TH", [name, section, "\"\"", source, "Trunkline"]));
        // Commands and keys are copied from pages: no word is divided, no line stretched.
        page.add(Roff::new().control("nh", []).control("ad", ["l"]));
        page
    }

    pub(super) fn description(&mut self, paragraphs: &[&str]) {
        self.section("DESCRIPTION");
        for text in paragraphs {
            self.paragraph(text);
        }
    }

    /// A new paragraph, for what is rendered elsewhere.
    pub(super) fn space(&mut self) {
        self.add(Roff::new().control("PP", []));
    }

    /// The line that `apropos` reads.
    pub(super) fn name(&mut self, name: &str, purpose: &str) {
        self.section("NAME");
        self.add(Roff::new().text([roman(format!("{name} - {purpose}"))]));
    }

    /// What `clap_mangen` wrote, without its heading.
    pub(super) fn rendered(&mut self, written: &[u8]) {
        for line in String::from_utf8_lossy(written).lines().filter(|line| !is_preamble(line)) {
            if !line.starts_with(".SH") {
                self.0.push_str(line);
                self.0.push('\n');
            }
        }
    }

    pub(super) fn finish(self) -> String {
        let spelled = |character: char| match character {
            ascii if ascii.is_ascii() => ascii.to_string(),
            other => format!("\\[u{:04X}]", u32::from(other)),
        };
        self.0.chars().map(spelled).collect()
    }

    fn add(&mut self, roff: &Roff) {
        for line in roff.render().lines().filter(|line| !is_preamble(line)) {
            self.0.push_str(line);
            self.0.push('\n');
        }
    }
}

impl DocumentWriter for ManualPage {
    fn section(&mut self, heading: &str) {
        self.add(Roff::new().control("SH", [heading]));
    }

    fn subsection(&mut self, heading: &str) {
        self.add(Roff::new().control("SS", [heading]));
    }

    fn paragraph(&mut self, text: &str) {
        self.add(Roff::new().control("PP", []).text(inlines(text)));
    }

    fn entry(&mut self, term: &str, meaning: &str) {
        self.add(Roff::new().control("TP", [INDENT]).text(inlines(term)).text(inlines(meaning)));
    }

    fn example(&mut self, _: &str, text: &str) {
        let mut roff = Roff::new();
        roff.control("PP", []).control("RS", [INDENT]).control("EX", []);
        for line in text.trim_end().lines() {
            roff.text([roman(line)]);
        }
        self.add(roff.control("EE", []).control("RE", []));
    }
}

fn is_preamble(line: &str) -> bool {
    APOSTROPHE.lines().any(|preamble| preamble == line)
}

/// Text in which every second part, from backquote to backquote, is bold.
fn inlines(text: &str) -> Vec<Inline> {
    let one_line = text.replace('\n', " ");
    let parts = one_line.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut ManualPage)) -> String {
        let mut page = ManualPage::new("name", "1");
        let before = page.0.len();
        write(&mut page);
        page.finish()[before..].to_owned()
    }

    #[test]
    fn text_is_never_taken_for_a_macro() {
        let cases = [
            (".PP is text", ".PP\n\\&.PP is text\n"),
            ("'it' \\fB", ".PP\n\\*(Aqit\\*(Aq \\\\fB\n"),
            ("a\n.b `c-d`", ".PP\na .b \\fBc\\-d\\fR\n"),
            ("±10 %…", ".PP\n\\[u00B1]10 %\\[u2026]\n"),
        ];
        for (text, roff) in cases {
            assert_eq!(written(|page| page.paragraph(text)), roff, "{text}");
        }
    }

    #[test]
    fn an_example_keeps_its_lines() {
        let roff = written(|page| page.example("toml", "a = 1\n\n.b `c`\n"));
        assert_eq!(roff, ".PP\n.RS 4\n.EX\na = 1\n\n\\&.b `c`\n.EE\n.RE\n");
    }
}
