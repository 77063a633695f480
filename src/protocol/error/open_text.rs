//! A server's text without what may be a secret in it: credentials behind their name or their scheme (`token=…`,
//! `password: …`, `Authorization: …`, `Bearer …`), and the query and the user of a URL.
//!
//! A name says it, not the look of a value: what stands there is open where no name of a secret stands before it.

use std::borrow::Cow;

/// Stands for a secret.
const MASK: &str = "***";
/// Behind these words stand credentials.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// Words of the same kind that say so only behind the name of a header.
const HEADER_SCHEMES: [&str; 5] = ["apikey", "bot", "digest", "negotiate", "token"];
/// Ends of names whose value is a secret, without `-` and `_`.
const NAMES: [&str; 14] = [
    "accesskey",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "token",
];
/// Longer names are none.
const NAME_BYTES_MAX: usize = 64;
/// Values that only say that there is none, or what is wrong with it.
const OPEN_VALUES: [&str; 17] = [
    "auth",
    "authentication",
    "empty",
    "expired",
    "false",
    "invalid",
    "is",
    "missing",
    "must",
    "nil",
    "none",
    "not",
    "null",
    "required",
    "token",
    "true",
    "undefined",
];
/// These end a value without quotes.
const ENDS: [char; 10] = [',', ';', '&', '"', '\'', '`', ')', ']', '}', '|'];
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// What the words so far say of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Open,
    /// It may be the mark between a name and its value.
    Mark,
    Secret {
        name: NameKind,
    },
    /// Until this mark everything is part of a secret, which has its mask.
    Quoted(char),
}

/// A name whose value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// Its value may follow a scheme.
    Header,
    /// Its values are a list.
    Cookie,
    Other,
}

/// The text with a mask for each secret.
pub fn without_secrets(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut next = Next::Open;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        if !bare.is_empty() {
            next = push_word(bare, next, &mut told);
        }
        if !matches!(next, Next::Quoted(_)) {
            told.push_str(&word[bare.len()..]);
        }
    }
    told
}

/// Tells a word without the query of a URL, and what follows from it for the next one.
fn push_word(word: &str, mut next: Next, told: &mut String) -> Next {
    let query = word.find('?').filter(|at| word[at + 1..].contains('='));
    let mut rest = query.map_or(word, |at| &word[..=at]);
    while !rest.is_empty() {
        (next, rest) = match next {
            Next::Open | Next::Mark => push_open(rest, next, told),
            Next::Secret { name } => push_secret(rest, name, told),
            Next::Quoted(quote) => rest.find(quote).map_or((next, ""), |end| (Next::Open, &rest[end..])),
        };
    }
    if query.is_some() {
        told.push('…');
    }
    next
}

/// Tells a text as far as a secret begins in it, behind its name.
fn push_open<'t>(text: &'t str, next: Next, told: &mut String) -> (Next, &'t str) {
    let marks = text.match_indices(['=', ':']);
    if let Some((at, name)) = marks.into_iter().find_map(|(at, _)| Some((at, name_before(&text[..at])?))) {
        let value = text[at..].trim_start_matches(['=', ':', '>']);
        told.push_str(&without_credentials(&text[..text.len() - value.len()]));
        return (Next::Secret { name }, value);
    }
    told.push_str(&without_credentials(text));
    let bare = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_mark = next == Next::Mark && ["=", ":", ":=", "=>"].contains(&text);
    let next = if is_mark || is_scheme(bare, NameKind::Other) {
        Next::Secret { name: NameKind::Other }
    } else if name_before(text).is_some() {
        Next::Mark
    } else {
        Next::Open
    };
    (next, "")
}

/// Tells a mask for the secret with which a text begins, and its rest.
fn push_secret<'t>(text: &'t str, name: NameKind, told: &mut String) -> (Next, &'t str) {
    let is_mark = text.chars().all(|c| "=:>|-".contains(c));
    if is_mark || is_scheme(text.trim_matches(QUOTES), name) {
        told.push_str(text);
        return (Next::Secret { name }, "");
    }
    let inside = text.trim_start_matches('\\').trim_start_matches(QUOTES);
    let before = &text[..text.len() - inside.len()];
    told.push_str(before);
    let quote = before.chars().last();
    let end = quote.map_or_else(|| inside.find(ENDS).or(Some(inside.len())), |quote| inside.find(quote));
    let value = &inside[..end.unwrap_or(inside.len())];
    let plain = value.trim_matches(|c: char| !c.is_alphanumeric());
    let is_empty = before.matches(QUOTES).count() > 1 && (inside.is_empty() || inside.starts_with(ENDS));
    if is_empty || OPEN_VALUES.iter().any(|open| plain.eq_ignore_ascii_case(open)) {
        return (Next::Open, inside);
    }
    told.push_str(if value.is_empty() && end.is_some() { "" } else { MASK });
    match (end, quote) {
        (None, Some(quote)) => (Next::Quoted(quote), ""),
        (Some(end), _) if name == NameKind::Cookie && &inside[end..] == ";" => {
            told.push(';');
            (Next::Secret { name }, "")
        }
        _ => (Next::Open, &inside[value.len()..]),
    }
}

/// The name of a secret that stands at the end of a text, but for quotes.
fn name_before(text: &str) -> Option<NameKind> {
    let text = text.trim_end_matches(['"', '\'', '`', '\\', ']']);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let from = text
        .rfind(|c| !is_of_name(c))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let name = Some(&text[from..]).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let end = NAMES.iter().find(|end| name.ends_with(**end))?;
    Some(match *end {
        "authorization" => NameKind::Header,
        "cookie" => NameKind::Cookie,
        _ => NameKind::Other,
    })
}

fn is_scheme(word: &str, name: NameKind) -> bool {
    let of_headers = HEADER_SCHEMES.iter().filter(|_| name == NameKind::Header);
    SCHEMES.iter().chain(of_headers).any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// A URL without who uses it.
pub(super) fn without_credentials(location: &str) -> Cow<'_, str> {
    let authority = location.find("//").map_or(0, |at| at + 2);
    if authority == 0 {
        return location.into();
    }
    let end = location[authority..].find('/').map_or(location.len(), |at| authority + at);
    match location[authority..end].rfind('@') {
        Some(at) => format!("{}{}", &location[..authority], &location[authority + at + 1..]).into(),
        None => location.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_name_of_a_secret_is_masked() {
        for (text, expected) in [
            ("token=hunter2 failed", "token=*** failed"),
            ("password: hunter2", "password: ***"),
            ("Password : hunter2, then", "Password : ***, then"),
            ("GITHUB_TOKEN = hunter2", "GITHUB_TOKEN = ***"),
            ("x-api-key:hunter2", "x-api-key:***"),
            ("--client-secret=hunter2 --x=y", "--client-secret=*** --x=y"),
            ("user=ada&password=hunter2&x=y", "user=ada&password=***&x=y"),
            ("Server=a;Password=hunter2;Database=b", "Server=a;Password=***;Database=b"),
            ("{\"token\":\"hunter2\",\"x\":1}", "{\"token\":\"***\",\"x\":1}"),
            ("{\"apiKey\": \"hunter2 or 3\", \"x\": 1}", "{\"apiKey\": \"***\", \"x\": 1}"),
            ("{\\\"token\\\":\\\"hunter2\\\"}", "{\\\"token\\\":\\\"***\"}"),
            ("password='hunter2 hunter2' x", "password='***' x"),
            ("password='hunter2 hunter2", "password='***"),
            ("env[\"API_KEY\"]=hunter2", "env[\"API_KEY\"]=***"),
            ("password: | hunter2", "password: | ***"),
            ("Authorization: Bearer hunter2 here", "Authorization: Bearer *** here"),
            ("authorization: token hunter2", "authorization: token ***"),
            ("Authorization=\"Bearer hunter2\"", "Authorization=\"Bearer ***\""),
            ("Authorization: hunter2", "Authorization: ***"),
            ("Cookie: a=hunter2; b=hunter2 x", "Cookie: ***; *** x"),
            ("bearer hunter2", "bearer ***"),
            ("Bearer token: hunter2", "Bearer token: ***"),
            ("token= \"\"\"hunter2\"\"\"", "token= \"\"\"***\"\"\""),
            ("token: \" hunter2\" x", "token: \"***\" x"),
            ("https://ada:hunter2@db.example/a?token=hunter2 failed", "https://db.example/a?… failed"),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
            assert_eq!(without_secrets(expected), expected, "done twice: {text}");
        }
    }

    #[test]
    fn what_helps_stays() {
        for text in [
            "database is down",
            "Unexpected token '<' at line 1: not JSON",
            "token: expired",
            "invalid bearer token",
            "GITHUB_TOKEN is not set",
            "password=null, x=y",
            "{\"token\": \"\", \"error\": \"\"}",
            "tokens: 5, max_tokens=100",
            "http://127.0.0.1:8080/mcp",
            "really? yes",
            "",
            " a \n b\t",
            "天気=天気: 天",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }
}
