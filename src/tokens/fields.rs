//! The fields of a sealed record: numbers of fixed length, texts and lists after their lengths.
//!
//! Invariants: what is written is read back equal, or the writer says that it did not fit; reading never panics, and never
//! takes more memory than the record has bytes.

/// Writes fields one after the other.
#[derive(Default)]
pub struct FieldWriter {
    bytes: Vec<u8>,
    has_overflowed: bool,
}

/// The part of a record that is not read yet.
pub struct FieldReader<'r>(&'r [u8]);

impl FieldWriter {
    /// Bytes whose number the reader knows.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A small number, or one of a few cases.
    pub fn small(&mut self, number: u8) {
        self.bytes.push(number);
    }

    /// A number.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// A number that may be missing.
    pub fn optional_number(&mut self, number: Option<u64>) {
        self.small(number.is_some().into());
        if let Some(number) = number {
            self.number(number);
        }
    }

    /// A text of at most 64 KiB.
    pub fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A text that may be missing.
    pub fn optional_text(&mut self, text: Option<&str>) {
        self.small(text.is_some().into());
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// Several texts.
    pub fn texts(&mut self, texts: &[impl AsRef<str>]) {
        self.length(texts.len());
        for text in texts {
            self.text(text.as_ref());
        }
    }

    /// The number of what follows.
    pub fn length(&mut self, length: usize) {
        let Ok(length) = u16::try_from(length) else {
            self.has_overflowed = true;
            return;
        };
        self.bytes.extend_from_slice(&length.to_be_bytes());
    }

    /// The record. `None`: a text was too long for it.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.has_overflowed).then_some(self.bytes)
    }
}

impl<'r> FieldReader<'r> {
    /// Reads a record from its beginning.
    pub fn new(record: &'r [u8]) -> Self {
        Self(record)
    }

    /// So many bytes.
    pub fn take(&mut self, bytes: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes whose number is known.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A small number.
    pub fn small(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Yes or no.
    pub fn is_so(&mut self) -> Option<bool> {
        match self.small()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number that may be missing.
    pub fn optional_number(&mut self) -> Option<Option<u64>> {
        if self.is_so()? { self.number().map(Some) } else { Some(None) }
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        let bytes = self.length()?;
        std::str::from_utf8(self.take(bytes)?).ok().map(str::to_owned)
    }

    /// A text that may be missing.
    pub fn optional_text(&mut self) -> Option<Option<String>> {
        if self.is_so()? { self.text().map(Some) } else { Some(None) }
    }

    /// Several texts.
    pub fn texts(&mut self) -> Option<Vec<String>> {
        (0..self.length()?).map(|_| self.text()).collect()
    }

    /// The number of what follows.
    pub fn length(&mut self) -> Option<usize> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    /// True where all of the record is read.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_said() {
        let mut writer = FieldWriter::default();
        writer.text(&"a".repeat(1 << 16));
        assert_eq!(writer.finish(), None);
        let mut writer = FieldWriter::default();
        writer.texts(&vec![""; 1 << 16]);
        assert_eq!(writer.finish(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            small: u8, number: u64, maybe: Option<u64>, text: String, other: Option<String>, texts: Vec<String>
        ) {
            let mut writer = FieldWriter::default();
            writer.small(small);
            writer.number(number);
            writer.optional_number(maybe);
            writer.text(&text);
            writer.optional_text(other.as_deref());
            writer.texts(&texts);
            let record = writer.finish().expect("a record");
            let mut reader = FieldReader::new(&record);
            prop_assert_eq!(reader.small(), Some(small));
            prop_assert_eq!(reader.number(), Some(number));
            prop_assert_eq!(reader.optional_number(), Some(maybe));
            prop_assert_eq!(reader.text(), Some(text));
            prop_assert_eq!(reader.optional_text(), Some(other));
            prop_assert_eq!(reader.texts(), Some(texts));
            prop_assert!(reader.is_at_end());
        }

        #[test]
        fn nothing_panics(record: Vec<u8>) {
            let mut reader = FieldReader::new(&record);
            while reader.texts().is_some() && reader.optional_text().is_some() && !reader.is_at_end() {}
        }
    }
}
