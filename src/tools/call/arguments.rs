//! The words behind a tool's name: the arguments of the call, and options of the command that stand among them. A tool's
//! own arguments go first.

use std::io::{self, Read as _};
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::conversation::CallError;
use client::tool::words::{self, Mistake};
use client::tool::{Tool, fit};
use protocol::text::shown;

/// The most that is read as arguments.
const ARGUMENTS_BYTES_MAX: u64 = 8 << 20;

/// Whether a word is an option of the command itself.
pub type IsOption<'a> = &'a dyn Fn(&str) -> bool;

/// What is wanted of a call: its options, before the tool's name and behind it.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Print the whole result as JSON.
    pub is_json: bool,
    /// Send arguments that do not fit the tool's schema.
    pub is_unchecked: bool,
    /// Where files of the result are written.
    pub save: Option<PathBuf>,
    /// Answers to questions of the server, each `FIELD=VALUE`.
    pub answers: Vec<String>,
    /// All arguments as a JSON object.
    pub json_args: Option<String>,
}

/// Where a JSON object of all arguments comes from.
#[derive(Debug)]
enum JsonSource {
    Text(String),
    File(PathBuf),
    Input,
}

/// The words behind a tool's name, told apart.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) options: CallOptions,
    /// All arguments: what they are called in errors, and where they come from.
    object: Option<(String, JsonSource)>,
    /// What is left for the tool's flags.
    words: Vec<String>,
}

/// Whether help is asked for behind a tool's name: what the tool takes is of more use there than what this command does.
pub(super) fn asks_for_help(tool: &Tool, words: &[String]) -> bool {
    matches!(words, [.., word] if word == "--help" || word == "-h")
        && words::flag(&tool.flags, "help").is_none()
}

/// Tells options from arguments.
pub(super) fn parse(mut options: CallOptions, tool: &Tool, words: &[String]) -> Result<Parsed, CallError> {
    let mut object = options.json_args.take().map(|text| ("--json-args".to_owned(), JsonSource::Text(text)));
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
        let needs = |what: &str| CallError::Wrong(format!("{} needs {what}", name.unwrap_or_default()));
        match (name, word.as_str()) {
            (Some("json"), "--json") => options.is_json = true,
            (Some("unchecked"), "--unchecked") => options.is_unchecked = true,
            (Some("save"), _) => options.save = Some(value().ok_or_else(|| needs("a directory"))?.into()),
            (Some("answer"), _) => options.answers.push(value().ok_or_else(|| needs("FIELD=VALUE"))?),
            (Some("json-args"), _) => {
                let text = value().ok_or_else(|| needs("a JSON object"))?;
                give(&mut object, "--json-args", JsonSource::Text(text))?;
            }
            (None, "-") => give(&mut object, "standard input", JsonSource::Input)?,
            (None, text) if text.starts_with('{') => {
                give(&mut object, "what begins with {", JsonSource::Text(text.to_owned()))?;
            }
            (None, text) => match text.strip_prefix('@') {
                Some(file) => give(&mut object, text, JsonSource::File(file.into()))?,
                None => left.push(word.clone()),
            },
            (Some(_), _) => left.push(word.clone()),
        }
    }
    Ok(Parsed { options, object, words: left })
}

fn give(object: &mut Option<(String, JsonSource)>, what: &str, source: JsonSource) -> Result<(), CallError> {
    if object.is_some() {
        return Err(CallError::Wrong("all arguments are given twice: give one JSON object".to_owned()));
    }
    *object = Some((what.to_owned(), source));
    Ok(())
}

/// Answers to questions of the server: a field and its value each.
pub(super) fn answers(given: &[String]) -> Result<Vec<(String, String)>, CallError> {
    let answer = |text: &String| {
        let (field, value) = text.split_once('=')?;
        Some((field.to_owned(), value.to_owned()))
    };
    let answers: Option<Vec<_>> = given.iter().map(answer).collect();
    answers.ok_or_else(|| CallError::Wrong("--answer is written FIELD=VALUE".to_owned()))
}

pub(super) async fn arguments(
    tool: &Tool,
    Parsed { object, words, .. }: Parsed,
    is_option: IsOption<'_>,
) -> Result<Value, CallError> {
    let base = match object {
        None => Map::new(),
        Some((what, source)) => {
            // Reading may take as long as somebody types.
            let text = tokio::task::spawn_blocking(move || read(source)).await;
            let text = text.map_err(io::Error::other).and_then(|text| text);
            let text =
                text.map_err(|error| CallError::Wrong(format!("cannot read {}: {error}", shown(&what))))?;
            words::object(&what, &text).map_err(|mistake| mistaken(tool, &mistake, is_option))?
        }
    };
    words::arguments(&tool.flags, &words, base).map_err(|mistake| mistaken(tool, &mistake, is_option))
}

fn mistaken(tool: &Tool, mistake: &Mistake, is_option: IsOption<'_>) -> CallError {
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
    CallError::Wrong(why)
}

fn read(source: JsonSource) -> io::Result<String> {
    let mut text = String::new();
    let too_large = || io::Error::other("it is too large");
    match source {
        JsonSource::Text(given) => return Ok(given),
        JsonSource::File(path) => {
            std::fs::File::open(path)?.take(ARGUMENTS_BYTES_MAX + 1).read_to_string(&mut text)?;
        }
        JsonSource::Input => {
            io::stdin().lock().take(ARGUMENTS_BYTES_MAX + 1).read_to_string(&mut text)?;
        }
    }
    if text.len() as u64 > ARGUMENTS_BYTES_MAX { Err(too_large()) } else { Ok(text) }
}

/// Whether the arguments fit the tool's schema, before anything is sent.
pub(super) fn check(tool: &Tool, arguments: &Value, is_unchecked: bool) -> Result<(), CallError> {
    let Some(schema) = tool.input_schema().filter(|_| !is_unchecked) else { return Ok(()) };
    match fit::faults(schema, arguments) {
        Ok(faults) if faults.is_empty() => Ok(()),
        Ok(faults) => {
            let faults: Vec<String> = faults.iter().map(|fault| format!("\n  {}", shown(fault))).collect();
            Err(CallError::Wrong(format!(
                "the arguments do not fit the tool's schema (--unchecked sends them all the same):{}",
                faults.concat()
            )))
        }
        Err(unusable) => {
            super::warn(&format!("the arguments are not checked: {unusable}"));
            Ok(())
        }
    }
}
