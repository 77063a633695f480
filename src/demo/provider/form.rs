//! Parameters of a query or of a form-encoded body.
//!
//! Invariant: a parameter that stands twice is refused, whichever it is.

use std::fmt::Write as _;

use super::answer::OAuthFault;

const PARAMETERS_MAX: usize = 64;

/// Names and values, each name once.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a query, or a body.
    pub(super) fn read(text: &[u8]) -> Result<Self, OAuthFault> {
        let mut form = Self::default();
        for part in text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()) {
            let equals = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
            let (name, value) = part.split_at(equals);
            let (name, value) = (decoded(name), decoded(value.strip_prefix(b"=").unwrap_or_default()));
            let (Some(name), Some(value)) = (name, value) else {
                return Err(OAuthFault::InvalidRequest("a parameter has no form-encoded UTF-8".into()));
            };
            if form.0.len() >= PARAMETERS_MAX || form.0.iter().any(|(known, _)| *known == name) {
                return Err(OAuthFault::InvalidRequest(
                    "a parameter stands twice, or there are too many".into(),
                ));
            }
            form.0.push((name, value));
        }
        Ok(form)
    }

    /// The value of a parameter. One without a value counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, value)| known == name && !value.is_empty())?;
        Some(value)
    }

    /// As [`get`](Self::get), for a parameter that must not be missing.
    pub(super) fn required(&self, name: &str) -> Result<&str, OAuthFault> {
        self.get(name).ok_or_else(|| OAuthFault::InvalidRequest(format!("{name} is missing")))
    }
}

/// Names and values as a query.
pub(super) fn encoded(parameters: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        query.push_str(if query.is_empty() { "" } else { "&" });
        let _ = write!(query, "{name}=");
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                query.push(char::from(byte));
            } else {
                let _ = write!(query, "%{byte:02X}");
            }
        }
    }
    query
}

/// The text of a name or a value; `None` if it is none.
pub(super) fn decoded(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        for value in ["", "a b+c&d=%", "Zürich", "https://a/?b#c"] {
            let form = Form::read(encoded(&[("x", "1"), ("value", value)]).as_bytes()).unwrap();
            assert_eq!(form.get("value").unwrap_or_default(), value);
        }
    }

    #[test]
    fn bad_input_of_forms_is_refused() {
        let many = (0..=PARAMETERS_MAX).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        for text in ["a=1&a=1", "a=1&%61=2", "a&a", "a=%", "a=%f", "a=%+1", "a=%ff", many.as_str()] {
            assert!(Form::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
