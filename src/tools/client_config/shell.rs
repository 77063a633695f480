//! A program some of whose arguments come from the environment. Arguments stand in the configuration, secrets do not: a
//! shell puts them together.

/// A piece of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    /// An environment variable, and a text for where it is not set that [`is_plain`].
    Variable {
        name: String,
        default: Option<String>,
    },
}

/// The arguments of `sh` that run these words in its place.
pub(super) fn arguments(words: &[Vec<Part>]) -> [String; 2] {
    let mut line = "exec".to_owned();
    for word in words {
        line.push(' ');
        let before = line.len();
        for part in word {
            match part {
                Part::Text(text) => line.push_str(&quoted(text)),
                Part::Variable { name, default } => {
                    line.push_str("\"${");
                    line.push_str(name);
                    if let Some(default) = default {
                        line.push_str(":-");
                        line.push_str(default);
                    }
                    line.push_str("}\"");
                }
            }
        }
        if line.len() == before {
            line.push_str("''");
        }
    }
    ["-c".to_owned(), line]
}

/// True if a shell reads a text as it is, with quotes and without.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte))
}

/// A text that a shell leaves as it is.
fn quoted(text: &str) -> String {
    if !text.is_empty() && is_plain(text) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_gets_the_words_as_they_were() {
        let text = |text: &str| vec![Part::Text(text.to_owned())];
        let words = [
            text("printf"),
            text("[%s]"),
            text("two words"),
            text("it's $HOME `x` \"y\" \\ * ;"),
            vec![],
            vec![
                Part::Text("a b=".to_owned()),
                Part::Variable { name: "V".to_owned(), default: None },
                Part::Text("&".to_owned()),
            ],
            vec![Part::Variable { name: "UNSET".to_owned(), default: Some("http://h:1/x".to_owned()) }],
            vec![Part::Variable { name: "UNSET".to_owned(), default: Some(String::new()) }],
        ];
        let done = Command::new("sh").args(arguments(&words)).env("V", "$(x) 'y'").output().unwrap();
        assert_eq!(
            String::from_utf8(done.stdout).unwrap(),
            "[two words][it's $HOME `x` \"y\" \\ * ;][][a b=$(x) 'y'&][http://h:1/x][]"
        );
    }
}
