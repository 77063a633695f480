//! The slow reader: it takes every legal text, and finds the same marks as simd-json.

use serde_json::value::RawValue;

use super::JsonError;

/// Whether a text is JSON, however deep.
pub(super) fn check(text: &[u8]) -> Result<(), JsonError> {
    let text = std::str::from_utf8(text).map_err(|_| JsonError::NotJson)?;
    serde_json::from_str::<&RawValue>(text).map_err(|_| JsonError::NotJson)?;
    Ok(())
}

/// Finds the marks of a text that is known to be JSON.
pub(super) fn mark(text: &[u8], depth_max: usize, marks: &mut Vec<u32>) -> Result<(), JsonError> {
    marks.clear();
    let mut depth = 0;
    let mut at = 0;
    while let Some((&byte, rest)) = text.get(at..).and_then(<[u8]>::split_first) {
        let length = match byte {
            b'"' => 1 + string_tail_length(rest),
            b' ' | b'\t' | b'\n' | b'\r' | b'{' | b'[' | b'}' | b']' | b',' | b':' => 1,
            _ => 1 + word_tail_length(rest),
        };
        match byte {
            b'{' | b'[' if depth == depth_max => return Err(JsonError::TooDeep),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            marks.push(u32::try_from(at).map_err(|_| JsonError::NotJson)?);
        }
        at += length;
    }
    Ok(())
}

/// The position at which a text that is known to be JSON is nested too deeply.
#[cold]
pub(super) fn too_deep_at(text: &[u8], depth_max: usize) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while let Some((&byte, rest)) = text.get(at..).and_then(<[u8]>::split_first) {
        match byte {
            b'{' | b'[' if depth == depth_max => return Some(at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += if byte == b'"' { 1 + string_tail_length(rest) } else { 1 };
    }
    None
}

/// The bytes of a string that follow its opening quote, the closing one included.
fn string_tail_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if text.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1; // what the backslash escapes
    }
    text.len()
}

/// The bytes of a number or word that follow its first one.
fn word_tail_length(text: &[u8]) -> usize {
    let ends = |&byte: &u8| {
        matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'{' | b'}' | b'[' | b']' | b',' | b':' | b'"')
    };
    text.iter().position(ends).unwrap_or(text.len())
}
