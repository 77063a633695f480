//! Parameters of a query or of a form-encoded body.
//!
//! Invariants: a parameter that stands twice is refused, whichever it is, since of two another reader might believe the
//! other; all is bounded; an error names a parameter and never shows a value; values, of which some are secrets, are gone from memory
//! with their reader.

use std::fmt;

use zeroize::Zeroizing;

/// The bounds of a request.
#[derive(Clone, Copy, Debug)]
pub struct ParameterBounds {
    /// Bytes of all, as they are written.
    pub bytes_max: usize,
    /// The number of parameters.
    pub count_max: usize,
    /// Bytes of each value, decoded.
    pub value_bytes_max: usize,
}

/// Requests of clients and browsers: the longest value is an assertion.
pub const OF_REQUESTS: ParameterBounds =
    ParameterBounds { bytes_max: 16 << 10, count_max: 32, value_bytes_max: 4 << 10 };
/// Answers of providers, which hold several tokens.
pub const OF_ANSWERS: ParameterBounds =
    ParameterBounds { bytes_max: 64 << 10, count_max: 64, value_bytes_max: 16 << 10 };

const NAME_BYTES_MAX: usize = 64;
/// Tokens are longer, and have digits: none can be shown as a name.
const SHOWN_BYTES_MAX: usize = 40;

/// Names and values, each name once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, Zeroizing<String>)>);

/// The cause for which parameters are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterFault {
    /// More bytes than fit.
    #[error("the parameters are longer than {0} bytes")]
    TooLong(usize),
    /// More parameters than fit.
    #[error("there are more than {0} parameters")]
    TooMany(usize),
    /// A value, or a name, that is too long.
    #[error("{0} is too long")]
    ValueTooLong(String),
    /// It stands twice.
    #[error("{0} stands twice")]
    Twice(String),
    /// `%` without two digits.
    #[error("{0} has a % without two hexadecimal digits after it")]
    Escape(String),
    /// Other bytes than UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(String),
    /// A NUL character.
    #[error("{0} holds a NUL character")]
    Nul(String),
    /// Another content type.
    #[error("the content type is not application/x-www-form-urlencoded")]
    ContentType,
    /// Another charset.
    #[error("the charset of the content type is not UTF-8")]
    Charset,
}

impl Parameters {
    /// Reads the query of a URL, without its `?`.
    pub fn of_query(query: &str) -> Result<Self, ParameterFault> {
        read(query.as_bytes(), OF_REQUESTS)
    }

    /// Reads a body, whose content type must be that of forms.
    pub fn of_form(content_type: Option<&[u8]>, body: &[u8]) -> Result<Self, ParameterFault> {
        check_content_type(content_type, "application/x-www-form-urlencoded")?;
        read(body, OF_REQUESTS)
    }

    /// Reads what a provider answered in the encoding of forms.
    pub fn of_answer(body: &[u8]) -> Result<Self, ParameterFault> {
        read(body, OF_ANSWERS)
    }

    /// True where the parameter stands there, with a value or without.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(present, _)| present == name)
    }

    /// The value of a parameter. One without a value counts as missing (RFC 6749 §3.1).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(present, value)| present == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Parameters {
    /// The names alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| shown(name))).finish()
    }
}

/// Refuses other content types than `expected`, and other charsets than UTF-8.
pub fn check_content_type(content_type: Option<&[u8]>, expected: &str) -> Result<(), ParameterFault> {
    let mut parts = content_type.unwrap_or_default().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    if !parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(expected.as_bytes())) {
        return Err(ParameterFault::ContentType);
    }
    for part in parts {
        let (name, value) = part.split_at(part.iter().position(|byte| *byte == b'=').unwrap_or(part.len()));
        let value: Vec<u8> = value.iter().copied().filter(|byte| !b"=\"'".contains(byte)).collect();
        if name.trim_ascii().eq_ignore_ascii_case(b"charset")
            && !value.trim_ascii().eq_ignore_ascii_case(b"utf-8")
            && !value.trim_ascii().eq_ignore_ascii_case(b"utf8")
        {
            return Err(ParameterFault::Charset);
        }
    }
    Ok(())
}

/// The form of a value within a query or a form: only what nobody escapes stays as it is. It is written once, so no part of it is
/// left behind.
pub fn form_encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len() * ESCAPED_BYTES);
    encode(&mut text, value);
    text
}

/// Names and values as a query or a form, likewise.
pub fn to_form<'p>(parameters: impl IntoIterator<Item = (&'p str, &'p str)> + Clone) -> String {
    let bytes =
        parameters.clone().into_iter().map(|(name, value)| (name.len() + value.len()) * ESCAPED_BYTES + 2);
    let mut text = String::with_capacity(bytes.sum());
    for (name, value) in parameters {
        if !text.is_empty() {
            text.push('&');
        }
        encode(&mut text, name);
        text.push('=');
        encode(&mut text, value);
    }
    text
}

fn encode(text: &mut String, value: &str) {
    text.extend(percent_encoding::utf8_percent_encode(value, UNESCAPED));
}

/// A value as forms have it, decoded. `None`: it is none, or no UTF-8.
pub fn form_decoded(text: &str) -> Option<String> {
    String::from_utf8(decoded(text.as_bytes())?).ok()
}

/// Bytes of an escaped byte.
const ESCAPED_BYTES: usize = 3;
const UNESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn read(text: &[u8], bounds: ParameterBounds) -> Result<Parameters, ParameterFault> {
    if text.len() > bounds.bytes_max {
        return Err(ParameterFault::TooLong(bounds.bytes_max));
    }
    let mut parameters = Parameters::default();
    for part in text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()) {
        if parameters.0.len() >= bounds.count_max {
            return Err(ParameterFault::TooMany(bounds.count_max));
        }
        let equals = part.iter().position(|byte| *byte == b'=');
        let (name, value) = equals.map_or((part, &[][..]), |at| (&part[..at], &part[at + 1..]));
        let name = read_text(name, "the name of a parameter", NAME_BYTES_MAX)?;
        let value = Zeroizing::new(read_text(value, &shown(&name), bounds.value_bytes_max)?);
        if parameters.0.iter().any(|(present, _)| *present == name) {
            return Err(ParameterFault::Twice(shown(&name)));
        }
        parameters.0.push((name, value));
    }
    Ok(parameters)
}

fn read_text(text: &[u8], called: &str, bytes_max: usize) -> Result<String, ParameterFault> {
    let bytes = decoded(text).ok_or_else(|| ParameterFault::Escape(called.to_owned()))?;
    if bytes.len() > bytes_max {
        return Err(ParameterFault::ValueTooLong(called.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| ParameterFault::Utf8(called.to_owned()))?;
    if text.contains('\0') {
        return Err(ParameterFault::Nul(called.to_owned()));
    }
    Ok(text)
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => *byte,
        });
    }
    Some(bytes)
}

/// A name, where it looks like one: where `=` is missing, it may be a secret.
fn shown(name: &str) -> String {
    let is_name = name.len() <= SHOWN_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        && !name.is_empty();
    if is_name { name.to_owned() } else { "another parameter".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORM: Option<&[u8]> = Some(b"application/x-www-form-urlencoded");

    #[test]
    fn names_and_values_are_decoded() {
        let parameters = Parameters::of_query("a=b+c%2Bd&e=&&f&state=%C3%A4%26").expect("parameters");
        assert_eq!(parameters.get("a"), Some("b c+d"));
        assert_eq!((parameters.get("e"), parameters.get("f"), parameters.get("g")), (None, None, None));
        assert_eq!(parameters.get("state"), Some("\u{e4}&"));
        let text = format!("{parameters:?}");
        assert!(text.contains("state") && !text.contains("b c"), "{text}");
        assert_eq!(form_encoded("a b&\u{e4}~"), "a%20b%26%C3%A4~");
    }

    #[test]
    fn bad_input_every_parameter_twice_over_long_or_of_another_encoding_is_refused_by_name() {
        let long = format!("state={}", "a".repeat(OF_REQUESTS.value_bytes_max + 1));
        for (query, expected) in [
            ("state=a&state=a", "state stands twice"),
            ("state=a&%73tate=b", "state stands twice"),
            ("state=&state=b", "state stands twice"),
            ("unknown=a&unknown=b", "unknown stands twice"),
            ("state=%", "state has a % without two hexadecimal digits after it"),
            ("state=%g0", "state has a % without two hexadecimal digits after it"),
            ("state=%+1", "state has a % without two hexadecimal digits after it"),
            ("state=%ff", "state is not UTF-8"),
            ("state=a%00", "state holds a NUL character"),
            (&long, "state is too long"),
            // A name with digits is shown as little as a token.
            ("tla_SECRET1&tla_SECRET1", "another parameter stands twice"),
        ] {
            let found = Parameters::of_query(query).err().map(|fault| fault.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{query:.40}");
        }
        let many = (0..40).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        assert_eq!(Parameters::of_query(&many), Err(ParameterFault::TooMany(32)));
        let long = "a".repeat(OF_REQUESTS.bytes_max + 1);
        assert_eq!(Parameters::of_query(&long), Err(ParameterFault::TooLong(16 << 10)));
    }

    #[test]
    fn bad_input_other_content_types_and_charsets_are_refused() {
        for (content_type, fault) in [
            (Some("application/x-www-form-urlencoded"), None),
            (Some("Application/X-WWW-Form-Urlencoded; charset=UTF-8"), None),
            (Some("application/x-www-form-urlencoded;charset=\"utf-8\""), None),
            (Some("application/x-www-form-urlencoded; charset=iso-8859-1"), Some(ParameterFault::Charset)),
            (Some("application/x-www-form-urlencoded; charset"), Some(ParameterFault::Charset)),
            (Some("application/json"), Some(ParameterFault::ContentType)),
            (Some("multipart/form-data"), Some(ParameterFault::ContentType)),
            (Some(""), Some(ParameterFault::ContentType)),
            (None, Some(ParameterFault::ContentType)),
        ] {
            let found = Parameters::of_form(content_type.map(str::as_bytes), b"a=b").err();
            assert_eq!(found, fault, "{content_type:?}");
        }
        assert!(Parameters::of_form(FORM, b"a=\xff").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_value_is_shown(body in any::<Vec<u8>>(), kind in any::<Vec<u8>>()) {
            let _ = Parameters::of_form(FORM, &body);
            let _ = check_content_type(Some(&kind), "application/json");
        }

        #[test]
        fn what_is_encoded_is_decoded(name in "[a-z]{1,9}", value in "[^\0]{1,50}") {
            let form = to_form([(name.as_str(), value.as_str())]);
            let read = Parameters::of_query(&form).expect("parameters");
            prop_assert_eq!(read.get(&name), Some(value.as_str()));
        }
    }
}
