//! One conversation of a command with a server: opened, interrupted, ended; and what became of it as an exit code.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::terminal_user::{Interactivity, TerminalUser};
use crate::terminal;
use crate::terminal::paint::{BAD, FAINT, painted};
use client::exchange_error::ExchangeError;
use client::server::Server;
use client::tool::{Tool, nearest};
use client::{Client, ClientSettings, EraChoice, RequestError, RpcError, UserInteraction};
use net::tls::TlsFault;
use protocol::level::Level;
use protocol::text::{fit, shown, shown_lines};

/// It is done.
pub(super) const EXIT_DONE: u8 = 0;
/// The tool says that it failed.
pub(super) const EXIT_FAILED: u8 = 1;
/// The command line is wrong.
const EXIT_COMMAND_LINE: u8 = 2;
/// The server gave no result.
const EXIT_SERVER: u8 = 3;
/// Interrupted, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// The error of servers that want to ask what a client does not answer.
const LACKS_CAPABILITY: i64 = -32021;
/// The error of a gateway that knows no credentials of the caller.
const UNAUTHORIZED: i64 = 401;
/// The error of servers of the legacy era that want a page to be visited before a call.
const WANTS_A_VISIT: i64 = -32042;
const VISITS_MAX: usize = 8;
/// How much of the data of an error is shown.
const DATA_COLUMNS_MAX: usize = 1000;

/// A server, and how it is spoken to.
#[derive(Debug)]
pub struct CallTarget {
    /// The server.
    pub server: Server,
    /// The era to speak.
    pub era: EraChoice,
    /// How long a reply may take to begin, a message of it to arrive, and the pause before the next.
    pub timeout: Duration,
    /// The least level of log lines that are asked for.
    pub log_level: Option<Level>,
    /// Whether every message is shown.
    pub is_verbose: bool,
}

/// Why a conversation ended before it was done.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server gave no result.
    Failure(RequestError),
    /// What was asked for makes no sense with this server.
    Wrong(String),
    /// The user stopped it.
    Interrupted,
}

impl From<RequestError> for CallError {
    fn from(failure: RequestError) -> Self {
        Self::Failure(failure)
    }
}

/// Opens a conversation, does `work` in it and ends it. The first interrupt ends it in order, the second at once.
pub(super) fn run(
    target: CallTarget,
    interactivity: Interactivity,
    work: impl AsyncFnOnce(&Client, &TerminalUser) -> Result<u8, CallError>,
) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return ExitCode::from(tell(&CallError::Wrong(format!("cannot begin: {error}")))),
    };
    let code = runtime.block_on(async {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return EXIT_SERVER };
        let stop = CancellationToken::new();
        let person = Rc::new(TerminalUser::new(interactivity, target.is_verbose));
        let mut conversation = Box::pin(converse(target, Rc::clone(&person), &stop, work));
        loop {
            tokio::select! {
                code = &mut conversation => return code,
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stop.is_cancelled() {
                return EXIT_INTERRUPTED;
            }
            person.wait_no_more();
            let line_end = if std::io::stderr().is_terminal() { "\n" } else { "" };
            terminal::say(format_args!(
                "{line_end}{}",
                painted(FAINT, "interrupted; once more ends it at once")
            ));
            stop.cancel();
        }
    });
    // A name that is still being looked up must not hold anybody up.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn converse(
    target: CallTarget,
    person: Rc<TerminalUser>,
    stop: &CancellationToken,
    work: impl AsyncFnOnce(&Client, &TerminalUser) -> Result<u8, CallError>,
) -> u8 {
    person.wait_for("Connecting");
    let settings = ClientSettings { timeout: target.timeout, log_level: target.log_level };
    let known = Rc::clone(&person) as Rc<dyn UserInteraction>;
    let client = tokio::select! {
        client = Client::open(&target.server, target.era, known, settings) => client,
        () = stop.cancelled() => return EXIT_INTERRUPTED,
    };
    let client = match client {
        Ok(client) => client,
        Err(failure) => {
            person.wait_no_more();
            return tell(&CallError::Failure(failure));
        }
    };
    let introduction = client.introduction();
    let name = introduction.title.as_deref().or(introduction.name.as_deref()).unwrap_or("The server");
    person.meet(name);
    let done = tokio::select! {
        done = work(&client, &person) => done,
        () = stop.cancelled() => Err(CallError::Interrupted),
    };
    person.wait_no_more();
    let code = done.unwrap_or_else(|ended| tell(&ended));
    client.close().await;
    code
}

pub(super) fn find(definitions: &[Value], name: &str) -> Result<Tool, CallError> {
    let is_it = |definition: &&Value| definition.get("name").is_some_and(|other| other == name);
    if let Some(tool) = definitions.iter().find(is_it).and_then(Tool::read) {
        return Ok(tool);
    }
    let names = definitions.iter().filter_map(|definition| definition.get("name")?.as_str());
    let near: Vec<String> =
        nearest(name, names).into_iter().map(|name| format!("`{}`", shown(name))).collect();
    let advice = match (near.as_slice(), definitions.len()) {
        ([], 0) => "the server offers no tools at all".to_owned(),
        ([], count) => format!("`trunkline tools` lists the {count} that there are"),
        (near, _) => format!("did you mean {}?", near.join(" or ")),
    };
    Err(CallError::Wrong(format!("the server has no tool {:?}; {advice}", shown(name))))
}

fn tell(ended: &CallError) -> u8 {
    let error = painted(BAD, "error:");
    match ended {
        CallError::Failure(failure) => {
            terminal::say(format_args!("{error} {}", shown(&failure.to_string())));
            match failure {
                RequestError::Ended { last_words, .. } if !last_words.trim().is_empty() => {
                    terminal::say("It said last on standard error:");
                    for line in shown_lines(last_words.trim_end()).lines() {
                        terminal::say(format_args!("  {line}"));
                    }
                }
                RequestError::Exchange(ExchangeError::Tls(TlsFault::UnknownIssuer)) => {
                    terminal::say("Name the certificate of its authority, or its own, with --ca FILE.");
                }
                RequestError::Rpc(RpcError { code: UNAUTHORIZED, .. }) => {
                    terminal::say("Give a key with --key-file FILE, or in TRUNKLINE_KEY.");
                }
                RequestError::Rpc(RpcError { code: LACKS_CAPABILITY, .. }) => terminal::say(
                    "It wants to ask something: call it at a terminal, or give --answer FIELD=VALUE.",
                ),
                RequestError::Rpc(RpcError { code: WANTS_A_VISIT, data: Some(data), .. }) => {
                    terminal::say("It wants you to visit this first, and to call again then:");
                    let wanted = data.get("elicitations").and_then(Value::as_array).into_iter().flatten();
                    for url in wanted.filter_map(|one| one.get("url")?.as_str()).take(VISITS_MAX) {
                        terminal::say(format_args!("  {}", shown(&fit(url, DATA_COLUMNS_MAX))));
                    }
                }
                RequestError::Rpc(RpcError { data: Some(data), .. }) => {
                    terminal::say(format_args!("  {}", fit(&shown(&data.to_string()), DATA_COLUMNS_MAX)));
                }
                _ => {}
            }
            EXIT_SERVER
        }
        CallError::Wrong(why) => {
            terminal::say(format_args!("{error} {why}"));
            EXIT_COMMAND_LINE
        }
        CallError::Interrupted => EXIT_INTERRUPTED,
    }
}
