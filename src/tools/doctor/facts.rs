//! What was found out about a server: plain data, which the checks judge.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use client::{Introduction, RpcError};
use protocol::version::Era;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) reached: Reached,
    /// Whether that is HTTP+SSE, the transport of 2024-11-05.
    pub(crate) is_http_sse: bool,
    /// What was asked, and what came.
    pub(crate) exchanges: BTreeMap<Probe, Exchange>,
    /// The introduction of the modern era; `None` if the server does not speak it.
    pub(crate) modern: Option<Introduction>,
    /// The introductions of the legacy era by the version asked for, newest first.
    pub(crate) legacy: Vec<(&'static str, Introduction)>,
    /// Session ids in the order in which they were given.
    pub(crate) session_ids: Vec<String>,
    pub(crate) listings: Vec<Listing>,
    pub(crate) latencies: Vec<Duration>,
    /// The protection of the server, if it has any.
    pub(crate) door: Option<AccessFacts>,
    /// What a program does besides answering.
    pub(crate) process: Option<Process>,
    pub(crate) called: CalledTools,
    pub(crate) requests: u32,
    /// Why not everything was asked.
    pub(crate) cut_short: Option<String>,
    /// Why it was not inspected at all.
    pub(crate) not_inspected: Option<String>,
    /// The address, if it has one.
    pub(crate) url: Option<config::Url>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reached {
    #[default]
    Program,
    Http {
        /// Whether the transport is encrypted, or stays on this machine.
        is_tls: bool,
        is_loopback: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Probe {
    Discover,
    WithoutKey,
    UnknownVersion,
    UnknownMethod,
    NoMethodHeader,
    OtherMethodHeader,
    NoVersionHeader,
    OtherVersionHeader,
    NoMeta,
    NoNameHeader,
    OtherNameHeader,
    EncodedName,
    UnknownName,
    BadCursor,
    Notification,
    Garbage,
    AfterGarbage,
    Batch,
    PlainText,
    JsonOnly,
    NoAccept,
    ForeignOrigin,
    ForeignHost,
    ModernGet,
    Listen,
    Initialize(&'static str),
    InitializeUnknown,
    Initialized,
    Ping,
    LegacyUnknownMethod,
    LegacyUnknownName,
    VersionHeader,
    NoSession,
    UnknownSession,
    LegacyGet,
    OldBatch,
    EndSession,
    AfterEnd,
    HttpSse,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) status: Option<u16>,
    /// The content type, without parameters.
    pub(crate) media: String,
    pub(crate) session_id: Option<String>,
    /// Whether proxies are told not to hold it back.
    pub(crate) is_unbuffered: bool,
    /// The challenges to somebody who is not let in.
    pub(crate) challenges: Vec<String>,
    /// The target of its redirect.
    pub(crate) location: Option<String>,
    /// The content coding of its body, which nobody asked for.
    pub(crate) coding: Option<String>,
    pub(crate) answer: Answer,
    /// What is wrong with the answer's form.
    pub(crate) form_fault: Option<String>,
    /// The first messages beside it.
    pub(crate) remarks: Vec<Value>,
    pub(crate) bytes: usize,
    pub(crate) took: Duration,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Answer {
    /// The exchange ended without a message.
    #[default]
    Nothing,
    Result(Value),
    Error(RpcError),
    /// JSON that is no message, where none was asked for.
    Document(Value),
    /// Something that is no message.
    Nonsense(String),
    /// It failed before that.
    Failed(String),
    /// Nothing came in time.
    Silence,
}

#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) kind: ListKind,
    pub(crate) era: Era,
    /// In which session: lists of equal numbers were read in one.
    pub(crate) session: u8,
    pub(crate) pages: Vec<ListPage>,
    pub(crate) end: ListEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

#[derive(Clone, Debug)]
pub(crate) struct ListPage {
    pub(crate) items: Vec<Value>,
    pub(crate) ttl_ms: Option<Value>,
    pub(crate) scope: Option<Value>,
}

/// How the reading of a list ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListEnd {
    /// There was no next page.
    Complete,
    /// A cursor came a second time.
    Loop,
    /// More pages, entries or bytes than are read.
    TooLong,
    Refused(RpcError),
    /// It does not have the form of a list.
    Malformed(String),
    Failed(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AccessFacts {
    /// The challenges of its refusal.
    pub(crate) challenges: Vec<String>,
    /// Where the metadata should be.
    pub(crate) metadata_url: Option<String>,
    pub(crate) metadata: Option<Result<Value, String>>,
}

/// Calls that somebody asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct CalledTools {
    pub(crate) calls: Vec<ToolCall>,
    /// The tools before and after them, in their session; empty where they were not read twice.
    pub(crate) listings: Vec<Listing>,
}

#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    pub(crate) tool: String,
    /// Its result, or why there is none.
    pub(crate) outcome: Result<Value, String>,
    pub(crate) took: Duration,
}

/// What a program does besides answering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Lines on standard output that are no messages: the first, and how many.
    pub(crate) noise: Tally,
    /// What came on standard error: the first lines, and how many bytes.
    pub(crate) remarks: Tally,
    /// Requests that it sent in the modern era.
    pub(crate) modern_requests: Tally,
    /// How long after the end of its input it exited; `None` if it had to be stopped.
    pub(crate) exit: Option<Duration>,
    /// Whether its input was ended by us, and how it exited if it did so before.
    pub(crate) crash: Option<String>,
}

/// The first of many, and how many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) first: Vec<String>,
    pub(crate) total: usize,
}

impl ListKind {
    pub(crate) const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The method that lists them.
    pub(crate) fn method(self) -> &'static str {
        self.names().0
    }

    /// The member of the result that holds them.
    pub(crate) fn member(self) -> &'static str {
        self.names().1
    }

    /// The member of an entry that is unique.
    pub(crate) fn key(self) -> &'static str {
        self.names().2
    }

    /// The capability that declares them.
    pub(crate) fn capability(self) -> &'static str {
        self.names().3
    }

    fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Tools => ("tools/list", "tools", "name", "tools"),
            Self::Prompts => ("prompts/list", "prompts", "name", "prompts"),
            Self::Resources => ("resources/list", "resources", "uri", "resources"),
            Self::Templates => ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
        }
    }
}

impl Listing {
    pub(crate) fn items(&self) -> impl Iterator<Item = &Value> {
        self.pages.iter().flat_map(|page| &page.items)
    }
}

impl Tally {
    /// One more, of which at most `shown_max` are kept.
    pub(crate) fn add(&mut self, text: impl FnOnce() -> String, shown_max: usize) {
        self.total += 1;
        if self.first.len() < shown_max {
            self.first.push(text());
        }
    }
}

impl Facts {
    pub(crate) fn answer(&self, probe: Probe) -> Option<&Exchange> {
        self.exchanges.get(&probe)
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self.reached, Reached::Http { .. }) && !self.is_http_sse
    }

    /// The introduction of the newest version.
    pub(crate) fn introduction(&self) -> Option<&Introduction> {
        self.modern.as_ref().or_else(|| self.legacy.first().map(|(_, introduction)| introduction))
    }

    /// What the server declares in this era.
    pub(crate) fn capabilities(&self, era: Era) -> &Value {
        let introduction = match era {
            Era::Modern => self.modern.as_ref(),
            Era::Legacy => self.legacy.first().map(|(_, introduction)| introduction),
        };
        introduction.map_or(&Value::Null, |introduction| &introduction.capabilities)
    }

    /// The list of this kind that the other checks go by: the first that was read.
    pub(crate) fn listing(&self, kind: ListKind) -> Option<&Listing> {
        self.listings.iter().find(|listing| listing.kind == kind)
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Value> {
        self.listing(ListKind::Tools).into_iter().flat_map(Listing::items)
    }
}

impl Exchange {
    /// One that did not get as far as a reply.
    pub(crate) fn failed(answer: Answer, took: Duration) -> Self {
        Self { answer, took, ..Self::default() }
    }

    pub(crate) fn result(&self) -> Option<&Value> {
        match &self.answer {
            Answer::Result(result) => Some(result),
            _ => None,
        }
    }

    pub(crate) fn error(&self) -> Option<&RpcError> {
        match &self.answer {
            Answer::Error(error) => Some(error),
            _ => None,
        }
    }

    /// In a few words, what came.
    pub(crate) fn words(&self) -> String {
        let what = match &self.answer {
            Answer::Nothing => "no message".to_owned(),
            Answer::Result(_) => "a result".to_owned(),
            Answer::Document(_) => "a JSON document".to_owned(),
            Answer::Error(error) => format!("error {}", error.code),
            Answer::Nonsense(_) if self.coding.is_some() => {
                format!(
                    "a compressed body ({}), which nobody asked for",
                    self.coding.as_deref().unwrap_or_default()
                )
            }
            Answer::Nonsense(text) if text.is_empty() => "something that is no message".to_owned(),
            Answer::Nonsense(text) => format!("something that is no message ({})", clip(text, 80)),
            Answer::Failed(why) => return clip(why, 200),
            Answer::Silence => return "no answer in time".to_owned(),
        };
        match self.status {
            Some(status) => format!("HTTP {status} with {what}"),
            None => what,
        }
    }
}

/// The beginning of a text that may be long.
pub(crate) fn clip(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut clipped: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        clipped.push('…');
    }
    clipped
}
