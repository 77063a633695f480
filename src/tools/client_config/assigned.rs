//! Variables among the words of a command: `NAME=value program`, `env NAME=value program`, and `docker run -e NAME=value`.
//! They become environment variables of the program, so that a secret stands neither in the configuration nor in the list
//! of processes.

use super::placeholder::{Piece, pieces};
use super::sensitive::is_secret;

/// Programs that pass a variable on by its name alone.
const CONTAINERS: [&str; 3] = ["docker", "podman", "nerdctl"];
/// Their options without a value, as they stand before the name of an image.
const FLAGS: [&str; 14] = [
    "-i",
    "-t",
    "-it",
    "-ti",
    "-d",
    "--rm",
    "--init",
    "--privileged",
    "--read-only",
    "--interactive",
    "--tty",
    "--detach",
    "-P",
    "--publish-all",
];

/// A line that a shell would read, as its words; `None` where more is needed than taking quotes away.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('"'), '$' | '`') | (None, '$' | '`' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n') => {
                return None;
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, ' ' | '\t') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// True if a word is `NAME=value`.
pub(super) fn is_assignment(word: &str) -> bool {
    assignment(word).is_some()
}

fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some((name, value))
}

/// Takes the variables out of `words` into `env`.
pub(super) fn take(words: &mut Vec<String>, env: &mut Vec<(String, String)>) {
    let is_env = words.len() > 2
        && ["env", "/usr/bin/env", "/bin/env"].contains(&&*words[0])
        && is_assignment(&words[1]);
    let begin = usize::from(is_env);
    let count = words[begin.min(words.len())..].iter().take_while(|word| is_assignment(word)).count();
    // With nothing to run they are no variables.
    if count > 0 && begin + count < words.len() {
        for word in words.drain(..begin + count).skip(begin) {
            if let Some((name, value)) = assignment(&word) {
                set(env, name, value);
            }
        }
    }
    take_of_container(words, env);
}

fn set(env: &mut Vec<(String, String)>, name: &str, value: &str) {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
}

/// `-e NAME=secret` becomes `-e NAME`, as far as the name of the image.
fn take_of_container(words: &mut [String], env: &mut Vec<(String, String)>) {
    let is_container = words
        .first()
        .is_some_and(|program| CONTAINERS.contains(&program.rsplit('/').next().unwrap_or(program)));
    let Some(run) = words.iter().position(|word| word == "run").filter(|_| is_container) else { return };
    let mut at = run + 1;
    while at < words.len() && words[at].starts_with('-') {
        let word = words[at].clone();
        let joined =
            word.strip_prefix("--env=").or_else(|| word.strip_prefix("-e").filter(|rest| !rest.is_empty()));
        if let Some(pair) = joined {
            if let Some(name) = secret_variable(pair, env) {
                words[at] =
                    if word.starts_with("--") { format!("--env={name}") } else { format!("-e{name}") };
            }
        } else if word == "-e" || word == "--env" {
            at += 1;
            if let Some(name) = words.get(at).and_then(|pair| secret_variable(pair, env)) {
                words[at] = name;
            }
        } else if !word.contains('=') && !FLAGS.contains(&&*word) {
            at += 1;
        }
        at += 1;
    }
}

/// The name of a variable whose value is a secret that can stand in the environment instead, where it then is.
fn secret_variable(pair: &str, env: &mut Vec<(String, String)>) -> Option<String> {
    let (name, value) = assignment(pair)?;
    let is_text = matches!(*pieces(value).as_slice(), [Piece::Text(_)]);
    let is_free = env.iter().all(|(known, other)| known != name || other == value);
    if !is_text || !is_free || !is_secret(name, value) {
        return None;
    }
    set(env, name, value);
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> (String, String) {
        let (mut words, mut env) = (words(line).expect(line), Vec::new());
        take(&mut words, &mut env);
        (
            words.join(" "),
            env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
        )
    }

    #[test]
    fn variables_before_a_program_are_its_environment() {
        for (line, left, env) in [
            ("TOKEN=hunter2 npx a", "npx a", "TOKEN=hunter2"),
            ("A='b c' B=\"d\" _E= npx a f=g", "npx a f=g", "A=b c B=d _E="),
            ("env A=b npx a", "npx a", "A=b"),
            ("env -i A=b npx", "env -i A=b npx", ""),
            ("npx A=b", "npx A=b", ""),
            ("A=b", "A=b", ""),
            ("A=1 A=2 x", "x", "A=2"),
        ] {
            assert_eq!(taken(line), (left.to_owned(), env.to_owned()), "{line}");
        }
    }

    #[test]
    fn secrets_of_a_container_are_passed_by_name() {
        for (line, left, env) in [
            (
                "docker run -i --rm -e API_KEY=hunter2 image",
                "docker run -i --rm -e API_KEY image",
                "API_KEY=hunter2",
            ),
            (
                "docker run --env=TOKEN=h -eKEY=h -v /a:/b --name=x i",
                "docker run --env=TOKEN -eKEY -v /a:/b --name=x i",
                "TOKEN=h KEY=h",
            ),
            (
                "podman run --network host --env TOKEN=h i -e TOKEN=i",
                "podman run --network host --env TOKEN i -e TOKEN=i",
                "TOKEN=h",
            ),
            ("docker run -e LOG=debug -e TOKEN i", "docker run -e LOG=debug -e TOKEN i", ""),
            ("runner run -e TOKEN=h i", "runner run -e TOKEN=h i", ""),
            ("docker run -e TOKEN=a -e TOKEN=b i", "docker run -e TOKEN -e TOKEN=b i", "TOKEN=a"),
        ] {
            assert_eq!(taken(line), (left.to_owned(), env.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_line_that_needs_a_shell_is_none() {
        for line in ["A=$(x) b", "a | b", "a; b", "a 'b", "a \\", "A=\"$B\" c", "a > b"] {
            assert_eq!(words(line), None, "{line}");
        }
        assert_eq!(words(" a\\ b '' ").unwrap(), ["a b", ""]);
    }
}
