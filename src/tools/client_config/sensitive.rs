//! What may be a secret: by the name it goes by, or by its look. In doubt it is one: a file more to read costs little, a
//! password in a configuration costs much.

use config::looks_secret;

/// Characters in a row without a break that no word of a person has, where letters and digits are mixed.
const MIXED_RUN: usize = 16;
/// The same of one kind.
const RUN: usize = 32;

/// How tokens of common services begin.
const PREFIXES: [&str; 24] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "hf_",
    "npm_",
    "ntn_",
    "secret_",
    "tl_",
];
/// Options that `user:password` goes with, as curl has them.
const LOGINS: [&str; 6] = ["-u", "--user", "-U", "--proxy-user", "--userpwd", "--basic-auth"];
/// Headers that hold a secret whatever its form.
const HEADERS: [&str; 2] = ["authorization", "proxy-authorization"];
/// What names of settings end with whose value only says where a secret lies.
const PLACES: [&str; 5] = ["file", "path", "dir", "directory", "folder"];

/// Whether the value that goes by `name` may be a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let value = value.trim();
    if value.is_empty() || ["true", "false"].contains(&value.to_ascii_lowercase().as_str()) {
        return false;
    }
    is_secret_name(name, value) || looks_like_secret(value)
}

fn is_secret_name(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_directory = name.trim_matches(|c: char| !c.is_ascii_alphanumeric()) == "pwd";
    let says_where =
        (is_directory || PLACES.iter().any(|end| name.ends_with(end))) && value.starts_with(['/', '~', '.']);
    let is_short_for_one = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        ["pwd", "pw", "dsn", "sig", "jwt", "pat", "pin", "otp", "cert", "pem", "sas"].contains(&word)
    });
    !says_where && (looks_secret(&name) || is_short_for_one)
}

/// Whether `value` looks like a token, or holds a password.
pub(super) fn looks_like_secret(value: &str) -> bool {
    value.contains("-----BEGIN")
        || value.contains('\n')
        || value.split([' ', ',', ';', '=', '"', '\'', '/', '?', '&', ':', '@']).any(is_token)
        || has_password(value)
        || has_secret_pair(value)
        || has_secret_option(value)
        || has_scheme(value)
}

/// Whether one word is a token.
pub(super) fn is_token(word: &str) -> bool {
    let begins_as_one = PREFIXES.iter().any(|prefix| {
        word.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() >= 8 && rest.bytes().any(|b| b.is_ascii_alphanumeric()))
    });
    begins_as_one
        || word.split(|c: char| !c.is_alphanumeric() && !"+_~".contains(c)).any(|run| {
            let has = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
            let length = run.chars().count();
            let is_mixed = has(char::is_ascii_digit) && has(|c| c.is_alphabetic());
            length >= RUN || length >= MIXED_RUN && is_mixed
        })
        || is_uuid(word)
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    value.match_indices("://").any(|(at, mark)| {
        let authority = value[at + mark.len()..].split(['/', '?', '#', ' ']).next().unwrap_or_default();
        authority.contains('@')
    })
}

/// `password=…`, `"apiKey": "…"`.
fn has_secret_pair(value: &str) -> bool {
    value.replace(": ", ":").split([';', '&', '?', ',', ' ', '{']).any(|pair| {
        let cut = pair.split_once('=').or_else(|| pair.split_once(':'));
        cut.is_some_and(|(name, value)| {
            let value = value.trim();
            name.len() <= 64
                && !value.starts_with("//")
                && !value.is_empty()
                && is_secret_name(name.trim(), value)
        })
    })
}

/// Where in `word` a user with a password begins: behind `option`, or joined to an option of its own.
pub(super) fn login_at(option: &str, word: &str) -> Option<usize> {
    let joined = || {
        LOGINS.iter().find_map(|option| {
            let rest = word.strip_prefix(option)?;
            let has_equals = rest.starts_with('=');
            (has_equals || !option.starts_with("--")).then_some(option.len() + usize::from(has_equals))
        })
    };
    let start = if LOGINS.contains(&option) && !word.starts_with('-') { 0 } else { joined()? };
    is_login(&word[start..]).then_some(start)
}

/// `user:password`. Two numbers are those of a user and a group, and a URL is none.
fn is_login(text: &str) -> bool {
    let Some((user, password)) = text.split_once(':') else { return false };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_ids = is_number(user) && is_number(password);
    !user.contains(['/', '=', ' ']) && !password.is_empty() && !password.starts_with("//") && !is_ids
}

/// Whether a word is the name of a header whose value is the next word, and a secret.
pub(super) fn is_secret_header(word: &str) -> bool {
    HEADERS.iter().any(|header| word.trim_end_matches(':').eq_ignore_ascii_case(header))
}

/// `--api-key …`, `-u user:password`, `Authorization …`, in a command line that is one text.
fn has_secret_option(value: &str) -> bool {
    let mut words = value.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let value = words.peek().filter(|next| !next.starts_with('-'));
        let is_before_secret = |value: &&str| {
            word.starts_with("--") && is_secret_name(word, value)
                || is_secret_header(word)
                || login_at(word, value).is_some()
        };
        if login_at("", word).is_some() || value.is_some_and(is_before_secret) {
            return true;
        }
    }
    false
}

/// `Bearer …`, `Basic …`, of `Authorization`.
fn has_scheme(value: &str) -> bool {
    ["bearer ", "basic ", "token "].iter().any(|scheme| {
        value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && !value[scheme.len()..].trim().contains(' ')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_name_and_by_look() {
        for (name, value) in [
            ("API_KEY", "x"),
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "abc"),
            ("DB_PWD", "letmein"),
            ("PASSWORD", "1234"),
            ("--api-key", "abc"),
            ("URL", "postgres://user:word@host/db"),
            ("URL", "https://word@host/"),
            ("CONNECTION", "Server=db;Password=letmein"),
            ("CONNECTION", "host=db password=letmein"),
            ("X", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
            ("X", "sk-proj-abcdefgh"),
            ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig"),
            ("X", "6f1ed002ab5595859014ebf0951522d9"),
            ("X", "123e4567-e89b-12d3-a456-426614174000"),
            ("X", "https://host/s/6f1ed002ab5595859014/mcp"),
            ("X", "https://host/mcp?api_key=abc"),
            ("X", "-----BEGIN PRIVATE KEY-----"),
            ("X", "Bearer abc"),
            ("X", "npx server --api-key letmein"),
            ("X", "curl -u alice:letmein https://host/"),
            ("X", "curl -s --user=alice:letmein https://host/"),
            ("X", "proxy -H Authorization letmein"),
            ("HEADERS", "{\"Authorization\": \"abc\"}"),
        ] {
            assert!(is_secret(name, value), "{name}: {value}");
        }
    }

    #[test]
    fn settings_are_left_readable() {
        for (name, value) in [
            ("LOG_LEVEL", "debug"),
            ("PORT", "8080"),
            ("REGION", "eu-central-1"),
            ("MODEL", "gpt-4o-2024-11-20"),
            ("URL", "https://gitlab.example.com/api/v4"),
            ("HOST", "db.internal:5432"),
            ("ROOT", "/home/alice/projects/notes"),
            ("USE_TOKENS", "true"),
            ("PASSWORD", ""),
            ("CREDENTIALS_FILE", "/etc/app/credentials.json"),
            ("NODE_OPTIONS", "--max-old-space-size=4096"),
            ("PACKAGE", "@modelcontextprotocol/server-filesystem"),
            ("PACKAGE", "@modelcontextprotocol/server-everything@2025.11.25"),
            ("VOLUME", "${PWD}:/workspace"),
            ("COMMAND", "docker run -u 1000:1000 --user=0:0 image"),
            ("COMMAND", "server -u https://host:8080 --user alice"),
            ("COMMAND", "server --key-file /etc/app/key --verbose"),
            ("TEXT", "An ordinary sentence of a few words"),
        ] {
            assert!(!is_secret(name, value), "{name}: {value}");
        }
    }
}
