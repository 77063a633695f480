//! A program and its arguments → `command`, `args`, `env`, `env_pass` and `directory`. What may be a secret in an argument
//! becomes an environment variable of the program.

use super::assigned;
use super::entry::Entry;
use super::placeholder::{Piece, pieces};
use super::sensitive::{is_secret_header, login_at, looks_like_secret};
use super::shell::{self, Part};
use super::template::without_default;
use super::toml_text::{array, key, quoted, string};
use super::upstream::{TableWriter, VALUE_BYTES_MAX, list};
use super::windows;
use config::{INHERITED, Unpinned, unpinned};

/// Pieces that the arguments of one entry are put together from.
const PIECES_MAX: usize = 4000;
/// Options that a header goes with.
const HEADER_OPTIONS: [&str; 3] = ["--header", "--headers", "-H"];
/// Paths of one entry that are looked at.
const PATHS_SHOWN_MAX: usize = 100;
const ARGUMENT: &str = "TRUNKLINE_ARGUMENT_";

impl TableWriter<'_, '_> {
    pub(super) fn program(&mut self, entry: &Entry) -> Result<(), String> {
        let unwrapped = windows::unwrapped(&entry.words);
        if let Some(shell) = entry.words.first().filter(|_| unwrapped.len() < entry.words.len()) {
            self.remark(format!("`{}` is gone from its front: it is for Windows", windows::base(shell)));
        }
        let mut words = unwrapped.to_vec();
        let Some(program) = words.first_mut() else {
            return Err("it has neither a command nor a URL".to_owned());
        };
        if let Some(same) = windows::same_here(program).filter(|_| windows::is_program(program)) {
            same.clone_into(program);
            self.remark(format!("`{same}` had the name that it has on Windows"));
        }
        let words = &*words;
        if words.iter().any(|word| word.contains('\0')) {
            return Err("its command holds a NUL character".to_owned());
        }
        if words.iter().map(|word| pieces(word).len()).sum::<usize>() > PIECES_MAX {
            return Err(format!("its arguments are put together from more than {PIECES_MAX} pieces"));
        }
        for (name, value) in &entry.env {
            self.variable(name, value);
        }
        self.table.is_program = true;
        self.of_windows(words, entry);
        self.version(words);
        let parts: Vec<Vec<Part>> = (0..words.len()).map(|at| self.word(words, at)).collect();
        if parts.iter().flatten().any(|part| matches!(part, Part::Variable { .. })) {
            self.remark("A shell puts arguments together that are not for this file, from the environment");
            self.line("command", "\"/bin/sh\"");
            self.line("args", &array(shell::arguments(&parts).iter().map(String::as_str)));
        } else {
            self.line("command", &string(&words[0]));
            // `args = []` says that blanks belong to the program's name.
            if words.len() > 1 || words[0].contains(' ') {
                self.line("args", &array(words[1..].iter().map(String::as_str)));
            }
        }
        self.environment(entry);
        self.directory(entry);
        Ok(())
    }

    /// Says which programs and paths of Windows a person has to replace.
    fn of_windows(&mut self, words: &[String], entry: &Entry) {
        if windows::is_program(&words[0]) {
            let gap = format!("{} is a program of Windows: name the one to start here", quoted(&words[0]));
            self.table.gaps.push(gap);
        }
        let values =
            entry.env.iter().filter(|(name, value)| !self.is_secret(name, value)).map(|(_, value)| value);
        let paths = words[1..].iter().chain(values).filter(|text| windows::is_path(text));
        let shown: Vec<&String> = paths.take(PATHS_SHOWN_MAX).collect();
        if !shown.is_empty() {
            self.table.gaps.push(format!("Write paths of this machine in the place of {}", list(&shown)));
        }
    }

    /// Says that a launcher would fetch another program at each start.
    fn version(&mut self, words: &[String]) {
        if let Some(Unpinned { launcher, package, mark }) = unpinned(words.iter().map(String::as_str)) {
            let example = format!("{package}{mark}1.2.3");
            self.table.gaps.push(format!(
                "`{launcher}` starts the newest version of {}, whatever that has become: write the one that you have \
                 looked at, as in {}",
                quoted(package),
                quoted(&example)
            ));
        }
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
        if let [Piece::Variable { name: same, default: None }] = *pieces(value).as_slice()
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
        let is_path = at == 0 && !word.contains(char::is_whitespace) && !assigned::is_assignment(word);
        let cut = if is_path { word.len() } else { self.secret_from(before.unwrap_or_default(), word) };
        let (open, secret) = word.split_at(cut);
        let mut parts: Vec<Part> = pieces(open).into_iter().map(|piece| self.part(piece, false)).collect();
        // What a client fills in is no secret, but what stands around it may be.
        parts.extend(pieces(secret).into_iter().map(|piece| match piece {
            Piece::Text(text) => {
                let (label, variable) = self.argument();
                let source = self.vault.keep(self.name, &label, text);
                self.variables.push((variable.clone(), source));
                Part::Variable { name: variable, default: None }
            }
            other => self.part(other, true),
        }));
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

    fn part(&mut self, piece: Piece<'_>, may_be_secret: bool) -> Part {
        match piece {
            Piece::Text(text) => Part::Text(text.to_owned()),
            Piece::Place(place) => {
                self.place(place);
                Part::Text(place.to_owned())
            }
            Piece::Variable { name, default } => {
                let may_show = |default: &str| !may_be_secret && !self.is_secret(name, default);
                let kept = default.filter(|default| may_show(default) && shell::is_plain(default));
                if let Some(default) = default.filter(|_| kept.is_none()) {
                    let shown = Some(default).filter(|default| may_show(default));
                    self.table.gaps.push(without_default(name, shown));
                }
                if self.variable_names.insert(name.to_owned()) && !INHERITED.contains(&name) {
                    self.pass.push(name.to_owned());
                }
                Part::Variable { name: name.to_owned(), default: kept.map(str::to_owned) }
            }
            Piece::Input(_) | Piece::File(_) => {
                let (label, variable) = self.argument();
                let source = self.value("an argument", &label, &piece.to_string(), false);
                self.variables.push((variable.clone(), source));
                Part::Variable { name: variable, default: None }
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
}

/// Whether the word there is the name of a header alone, and the next word its value.
fn is_header_name(words: &[String], at: usize) -> bool {
    let is_behind_option = || at > 0 && HEADER_OPTIONS.contains(&words[at - 1].as_str());
    is_secret_header(&words[at])
        || !words[at].trim_end_matches(':').contains([':', '=']) && is_behind_option()
}
