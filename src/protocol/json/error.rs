//! The error of a text that is refused.

/// The reason why a text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON: bad syntax, bad UTF-8, a byte order mark, nothing at all, or bytes after the value.
    #[error("the text is not valid JSON")]
    NotJson,
    /// Objects and arrays are nested deeper than the limit.
    #[error("the JSON text is nested too deeply")]
    TooDeep,
}
