//! The URL of a server, without what is secret in it: a URL is read from nowhere but the configuration, parameters of its
//! query are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use super::placeholder::{Piece, pieces};
use super::sensitive::{is_secret, is_token};
use super::template::{is_open_default, template};
use super::toml_text::{escaped, quoted};
use config::server_url;

/// What stands for what only a person can put there.
pub(super) const FILL_IN: &str = "FILL-IN";

/// Of more parameters, a person has to take care.
const PARAMETERS_MAX: usize = 100;

/// A URL that can stand in a configuration.
#[derive(Debug)]
pub(super) struct RedactedUrl {
    /// As a configuration writes it, where `${NAME:-default}` is a variable.
    pub(super) url: String,
    /// What the user and the password before the host become: the value of `Authorization`.
    pub(super) authorization: Option<String>,
    /// Parameters of its query that are read from elsewhere, each with what the client had for its value.
    pub(super) parameters: Vec<(String, String)>,
    /// What a person has to put in.
    pub(super) gaps: Vec<String>,
    pub(super) remarks: Vec<String>,
}

/// Takes `text` apart; an error says why nothing can be done with it, and shows nothing of it.
pub(super) fn address(text: &str) -> Result<RedactedUrl, String> {
    let (mut gaps, mut remarks) = (Vec::new(), Vec::new());
    let (text, parameters) = without_parameters(text.trim());
    let pieces = pieces(&text);
    let text = filled(&pieces, &mut gaps);
    let (text, fragment) =
        text.split_once('#').map_or((text.as_str(), None), |(text, rest)| (text, Some(rest)));
    if fragment.is_some() {
        remarks.push("What followed `#` in the URL is gone: it is never sent".to_owned());
    }
    let (scheme, rest) = text.split_once("://").ok_or("its URL does not begin with http:// or https://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user_info, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let (path, query) = tail.split_once('?').map_or((tail, None), |(path, query)| (path, Some(query)));
    let mut url = format!(
        "{}://{}{}",
        scheme.to_ascii_lowercase(),
        without_tokens(host, '.', &mut gaps),
        without_tokens(path, '/', &mut gaps)
    );
    if let Some(query) = query {
        url.push('?');
        url.push_str(&without_secrets(query, &mut gaps));
    }
    server_url(&url).map_err(|why| format!("its URL cannot be used: {why}"))?;
    let authorization = user_info.map(|user_info| format!("Basic {}", STANDARD.encode(decoded(user_info))));
    let is_whole = fragment.is_none() && authorization.is_none() && gaps.is_empty();
    let url = template("url", &pieces).filter(|_| is_whole).unwrap_or_else(|| {
        remarks.extend(pieces.iter().filter_map(replaced));
        escaped(&url)
    });
    Ok(RedactedUrl { url, authorization, parameters, gaps, remarks })
}

/// The URL without parameters that are secret or that a placeholder stands for, and these.
fn without_parameters(text: &str) -> (String, Vec<(String, String)>) {
    let is_whole = |part: &str| part.matches('{').count() == part.matches('}').count();
    let Some((before, rest)) = text.split_once('?').filter(|(before, _)| is_whole(before)) else {
        return (text.to_owned(), Vec::new());
    };
    let (query, fragment) = rest.find('#').map_or((rest, ""), |at| rest.split_at(at));
    let mut taken: Vec<(String, String)> = Vec::new();
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match parameter(pair)
            .filter(|(name, _)| taken.len() < PARAMETERS_MAX && taken.iter().all(|(other, _)| other != name))
        {
            Some(parameter) if is_whole(query) => taken.push(parameter),
            _ => kept.push(pair),
        }
    }
    let mark = if kept.is_empty() { "" } else { "?" };
    (format!("{before}{mark}{}{fragment}", kept.join("&")), taken)
}

/// A parameter whose value is read from elsewhere, decoded where it is the value itself.
fn parameter(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if name.is_empty() || !is_name(name) || is_token(name) {
        return None;
    }
    let value = match *pieces(value).as_slice() {
        [Piece::Text(text)] => {
            let spaced = text.replace('+', " ");
            let decoded = percent_decode_str(&spaced).decode_utf8().ok()?.into_owned();
            is_secret(name, &decoded).then_some(decoded)?
        }
        [Piece::Variable { name: variable, default: Some(default) }]
            if is_open_default(variable, default) && !is_secret(name, default) =>
        {
            return None;
        }
        [Piece::Variable { .. } | Piece::Input(_) | Piece::File(_)] => value.to_owned(),
        _ => return None,
    };
    Some((name.to_owned(), value))
}

/// The text with the defaults of variables; what only a person can fill in is [`FILL_IN`].
fn filled(pieces: &[Piece<'_>], gaps: &mut Vec<String>) -> String {
    let mut url = String::new();
    for piece in pieces {
        let what = match piece {
            Piece::Text(text) => {
                url.push_str(text);
                continue;
            }
            Piece::Variable { name, default: Some(default) } if is_open_default(name, default) => {
                url.push_str(default);
                continue;
            }
            Piece::Variable { name, .. } => format!("the value of the environment variable {}", quoted(name)),
            Piece::Input(id) => format!("what the client asks for as {}", quoted(id)),
            Piece::File(path) => format!("what the file {} holds", quoted(path)),
            Piece::Place(place) => format!("what {} stands for", quoted(place)),
        };
        // Most stand for all that is in front of the path.
        let is_base = url.is_empty()
            && !pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains("://")));
        let place = if is_base { format!("https://{FILL_IN}") } else { FILL_IN.to_owned() };
        gaps.push(format!("Write {what} in the place of {place} in `url`"));
        url.push_str(&place);
    }
    url
}

/// A default that stands in the place of its variable.
fn replaced(piece: &Piece<'_>) -> Option<String> {
    match piece {
        Piece::Variable { name, default: Some(default) } if is_open_default(name, default) => {
            Some(format!("The default of {} stands in `url`; the variable itself is gone", quoted(name)))
        }
        _ => None,
    }
}

fn without_tokens(text: &str, separator: char, gaps: &mut Vec<String>) -> String {
    let mut open = |part| {
        if is_token(part) { left_out("A part of the URL looks like a secret", gaps) } else { part }
    };
    text.split(separator).map(&mut open).collect::<Vec<_>>().join(&separator.to_string())
}

fn without_secrets(query: &str, gaps: &mut Vec<String>) -> String {
    let mut open = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        if value == FILL_IN || !is_secret(name, value) || name.is_empty() && !is_token(value) {
            return pair.to_owned();
        }
        let name = if is_token(name) { "" } else { name };
        let value = left_out(&format!("{} in the query of the URL may be a secret", quoted(name)), gaps);
        if name.is_empty() { value.to_owned() } else { format!("{name}={value}") }
    };
    query.split('&').map(&mut open).collect::<Vec<_>>().join("&")
}

fn left_out(why: &str, gaps: &mut Vec<String>) -> &'static str {
    gaps.push(format!(
        "{why}: {FILL_IN} stands for it. `url` cannot be read from a file, so if the server takes no header instead, write \
         it there and let nobody else read this configuration"
    ));
    FILL_IN
}

/// `user:password` of a URL, where either may be missing and `%41` is `A`.
fn decoded(user_info: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = percent_decode_str(user_info).collect();
    if !bytes.contains(&b':') {
        bytes.push(b':');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_stays_in_a_url() {
        for (text, url, gaps) in [
            ("https://host/mcp", "https://host/mcp", 0),
            (" HTTPS://host/mcp?region=eu#top ", "https://host/mcp?region=eu", 0),
            ("https://host/mcp?api_key=hunter2&region=eu", "https://host/mcp?region=eu", 0),
            ("https://host/s/6f1ed002ab5595859014ebf0951522d9/mcp", "https://host/s/FILL-IN/mcp", 1),
            ("https://${input:host}.example.com/mcp", "https://FILL-IN.example.com/mcp", 1),
            ("${BASE:-https://host}/mcp", "${BASE:-https://host}/mcp", 0),
            ("https://${HOST:-host}:${PORT:-1}/#x", "https://host:1/", 0),
            ("${BASE}/mcp", "https://FILL-IN/mcp", 1),
            ("${cmd: cat url}", "https://FILL-IN", 1),
            ("https://${A}/${B:-b}", "https://FILL-IN/b", 1),
            ("https://host/mcp?token=${T:-hunter2}", "https://host/mcp", 0),
            ("https://host/${A:-6f1ed002ab5595859014ebf0951522d9}", "https://host/FILL-IN", 1),
            ("https://host/mcp?token=${env:TOKEN}", "https://host/mcp", 0),
            ("https://host/mcp?6f1ed002ab5595859014ebf0951522d9", "https://host/mcp?FILL-IN", 1),
        ] {
            let address = address(text).expect(text);
            assert_eq!((address.url.as_str(), address.gaps.len()), (url, gaps), "{text}: {address:?}");
        }
        for (text, url, parameters) in [
            (
                "https://h/?key=a%2Bb+c&x=1&key=hunter2#f",
                "https://h/?x=1&key=FILL-IN",
                &[("key", "a+b c")][..],
            ),
            ("https://h/?r=${env:R}&t=${input:i}", "https://h/", &[("r", "${env:R}"), ("t", "${input:i}")]),
            ("https://h/?r=${R:-eu}", "https://h/?r=${R:-eu}", &[]),
            ("${BASE:-https://h/?a=b}&key=hunter2", "https://h/?a=b&key=FILL-IN", &[]),
        ] {
            let address = address(text).expect(text);
            let found: Vec<_> =
                address.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!((address.url.as_str(), &*found), (url, parameters), "{text}");
        }
        let with_user = address("https://a%40b:hunter2@host/mcp").unwrap();
        assert_eq!(with_user.url, "https://host/mcp");
        assert_eq!(with_user.authorization.as_deref(), Some("Basic YUBiOmh1bnRlcjI="));
    }

    #[test]
    fn what_is_no_url_is_refused_unseen() {
        for text in [
            "",
            "hunter2",
            "ftp://hunter2/",
            "https://",
            "https://hunter2:x/",
            "http://ho st/hunter2",
            "https://${}",
        ] {
            let error = address(text).expect_err(text);
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
