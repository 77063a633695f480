//! An entry → `[upstream.NAME]`, with a comment for each decision.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};

use super::address::address;
use super::entry::Entry;
use super::import::SecretStore;
use super::placeholder::{Piece, pieces};
use super::remote::{self, Remote};
use super::sensitive::{is_secret, login_at};
use super::template::{template, without_default};
use super::toml_text::{key, literal, quoted, string};
use config::{is_reserved, looks_secret};
use protocol::text::first_names;

/// More than a program or a header takes, and than the gateway reads of a secret.
pub(super) const VALUE_BYTES_MAX: usize = 64 << 10;
/// A secret of an entry that is shorter may be an ordinary word elsewhere in it.
const KNOWN_BYTES_MIN: usize = 6;
/// Secrets of one entry, each of which is looked for in the rest of it.
const KNOWN_MAX: usize = 200;

/// What an entry became.
#[derive(Debug, Default)]
pub(super) struct UpstreamTable {
    /// `key = value`, in lines.
    pub(super) lines: Vec<String>,
    pub(super) remarks: Vec<String>,
    /// What a person has to do.
    pub(super) gaps: Vec<String>,
    /// Tools that are not to be offered.
    pub(super) tools_off: Vec<String>,
    /// True if it is started as a child process.
    pub(super) is_program: bool,
}

/// Translates `entry` for the upstream `name`; an error says why nothing can be made of it.
pub(super) fn table(name: &str, entry: &Entry, vault: &mut SecretStore<'_>) -> Result<UpstreamTable, String> {
    let table = UpstreamTable {
        remarks: entry.remarks.clone(),
        gaps: entry.gaps.clone(),
        tools_off: entry.tools_off.clone(),
        ..UpstreamTable::default()
    };
    let mut writer = TableWriter {
        name,
        table,
        vault,
        known: known_secrets(entry)?,
        variables: Vec::new(),
        pass: Vec::new(),
        variable_names: HashSet::new(),
        arguments: 0,
    };
    match entry.url.clone() {
        Some(url) => writer.server(&url, entry)?,
        None => match remote::remote(&entry.words) {
            Some(remote) => writer.stand_in(&remote, entry)?,
            None => writer.program(entry)?,
        },
    }
    writer.rest(entry);
    Ok(writer.table)
}

/// Secrets of `entry` that are told by their names: they may stand elsewhere in it, too.
fn known_secrets(entry: &Entry) -> Result<Vec<String>, String> {
    let mut known: Vec<String> = Vec::new();
    for (name, value) in entry.env.iter().chain(&entry.headers) {
        if value.len() >= KNOWN_BYTES_MIN && is_secret(name, value) {
            known.push(value.split_once(' ').map_or(value.as_str(), |(_, token)| token).to_owned());
            known.push(value.clone());
        }
    }
    for (at, word) in entry.words.iter().enumerate().skip(1) {
        let before = entry.words[at - 1].strip_prefix("--").filter(|_| !word.starts_with('-'));
        let pair = word.split_once('=').or(before.map(|flag| (flag, word.as_str())));
        known.extend(pair.filter(|(name, value)| is_secret(name, value)).map(|(_, value)| value.to_owned()));
        if let Some(login) = login_at(&entry.words[at - 1], word).map(|start| &word[start..]) {
            known.extend(login.split_once(':').map(|(_, password)| password.to_owned()));
        }
    }
    known.retain(|value| value.len() >= KNOWN_BYTES_MIN && pieces(value).len() == 1);
    known.sort_unstable();
    known.dedup();
    if known.len() > KNOWN_MAX {
        return Err(format!("it holds more than {KNOWN_MAX} secrets"));
    }
    Ok(known)
}

/// An entry on its way into a table.
pub(super) struct TableWriter<'v, 's> {
    pub(super) name: &'v str,
    pub(super) table: UpstreamTable,
    pub(super) vault: &'v mut SecretStore<'s>,
    /// Secrets of this entry, wherever else they stand.
    known: Vec<String>,
    /// Environment variables of the program, as they are written.
    pub(super) variables: Vec<(String, String)>,
    /// Those that it inherits.
    pub(super) pass: Vec<String>,
    /// The names of both.
    pub(super) variable_names: HashSet<String>,
    pub(super) arguments: usize,
}

impl TableWriter<'_, '_> {
    pub(super) fn remark(&mut self, remark: impl Into<String>) {
        self.table.remarks.push(remark.into());
    }

    pub(super) fn line(&mut self, name: &str, value: &str) {
        self.table.lines.push(format!("{name} = {value}"));
    }

    pub(super) fn is_secret(&self, name: &str, value: &str) -> bool {
        is_secret(name, value) || self.known.iter().any(|known| value.contains(known.as_str()))
    }

    fn server(&mut self, url: &str, entry: &Entry) -> Result<(), String> {
        let address = address(url)?;
        self.line("url", &literal(&address.url));
        if entry.is_sse {
            self.line("transport", "\"sse\"");
        }
        self.table.gaps.extend(address.gaps);
        self.table.remarks.extend(address.remarks);
        if !entry.words.is_empty() {
            self.remark("Its command is not carried over: it has a URL as well");
        }
        let parameters: Vec<String> = address
            .parameters
            .iter()
            .map(|(name, value)| {
                let source = self.value(name, &format!("query-{name}"), value, true);
                format!("{} = {source}", key(name))
            })
            .collect();
        if !parameters.is_empty() {
            self.line("query", &format!("{{ {} }}", parameters.join(", ")));
        }
        self.headers(entry, address.authorization);
        Ok(())
    }

    /// What only stands in for a server elsewhere: the gateway goes there itself.
    fn stand_in(&mut self, remote: &Remote, entry: &Entry) -> Result<(), String> {
        let known = |piece: &Piece<'_>| match piece {
            Piece::Variable { name, .. } => entry.env.iter().find(|(known, _)| known == name),
            _ => None,
        };
        let filled = |text: &str| -> String {
            let value = |piece| known(&piece).map_or_else(|| piece.to_string(), |(_, value)| value.clone());
            pieces(text).into_iter().map(value).collect()
        };
        self.remark(format!(
            "`{}` only passes messages on: the gateway goes to the URL itself",
            remote.program
        ));
        if remote.program == "mcp-remote" && remote.headers.is_empty() {
            self.remark(
                "If the server wants a user to sign in in a browser: that is not for a gateway; give it `bearer` or `oauth`",
            );
        }
        if !remote.dropped.is_empty() {
            self.remark(format!("Not carried over of it: {}", list(&remote.dropped)));
        }
        let headers = remote.headers.iter().map(|(name, value)| (name.clone(), filled(value))).collect();
        let entry = Entry { is_sse: remote.is_sse, headers, ..Entry::default() };
        self.server(&filled(&remote.url), &entry)
    }

    fn headers(&mut self, entry: &Entry, authorization: Option<String>) {
        let mut headers = entry.headers.clone();
        headers.extend(authorization.map(|value| ("Authorization".to_owned(), value)));
        let mut seen: HashSet<HeaderName> = HashSet::new();
        let mut written = Vec::new();
        for (name, value) in headers {
            let Ok(header) = name.trim().parse::<HeaderName>() else {
                self.remark("A header is not carried over: its name is none");
                continue;
            };
            if is_reserved(header.as_str()) {
                self.remark(format!(
                    "The header `{header}` is not carried over: the gateway writes it itself"
                ));
            } else if seen.contains(&header) {
                self.remark(format!("The header `{header}` is there twice: the first one counts"));
            } else if HeaderValue::from_str(&value).is_err()
                || value.is_empty()
                || value.len() > VALUE_BYTES_MAX
            {
                self.remark(format!(
                    "The header `{header}` is not carried over: its value cannot be that of a header"
                ));
            } else {
                seen.insert(header.clone());
                let bearer = value.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "));
                let credential = value[bearer.map_or(0, str::len)..].trim();
                if header == http::header::AUTHORIZATION && bearer.is_some() && !credential.is_empty() {
                    let source = self.value("Authorization", "bearer", credential, true);
                    self.line("bearer", &source);
                } else {
                    let label = format!("header-{header}");
                    let source = self.value(header.as_str(), &label, &value, looks_secret(header.as_str()));
                    written.push(format!("{} = {source}", key(header.as_str())));
                }
            }
        }
        if !written.is_empty() {
            self.line("headers", &format!("{{ {} }}", written.join(", ")));
        }
    }

    /// What is written for a value: its text, or where it is read from. `label` names the file it is kept in.
    pub(super) fn value(&mut self, name: &str, label: &str, value: &str, must_be_secret: bool) -> String {
        match *pieces(value).as_slice() {
            [] => string(""),
            ref pieces if let Some(text) = self.readable(name, pieces, must_be_secret) => text,
            [Piece::Variable { name: variable, default }] => {
                if let Some(default) = default {
                    let may_show =
                        !must_be_secret && [name, variable].iter().all(|name| !self.is_secret(name, default));
                    self.table.gaps.push(without_default(variable, may_show.then_some(default)));
                }
                format!("{{ env = {} }}", string(variable))
            }
            [Piece::Input(id)] => {
                let said = self.vault.said_of(id).map(|said| format!(" ({said})")).unwrap_or_default();
                self.gap(label, &format!("what the client asks its user for as {}{said}", quoted(id)))
            }
            [Piece::File(path)] if !path.contains('\0') => format!("{{ file = {} }}", string(path)),
            [Piece::Text(text)] if must_be_secret || self.is_secret(name, text) => {
                self.vault.keep(self.name, label, text)
            }
            [Piece::Text(text)] => string(text),
            ref pieces
                if !must_be_secret
                    && pieces.iter().all(|p| matches!(p, Piece::Text(_) | Piece::Place(_))) =>
            {
                if self.is_secret(name, value) {
                    return self.vault.keep(self.name, label, value);
                }
                pieces.iter().filter_map(Piece::name).for_each(|place| self.place(place));
                string(value)
            }
            ref pieces => {
                let names: Vec<&str> = pieces.iter().filter_map(Piece::name).collect();
                let what = if label == "bearer" { "the token" } else { "the whole value" };
                self.gap(label, &format!("{what} of {}, with {} filled in", quoted(name), list(&names)))
            }
        }
    }

    /// A value whose variables the configuration reads itself.
    fn readable(&self, name: &str, pieces: &[Piece<'_>], must_be_secret: bool) -> Option<String> {
        let has_variable = pieces.iter().any(|piece| matches!(piece, Piece::Variable { .. }));
        let is_open = |piece: &Piece<'_>| match piece {
            Piece::Text(text) | Piece::Variable { default: Some(text), .. } => !self.is_secret(name, text),
            _ => true,
        };
        let can_be = has_variable && !must_be_secret && pieces.iter().all(is_open);
        template(name, pieces).filter(|_| can_be).map(|text| literal(&text))
    }

    /// Where a value will be read from that nobody but a person can put there.
    fn gap(&mut self, label: &str, what: &str) -> String {
        let (place, source) = self.vault.place(self.name, label);
        self.table.gaps.push(format!("Put {what} into {place}"));
        source
    }

    /// A place only the client knows is left as it stands.
    pub(super) fn place(&mut self, place: &str) {
        let whose = if place.starts_with('%') { "Windows" } else { "the client" };
        self.table.gaps.push(format!("Write what {} stands for: only {whose} knows it", quoted(place)));
    }

    fn rest(&mut self, entry: &Entry) {
        if let Some(timeout_ms) = entry.timeout_ms {
            let period = if timeout_ms.is_multiple_of(1000) {
                format!("{}s", timeout_ms / 1000)
            } else {
                format!("{timeout_ms}ms")
            };
            self.line("response_timeout", &string(&period));
        }
        if !entry.tools_on.is_empty() {
            self.table.gaps.push(format!(
                "Only some of its tools were switched on ({}): here all are offered. See `[[rule]]`, or `deny` of the endpoint",
                list(&entry.tools_on)
            ));
        }
        if entry.url.is_some() && !entry.env.is_empty() {
            self.remark("Its environment variables are not carried over: it is no program");
        }
    }
}

/// Names of strangers, as a list in a sentence.
pub(super) fn list(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 10;
    let quoted: Vec<String> = names.iter().map(|name| quoted(name.as_ref())).collect();
    first_names(&quoted, SHOWN)
}
