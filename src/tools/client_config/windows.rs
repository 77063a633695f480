//! Programs and paths of Windows: what stands around a program there, and what is called otherwise here.

/// Programs that are the same here, without their ending.
const PROGRAMS: [&str; 18] = [
    "npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "node", "deno", "uv", "uvx", "pipx", "python",
    "python3", "docker", "podman", "java", "dotnet",
];
const ENDINGS: [&str; 4] = [".cmd", ".exe", ".bat", ".ps1"];

/// The words that are run, without `cmd /c` and `wsl`.
pub(super) fn unwrapped(words: &[String]) -> &[String] {
    let Some((program, rest)) = words.split_first() else { return words };
    let begin = match &*base(program).to_ascii_lowercase() {
        "cmd" => {
            let flags = rest.iter().take_while(|word| word.starts_with('/')).count();
            rest[..flags].iter().any(|flag| flag.eq_ignore_ascii_case("/c")).then_some(flags)
        }
        "wsl" => after_options(rest),
        _ => None,
    };
    match begin.and_then(|begin| rest.get(begin..)) {
        Some(inner) if !inner.is_empty() => inner,
        _ => words,
    }
}

/// The position of the program that `wsl` runs.
fn after_options(words: &[String]) -> Option<usize> {
    let mut at = 0;
    loop {
        match words.get(at)?.as_str() {
            "-e" | "--exec" | "--" => return Some(at + 1),
            "-d" | "--distribution" | "-u" | "--user" | "--cd" => at += 2,
            option if option.starts_with('-') => return None,
            _ => return Some(at),
        }
    }
}

/// The name of a program, without its path and the ending that it has on Windows.
pub(super) fn base(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let end = name.len().saturating_sub(4);
    let has_ending =
        name.get(end..).is_some_and(|end| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(end)));
    if has_ending { &name[..end] } else { name }
}

/// True if a program is one of Windows, by its name or its path.
pub(super) fn is_program(program: &str) -> bool {
    is_path(program) || base(program).len() < program.rsplit(['/', '\\']).next().unwrap_or(program).len()
}

/// The name that a program of Windows has here, if it is the same one.
pub(super) fn same_here(program: &str) -> Option<&'static str> {
    PROGRAMS.into_iter().find(|known| known.eq_ignore_ascii_case(base(program)))
}

/// True if a text is a path of Windows, or `option=` with one.
pub(super) fn is_path(text: &str) -> bool {
    let path =
        text.split_once('=').filter(|(_, value)| begins_as_path(value)).map_or(text, |(_, value)| value);
    begins_as_path(path)
}

fn begins_as_path(text: &str) -> bool {
    matches!(text.as_bytes(), [drive, b':', b'\\', ..] if drive.is_ascii_alphabetic())
        || text.starts_with(r"\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_a_program_is_taken_away() {
        for (line, expected) in [
            ("cmd /c npx a", "npx a"),
            ("C:\\Windows\\cmd.exe /d /s /C npx a", "npx a"),
            ("cmd /c", "cmd /c"),
            ("cmd npx /c a", "cmd npx /c a"),
            ("wsl.exe bash -c x", "bash -c x"),
            ("wsl -d Ubuntu --cd / -e npx a", "npx a"),
            ("wsl -- npx a", "npx a"),
            ("wsl --list", "wsl --list"),
            ("npx a", "npx a"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(unwrapped(&words).join(" "), expected, "{line}");
        }
    }

    #[test]
    fn programs_and_paths_are_told() {
        for (program, is_windows, same) in [
            ("npx.cmd", true, Some("npx")),
            ("C:\\Program Files\\nodejs\\NPX.CMD", true, Some("npx")),
            ("C:\\tools\\server.exe", true, None),
            ("npx", false, Some("npx")),
            ("/usr/bin/server", false, None),
            (".exe", true, None),
        ] {
            assert_eq!((is_program(program), same_here(program)), (is_windows, same), "{program}");
        }
        for (text, expected) in [
            ("C:\\x", true),
            ("--dir=d:\\x", true),
            ("\\\\host\\share", true),
            ("C:/x", false),
            ("a=b", false),
            ("\\d+", false),
            ("é:\\", false),
        ] {
            assert_eq!(is_path(text), expected, "{text}");
        }
    }
}
