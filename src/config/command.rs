//! `command`: how an upstream is started that is a child process.

use super::array::{Array, Map};
use super::findings::Findings;
use super::launcher::{Unpinned, unpinned};
use super::outline::is_program;
use super::policy::Words;
use super::secret::{SecretSource, TextOrSecret};
use super::section::{Group, section};
use super::table::Table;
use super::text::{AbsolutePath, Any, Fault, checked, texts};
use super::value::{Count, DAY_MS, HOUR_MS, Period, choice};

section! {
    /// How an upstream is started that is a child process.
    pub struct CommandConfig {
        /// Environment variables that the child process inherits beside `HOME`, `LANG`, `LC_ALL`, `LC_CTYPE`, `LOGNAME`,
        /// `PATH`, `SHELL`, `TMPDIR`, `TZ` and `USER`. It inherits no others.
        #[example(["XDG_CACHE_HOME"])]
        env_pass: Array<Variable> = [],
        /// Working directory of the child process, an absolute path. Default: that of the gateway.
        #[example("/srv/files")]
        directory: Option<AbsolutePath>,
        /// Who shares a child process of revisions with sessions: nobody but one `session`, the sessions of one
        /// `principal`, or all (`shared`). A shared one is told of no client capabilities and can ask clients nothing.
        isolation: Isolation = "session",
        /// Child processes of this upstream.
        children_max: Count<1, 65_536> = 64,
        /// Time a child process is given to end after its input was closed, and again after SIGTERM.
        stop_timeout: Period<1, HOUR_MS> = "5s",
        /// Time within which a child process answers anything, from its start on. A first start may have to fetch its
        /// program.
        start_timeout: Period<1, DAY_MS> = "3m",
        /// Time after which a child process that no session needs is stopped when unused.
        idle_timeout as "child_idle_timeout": Period<1, DAY_MS> = "10m",
        /// The first call that needs the program starts it, once its lists are known: until then, and whenever it has ended
        /// as nobody used it, clients are shown these. They are kept in `state_directory`.
        lazy: bool = false,
    }
    computed {
        /// The program, by name or path; not empty. No part of the command holds a NUL.
        program: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment as the operator wrote it, sorted by name.
        env: Vec<(String, String)>,
        /// Variables of its environment that are secrets, sorted by name.
        secret_env: Vec<(String, SecretSource)>,
    }
}

section! {
    /// An upstream's command, where it has one.
    pub struct Program {
        /// The program of a server that speaks over its standard input and output, alone or with its arguments.
        #[example(["mcp-server-filesystem", "/srv/files"])]
        command: Option<Words>,
        /// Arguments of `command`, after those that stand there.
        #[example(["--read-only"])]
        args: Option<Array<Any>>,
        /// Environment variables of the child process: text, or where a secret is read from.
        #[example({ LOG_LEVEL = "warn", TOKEN = { file = "/etc/trunkline/files-token" } })]
        env: Option<Map<TextOrSecret>>,
    }
    groups {
        /// How it is started.
        started: CommandConfig
    }
    check where_started => Option<CommandConfig>;
}

/// The environment variables that every child process inherits.
pub const INHERITED: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

choice! {
    /// Who shares a child process with sessions.
    pub enum Isolation {
        /// Nobody: each session has one of its own.
        Session = "session",
        /// The sessions of one principal.
        Principal = "principal",
        /// All sessions.
        Shared = "shared",
    }
}

texts! {
    /// The name of an environment variable.
    pub Variable -> String, "^[^=]+$", variable;
}

fn variable(name: &str) -> Result<String, Fault> {
    let is_variable = !name.is_empty() && !name.contains(['=', '\0']);
    checked(name, is_variable, "not the name of an environment variable")
}

fn where_started(written: Program, table: Table<'_>, findings: &mut Findings) -> Option<CommandConfig> {
    if !table.has("command") {
        refuse_without_command(table, findings);
        return None;
    }
    for key in ["url", "urls", "transport", "unique_ids"] {
        findings.error_at(table, key, format!("`{key}` and `command` exclude each other: keep one"));
    }
    let has_args = written.args.is_some();
    let mut words: Vec<String> = written.command.into_iter().chain(written.args).flatten().collect();
    if words.first().is_none_or(String::is_empty) {
        findings.error_at(table, "command", "`command` names no program");
        words = vec![String::new()];
    }
    // Who writes `args = []` means a program whose name holds a blank.
    if let [one] = &words[..]
        && !has_args
        && !one.starts_with('/')
        && one.contains(' ')
    {
        // What is an argument may be a password.
        let arguments = one.split_whitespace().skip(1).map(|_| "\"…\"".to_owned());
        let program = one.split_whitespace().next().filter(|program| is_program(program)).unwrap_or("…");
        let words: Vec<String> = std::iter::once(format!("{program:?}")).chain(arguments).collect();
        findings.error_at(
            table,
            "command",
            "no shell reads `command`: a program and its arguments are an array",
        );
        findings.suggest(Some(format!("write [{}]", words.join(", "))));
    }
    if words.iter().any(|word| word.contains('\0')) {
        findings.error_at(table, "command", "a command cannot hold a NUL character");
    }
    warn_of_no_version(&words, table, findings);
    let program = words.remove(0);
    let (mut texts, mut secret_env) = (Vec::new(), Vec::new());
    for (name, value) in written.env.into_iter().flatten() {
        match value {
            TextOrSecret::Text(text) => texts.push((name, text)),
            TextOrSecret::Secret(source) => secret_env.push((name, source)),
        }
    }
    check_env(table.table("env"), findings);
    Some(CommandConfig { program, args: words, env: texts, secret_env, ..written.started })
}

/// A program that is fetched anew may be another one at the next start.
fn warn_of_no_version(words: &[String], table: Table<'_>, findings: &mut Findings) {
    let found = unpinned(words.iter().map(String::as_str));
    if let (Some(Unpinned { launcher, mark, .. }), Some(span)) = (found, findings.span(table, "command")) {
        // The word may be a secret that stands in a wrong place, so it is not repeated.
        let message = format!(
            "{}: `{launcher}` starts the newest version of its package, whatever that has become: write the one that you \
             have looked at, as in `PACKAGE{mark}1.2.3`",
            findings.heading()
        );
        findings.warning(span, message);
    }
}

/// Keys that only matter where there is a command would do nothing.
fn refuse_without_command(table: Table<'_>, findings: &mut Findings) {
    let mut keys = vec!["args", "env"];
    CommandConfig::keys(&mut keys);
    for key in keys {
        findings.may_hold_secret = key == "env";
        findings.error_at(table, key, format!("`{key}` is for upstreams that are started by a `command`"));
        findings.may_hold_secret = false;
    }
}

fn check_env(env: Table<'_>, findings: &mut Findings) {
    for (name, value) in env.entries() {
        if let Err(fault) = variable(name.get_ref()) {
            findings.secret_error(name.span(), fault);
        }
        if value.get_ref().as_str().is_some_and(|text| text.contains('\0')) {
            findings.secret_error(value.span(), "a value cannot hold a NUL character");
        }
    }
}
