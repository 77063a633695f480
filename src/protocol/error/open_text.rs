//! A server's text without what may be a secret in it: credentials behind their name or their scheme (`token=…`,
//! `password: …`, `Authorization: …`, `Bearer …`, `API key provided: …`), and the query and the user of a URL.
//!
//! A name says it, not the look of a value: what stands there is open where no name of a secret stands before it.

use std::borrow::Cow;

/// Stands for a secret.
pub const MASK: &str = "***";
/// Behind these words stand credentials.
const SCHEMES: [&str; 2] = ["bearer", "basic"];
/// Words of the same kind that say so only behind the name of a header.
const HEADER_SCHEMES: [&str; 6] = ["apikey", "aws4-hmac-sha256", "bot", "digest", "negotiate", "token"];
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
/// A name of two words begins with one of these, or with a name, and ends with `key`.
const BEFORE_KEY: [&str; 3] = ["access", "api", "private"];
/// With a colon they are the mark between a name and its value.
const MARK_WORDS: [&str; 9] =
    ["given", "is", "provided", "received", "sent", "supplied", "used", "value", "was"];
/// Longer names are none.
const NAME_BYTES_MAX: usize = 64;
/// Values that only say that there is none, or what is wrong with it.
const OPEN_VALUES: [&str; 16] = [
    "auth",
    "authentication",
    "empty",
    "expired",
    "false",
    "invalid",
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
/// These end a value without quotes, but for what stands behind a scheme or the name of a header.
const ENDS: [char; 9] = [',', ';', '&', '"', '\'', '`', ')', ']', '}'];
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The meaning of the next word, by those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Open,
    /// It may be the second word of a name.
    Key,
    /// It may be the mark between a name and its value, too.
    Mark {
        name: NameKind,
    },
    Secret {
        name: NameKind,
    },
    /// Until this quote everything is part of a secret, which has its mask.
    Quoted(Quote),
}

/// The quote at which a value began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quote {
    mark: char,
    /// Backslashes before it: one where the text around it is quoted itself.
    escapes: usize,
}

impl Quote {
    /// The quote that ends the value.
    fn end_in(self, text: &str) -> Option<usize> {
        let ends = |at: &usize| {
            let escapes = text[..*at].len() - text[..*at].trim_end_matches('\\').len();
            escapes < self.escapes || escapes % (2 * (self.escapes + 1)) == self.escapes
        };
        text.match_indices(self.mark).map(|(at, _)| at).find(ends)
    }
}

/// A name whose value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// Its value may follow a scheme, and be a list.
    Header,
    /// Its values are a list.
    Cookie,
    /// No name, but a scheme alone.
    Scheme,
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
            Next::Open | Next::Key | Next::Mark { .. } => push_open(rest, next, told),
            Next::Secret { name } => push_secret(rest, name, told),
            Next::Quoted(quote) => quote.end_in(rest).map_or((next, ""), |end| (Next::Open, &rest[end..])),
        };
    }
    if query.is_some() {
        told.push('…');
    }
    next
}

/// Tells a text as far as a secret begins in it, behind its name.
fn push_open<'t>(text: &'t str, next: Next, told: &mut String) -> (Next, &'t str) {
    if let Some((name, value)) = named_value(text, next) {
        told.push_str(&without_credentials(&text[..text.len() - value.len()]));
        return (Next::Secret { name }, value);
    }
    told.push_str(&without_credentials(text));
    let bare = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let next = if is_scheme(bare, NameKind::Other) {
        Next::Secret { name: NameKind::Scheme }
    } else if let Some(name) = name_before(text, next) {
        Next::Mark { name }
    } else if BEFORE_KEY.iter().any(|first| bare.eq_ignore_ascii_case(first)) {
        Next::Key
    } else {
        Next::Open
    };
    (next, "")
}

/// The value of a secret, where the text has its name, or the mark behind that.
fn named_value(text: &str, next: Next) -> Option<(NameKind, &str)> {
    const MARKS: [char; 2] = ['=', ':'];
    let behind = |at: usize| text[at..].trim_start_matches(['=', ':', '>']);
    if let Next::Mark { name } = next {
        let is_word = |at: &usize| MARK_WORDS.iter().any(|word| text[..*at].eq_ignore_ascii_case(word));
        if let Some(at) = text.find(MARKS).filter(|at| *at == 0 || is_word(at)) {
            return Some((name, behind(at)));
        }
    }
    text.match_indices(MARKS).find_map(|(at, _)| Some((name_before(&text[..at], next)?, behind(at))))
}

/// Tells a mask for the secret with which a text begins, and its rest.
fn push_secret<'t>(text: &'t str, name: NameKind, told: &mut String) -> (Next, &'t str) {
    let is_mark = text.chars().all(|c| "=:>|-".contains(c)) || text.eq_ignore_ascii_case("is");
    if is_mark || is_scheme(text.trim_matches(QUOTES), name) {
        told.push_str(text);
        return (Next::Secret { name }, "");
    }
    let unescaped = text.trim_start_matches('\\');
    let inside = unescaped.trim_start_matches(QUOTES);
    let before = &text[..text.len() - inside.len()];
    told.push_str(before);
    let mark = before.chars().last().filter(|last| QUOTES.contains(last));
    let quote = mark.map(|mark| Quote { mark, escapes: text.len() - unescaped.len() });
    let end = quote.map_or_else(|| Some(bare_end(inside, name)), |quote| quote.end_in(inside));
    let value = &inside[..end.unwrap_or(inside.len())];
    let plain = value.trim_matches(|c: char| !c.is_alphanumeric());
    let is_empty = before.matches(QUOTES).count() > 1 && (inside.is_empty() || inside.starts_with(ENDS));
    if is_empty || OPEN_VALUES.iter().any(|open| plain.eq_ignore_ascii_case(open)) {
        return (Next::Open, inside);
    }
    told.push_str(if value.is_empty() && end.is_some() { "" } else { MASK });
    match (end, quote) {
        (None, Some(quote)) => (Next::Quoted(quote), ""),
        (Some(end), None) if end == inside.len() && goes_on(value, name) => {
            told.push_str(&value[value.len() - 1..]);
            (Next::Secret { name }, "")
        }
        _ => (Next::Open, &inside[value.len()..]),
    }
}

/// The end of a value that does not begin with a quote.
fn bare_end(text: &str, name: NameKind) -> usize {
    if name == NameKind::Other {
        return text.find(ENDS).unwrap_or(text.len());
    }
    let mut from = 0;
    while let Some(at) = text[from..].find(QUOTES).map(|at| from + at) {
        let is_of_value = name != NameKind::Scheme && text[..at].trim_end_matches('\\').ends_with('=');
        if !is_of_value {
            return at;
        }
        let quote = &text[at..=at];
        from = text[at + 1..].find(quote).map_or(text.len(), |end| at + 1 + end + 1);
    }
    text.len()
}

/// True if the next word is of the same list of values.
fn goes_on(value: &str, name: NameKind) -> bool {
    match name {
        NameKind::Cookie => value.ends_with(';'),
        NameKind::Header => value.strip_suffix(',').is_some_and(|value| value.contains('=') || value == MASK),
        NameKind::Scheme | NameKind::Other => false,
    }
}

/// The name of a secret that stands at the end of a text, but for quotes.
fn name_before(text: &str, next: Next) -> Option<NameKind> {
    let text = text.trim_end_matches(['"', '\'', '`', '\\', ']']);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let from = text
        .rfind(|c| !is_of_name(c))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let written = Some(&text[from..]).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let name: String =
        written.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if (next != Next::Open && name == "key") || is_pass(written) {
        return Some(NameKind::Other);
    }
    let end = NAMES.iter().find(|end| name.ends_with(**end))?;
    Some(match *end {
        "authorization" => NameKind::Header,
        "cookie" => NameKind::Cookie,
        _ => NameKind::Other,
    })
}

/// True if the last word of a name is `pass`: `DB_PASS`, `dbPass`, but not `bypass`.
fn is_pass(name: &str) -> bool {
    let Some((before, last)) = name.split_at_checked(name.len().saturating_sub(4)) else { return false };
    let is_word = before.is_empty() || before.ends_with(['-', '_']);
    last.eq_ignore_ascii_case("pass") && (is_word || last == "Pass")
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
            ("Authorization: hunter2,hunter2 x", "Authorization: *** x"),
            ("authorization : token hunter2", "authorization : token ***"),
            (
                "Authorization: Digest username=\"hunter2\", realm=\"hunter2\", response=\"hunter2\" x",
                "Authorization: Digest ***, ***, *** x",
            ),
            (
                "{\"authorization\":\"Bearer 12|hunter2\",\"x\":1}",
                "{\"authorization\":\"Bearer ***\",\"x\":1}",
            ),
            ("curl -H 'Authorization: Basic aHVudGVyMg==' x", "curl -H 'Authorization: Basic *** x"),
            ("Cookie: a=hunter2; b=hunter2 x", "Cookie: ***; *** x"),
            ("Cookie: a=1;b=hunter2", "Cookie: ***"),
            ("Cookie: a=\"hunter2\"; b=hunter2", "Cookie: ***; ***"),
            ("{\"cookie\":\"a=1;b=hunter2\",\"x\":1}", "{\"cookie\":\"***\",\"x\":1}"),
            ("Bearer 12|hunter2 x", "Bearer *** x"),
            ("bearer hunter2,hunter2;hunter2&hunter2)hunter2", "bearer ***"),
            ("'Bearer hunter2' x", "'Bearer ***' x"),
            ("password=12|hunter2", "password=***"),
            ("Password: is hunter2", "Password: is ***"),
            ("{\"password\": \"is hunter2 hunter2\"}", "{\"password\": \"***\"}"),
            ("Password is: hunter2", "Password is: ***"),
            ("Incorrect API key provided: sk-hunter2. x", "Incorrect API key provided: *** x"),
            ("API key: hunter2", "API key: ***"),
            ("\"Api key\": \"hunter2\"", "\"Api key\": \"***\""),
            ("secret access key=hunter2", "secret access key=***"),
            ("secret key : hunter2", "secret key : ***"),
            ("DB_PASS=hunter2", "DB_PASS=***"),
            ("{\"smtpPass\": \"hunter2\"}", "{\"smtpPass\": \"***\"}"),
            ("user=ada;pass=hunter2", "user=ada;pass=***"),
            ("token =hunter2 x", "token =*** x"),
            ("token :hunter2,x", "token :***,x"),
            ("{\"password\":\"a\\\"hunter2\"}", "{\"password\":\"***\"}"),
            ("{\"password\":\"a \\\" hunter2\", \"x\":1}", "{\"password\":\"***\", \"x\":1}"),
            ("{\"password\":\"hunter2\\\\\",\"x\":1}", "{\"password\":\"***\",\"x\":1}"),
            ("{\\\"password\\\":\\\"a\\\\\\\"hunter2\\\"}", "{\\\"password\\\":\\\"***\"}"),
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
            "token: is missing",
            "the API key: not set",
            "primary key: 5, bypass: 5, access: 5, api: 5",
            "your API key at https://ada.example/",
            "{\"password\": \"must be longer\"}",
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
