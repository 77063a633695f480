//! The program of an upstream and the environment it gets: by its own words and a named few of the gateway's.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use config::{CommandConfig, Config, INHERITED};

/// Their `exec PROGRAM` is of one kind.
const SHELLS: [&str; 4] = ["sh", "bash", "dash", "zsh"];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("there is no program `{0}`")]
    Missing(String),
    #[error("program `{0}` not found in PATH")]
    NotInPath(String),
    #[error("`{0}` is not an executable file")]
    NotExecutable(String),
    #[error("there is no directory `{0}`")]
    Directory(String),
}

/// The environment of the child: what it inherits, then what the operator wrote.
pub(crate) fn environment(command: &CommandConfig) -> Vec<(OsString, OsString)> {
    let passed = INHERITED.iter().copied().chain(command.env_pass.iter().map(String::as_str));
    let inherited = passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let written = command.env.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(written).collect()
}

/// A warning where this process is root's, and with it the programs that `config` has it start.
pub(crate) fn started_as_root(config: &Config) -> Option<String> {
    let has_programs = config.upstreams.iter().any(|upstream| upstream.command.is_some());
    (has_programs && rustix::process::geteuid().is_root()).then(|| {
        "run as root, the gateway starts each `command` as root, too: run it as a user of its own".to_owned()
    })
}

pub(crate) fn find(command: &CommandConfig) -> Result<PathBuf, ProgramError> {
    let CommandConfig { program, directory, .. } = command;
    if let Some(directory) = directory.as_deref().filter(|directory| !directory.is_dir()) {
        return Err(ProgramError::Directory(directory.display().to_string()));
    }
    if program.contains('/') {
        let path = directory.as_deref().unwrap_or(Path::new("")).join(program);
        return if is_executable(&path) {
            Ok(path)
        } else if path.exists() {
            Err(ProgramError::NotExecutable(path.display().to_string()))
        } else {
            Err(ProgramError::Missing(path.display().to_string()))
        };
    }
    let path = environment(command).into_iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    let path = path.unwrap_or_default();
    // Found from here, the program is to be found from its working directory as well.
    let candidates =
        std::env::split_paths(&path).filter_map(|folder| std::path::absolute(folder.join(program)).ok());
    let mut not_executable = None;
    for candidate in candidates {
        if is_executable(&candidate) {
            return Ok(candidate);
        }
        if candidate.is_file() {
            not_executable = Some(ProgramError::NotExecutable(candidate.display().to_string()));
        }
    }
    Err(not_executable.unwrap_or_else(|| ProgramError::NotInPath(program.clone())))
}

/// The fault of the program that is started in the end, if that can be told: a shell may only put its arguments together.
pub(crate) fn fault(command: &CommandConfig) -> Option<ProgramError> {
    let behind_shell = || {
        let program = behind_shell(command)?.to_owned();
        find(&CommandConfig { program, ..command.clone() }).err()
    };
    find(command).err().or_else(behind_shell)
}

/// The program that a shell becomes by `exec PROGRAM …`, where no more is to be known of shells than quotes.
fn behind_shell(command: &CommandConfig) -> Option<&str> {
    let shell = command.program.rsplit('/').next()?;
    let [flag, line, ..] = &*command.args else { return None };
    let line = line.trim_start().strip_prefix("exec ").filter(|_| SHELLS.contains(&shell) && flag == "-c")?;
    let line = line.trim_start();
    if let Some(quoted) = line.strip_prefix('\'') {
        let (program, rest) = quoted.split_once('\'')?;
        return (rest.is_empty() || rest.starts_with(' ')).then_some(program);
    }
    let program = line.split_whitespace().next()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,".contains(&byte);
    (!program.starts_with('-') && program.bytes().all(is_plain)).then_some(program)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use config::Isolation;

    /// A child with nothing but its program.
    pub(in crate::upstream::stdio) fn command(program: &str) -> CommandConfig {
        CommandConfig {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            secret_env: Vec::new(),
            env_pass: Vec::new(),
            directory: None,
            isolation: Isolation::Session,
            children_max: 1,
            stop_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            start_timeout: Duration::ZERO,
            lazy: false,
        }
    }

    #[test]
    fn says_why_a_program_cannot_be_started() {
        assert_eq!(find(&command("/bin/sh")), Ok("/bin/sh".into()));
        assert!(find(&command("sh")).is_ok_and(|path| path.ends_with("sh")));
        let missing = ProgramError::Missing("/nowhere/x".into());
        assert_eq!(find(&command("/nowhere/x")), Err(missing));
        assert_eq!(find(&command("/etc/passwd")), Err(ProgramError::NotExecutable("/etc/passwd".into())));
        assert_eq!(find(&command("/etc")), Err(ProgramError::NotExecutable("/etc".into())));
        assert_eq!(find(&command("no-such-program")), Err(ProgramError::NotInPath("no-such-program".into())));
        let elsewhere = CommandConfig { directory: Some("/nowhere".into()), ..command("sh") };
        assert_eq!(find(&elsewhere), Err(ProgramError::Directory("/nowhere".into())));
        let beside = CommandConfig { directory: Some("/bin".into()), ..command("./sh") };
        assert_eq!(find(&beside), Ok("/bin/./sh".into()));
        let other_path = CommandConfig { env: vec![("PATH".into(), "/nowhere".into())], ..command("sh") };
        assert_eq!(find(&other_path), Err(ProgramError::NotInPath("sh".into())));
    }

    #[test]
    fn a_program_behind_a_shell_is_looked_for() {
        let behind = |line: &str| {
            let args = vec!["-c".to_owned(), line.to_owned()];
            fault(&CommandConfig { args, ..command("/bin/sh") })
        };
        let missing = |program: &str| Some(ProgramError::NotInPath(program.into()));
        for (line, expected) in [
            ("exec no-such-program --key \"${KEY}\"", missing("no-such-program")),
            (" exec 'no such program' x", missing("no such program")),
            ("exec /nowhere/x", Some(ProgramError::Missing("/nowhere/x".into()))),
            ("exec cat \"${KEY}\"", None),
            ("exec -a x cat", None),
            ("exec \"${PROGRAM}\"", None),
            ("exec 'a'b", None),
            ("exec >/dev/null; a", None),
            ("no-such-program", None),
            ("", None),
        ] {
            assert_eq!(behind(line), expected, "{line}");
        }
        assert_eq!(fault(&command("sh")), None);
        assert_eq!(fault(&command("no-such-program")), missing("no-such-program"));
    }

    #[test]
    fn inherits_only_what_is_named() {
        let command = CommandConfig {
            env: vec![("A".into(), "b".into())],
            env_pass: vec!["CARGO_MANIFEST_DIR".into(), "NOT_SET_ANYWHERE".into()],
            ..command("x")
        };
        let names: Vec<_> = environment(&command).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"PATH".into()) && names.contains(&"CARGO_MANIFEST_DIR".into()));
        assert_eq!(names.last(), Some(&"A".into()));
        assert!(names.iter().all(|name| {
            let name = name.to_string_lossy();
            INHERITED.contains(&&*name) || ["A", "CARGO_MANIFEST_DIR"].contains(&&*name)
        }));
    }
}
