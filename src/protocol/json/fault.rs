//! The fault that keeps a text from being read, and its position: for a log.

use serde_json::value::RawValue;

use super::slow;

/// Says why a text that [`Scratch::index`](super::Scratch::index) refuses under `depth_max` cannot be read.
#[must_use]
pub fn fault(text: &[u8], depth_max: usize) -> String {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return format!("it is not UTF-8 from byte {} on", error.valid_up_to()),
    };
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        return format!("it is no JSON at byte {}: {}", error.column(), error_kind(&error));
    }
    match slow::too_deep_at(text.as_bytes(), depth_max) {
        Some(at) => format!("it is nested deeper than json_depth_max ({depth_max}) at byte {at}"),
        None => "it cannot be read".to_owned(),
    }
}

/// The error without its place.
fn error_kind(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(kind, _)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_place() {
        for (text, expected) in [
            (&br#"{"mean":NaN}"#[..], "it is no JSON at byte 9: expected value"),
            (b"{\"a\":\"caf\xe9\"}", "it is not UTF-8 from byte 9 on"),
            (b"[[[[1]]]]", "it is nested deeper than json_depth_max (3) at byte 3"),
            (br#"["[[[[",[[1]]"#, "it is no JSON at byte 13: EOF while parsing a list"),
            (b"[1]", "it cannot be read"),
        ] {
            assert_eq!(fault(text, 3), expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
