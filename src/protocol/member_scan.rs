//! The keys of a message's outermost object, and the values of those that a reader wants, followed while the message
//! passes, without holding it.
//!
//! It follows strings and brackets and nothing else: whether the text is JSON at all is not its business.

/// Follows one message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemberScan {
    depth: u32,
    place: ScanPosition,
    is_in_string: bool,
    is_escaped: bool,
    /// The number of bytes that have passed.
    passed: usize,
}

/// The place in the outermost object to which the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanPosition {
    /// Before or in a key.
    #[default]
    Key,
    /// In a value that is wanted.
    Wanted,
    /// In another value.
    Value,
}

/// Is told what passes.
pub(super) trait MemberReader {
    /// A member is over: the next key has not begun.
    fn end_member(&mut self);
    /// A string begins, which may be a key.
    fn begin_key(&mut self);
    /// The next bytes of the key, as they are written.
    fn key(&mut self, bytes: &[u8]);
    /// The key is over. Whether its value is wanted.
    fn wants(&mut self) -> bool;
    /// The next bytes of a value that is wanted, and where they begin. Blanks outside of strings are left out, and so is
    /// what stands in objects and arrays.
    fn value(&mut self, bytes: &[u8], at: usize);
    /// The value is over.
    fn end_value(&mut self);
    /// An escape stands in a key or in a value that is wanted.
    fn escape(&mut self);
    /// The outermost object is over. Whether another may follow.
    fn end_object(&mut self) -> bool {
        false
    }
}

impl MemberScan {
    /// Follows the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], reader: &mut impl MemberReader) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.follow(rest, reader);
        }
    }

    /// Follows the first of these bytes. Returns the others.
    fn follow<'b>(&mut self, bytes: &'b [u8], reader: &mut impl MemberReader) -> &'b [u8] {
        let passed = match (self.is_in_string, self.depth) {
            (true, _) => self.follow_string(bytes, reader),
            (false, 0 | 1) => self.step(bytes[0], reader),
            (false, _) => self.pass_nested(bytes, reader),
        };
        self.passed += passed;
        &bytes[passed..]
    }

    /// Follows a byte outside of strings, in the outermost object or before it.
    fn step(&mut self, byte: u8, reader: &mut impl MemberReader) -> usize {
        if self.depth == 1
            && self.place == ScanPosition::Wanted
            && !matches!(byte, b',' | b'}' | b']')
            && !byte.is_ascii_whitespace()
        {
            reader.value(&[byte], self.passed);
        }
        match byte {
            b'"' => self.begin_string(reader),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value(reader);
                    if reader.end_object() {
                        self.place = ScanPosition::Key;
                    }
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                let is_wanted = self.place == ScanPosition::Key && reader.wants();
                self.place = if is_wanted { ScanPosition::Wanted } else { ScanPosition::Value };
            }
            b',' if self.depth == 1 => {
                self.end_value(reader);
                self.place = ScanPosition::Key;
                reader.end_member();
            }
            _ => {}
        }
        1
    }

    /// Follows what is deeper than the outermost object, to the next string or its end.
    fn pass_nested(&mut self, bytes: &[u8], reader: &mut impl MemberReader) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => self.begin_string(reader),
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth -= 1,
                _ => continue,
            }
            if self.is_in_string || self.depth == 1 {
                return at + 1;
            }
        }
        bytes.len()
    }

    fn begin_string(&mut self, reader: &mut impl MemberReader) {
        self.is_in_string = true;
        reader.begin_key();
    }

    /// Follows a string to its end, or to its next escape.
    fn follow_string(&mut self, bytes: &[u8], reader: &mut impl MemberReader) -> usize {
        let place = if self.depth == 1 { self.place } else { ScanPosition::Value };
        let passed = if std::mem::take(&mut self.is_escaped) {
            1
        } else {
            let run = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
            match bytes.get(run) {
                Some(b'"') => self.is_in_string = false,
                Some(_) => {
                    self.is_escaped = true;
                    if place != ScanPosition::Value {
                        reader.escape();
                    }
                }
                None => {}
            }
            if place == ScanPosition::Key {
                reader.key(&bytes[..run]);
            }
            bytes.len().min(run + 1)
        };
        if place == ScanPosition::Wanted {
            reader.value(&bytes[..passed], self.passed);
        }
        passed
    }

    fn end_value(&mut self, reader: &mut impl MemberReader) {
        if self.place == ScanPosition::Wanted {
            reader.end_value();
        }
    }
}
