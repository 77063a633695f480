//! What clients put in the place of a value: `${env:NAME}`, `${NAME}`, `${NAME:-default}`, `$NAME`, `{env:NAME}`,
//! `${input:id}`, `${file:/path}`, `{file:/path}`, `${workspaceFolder}`.

/// A piece of a text of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    /// As it stands.
    Text(&'t str),
    /// An environment variable, and whether there is a value for where it is not set.
    Variable { name: &'t str, has_default: bool },
    /// What the client asks its user for, by its id.
    Input(&'t str),
    /// What a file holds, an absolute path.
    File(&'t str),
    /// What only the client knows, such as the folder that is open.
    Place(&'t str),
}

/// The pieces of `text`, in order; none is empty.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut plain_to = 0;
    while plain_to < rest.len() {
        let Some(start) = rest[plain_to..].find(['$', '{']).map(|found| plain_to + found) else { break };
        let Some((piece, length)) = placeholder(&rest[start..])
            .or_else(|| bare(&rest[start..], rest[..start].chars().next_back(), pieces.is_empty()))
        else {
            plain_to = start + 1;
            continue;
        };
        if start > 0 {
            pieces.push(Piece::Text(&rest[..start]));
        }
        pieces.push(piece);
        rest = &rest[start + length..];
        plain_to = 0;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// `${…}`, `{env:…}` and `{file:…}`.
fn placeholder(text: &str) -> Option<(Piece<'_>, usize)> {
    if let Some(path) = text.strip_prefix("{file:") {
        let path = &path[..path.find('}')?];
        let length = "{file:}".len() + path.len();
        let piece = if path.starts_with('/') { Piece::File(path) } else { Piece::Place(&text[..length]) };
        return Some((piece, length));
    }
    if let Some(name) = text.strip_prefix("{env:") {
        let name = &name[..name.find('}')?];
        return is_name(name)
            .then_some((Piece::Variable { name, has_default: false }, "{env:}".len() + name.len()));
    }
    let inner = text.strip_prefix("${")?;
    let inner = &inner[..inner.find('}')?];
    let length = "${}".len() + inner.len();
    let (name, has_default) = inner.split_once(":-").map_or((inner, false), |(name, _)| (name, true));
    let piece = match name.split_once(':') {
        Some(("env", name)) if is_name(name) => Piece::Variable { name, has_default },
        Some(("input", id)) => Piece::Input(id),
        Some(("file", path)) if path.starts_with('/') => Piece::File(path),
        Some((kind, _)) if !is_name(kind) => return None,
        None if !PLACES.contains(&name) && !is_name(name) => return None,
        None if !PLACES.contains(&name) => Piece::Variable { name, has_default },
        _ => Piece::Place(&text[..length]),
    };
    Some((piece, length))
}

/// `$NAME`, in capitals and at the beginning of a word: passwords may hold a `$`.
fn bare(text: &str, before: Option<char>, is_first: bool) -> Option<(Piece<'_>, usize)> {
    let rest = text.strip_prefix('$')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    let begins = match before {
        None => is_first,
        Some(before) => before == ' ',
    };
    let ends = rest[end..].chars().next().is_none_or(|next| next == ' ');
    let is_variable = is_name(name) && !name.contains(|c: char| c.is_ascii_lowercase());
    (begins && ends && is_variable).then_some((Piece::Variable { name, has_default: false }, end + 1))
}

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
        let variable = |name, has_default| Variable { name, has_default };
        let cases: &[(&str, &[Piece<'_>])] = &[
            ("", &[]),
            ("plain", &[Text("plain")]),
            ("${env:A_B}", &[variable("A_B", false)]),
            ("${A}", &[variable("A", false)]),
            ("${A:-b}", &[variable("A", true)]),
            ("$A_1", &[variable("A_1", false)]),
            ("{env:A}", &[variable("A", false)]),
            ("Bearer ${input:the-key}", &[Text("Bearer "), Input("the-key")]),
            ("Bearer $TOKEN", &[Text("Bearer "), variable("TOKEN", false)]),
            ("${workspaceFolder}/a", &[Place("${workspaceFolder}"), Text("/a")]),
            ("a${A}b${B}", &[Text("a"), variable("A", false), Text("b"), variable("B", false)]),
            ("${file:/a b}", &[File("/a b")]),
            ("Bearer {file:/a}", &[Text("Bearer "), File("/a")]),
            ("{file:~/a}", &[Place("{file:~/a}")]),
            ("${config:a.b}", &[Place("${config:a.b}")]),
            ("pa$WORD", &[Text("pa$WORD")]),
            ("$lower", &[Text("$lower")]),
            ("${", &[Text("${")]),
            ("${a b}", &[Text("${a b}")]),
            ("{\"a\":1}", &[Text("{\"a\":1}")]),
            ("$${A}$", &[Text("$"), variable("A", false), Text("$")]),
            ("ä$ö${A}ü", &[Text("ä$ö"), variable("A", false), Text("ü")]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text), *expected, "{text}");
        }
    }
}
