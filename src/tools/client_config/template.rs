//! A client's text that the configuration reads itself: `${NAME:-default}`, and variables that every program inherits.

use super::placeholder::Piece;
use super::sensitive::is_secret;
use super::toml_text::{escaped, quoted};
use config::INHERITED;

/// The text of these pieces as a configuration writes it; `None` where a person has to decide, or where a secret would
/// become part of a text.
pub(super) fn template(name: &str, pieces: &[Piece<'_>]) -> Option<String> {
    let mut text = String::new();
    for piece in pieces {
        match *piece {
            Piece::Text(part) => text.push_str(&escaped(part)),
            Piece::Variable { name: variable, default } if !text.ends_with('$') => {
                if is_secret(name, "x") || is_secret(variable, "x") {
                    return None;
                }
                text.push_str("${");
                text.push_str(variable);
                match default {
                    Some(default) if is_open_default(variable, default) => {
                        text.push_str(":-");
                        text.push_str(default);
                    }
                    None if INHERITED.contains(&variable) => {}
                    _ => return None,
                }
                text.push('}');
            }
            _ => return None,
        }
    }
    Some(text)
}

/// True if the default of an unset variable can stand in a configuration.
pub(super) fn is_open_default(variable: &str, default: &str) -> bool {
    !default.contains(['$', '{', '}', '\0']) && !is_secret(variable, default)
}

/// The step for a person where a default cannot be carried over; `default`: the part of it that may be shown.
pub(super) fn without_default(variable: &str, default: Option<&str>) -> String {
    let used = match default {
        Some("") => ", the client used nothing".to_owned(),
        Some(default) => format!(", the client used {}", quoted(default)),
        None => ", the client had a value of its own".to_owned(),
    };
    format!("Set the environment variable {}: where it was not set{used}", quoted(variable))
}

#[cfg(test)]
mod tests {
    use super::super::placeholder::pieces;
    use super::*;

    #[test]
    fn what_the_configuration_can_read_is_left_to_it() {
        for (name, text, expected) in [
            ("url", "${BASE:-https://a}/mcp", Some("${BASE:-https://a}/mcp")),
            ("DIR", "$HOME/y", Some("${HOME}/y")),
            ("X", "a-${B:-}-${c d}", Some("a-${B:-}-$${c d}")),
            ("X", "${MINE}", None),
            ("X", "a$${B:-c}", None),
            ("API_KEY", "${K:-none}", None),
            ("X", "${TOKEN:-none}", None),
            ("X", "${B:-sk-abcdefghijk}", None),
            ("X", "${B:-${C}}", None),
            ("X", "${input:a}", None),
        ] {
            assert_eq!(template(name, &pieces(text)).as_deref(), expected, "{text}");
        }
    }
}
