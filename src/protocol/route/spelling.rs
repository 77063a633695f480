//! Names and URIs as a server may read them. Whatever denies a name, a rule or an endpoint's `deny`, denies all that a
//! lenient server takes for it; what allows one allows what it says, byte for byte.

use std::borrow::Cow;

use super::Kind;

/// Whatever a server may take a name for, without capitals.
pub fn readings(kind: Kind, name: &str) -> Vec<Cow<'_, str>> {
    match kind {
        Kind::Resource => uri_readings(name).into_iter().map(Cow::Owned).collect(),
        Kind::Tool | Kind::Prompt | Kind::Task if name.trim() == name => vec![fold(name)],
        Kind::Tool | Kind::Prompt | Kind::Task => vec![fold(name), fold(name.trim())],
    }
}

/// True if a server may take one name of a tool or prompt for the other.
pub fn are_alike(one: &str, other: &str) -> bool {
    fold(one).trim() == fold(other).trim()
}

/// Text as somebody reads it to whom capitals do not matter, nor the letters that some take for them.
pub fn fold(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(text);
    }
    let folded = text.chars().flat_map(char::to_lowercase).map(|c| match c {
        'ſ' => 's',
        '\u{131}' => 'i',
        other => other,
    });
    // The Kelvin sign is a k in lower case; of a capital I with a dot, the dot is left over.
    Cow::Owned(folded.filter(|c| *c != '\u{307}').collect())
}

/// True for a name with characters that a server may drop or take for others.
pub fn is_odd_name(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What a server may take a URI for: without its escapes, without query and fragment, without a slash at its end.
/// All that is read alike by everybody is [`is_disguised`](super::is_disguised) or one of these.
fn uri_readings(uri: &str) -> Vec<String> {
    let plain = decode(uri);
    let mut readings = Vec::with_capacity(4);
    for whole in [uri, &plain] {
        let bare = whole.split(['?', '#']).next().unwrap_or_default();
        for text in [whole, bare, bare.trim_end_matches('/')] {
            let text = fold(text);
            if !readings.iter().any(|known| *known == *text) {
                readings.push(text.into_owned());
            }
        }
    }
    readings
}

fn decode(uri: &str) -> String {
    let bytes = uri.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = uri.get(at + 1..at + 3).filter(|_| *byte == b'%');
        if let Some(value) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            decoded.push(value);
            at += 3;
        } else {
            decoded.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_leaves_no_capital() {
        for (text, folded) in [
            ("delete_all", "delete_all"),
            ("DeleteAll", "deleteall"),
            ("de\u{17f}troy", "destroy"),
            ("\u{212a}ill", "kill"),
            ("\u{130}nit", "init"),
            ("ÄÖ", "äö"),
        ] {
            assert_eq!(fold(text), folded);
        }
    }

    #[test]
    fn names_are_alike_in_every_reading() {
        for (one, other, expected) in [
            ("kill", "KILL", true),
            ("kill", " \u{212a}ill\n", true),
            ("Kill ", "kill", true),
            ("kill", "kill_all", false),
            ("kill", "", false),
        ] {
            assert_eq!((are_alike(one, other), are_alike(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn a_uri_is_read_in_every_way() {
        for (uri, reading) in [
            ("file:///Secret", "file:///secret"),
            ("file:///secret?x", "file:///secret"),
            ("file:///secret/", "file:///secret"),
            ("file:///secret#a/b", "file:///secret"),
            ("file:///%C3%A9", "file:///é"),
            ("file:///a%21", "file:///a!"),
            ("x:%e", "x:%e"),
        ] {
            assert!(uri_readings(uri).iter().any(|known| known == reading), "{uri}: {:?}", uri_readings(uri));
        }
    }
}
