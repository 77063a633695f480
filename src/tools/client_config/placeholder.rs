//! What clients put in the place of a value: `${env:NAME}`, `${NAME}`, `${NAME:-default}`, `$NAME`, `{env:NAME}`,
//! `${input:id}`, `${file:/path}`, `{file:/path}`, `${workspaceFolder}`, and `%NAME%` of Windows.

use std::fmt;

/// A piece of a text of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// As it stands.
    Text(&'t str),
    /// An environment variable, and the value for where it is not set.
    Variable { name: &'t str, default: Option<&'t str> },
    /// What the client asks its user for, by its id.
    Input(&'t str),
    /// What a file holds, an absolute path.
    File(&'t str),
    /// What only the client knows, such as the folder that is open.
    Place(&'t str),
}

impl<'t> Piece<'t> {
    /// What is named for a value, if the piece is not the value itself.
    pub(super) fn name(&self) -> Option<&'t str> {
        match self {
            Self::Text(_) => None,
            Self::Variable { name, .. } | Self::Input(name) | Self::File(name) | Self::Place(name) => {
                Some(name)
            }
        }
    }
}

/// A text with this piece alone.
impl fmt::Display for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Place(text) => f.write_str(text),
            Self::Variable { name, default: None } => write!(f, "${{env:{name}}}"),
            Self::Variable { name, default: Some(default) } => write!(f, "${{env:{name}:-{default}}}"),
            Self::Input(id) => write!(f, "${{input:{id}}}"),
            Self::File(path) => write!(f, "${{file:{path}}}"),
        }
    }
}

/// The pieces of `text`, in order; none is empty.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    // Text that is not yet in a piece begins at `from`; what might be a placeholder is looked for from `at` on.
    let (mut from, mut at) = (0, 0);
    let mut closing = text.find('}');
    while let Some(start) = text[at..].find(['$', '{', '%']).map(|found| at + found) {
        // Looked for once, not from every `${` of many that are never closed.
        if closing.is_some_and(|closing| closing < start) {
            closing = text[start..].find('}').map(|found| start + found);
        }
        let found = closing
            .and_then(|closing| placeholder(&text[start..closing], &text[start..=closing]))
            .or_else(|| bare(&text[start..], text[from..start].chars().next_back(), pieces.is_empty()))
            .or_else(|| windows(&text[start..]));
        let Some((piece, length)) = found else {
            at = start + 1;
            continue;
        };
        if start > from {
            pieces.push(Piece::Text(&text[from..start]));
        }
        pieces.push(piece);
        from = start + length;
        at = from;
    }
    if from < text.len() {
        pieces.push(Piece::Text(&text[from..]));
    }
    pieces
}

/// `${…}`, `{env:…}` and `{file:…}`: all of it, and as far as the brace that closes it.
fn placeholder<'t>(open: &'t str, whole: &'t str) -> Option<(Piece<'t>, usize)> {
    let length = whole.len();
    if let Some(path) = open.strip_prefix("{file:") {
        let piece = if path.starts_with('/') { Piece::File(path) } else { Piece::Place(whole) };
        return Some((piece, length));
    }
    if let Some(name) = open.strip_prefix("{env:") {
        return is_name(name).then_some((Piece::Variable { name, default: None }, length));
    }
    let inner = open.strip_prefix("${")?;
    // What is none is known by its beginning: of many that are none, only that much is read each time.
    let behind = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !(behind.is_empty() || behind.starts_with(':') || inner == "/" || inner.starts_with("/:-")) {
        return None;
    }
    let (name, default) =
        inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
    let piece = match name.split_once(':') {
        Some(("env", name)) if is_name(name) => Piece::Variable { name, default },
        Some(("input", id)) => Piece::Input(id),
        Some(("file", path)) if path.starts_with('/') => Piece::File(path),
        Some((kind, _)) if !is_name(kind) => return None,
        None if !PLACES.contains(&name) && !is_name(name) => return None,
        None if !PLACES.contains(&name) => Piece::Variable { name, default },
        _ => Piece::Place(whole),
    };
    Some((piece, length))
}

/// `$NAME`, in capitals and at the beginning of a word or a value: passwords may hold a `$`.
fn bare(text: &str, before: Option<char>, is_first: bool) -> Option<(Piece<'_>, usize)> {
    let rest = text.strip_prefix('$')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    let begins = match before {
        None => is_first,
        Some(before) => " =:".contains(before),
    };
    let ends = rest[end..].chars().next().is_none_or(|next| " /\\:".contains(next));
    let is_variable = is_name(name) && !name.contains(|c: char| c.is_ascii_lowercase());
    (begins && ends && is_variable).then_some((Piece::Variable { name, default: None }, end + 1))
}

/// `%NAME%`, a variable of Windows, where it cannot be bytes of a URL, such as `%41%42`.
fn windows(text: &str) -> Option<(Piece<'_>, usize)> {
    let rest = text.strip_prefix('%')?;
    let end = rest.bytes().take(WINDOWS_NAME_BYTES_MAX).position(|byte| byte == b'%')?;
    let name = &rest.as_bytes()[..end];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_()".contains(byte);
    let is_byte = name.iter().take(2).all(u8::is_ascii_hexdigit);
    let is_variable =
        name.len() >= 3 && name[0].is_ascii_alphabetic() && name.iter().all(is_name) && !is_byte;
    is_variable.then(|| (Piece::Place(&text[..end + 2]), end + 2))
}

const WINDOWS_NAME_BYTES_MAX: usize = 64;

const PLACES: [&str; 12] = [
    "workspaceFolder",
    "workspaceFolderBasename",
    "workspaceRoot",
    "file",
    "fileDirname",
    "fileBasename",
    "relativeFile",
    "userHome",
    "cwd",
    "pathSeparator",
    "/",
    "CLAUDE_PLUGIN_ROOT",
];

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::Piece::{File, Input, Place, Text, Variable};
    use super::*;

    #[test]
    fn placeholders_of_all_clients_are_found() {
        let variable = |name, default| Variable { name, default };
        let cases: &[(&str, &[Piece<'_>])] = &[
            ("", &[]),
            ("plain", &[Text("plain")]),
            ("${env:A_B}", &[variable("A_B", None)]),
            ("${A}", &[variable("A", None)]),
            ("${A:-b}", &[variable("A", Some("b"))]),
            ("$A_1", &[variable("A_1", None)]),
            ("{env:A}", &[variable("A", None)]),
            ("Bearer ${input:the-key}", &[Text("Bearer "), Input("the-key")]),
            ("Bearer $TOKEN", &[Text("Bearer "), variable("TOKEN", None)]),
            ("${workspaceFolder}/a", &[Place("${workspaceFolder}"), Text("/a")]),
            ("a${A}b${B}", &[Text("a"), variable("A", None), Text("b"), variable("B", None)]),
            ("${file:/a b}", &[File("/a b")]),
            ("Bearer {file:/a}", &[Text("Bearer "), File("/a")]),
            ("{file:~/a}", &[Place("{file:~/a}")]),
            ("${config:a.b}", &[Place("${config:a.b}")]),
            ("pa$WORD", &[Text("pa$WORD")]),
            ("$lower", &[Text("$lower")]),
            ("${", &[Text("${")]),
            ("${a b}", &[Text("${a b}")]),
            ("{\"a\":1}", &[Text("{\"a\":1}")]),
            ("${a${A}", &[Text("${a"), variable("A", None)]),
            ("${/${/:-x}", &[Text("${/"), Place("${/:-x}")]),
            ("{env:a b}${A:-b:c}", &[Text("{env:a b}"), variable("A", Some("b:c"))]),
            ("$${A}$", &[Text("$"), variable("A", None), Text("$")]),
            ("$HOME/y", &[variable("HOME", None), Text("/y")]),
            ("--root=$HOME", &[Text("--root="), variable("HOME", None)]),
            ("${A:-}", &[variable("A", Some(""))]),
            ("%APPDATA%\\npm", &[Place("%APPDATA%"), Text("\\npm")]),
            ("x;%ProgramFiles(x86)%", &[Text("x;"), Place("%ProgramFiles(x86)%")]),
            ("a%41%42%CAFE%20b%%é%", &[Text("a%41%42%CAFE%20b%%é%")]),
            ("ä$ö${A}ü", &[Text("ä$ö"), variable("A", None), Text("ü")]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text), *expected, "{text}");
        }
    }
}
