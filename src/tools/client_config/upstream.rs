//! An entry → `[upstream.NAME]`, with a comment for each decision.

use std::collections::HashSet;
use std::fmt::Write as _;

use http::{HeaderName, HeaderValue};

use super::address::address;
use super::entry::Entry;
use super::import::SecretStore;
use super::placeholder::{Piece, pieces};
use super::remote::{self, Remote};
use super::sensitive::{is_secret, is_secret_header, login_at, looks_like_secret};
use super::shell::{self, Part};
use super::toml_text::{array, key, quoted, string};
use config::{is_reserved, looks_secret};

/// More than a program or a header takes, and than the gateway reads of a secret.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// A secret of an entry that is shorter may be an ordinary word elsewhere in it.
const KNOWN_BYTES_MIN: usize = 6;
/// Secrets of one entry, each of which is looked for in the rest of it.
const KNOWN_MAX: usize = 200;
/// Pieces that the arguments of one entry are put together from.
const PIECES_MAX: usize = 4000;
/// Options that a header goes with.
const HEADER_OPTIONS: [&str; 3] = ["--header", "--headers", "-H"];
const ARGUMENT: &str = "TRUNKLINE_ARGUMENT_";

/// What an entry became.
#[derive(Debug, Default)]
pub(super) struct UpstreamTable {
    /// `key = value`, in lines.
    pub(super) lines: Vec<String>,
    /// What was decided.
    pub(super) remarks: Vec<String>,
    /// What a person has to do.
    pub(super) gaps: Vec<String>,
    /// Tools that are not to be offered.
    pub(super) tools_off: Vec<String>,
}

/// Translates `entry` for the upstream `name`; an error says why nothing can be made of it.
pub(super) fn table(name: &str, entry: &Entry, vault: &mut SecretStore<'_>) -> Result<UpstreamTable, String> {
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
    let table = UpstreamTable {
        remarks: entry.remarks.clone(),
        gaps: entry.gaps.clone(),
        tools_off: entry.tools_off.clone(),
        ..UpstreamTable::default()
    };
    let mut writer = Writer {
        name,
        table,
        vault,
        known,
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

struct Writer<'v, 's> {
    name: &'v str,
    table: UpstreamTable,
    vault: &'v mut SecretStore<'s>,
    /// Secrets of this entry, wherever else they stand.
    known: Vec<String>,
    /// Environment variables of the program, as they are written.
    variables: Vec<(String, String)>,
    /// Those that it inherits.
    pass: Vec<String>,
    /// The names of both.
    variable_names: HashSet<String>,
    arguments: usize,
}

impl Writer<'_, '_> {
    fn remark(&mut self, remark: impl Into<String>) {
        self.table.remarks.push(remark.into());
    }

    fn line(&mut self, name: &str, value: &str) {
        self.table.lines.push(format!("{name} = {value}"));
    }

    fn is_secret(&self, name: &str, value: &str) -> bool {
        is_secret(name, value) || self.known.iter().any(|known| value.contains(known.as_str()))
    }

    fn server(&mut self, url: &str, entry: &Entry) -> Result<(), String> {
        let address = address(url)?;
        self.line("url", &string(&address.url));
        if entry.is_sse {
            self.line("transport", "\"sse\"");
        }
        self.table.gaps.extend(address.gaps);
        self.table.remarks.extend(address.remarks);
        if !entry.words.is_empty() {
            self.remark("Its command is not carried over: it has a URL as well");
        }
        self.headers(entry, address.authorization);
        Ok(())
    }

    /// What only stands in for a server elsewhere: the gateway goes there itself.
    fn stand_in(&mut self, remote: &Remote, entry: &Entry) -> Result<(), String> {
        let filled = |text: &str| -> String {
            let value = |name: &str| {
                entry.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            let whole = |piece: Piece<'_>| match piece {
                Piece::Text(text) | Piece::Place(text) => text.to_owned(),
                Piece::Variable { name, .. } => value(name).unwrap_or_else(|| format!("${{env:{name}}}")),
                Piece::Input(id) => format!("${{input:{id}}}"),
                Piece::File(path) => format!("${{file:{path}}}"),
            };
            pieces(text).into_iter().map(whole).collect()
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
    fn value(&mut self, name: &str, label: &str, value: &str, must_be_secret: bool) -> String {
        match *pieces(value).as_slice() {
            [] => string(""),
            [Piece::Variable { name: variable, has_default }] => {
                if has_default {
                    self.remark(format!(
                        "{} has no default any more: {} must be set",
                        quoted(name),
                        quoted(variable)
                    ));
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
                self.places(pieces);
                string(value)
            }
            ref pieces => {
                let names: Vec<String> = pieces
                    .iter()
                    .filter_map(|piece| match piece {
                        Piece::Text(_) => None,
                        Piece::Variable { name, .. }
                        | Piece::Input(name)
                        | Piece::File(name)
                        | Piece::Place(name) => Some((*name).to_owned()),
                    })
                    .collect();
                let what = if label == "bearer" { "the token" } else { "the whole value" };
                self.gap(label, &format!("{what} of {}, with {} filled in", quoted(name), list(&names)))
            }
        }
    }

    /// Where a value will be read from that nobody but a person can put there.
    fn gap(&mut self, label: &str, what: &str) -> String {
        let (place, source) = self.vault.place(self.name, label);
        self.table.gaps.push(format!("Put {what} into {place}"));
        source
    }

    /// Places only the client knows are left as they stand.
    fn places(&mut self, pieces: &[Piece<'_>]) {
        for piece in pieces {
            if let Piece::Place(place) = piece {
                self.table
                    .gaps
                    .push(format!("Write what {} stands for: only the client knows it", quoted(place)));
            }
        }
    }

    fn program(&mut self, entry: &Entry) -> Result<(), String> {
        let words = remote::without_shell(&entry.words);
        if words.len() < entry.words.len() {
            self.remark("`cmd /c` is gone: it is for Windows");
        }
        if words.is_empty() {
            return Err("it has neither a command nor a URL".to_owned());
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err("its command holds a NUL character".to_owned());
        }
        if words.iter().map(|word| pieces(word).len()).sum::<usize>() > PIECES_MAX {
            return Err(format!("its arguments are put together from more than {PIECES_MAX} pieces"));
        }
        for (name, value) in &entry.env {
            self.variable(name, value);
        }
        let parts: Vec<Vec<Part>> = (0..words.len()).map(|at| self.word(words, at)).collect();
        if parts.iter().flatten().any(|part| matches!(part, Part::Variable(_))) {
            self.remark("A shell puts arguments together that are not for this file, from the environment");
            self.line("command", "\"/bin/sh\"");
            self.line("args", &array(shell::arguments(&parts).iter().map(String::as_str)));
        } else {
            self.line("command", &string(&words[0]));
            if words.len() > 1 {
                self.line("args", &array(words[1..].iter().map(String::as_str)));
            }
        }
        self.environment(entry);
        self.directory(entry);
        Ok(())
    }

    fn variable(&mut self, name: &str, value: &str) {
        if name.is_empty()
            || name.contains(['=', '\0'])
            || value.contains('\0')
            || value.len() > VALUE_BYTES_MAX
        {
            self.remark(
                "An environment variable is not carried over: its name or its value cannot be that of one",
            );
            return;
        }
        self.variable_names.insert(name.to_owned());
        if let [Piece::Variable { name: same, has_default: false }] = *pieces(value).as_slice()
            && same == name
        {
            self.pass.push(name.to_owned());
            return;
        }
        let source = self.value(name, name, value, false);
        self.variables.retain(|(earlier, _)| earlier != name);
        self.variables.push((name.to_owned(), source));
    }

    /// The pieces of an argument: what may be a secret becomes a variable.
    fn word(&mut self, words: &[String], at: usize) -> Vec<Part> {
        let word = &words[at];
        let before = at
            .checked_sub(1)
            .filter(|before| words[*before].starts_with('-') || is_header_name(words, *before))
            .map(|before| words[before].trim_end_matches(':'));
        // A path may look like a secret, such as one with a digest in it; a whole command line may hold one.
        let is_path = at == 0 && !word.contains(char::is_whitespace);
        let cut = if is_path { word.len() } else { self.secret_from(before.unwrap_or_default(), word) };
        let (open, secret) = word.split_at(cut);
        let mut parts = Vec::new();
        for piece in pieces(open) {
            parts.push(self.part(piece));
        }
        // What a client fills in is no secret, but what stands around it may be.
        for piece in pieces(secret) {
            let part = match piece {
                Piece::Text(text) => {
                    let (label, variable) = self.argument();
                    let source = self.vault.keep(self.name, &label, text);
                    self.variables.push((variable.clone(), source));
                    Part::Variable(variable)
                }
                other => self.part(other),
            };
            parts.push(part);
        }
        parts
    }

    /// Where in an argument a secret begins, if there is one; at its end otherwise.
    fn secret_from(&self, flag: &str, word: &str) -> usize {
        if let Some(at) = login_at(flag, word) {
            return at;
        }
        let separators: &[char] = if HEADER_OPTIONS.contains(&flag) { &[':', '='] } else { &['='] };
        if let Some(at) = word.find(separators) {
            let (name, value) = (&word[..at], &word[at + 1..]);
            if name.len() <= 64 && !looks_like_secret(name) && self.is_secret(name, value) {
                return at + 1;
            }
        }
        let is_value =
            !flag.is_empty() && !word.starts_with('-') && !flag.contains('=') && !flag.starts_with("--no-");
        let flag = if is_value { flag.trim_start_matches('-') } else { "" };
        if self.is_secret(flag, word) { 0 } else { word.len() }
    }

    fn part(&mut self, piece: Piece<'_>) -> Part {
        match piece {
            Piece::Text(text) => Part::Text(text.to_owned()),
            Piece::Place(place) => {
                self.places(&[piece]);
                Part::Text(place.to_owned())
            }
            Piece::Variable { name, has_default } => {
                if has_default {
                    self.remark(format!("{} has no default any more: it must be set", quoted(name)));
                }
                if self.variable_names.insert(name.to_owned()) {
                    self.pass.push(name.to_owned());
                }
                Part::Variable(name.to_owned())
            }
            Piece::Input(what) | Piece::File(what) => {
                let (label, variable) = self.argument();
                let kind = if matches!(piece, Piece::File(_)) { "file" } else { "input" };
                let source = self.value("an argument", &label, &format!("${{{kind}:{what}}}"), false);
                self.variables.push((variable.clone(), source));
                Part::Variable(variable)
            }
        }
    }

    /// The label and the variable of one more argument that is not for the configuration.
    fn argument(&mut self) -> (String, String) {
        self.arguments += 1;
        let variable = format!("{ARGUMENT}{}", self.arguments);
        self.variable_names.insert(variable.clone());
        (format!("argument-{}", self.arguments), variable)
    }

    fn environment(&mut self, entry: &Entry) {
        for name in &entry.env_pass {
            if !name.is_empty() && !name.contains(['=', '\0']) {
                self.pass.push(name.clone());
            }
        }
        if !self.pass.is_empty() {
            let pass = array(self.pass.iter().map(String::as_str));
            self.line("env_pass", &pass);
        }
        if self.variables.is_empty() {
            return;
        }
        let written: Vec<String> =
            self.variables.iter().map(|(name, source)| format!("{} = {source}", key(name))).collect();
        let one_line = format!("{{ {} }}", written.join(", "));
        if one_line.len() <= 90 {
            self.line("env", &one_line);
            return;
        }
        for variable in written {
            self.table.lines.push(format!("env.{variable}"));
        }
    }

    fn directory(&mut self, entry: &Entry) {
        let Some(directory) = &entry.directory else { return };
        if directory.starts_with('/') && !directory.contains('\0') && !looks_like_secret(directory) {
            self.line("directory", &string(directory));
        } else if !directory.is_empty() {
            self.table.gaps.push(
                "Name its working directory with `directory`: that of the client is not an absolute path"
                    .to_owned(),
            );
        }
    }

    fn rest(&mut self, entry: &Entry) {
        if let Some(timeout_ms) = entry.timeout_ms {
            let period = if timeout_ms.is_multiple_of(1000) {
                format!("{}s", timeout_ms / 1000)
            } else {
                format!("{timeout_ms}ms")
            };
            self.line("reply_timeout", &string(&period));
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

/// Whether the word there is the name of a header alone, and the next word its value.
fn is_header_name(words: &[String], at: usize) -> bool {
    let is_behind_option = || at > 0 && HEADER_OPTIONS.contains(&words[at - 1].as_str());
    is_secret_header(&words[at])
        || !words[at].trim_end_matches(':').contains([':', '=']) && is_behind_option()
}

/// Names of strangers, as a list in a sentence.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text = names.iter().take(SHOWN).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        let _ = write!(text, " and {} more", names.len() - SHOWN);
    }
    text
}
