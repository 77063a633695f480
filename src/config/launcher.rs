//! Programs that fetch the server they start, such as `npx`, and the version that their words name. Without one, the
//! newest is fetched, whatever it has become.

/// A launcher, verbs that stand between it and a package, and the form of a version.
type Launcher = (&'static str, &'static [&'static str], &'static str);

const LAUNCHERS: [Launcher; 9] = [
    ("npx", &[""], "@"),
    ("bunx", &[""], "@"),
    ("pnpx", &[""], "@"),
    ("npm", &["exec", "x"], "@"),
    ("pnpm", &["dlx"], "@"),
    ("yarn", &["dlx"], "@"),
    ("bun", &["x"], "@"),
    ("uvx", &[""], "=="),
    ("uv", &["tool run", "x"], "=="),
];
/// `pipx run`, whose option for a package has a name of its own.
const PIPX: Launcher = ("pipx", &["run"], "==");
/// Launchers of what a project names.
const RUNNERS: [Launcher; 2] = [("npm", &["run", "start"], "@"), ("uv", &["run"], "==")];
/// Options that name the package, where the program is called otherwise.
const PACKAGE_OPTIONS: [&str; 4] = ["--from", "--package", "-p", "--spec"];
/// Options of launchers that have a value.
const VALUED_OPTIONS: [&str; 11] = [
    "--python",
    "--with",
    "--index",
    "--index-url",
    "--default-index",
    "--extra-index-url",
    "--registry",
    "--cache",
    "--directory",
    "--project",
    "--allow-build",
];
/// Options that keep a launcher from fetching anything.
const LOCAL_OPTIONS: [&str; 4] = ["--no", "--no-install", "--offline", "--no-index"];

/// A package that is fetched in its newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpinned<'w> {
    /// The launcher that fetches it.
    pub launcher: &'static str,
    /// Its name, as it is written.
    pub package: &'w str,
    /// Between a package and its version.
    pub mark: &'static str,
}

/// The package without a version that a program and its arguments have fetched.
pub fn unpinned<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<Unpinned<'w>> {
    let words = unwrapped(words);
    let (launcher, rest) = launched(&words, LAUNCHERS.iter().chain([&PIPX]))?;
    let (name, _, mark) = *launcher;
    let package = package(rest)?;
    let is_npm = mark == "@";
    (is_of_registry(package) && !has_version(package, is_npm)).then_some(Unpinned {
        launcher: name,
        package: bare(package),
        mark,
    })
}

/// The launcher of a program and its arguments that stays beside what it starts. `pipx` does not: it becomes that.
pub fn staying<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<&'static str> {
    let words = unwrapped(words);
    launched(&words, LAUNCHERS.iter().chain(&RUNNERS)).map(|((name, ..), _)| *name)
}

/// The words without what only puts them together or sets variables.
fn unwrapped<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<&'w str> {
    let mut words: Vec<&str> = words.into_iter().collect();
    if let [shell, "-c", line, ..] = words[..]
        && ["sh", "bash"].contains(&base(shell))
    {
        words = line.trim_start().trim_start_matches("exec ").split_whitespace().collect();
    }
    if words.first().is_some_and(|program| base(program) == "env") {
        words.remove(0);
    }
    let begin = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
    words.split_off(begin)
}

/// The one of these launchers that the words begin with, and its arguments.
fn launched<'r, 'w, 'l>(
    words: &'r [&'w str],
    launchers: impl IntoIterator<Item = &'l Launcher>,
) -> Option<(&'l Launcher, &'r [&'w str])> {
    let (program, rest) = words.split_first()?;
    let known = |launcher: &'l Launcher| {
        let (name, verbs, _) = launcher;
        let after = || verbs.iter().find_map(|verb| after_verb(rest, verb));
        (*name == base(program)).then(after).flatten().map(|rest| (launcher, rest))
    };
    launchers.into_iter().find_map(known)
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// The arguments after `verb`, whose words come first; options may stand before them.
fn after_verb<'r, 'w>(words: &'r [&'w str], verb: &str) -> Option<&'r [&'w str]> {
    let mut rest = words;
    for part in verb.split_whitespace() {
        while let [option, after @ ..] = rest
            && option.starts_with('-')
        {
            rest = after.get(usize::from(VALUED_OPTIONS.contains(option))..)?;
        }
        rest = rest.split_first().filter(|(word, _)| **word == part)?.1;
    }
    Some(rest)
}

/// The word that names the package.
fn package<'w>(words: &[&'w str]) -> Option<&'w str> {
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let (option, value) =
            word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if LOCAL_OPTIONS.contains(&option) {
            return None;
        }
        if PACKAGE_OPTIONS.contains(&option) && (option != "-p" || value.is_none()) {
            return value.or_else(|| words.next().copied());
        }
        if word == "-c" || word == "--call" {
            return None;
        }
        if VALUED_OPTIONS.contains(&option) && value.is_none() {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// True if a package is fetched by its name: no path, and no URL with a revision of its own.
fn is_of_registry(package: &str) -> bool {
    !package.is_empty()
        && !package.starts_with(['.', '/', '~', '$', '"', '\''])
        && !package.contains([':', '#', '\\'])
        && package.matches('/').count() == usize::from(package.starts_with('@'))
}

/// True if a version follows the name. A tag, such as `latest`, is none.
fn has_version(package: &str, is_npm: bool) -> bool {
    let name = package.strip_prefix('@').unwrap_or(package);
    let version = match name.split_once("==") {
        Some((_, version)) if !is_npm => version.trim_start_matches('='),
        _ => name.split_once('@').map_or("", |(_, version)| version),
    };
    version.trim().starts_with(|c: char| c.is_ascii_digit())
}

/// A package without its tag.
fn bare(package: &str) -> &str {
    let from = usize::from(package.starts_with('@'));
    let end = package[from..].find(['@', '=', '<', '>', '~', '!']).map_or(package.len(), |at| from + at);
    &package[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_without_a_version_is_found() {
        for (line, expected) in [
            (
                "npx -y @modelcontextprotocol/server-filesystem /srv",
                Some(("npx", "@modelcontextprotocol/server-filesystem")),
            ),
            ("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /srv", None),
            ("/usr/bin/npx some-server@latest", Some(("npx", "some-server"))),
            ("npx some-server@^1.2", Some(("npx", "some-server"))),
            ("npx --yes some-server@1.2.3 --x y", None),
            ("npx --package some-server -- run", Some(("npx", "some-server"))),
            ("npx --package=some-server@1 run", None),
            ("npx -p a@1.0.0 run", None),
            ("npx --no some-server", None),
            ("npx ./server", None),
            ("npx github:a/b", None),
            ("npx -c node_x", None),
            ("npx", None),
            ("npm exec --yes some-server", Some(("npm", "some-server"))),
            ("npm run start", None),
            ("pnpm dlx a", Some(("pnpm", "a"))),
            ("bunx a", Some(("bunx", "a"))),
            ("uvx mcp-server-time", Some(("uvx", "mcp-server-time"))),
            ("uvx mcp-server-time@2026.1.1", None),
            ("uvx mcp-server-time==2026.1.1 --x", None),
            ("uvx mcp-server-time>=1", Some(("uvx", "mcp-server-time"))),
            ("uvx --from a==1 run", None),
            ("uvx --from git+https://host/a run", None),
            ("uvx --python 3.12 a", Some(("uvx", "a"))),
            ("uv tool run a", Some(("uv", "a"))),
            ("uv run server.py", None),
            ("pipx run a", Some(("pipx", "a"))),
            ("pipx run --spec a==1 b", None),
            ("env A=b C= npx a", Some(("npx", "a"))),
            ("node server.js", None),
            ("mcp-server-github", None),
            ("", None),
        ] {
            let found = unpinned(line.split_whitespace());
            assert_eq!(found.map(|found| (found.launcher, found.package)), expected, "{line}");
        }
        for (line, expected) in [
            ("npx -y a@1.2.3", Some("npx")),
            ("npm exec a", Some("npm")),
            ("npm run start", Some("npm")),
            ("npm root", None),
            ("uvx a==1", Some("uvx")),
            ("uv --directory /srv/a run server.py", Some("uv")),
            ("uv tool run a", Some("uv")),
            ("uv pip list", None),
            ("env A=b npx a", Some("npx")),
            ("pipx run a", None),
            ("node server.js", None),
            ("A=b", None),
            ("", None),
        ] {
            assert_eq!(staying(line.split_whitespace()), expected, "{line}");
        }
        assert_eq!(staying(["sh", "-c", "exec uvx a \"${KEY}\""]), Some("uvx"));
        let in_shell = unpinned(["/bin/sh", "-c", "exec npx -y a --key \"${KEY}\""]);
        assert_eq!(in_shell.map(|found| found.package), Some("a"));
    }
}
