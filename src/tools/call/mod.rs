//! `trunkline tools` and `trunkline call`: the tools of a server for a person at a terminal, and calls of them.
//!
//! | file | what it is |
//! |---|---|
//! | `conversation.rs` | a connection to a server, its end, and the exit code |
//! | `arguments.rs` | the words behind a tool's name |
//! | `terminal_user.rs`, `typed_input.rs` | the user at the terminal, and what they type |
//! | `elicitation.rs`, `form.rs` | questions of a server |
//! | `describe.rs`, `output.rs` | tools in words, and what a call gave |

mod arguments;
mod conversation;
mod describe;
mod elicitation;
mod form;
mod output;
mod terminal_user;
mod typed_input;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

pub use self::arguments::{CallOptions, IsOption};
pub use self::conversation::CallTarget;

use self::conversation::{EXIT_DONE, EXIT_FAILED, find};
use self::terminal_user::Interactivity;
use crate::terminal;
use crate::terminal::paint::{BAD, WARNING, painted};
use client::tool::{Tool, fit, result};
use protocol::text::{shown, shown_value};

/// A call of a tool.
#[derive(Debug)]
pub struct CallSettings<'a> {
    /// The server.
    pub target: CallTarget,
    /// What a person types for the server.
    pub address: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// What stands behind its name.
    pub words: &'a [String],
    /// The options before its name.
    pub options: CallOptions,
}

/// Calls a tool and prints its result.
pub fn call(call: CallSettings<'_>, is_option: IsOption<'_>) -> ExitCode {
    let CallSettings { target, address, tool, words, options } = call;
    let has_answers = !options.answers.is_empty() || words.iter().any(|word| word.starts_with("--answer"));
    conversation::run(target, Interactivity { has_answers, may_ask: true }, async |client, user| {
        user.wait_for("Listing the tools");
        let tool = find(&client.list("tools/list", "tools").await?, tool)?;
        if arguments::asks_for_help(&tool, words) {
            terminal::put(describe::tool(&tool, address).trim_end());
            return Ok(EXIT_DONE);
        }
        let parsed = arguments::parse(options, &tool, words)?;
        let options = parsed.options.clone();
        user.answer_with(arguments::answers(&options.answers)?);
        user.wait_no_more();
        let arguments = arguments::arguments(&tool, parsed, is_option).await?;
        arguments::check(&tool, &arguments, options.is_unchecked)?;
        user.wait_for(&format!("Calling {}", tool.name));
        let result = client.request("tools/call", json!({"name": tool.name, "arguments": arguments})).await?;
        user.wait_no_more();
        Ok(show(&tool, &result, options.is_json, options.save.as_deref()))
    })
}

/// Prints the tools of a server, or all about the one with this name.
pub fn list(target: CallTarget, address: &str, name: Option<&str>, is_json: bool) -> ExitCode {
    // As `call` would: servers list tools by what can be asked.
    conversation::run(target, Interactivity { may_ask: true, has_answers: false }, async |client, user| {
        user.wait_for("Listing the tools");
        let definitions = client.list("tools/list", "tools").await?;
        user.wait_no_more();
        match name {
            Some(name) => {
                let tool = find(&definitions, name)?;
                if is_json {
                    terminal::put(shown_value(&tool.definition));
                } else {
                    terminal::put(describe::tool(&tool, address).trim_end());
                }
            }
            None if is_json => terminal::put(shown_value(&Value::Array(definitions))),
            None => {
                let tools: Vec<Tool> = definitions.iter().filter_map(Tool::read).collect();
                terminal::put(describe::list(client.introduction(), &tools).trim_end());
            }
        }
        Ok(EXIT_DONE)
    })
}

/// Prints the result, and returns the exit code.
fn show(tool: &Tool, result: &Value, is_json: bool, folder: Option<&Path>) -> u8 {
    let outcome = result::read(result);
    if is_json {
        terminal::put(shown_value(result));
    }
    let saved = match (is_json, folder) {
        (false, folder) => output::print(&outcome, &tool.name, folder),
        (true, Some(folder)) => output::save_all(&outcome, &tool.name, folder),
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
