//! `trunkline call URL TOOL [ARGS]`: one call of a tool.
//!
//! | file | what it is |
//! |---|---|
//! | `talk.rs` | a conversation, and what became of it |
//! | `person.rs`, `input.rs` | the person at the terminal |
//! | `asking.rs`, `form.rs` | what a server asks |
//! | `describe.rs`, `show.rs` | tools in words, and what a call gave |

mod asking;
pub(super) mod describe;
mod form;
mod input;
pub(super) mod person;
mod show;
pub(super) mod talk;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value, json};

use self::person::Wishes;
use self::talk::{EXIT_DONE, EXIT_FAILED, Ended};
use super::server::{How, Speech, server};
use client::tool::outcome;
use client::tool::words::{self, Mistake};
use client::tool::{Tool, fit};
use protocol::level::Level;
use protocol::text::{shown, shown_value};
use tools::terminal;
use tools::terminal::paint::{BAD, WARNING, painted};

/// The most that is read as arguments.
const ARGUMENTS_BYTES_MAX: u64 = 8 << 20;

/// Options of `trunkline call`.
#[derive(Debug, Args)]
#[command(
    override_usage = "\
trunkline call [OPTIONS] URL TOOL [ARGS]...
       trunkline call [OPTIONS] TOOL [ARGS]... -- COMMAND [ARGS]...",
    after_help = "\
Arguments are flags named after the properties of the tool's inputSchema: `trunkline tools URL TOOL` shows them.
  --city Oslo --days 2     text, numbers
  --verbose, --no-verbose  true, false
  --tag a --tag b          a list
  --at.x 1 --at.y 2        an object
  '{\"city\": \"Oslo\"}'       all as JSON; also @FILE, or - for standard input. Flags add to it.
Behind TOOL, --json, --save, --answer, --json-args and --unchecked are still options of this command, and --help tells
what the tool takes, unless the tool has an argument of that name. All other options stand before TOOL.

Exit codes:
  0    done
  1    the tool says that it failed, or its files cannot be written
  2    the command line is wrong: no such tool, or arguments that do not fit it; nothing was called
  3    the server cannot be reached, refuses, or answers what is not MCP
  130  interrupted; the call was cancelled

Environment:
  TRUNKLINE_KEY  the key, if there is no --key-file"
)]
pub(super) struct Options {
    /// All arguments as a JSON object
    #[arg(long, value_name = "JSON")]
    json_args: Option<String>,
    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
    /// Write images, sound and other files of the result to this directory
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// An answer to a question of the server, as FIELD=VALUE; may be given more than once
    #[arg(long, value_name = "FIELD=VALUE")]
    answer: Vec<String>,
    /// The least level of log lines to show
    #[arg(long, value_name = "LEVEL", value_parser = level())]
    log_level: Option<Level>,
    /// Send arguments that do not fit the tool's schema all the same
    #[arg(long)]
    unchecked: bool,
    /// The era of MCP to speak
    #[arg(long, value_enum, default_value_t)]
    era: Speech,
    /// Show every message on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    how: How,
    #[arg(value_name = "URL", help = "The server, for example http://127.0.0.1:8080/mcp")]
    server: String,
    /// The tool, and its arguments
    #[arg(value_name = "TOOL", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What is called.
struct Asked<'a> {
    url: Option<&'a str>,
    tool: &'a str,
    words: &'a [String],
    command: &'a [String],
}

/// What the person wants of the result, and has said about arguments.
#[derive(Debug, Default)]
struct Wants {
    is_json: bool,
    is_unchecked: bool,
    save: Option<PathBuf>,
    answers: Vec<String>,
    /// All arguments: where they come from, and their text.
    all: Option<(String, Source)>,
}

/// Where arguments come from.
#[derive(Debug)]
enum Source {
    Text(String),
    File(PathBuf),
    Input,
}

/// Calls it.
pub(super) fn call(options: &Options) -> ExitCode {
    let asked = match asked(options, std::env::args_os().rev().position(|word| word == "--")) {
        Ok(asked) => asked,
        Err(why) => return talk::wrong(&why),
    };
    let server = match server(&options.how, asked.url, asked.command) {
        Ok(server) => server,
        Err(error) => return talk::wrong(&format!("{error:#}")),
    };
    let has_answers =
        !options.answer.is_empty() || asked.words.iter().any(|word| word.starts_with("--answer"));
    let wishes = Wishes { is_verbose: options.verbose, has_answers, may_ask: true };
    let address = asked.url.map_or_else(|| format!("-- {}", asked.command.join(" ")), str::to_owned);
    let how = talk::How {
        server,
        wanted: options.era.wanted(),
        timeout: options.how.timeout(),
        log_level: options.log_level,
    };
    talk::run(how, wishes, async |client, person| {
        person.wait_for("Listing the tools");
        let tool = talk::find(&client.list("tools/list", "tools").await?, asked.tool)?;
        if asks_for_help(&tool, asked.words) {
            terminal::put(describe::tool(&tool, &address).trim_end());
            return Ok(EXIT_DONE);
        }
        let (wants, words) = wants(options, &tool, asked.words)?;
        person.answer_with(answers(&wants.answers)?);
        person.wait_no_more();
        let arguments = arguments(&tool, wants.all, &words).await?;
        check(&tool, &arguments, wants.is_unchecked)?;
        person.wait_for(&format!("Calling {}", tool.name));
        let result = client.request("tools/call", json!({"name": tool.name, "arguments": arguments})).await?;
        person.wait_no_more();
        Ok(show(&tool, &result, wants.is_json, wants.save.as_deref()))
    })
}

/// The levels of log lines, as MCP has them.
fn level() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(Level::ALL.map(Level::as_str))
        .try_map(|name| Level::of(&name).ok_or("no such level"))
}

/// Whether help is asked for behind a tool's name: what the tool takes is of more use there than what this command does.
fn asks_for_help(tool: &Tool, words: &[String]) -> bool {
    matches!(words, [.., word] if word == "--help" || word == "-h")
        && words::flag(&tool.flags, "help").is_none()
}

/// Tells the tool, its arguments and the program apart: whether the server is a program shows in `--`, which clap leaves
/// out where it stands first.
fn asked(options: &Options, words_behind_dashes: Option<usize>) -> Result<Asked<'_>, String> {
    if words_behind_dashes.is_some_and(|count| count > options.words.len()) {
        return Err("which tool? It stands before --, as in: trunkline call TOOL -- COMMAND".to_owned());
    }
    let (words, command) = match options.words.iter().position(|word| word == "--") {
        Some(at) => {
            (options.words.get(..at).unwrap_or_default(), options.words.get(at + 1..).unwrap_or_default())
        }
        None if words_behind_dashes.is_some() && !options.server.contains("://") => {
            (Default::default(), options.words.as_slice())
        }
        None => (options.words.as_slice(), Default::default()),
    };
    if options.server.contains("://") || command.is_empty() {
        let Some((tool, words)) = words.split_first() else {
            return Err(if options.server.contains("://") {
                format!("which tool? `trunkline tools {}` lists them", shown(&options.server))
            } else {
                "give the URL of a server and a tool, or a tool and, behind --, a program that is a server"
                    .to_owned()
            });
        };
        return Ok(Asked { url: Some(&options.server), tool, words, command });
    }
    Ok(Asked { url: None, tool: &options.server, words, command })
}

/// The options behind the tool's name, and the words that are left for its arguments. Its own arguments go first.
fn wants(options: &Options, tool: &Tool, words: &[String]) -> Result<(Wants, Vec<String>), Ended> {
    let given = options.json_args.clone().map(|text| ("--json-args".to_owned(), Source::Text(text)));
    let mut wants = Wants {
        is_json: options.json,
        is_unchecked: options.unchecked,
        save: options.save.clone(),
        answers: options.answer.clone(),
        all: given,
    };
    let mut left = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").map(|word| word.split_once('=').map_or(word, |(name, _)| name));
        if let Some(flag) = name.and_then(|name| words::flag(&tool.flags, name)) {
            left.push(word.clone());
            if !word.contains('=') && flag.placeholder().is_some() {
                left.extend(words.next().cloned());
            }
            continue;
        }
        let mut value = || {
            let attached = word.split_once('=').map(|(_, value)| value.to_owned());
            attached.or_else(|| words.next().cloned())
        };
        let needs = |what: &str| Ended::Wrong(format!("{} needs {what}", name.unwrap_or_default()));
        match (name, word.as_str()) {
            (Some("json"), "--json") => wants.is_json = true,
            (Some("unchecked"), "--unchecked") => wants.is_unchecked = true,
            (Some("save"), _) => wants.save = Some(value().ok_or_else(|| needs("a directory"))?.into()),
            (Some("answer"), _) => wants.answers.push(value().ok_or_else(|| needs("FIELD=VALUE"))?),
            (Some("json-args"), _) => {
                let text = value().ok_or_else(|| needs("a JSON object"))?;
                all(&mut wants, "--json-args", Source::Text(text))?;
            }
            (None, "-") => all(&mut wants, "standard input", Source::Input)?,
            (None, text) if text.starts_with('{') => {
                all(&mut wants, "what begins with {", Source::Text(text.to_owned()))?;
            }
            (None, text) => match text.strip_prefix('@') {
                Some(file) => all(&mut wants, text, Source::File(file.into()))?,
                None => left.push(word.clone()),
            },
            (Some(_), _) => left.push(word.clone()),
        }
    }
    Ok((wants, left))
}

fn all(wants: &mut Wants, what: &str, source: Source) -> Result<(), Ended> {
    if wants.all.is_some() {
        return Err(Ended::Wrong("all arguments are given twice: give one JSON object".to_owned()));
    }
    wants.all = Some((what.to_owned(), source));
    Ok(())
}

fn answers(given: &[String]) -> Result<Vec<(String, String)>, Ended> {
    let answer = |text: &String| {
        let (field, value) = text.split_once('=')?;
        Some((field.to_owned(), value.to_owned()))
    };
    let answers: Option<Vec<_>> = given.iter().map(answer).collect();
    answers.ok_or_else(|| Ended::Wrong("--answer is written FIELD=VALUE".to_owned()))
}

async fn arguments(tool: &Tool, all: Option<(String, Source)>, words: &[String]) -> Result<Value, Ended> {
    let base = match all {
        None => Map::new(),
        Some((what, source)) => {
            // Reading may take as long as somebody types.
            let text = tokio::task::spawn_blocking(move || read(source)).await;
            let text = text.map_err(io::Error::other).and_then(|text| text);
            let text =
                text.map_err(|error| Ended::Wrong(format!("cannot read {}: {error}", shown(&what))))?;
            words::object(&what, &text).map_err(|mistake| mistaken(tool, &mistake))?
        }
    };
    words::arguments(&tool.flags, words, base).map_err(|mistake| mistaken(tool, &mistake))
}

fn mistaken(tool: &Tool, mistake: &Mistake) -> Ended {
    let mut why = shown(&mistake.to_string());
    if let Mistake::Stray(word) = mistake
        && is_option(word)
    {
        let advice = format!("; the option {} of this command stands before the tool's name", shown(word));
        why.push_str(&advice);
    }
    if let Mistake::Unknown { name, nearest } = mistake
        && (nearest.is_empty() || is_option(&format!("--{name}")))
    {
        let is_ours = is_option(&format!("--{name}"));
        let names: Vec<String> =
            tool.flags.iter().map(|flag| format!("--{}", shown(&flag.name()))).take(20).collect();
        let advice = match (is_ours, names.as_slice()) {
            (true, _) => format!(
                "; the option --{name} of this command stands before the tool's name, as in: trunkline call --{name} … {}",
                shown(&tool.name)
            ),
            (_, []) => "; it takes none".to_owned(),
            (_, names) => format!("; it has {}", names.join(", ")),
        };
        why += &advice;
    }
    Ended::Wrong(why)
}

/// Whether this is an option of the command itself.
fn is_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    super::command().find_subcommand("call").is_some_and(|call| {
        call.get_arguments().any(|argument| {
            let long = argument.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
            let short = argument.get_short().map(|short| format!("-{short}"));
            long || short.is_some_and(|short| short == name)
        })
    })
}

fn read(source: Source) -> io::Result<String> {
    let mut text = String::new();
    let too_large = || io::Error::other("it is too large");
    match source {
        Source::Text(given) => return Ok(given),
        Source::File(path) => {
            std::fs::File::open(path)?.take(ARGUMENTS_BYTES_MAX + 1).read_to_string(&mut text)?;
        }
        Source::Input => {
            io::stdin().lock().take(ARGUMENTS_BYTES_MAX + 1).read_to_string(&mut text)?;
        }
    }
    if text.len() as u64 > ARGUMENTS_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

/// Whether the arguments fit the tool's schema, before anything is sent.
fn check(tool: &Tool, arguments: &Value, is_unchecked: bool) -> Result<(), Ended> {
    let Some(schema) = tool.input_schema().filter(|_| !is_unchecked) else { return Ok(()) };
    match fit::faults(schema, arguments) {
        Ok(faults) if faults.is_empty() => Ok(()),
        Ok(faults) => {
            let faults: Vec<String> = faults.iter().map(|fault| format!("\n  {}", shown(fault))).collect();
            Err(Ended::Wrong(format!(
                "the arguments do not fit the tool's schema (--unchecked sends them all the same):{}",
                faults.concat()
            )))
        }
        Err(unusable) => {
            warn(&format!("the arguments are not checked: {unusable}"));
            Ok(())
        }
    }
}

/// Prints the result, and returns the exit code.
fn show(tool: &Tool, result: &Value, is_json: bool, folder: Option<&Path>) -> u8 {
    let outcome = outcome::read(result);
    if is_json {
        terminal::put(shown_value(result));
    }
    let saved = match (is_json, folder) {
        (false, folder) => show::print(&outcome, &tool.name, folder),
        (true, Some(folder)) => show::save_all(&outcome, &tool.name, folder),
        (true, None) => Ok(()),
    };
    if let Some(schema) = tool.output_schema().filter(|_| !outcome.is_error) {
        match result.get("structuredContent").map(|content| fit::faults(schema, content)) {
            None => warn("the tool declares an outputSchema, and its result has no structured content"),
            Some(Ok(faults)) => {
                for fault in faults {
                    warn(&format!("the structured content does not fit the tool's outputSchema: {fault}"));
                }
            }
            Some(Err(unusable)) => warn(&format!("the structured content is not checked: {unusable}")),
        }
    }
    if let Err(why) = saved {
        terminal::say(format_args!("{} {why}", painted(BAD, "error:")));
        return EXIT_FAILED;
    }
    if outcome.is_error {
        terminal::say(format_args!("{} the tool says that it failed", painted(BAD, "error:")));
        return EXIT_FAILED;
    }
    EXIT_DONE
}

fn warn(what: &str) {
    terminal::say(format_args!("{} {}", painted(WARNING, "warning:"), shown(what)));
}
