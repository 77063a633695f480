//! The program that `npx` or `npm exec` runs of `PACKAGE@1.2.3` once it has fetched the package: then it is started by
//! itself, without the `npm exec` and the shell that would stay beside it for as long as it runs.
//!
//! Only where it is sure to be the same: an exact version of one package, no option beyond that, the very place where npm
//! keeps it, the version that stands there, and no project in the working directory whose own packages go first.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha512};

use config::CommandConfig;
use tokens::sealing::hex;

/// A longer description of a package is not read.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of the digest that names a place of `npx`.
const PLACE_BYTES: usize = 8;

/// The words of a launcher.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'w> {
    /// Its name and its version.
    package: &'w str,
    name: &'w str,
    version: &'w str,
    /// The program of the package, where it is named.
    program: Option<&'w str>,
    args: &'w [String],
}

/// A program as `npx` would run it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) file: PathBuf,
    pub(super) args: Vec<String>,
    /// The folder that `npx` puts before all others in `PATH`.
    pub(super) folder: PathBuf,
}

/// The program, if it is there. `environment`: that of the child; of a name that stands twice the last counts.
pub(super) fn fetched(command: &CommandConfig, environment: &[(OsString, OsString)]) -> Option<Fetched> {
    let Asked { package, name, version, program, args } = asked_of(command)?;
    let of = |is_it: &dyn Fn(&OsStr) -> bool| environment.iter().rev().find(|(name, _)| is_it(name));
    let cache = match of(&|name| name.eq_ignore_ascii_case("npm_config_cache")) {
        Some((_, cache)) => PathBuf::from(cache),
        None => Path::new(&of(&|name| name == "HOME")?.1).join(".npm"),
    };
    let place = hex(&Sha512::digest(package)[..PLACE_BYTES]);
    let modules = cache.join("_npx").join(place).join("node_modules");
    let home = modules.join(name);
    let manifest = home.join("package.json");
    if manifest.metadata().ok()?.len() > MANIFEST_BYTES_MAX {
        return None;
    }
    let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).ok()?).ok()?;
    if manifest["name"] != name || manifest["version"] != version {
        return None;
    }
    let folder = modules.join(".bin");
    let file = folder.join(program_of(name, program, &manifest["bin"])?);
    let real = file.canonicalize().ok()?;
    let is_executable =
        real.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let is_its_own = real.starts_with(home.canonicalize().ok()?);
    (is_executable && is_its_own).then(|| Fetched { file, args: args.to_vec(), folder })
}

/// True if the program of a command is started by itself once npm has fetched it.
pub(super) fn is_found_out(command: &CommandConfig) -> bool {
    asked_of(command).is_some()
}

/// The environment with the folder of the package before all others in `PATH`.
pub(super) fn with_folder(
    mut environment: Vec<(OsString, OsString)>,
    fetched: Option<&Fetched>,
) -> Vec<(OsString, OsString)> {
    if let Some(Fetched { folder, .. }) = fetched {
        let path = environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, path)| path);
        let folders = std::iter::once(folder.clone())
            .chain(path.iter().flat_map(|path| std::env::split_paths(path)).collect::<Vec<_>>());
        if let Ok(path) = std::env::join_paths(folders) {
            environment.push(("PATH".into(), path));
        }
    }
    environment
}

/// The exact version of a package that a command asks for, where nothing goes before it.
fn asked_of(command: &CommandConfig) -> Option<Asked<'_>> {
    let launcher = Path::new(&command.program).file_name().and_then(OsStr::to_str);
    asked(launcher?, &command.args).filter(|_| !has_project(command))
}

/// The package that is asked for and its arguments, where no other option stands before it.
fn asked<'w>(launcher: &str, words: &'w [String]) -> Option<Asked<'w>> {
    let (is_npm, mut words) = match (launcher, words) {
        ("npx", words) => (false, words),
        ("npm", [verb, rest @ ..]) if verb == "exec" || verb == "x" => (true, rest),
        _ => return None,
    };
    let mut named = None;
    while let Some((word, rest)) = words.split_first() {
        // The short form is another option of npm itself.
        let is_package = word == "--package" || (word == "-p" && !is_npm);
        words = match word.strip_prefix("--package=") {
            _ if ["-y", "--yes", "-q", "--quiet"].contains(&word.as_str()) => rest,
            Some(package) if named.is_none() => {
                named = Some(package);
                rest
            }
            None if is_package && named.is_none() => {
                let (package, rest) = rest.split_first()?;
                named = Some(package);
                rest
            }
            _ => break,
        };
    }
    let end = ["--".to_owned()];
    let ended = words.strip_prefix(&end);
    let (first, args) = ended.unwrap_or(words).split_first()?;
    let has_option = |args: &[String]| args.iter().any(|arg| arg.starts_with('-'));
    let args = match args.strip_prefix(&end) {
        // All that follows is the program's.
        _ if !is_npm || ended.is_some() => args,
        // Up to there npm reads options of its own.
        Some(behind) => behind,
        None if has_option(args) => return None,
        None => args,
    };
    let program = named.and(Some(first.as_str()));
    let package = named.unwrap_or(first);
    let (name, version) = package.rsplit_once('@')?;
    let is_plain = !first.starts_with('-') && is_name(name) && is_exact(version);
    is_plain.then_some(Asked { package, name, version, program, args })
}

fn is_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_allowed)
    };
    match name.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
        Some(Some((scope, name))) => is_plain(scope) && is_plain(name),
        Some(None) => false,
        None => is_plain(name),
    }
}

/// True for one version, and no range or tag.
fn is_exact(version: &str) -> bool {
    let (numbers, more) =
        version.split_once(['-', '+']).map_or((version, ""), |(numbers, more)| (numbers, more));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_more = |byte: u8| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte);
    numbers.split('.').count() == 3 && numbers.split('.').all(is_number) && more.bytes().all(is_more)
}

/// True if the working directory is a project of npm, whose own packages would go first.
fn has_project(command: &CommandConfig) -> bool {
    let directory = command.directory.as_deref().unwrap_or(Path::new("."));
    ["package.json", "node_modules"].iter().any(|name| directory.join(name).exists())
}

/// The program that is run of a package: the one that is `wanted`, or the only one, or that of its name.
fn program_of<'m>(name: &'m str, wanted: Option<&str>, programs: &'m Value) -> Option<&'m str> {
    let own = name.rsplit('/').next()?;
    let Value::Object(programs) = programs else {
        return (programs.is_string() && wanted.is_none_or(|wanted| wanted == own)).then_some(own);
    };
    let name = if let Some(wanted) = wanted {
        programs.get_key_value(wanted)?.0
    } else {
        let mut all = programs.iter();
        let (first, file) = all.next()?;
        if all.all(|(_, other)| other == file) { first } else { programs.get_key_value(own)?.0 }
    };
    // It is a name, not a path to somewhere else.
    (!name.contains('/') && !name.starts_with('.')).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::program::tests::command;
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_an_exact_version_without_options_is_asked_for() {
        for (line, expected) in [
            ("npx -y a@1.2.3 x --y", Some(("a@1.2.3", None, "x --y"))),
            ("npx --yes --quiet a@1.2.3 -- -x", Some(("a@1.2.3", None, "-- -x"))),
            ("npx -y -- a@1.2.3 -x", Some(("a@1.2.3", None, "-x"))),
            ("npx -p a@1.2.3 b", Some(("a@1.2.3", Some("b"), ""))),
            ("npx -y --package=a@1.2.3 b -x", Some(("a@1.2.3", Some("b"), "-x"))),
            ("npx --package a@1.2.3 -y -- b -x", Some(("a@1.2.3", Some("b"), "-x"))),
            ("npx -p a@1.2.3 b -- -x", Some(("a@1.2.3", Some("b"), "-- -x"))),
            ("npx -p a@1.2.3 -p b@1.2.3 c", None),
            ("npx -p a@1.2.3 -c b", None),
            ("npx -p a@1.2.3", None),
            ("npx --node-options=x a@1.2.3", None),
            ("npx -y", None),
            ("npm exec -y a@1.2.3 x", Some(("a@1.2.3", None, "x"))),
            ("npm x -y -- a@1.2.3 -x", Some(("a@1.2.3", None, "-x"))),
            ("npm exec a@1.2.3 -- -x", Some(("a@1.2.3", None, "-x"))),
            ("npm exec -- a@1.2.3 -- -x", Some(("a@1.2.3", None, "-- -x"))),
            ("npm exec a@1.2.3 x -- -x", None),
            ("npm exec --package=a@1.2.3 -- b -x", Some(("a@1.2.3", Some("b"), "-x"))),
            ("npm exec a@1.2.3 -x", None),
            ("npm exec -p a@1.2.3 b", None),
            ("npm run a@1.2.3", None),
            ("npm", None),
            ("node a@1.2.3", None),
        ] {
            let line = words(line);
            let found = asked(&line[0], &line[1..]);
            let expected = expected.map(|(package, program, args)| (package, program, args.to_owned()));
            assert_eq!(
                found.map(|asked| (asked.package, asked.program, asked.args.join(" "))),
                expected,
                "{line:?}"
            );
        }
        for (version, expected) in [
            ("1.2.3", true),
            ("1.2.3-beta.1", true),
            ("1.2", false),
            ("^1.2.3", false),
            ("latest", false),
            ("1.x.3", false),
        ] {
            assert_eq!(is_exact(version), expected, "{version}");
        }
        for (name, expected) in [
            ("a", true),
            ("@s/a-b", true),
            ("@s", false),
            ("../a", false),
            ("@s/../a", false),
            ("a/b", false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
    }

    #[test]
    fn what_npx_has_fetched_is_found_where_it_keeps_it() {
        let cache = tempfile::tempdir().expect("a folder");
        // As npx names it.
        let modules = cache.path().join("_npx/8d15d4caa834b7f0/node_modules");
        let home = modules.join("mcp-remote");
        std::fs::create_dir_all(home.join("dist")).expect("a folder");
        std::fs::create_dir_all(modules.join(".bin")).expect("a folder");
        let program = home.join("dist/proxy.js");
        std::fs::write(&program, "#!/usr/bin/env node\n").expect("a file");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        symlink(&program, modules.join(".bin/mcp-remote")).expect("a link");
        let write = |version: &str| {
            let bin = r#"{"mcp-remote":"dist/proxy.js","mcp-remote-client":"dist/client.js"}"#;
            let manifest = format!(r#"{{"name":"mcp-remote","version":"{version}","bin":{bin}}}"#);
            std::fs::write(home.join("package.json"), manifest).expect("a file");
        };
        write("0.15.1");
        let environment = [("npm_config_cache".into(), cache.path().into())];
        let elsewhere = tempfile::tempdir().expect("a folder");
        let run_by = |launcher: &str, line: &str| {
            let directory = Some(elsewhere.path().to_path_buf());
            let launcher = CommandConfig { args: words(line), directory, ..command(launcher) };
            fetched(&launcher, &environment)
        };
        let of = |line: &str| run_by("npx", line);
        let found = of("-y mcp-remote@0.15.1 https://x.example/mcp").expect("it is there");
        assert_eq!(
            (found.file, found.args),
            (modules.join(".bin/mcp-remote"), words("https://x.example/mcp"))
        );
        assert_eq!(of("-p mcp-remote@0.15.1 mcp-remote x").expect("the same").args, words("x"));
        assert_eq!(of("-p mcp-remote@0.15.1 sh"), None, "no program of the package");
        assert!(run_by("npm", "exec -y -- mcp-remote@0.15.1 --x").is_some());
        assert_eq!(run_by("npm", "exec -y mcp-remote@0.15.1 --x"), None, "an option of npm");
        assert_eq!(of("-y mcp-remote https://x.example/mcp"), None);
        assert_eq!(of("-y mcp-remote@0.15.2"), None);
        std::fs::write(elsewhere.path().join("package.json"), "{}").expect("a file");
        assert_eq!(of("-y mcp-remote@0.15.1"), None, "its own packages go first");
        std::fs::remove_file(elsewhere.path().join("package.json")).expect("removed");
        write("0.15.9");
        assert_eq!(of("-y mcp-remote@0.15.1"), None);
        write("0.15.1");
        std::fs::remove_file(modules.join(".bin/mcp-remote")).expect("removed");
        symlink("/bin/sh", modules.join(".bin/mcp-remote")).expect("a link");
        assert_eq!(of("-y mcp-remote@0.15.1"), None, "it is another's");
    }
}
