//! A document under construction, whatever it is written in: headings, paragraphs, entries and examples.
//!
//! Text is plain, but that what stands between backquotes is code.

/// A document that grows from top to bottom.
pub(super) trait DocumentWriter {
    /// A heading of the first level, in capitals, as manual pages have it.
    fn section(&mut self, heading: &str);

    /// A heading of the second level.
    fn subsection(&mut self, heading: &str);

    fn paragraph(&mut self, text: &str);

    /// A term, and what it means.
    fn entry(&mut self, term: &str, meaning: &str);

    /// Lines as they are, in this language.
    fn example(&mut self, language: &str, text: &str);

    /// A section of entries, whose terms are code.
    fn table(&mut self, heading: &str, rows: &[(&str, &str)]) {
        self.section(heading);
        for (term, meaning) in rows {
            self.entry(&format!("`{term}`"), meaning);
        }
    }
}
