//! A chapter of the book, as Markdown. What stands between backquotes stays so; nothing else in a text is taken for markup.

use std::fmt::Write as _;

use super::document_writer::DocumentWriter;

pub(super) struct MarkdownPage(String);

impl MarkdownPage {
    /// A chapter with its title, and what it says first.
    pub(super) fn new(title: &str, paragraphs: &[&str]) -> Self {
        let generated = "<!-- Made by `trunkline reference`: change what the program declares instead. -->";
        let mut page = Self(format!("# {title}\n\n{generated}\n"));
        for text in paragraphs {
            page.paragraph(text);
        }
        page
    }

    /// A table with these headings, each row of which has as many cells.
    pub(super) fn grid(&mut self, headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        self.0.push('\n');
        self.0.push_str(&line(headings.iter().map(|heading| escaped(heading)).collect()));
        self.0.push_str(&line(headings.iter().map(|_| "---".to_owned()).collect()));
        for row in rows {
            self.0.push_str(&line(row.iter().map(|cell| escaped(cell).replace('|', "\\|")).collect()));
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn block(&mut self, text: &str) {
        self.0.push('\n');
        self.0.push_str(text);
        self.0.push('\n');
    }
}

impl DocumentWriter for MarkdownPage {
    fn section(&mut self, heading: &str) {
        let (first, rest) = heading.split_at_checked(1).unwrap_or((heading, ""));
        self.block(&format!("## {first}{}", rest.to_lowercase()));
    }

    fn subsection(&mut self, heading: &str) {
        self.block(&format!("### `{heading}`"));
    }

    fn paragraph(&mut self, text: &str) {
        self.block(&escaped(text));
    }

    fn entry(&mut self, term: &str, meaning: &str) {
        // Entries of one list follow each other without a line between them.
        if !self.0.lines().last().is_some_and(|line| line.starts_with("- ")) {
            self.0.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "- {}: {}", escaped(term), escaped(meaning));
    }

    fn example(&mut self, language: &str, text: &str) {
        self.block(&format!("```{language}\n{}\n```", text.trim_end()));
    }
}

/// Text of one line in which nothing but backquotes is markup.
fn escaped(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = one_line.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_taken_for_markup() {
        let mut page = MarkdownPage::new("T", &["a *b* <c>\n`d*<e>`"]);
        page.grid(&["x"], [vec!["a|b `c|d`".to_owned()]]);
        let text = page.finish();
        for line in ["a \\*b\\* &lt;c> `d*<e>`\n", "| x |\n| --- |\n| a\\|b `c\\|d` |\n"] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn entries_of_a_list_stand_together() {
        let mut page = MarkdownPage::new("T", &[]);
        page.section("EXIT STATUS");
        page.entry("`a`", "One.");
        page.entry("`b`", "Two.");
        assert!(page.finish().ends_with("\n## Exit status\n\n- `a`: One.\n- `b`: Two.\n"));
    }
}
