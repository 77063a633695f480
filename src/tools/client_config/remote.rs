//! Programs that only pass messages on to a server elsewhere, because a client could start programs alone: `mcp-remote`,
//! `supergateway`, `mcp-proxy`, `trunkline connect`. The gateway goes there itself.

use super::sensitive::looks_like_secret;
use super::windows::{self, base};

/// Where a program passes messages on to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) program: &'static str,
    pub(super) url: String,
    pub(super) is_sse: bool,
    pub(super) headers: Vec<(String, String)>,
    /// Options that are not carried over, without their values.
    pub(super) dropped: Vec<String>,
}

/// What starts programs that are not installed.
const RUNNERS: [&str; 9] = ["npx", "bunx", "pnpx", "uvx", "pipx", "npm", "pnpm", "yarn", "uv"];

/// What `words` pass messages on to, if that is all they do.
pub(super) fn remote(words: &[String]) -> Option<Remote> {
    let words = windows::unwrapped(words);
    let mut at = 0;
    if RUNNERS.contains(&base(words.first()?)) {
        at = words.iter().skip(1).position(|word| program(word).is_some())? + 1;
        // Before it there are only options of the runner, and its verbs.
        let is_runners = |word: &String| {
            word.starts_with('-') || ["exec", "x", "dlx", "run", "tool", "mcp-proxy"].contains(&word.as_str())
        };
        if !words[1..at].iter().all(is_runners) {
            return None;
        }
    }
    let remote = read(program(&words[at])?, &words[at + 1..])?;
    (remote.url.starts_with("http://") || remote.url.starts_with("https://") || remote.url.contains("${"))
        .then_some(remote)
}

/// The program that `word` names, whatever its version.
fn program(word: &str) -> Option<&'static str> {
    let name = base(word);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let name = name.split_once("==").map_or(name, |(name, _)| name);
    ["mcp-remote", "supergateway", "mcp-proxy", "trunkline"].into_iter().find(|known| *known == name)
}

/// Reads what stands behind `program`. Their options are alike, so they are read alike.
fn read(program: &'static str, words: &[String]) -> Option<Remote> {
    let mut words = words.iter();
    if program == "trunkline" && words.next()? != "connect" {
        return None;
    }
    let mut remote = Remote { program, is_sse: program == "mcp-proxy", ..Remote::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            // It serves a program instead.
            "--stdio" if program == "supergateway" => return None,
            "--sse" => {
                remote.is_sse = true;
                remote.url.clone_from(words.next()?);
            }
            "--streamableHttp" => remote.url.clone_from(words.next()?),
            "--transport" => remote.is_sse = words.next()?.starts_with("sse"),
            "--transport=sse" => remote.is_sse = true,
            "--transport=streamablehttp" => remote.is_sse = false,
            "--headers" | "-H" if program == "mcp-proxy" => {
                remote.headers.push((words.next()?.clone(), words.next()?.clone()));
            }
            "--header" | "-H" => remote.header(words.next()?),
            "--oauth2Bearer" => {
                remote.headers.push(("Authorization".to_owned(), format!("Bearer {}", words.next()?)));
            }
            "--allow-http" | "--debug" | "--silent" | "--enable-proxy" if program == "mcp-remote" => {}
            option if option.starts_with('-') || program == "supergateway" => {
                remote.option(option, &mut words);
            }
            _ if remote.url.is_empty() => remote.url.clone_from(word),
            // Something to start, with its arguments.
            _ if program == "mcp-proxy" => return None,
            // The port at which `mcp-remote` waits for the browser.
            _ => {}
        }
    }
    Some(remote)
}

impl Remote {
    fn header(&mut self, line: &str) {
        if let Some((name, value)) = line.split_once(':') {
            self.headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }

    /// Leaves out an option and its value.
    fn option<'w>(&mut self, option: &str, words: &mut (impl Iterator<Item = &'w String> + Clone)) {
        // A value may stand where an option is looked for, or be joined to one: only what looks like a name is repeated.
        let name = option.split('=').next().unwrap_or(option);
        let is_name = name.starts_with("--") && name.len() <= 40 && !looks_like_secret(name);
        self.dropped.push(if is_name { name } else { "(a word)" }.to_owned());
        let is_value = |word: &String| !word.starts_with('-') && !word.starts_with("http");
        if !option.contains('=') && words.clone().next().is_some_and(is_value) {
            words.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Remote> {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        remote(&words)
    }

    #[test]
    fn programs_that_stand_in_are_known() {
        for (line, url, is_sse, headers) in [
            ("npx mcp-remote https://a/mcp", "https://a/mcp", false, &[][..]),
            ("npx -y mcp-remote@latest https://a/sse 3334 --transport sse-only", "https://a/sse", true, &[]),
            ("cmd /c npx -y mcp-remote https://a/mcp --header X:y", "https://a/mcp", false, &[("X", "y")]),
            (
                "/usr/bin/npx mcp-remote https://a --allow-http --header Authorization:_Bearer_${T}",
                "https://a",
                false,
                &[("Authorization", "Bearer ${T}")],
            ),
            (
                "npx -y supergateway --sse https://a/sse --oauth2Bearer t",
                "https://a/sse",
                true,
                &[("Authorization", "Bearer t")],
            ),
            ("uvx mcp-proxy http://a/sse", "http://a/sse", true, &[]),
            (
                "mcp-proxy --transport streamablehttp -H A b http://a/mcp",
                "http://a/mcp",
                false,
                &[("A", "b")],
            ),
            ("/opt/trunkline connect http://a/mcp --key-file /k", "http://a/mcp", false, &[]),
        ] {
            let remote = of(line).expect(line);
            assert_eq!((remote.url.as_str(), remote.is_sse), (url, is_sse), "{line}");
            let found: Vec<_> =
                remote.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, headers, "{line}");
        }
        assert_eq!(
            of("trunkline connect http://a --timeout 3 --ca /k").unwrap_or_default().dropped,
            ["--timeout", "--ca"]
        );
    }

    #[test]
    fn other_programs_stay_programs() {
        for line in [
            "npx -y @modelcontextprotocol/server-filesystem /srv",
            "npx -y server-everything mcp-remote https://a",
            "npx -y supergateway --stdio npx_server",
            "mcp-proxy --port 8080 uvx mcp-server-fetch",
            "npx mcp-remote",
            "npx",
            "trunkline run",
            "python server.py https://a",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
