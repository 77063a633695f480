//! What was found out about a server: plain data, which the checks judge.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use client::{Introduction, RpcError};
use protocol::version::Era;

/// Everything that was found out.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How it was reached.
    pub reached: Reached,
    /// Whether that is HTTP+SSE, the transport of 2024-11-05.
    pub is_http_sse: bool,
    /// What was asked, and what came.
    pub exchanges: BTreeMap<Probe, Exchange>,
    /// The introduction of the modern era; `None` if the server does not speak it.
    pub modern: Option<Introduction>,
    /// The introductions of the legacy era by the version asked for, newest first.
    pub legacy: Vec<(&'static str, Introduction)>,
    /// Session ids in the order in which they were given.
    pub session_ids: Vec<String>,
    /// The lists.
    pub listings: Vec<Listing>,
    /// How long simple requests took.
    pub latencies: Vec<Duration>,
    /// The protection of the server, if it has any.
    pub door: Option<AccessFacts>,
    /// What a program does besides answering.
    pub process: Option<Process>,
    /// The calls that were asked for.
    pub calls: Vec<ToolCall>,
    /// How many requests were made.
    pub requests: u32,
    /// Why not everything was asked.
    pub cut_short: Option<String>,
    /// Why it was not inspected at all.
    pub not_inspected: Option<String>,
    /// The address, if it has one.
    pub url: Option<config::Url>,
}

/// How a server was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// As a program.
    #[default]
    Program,
    /// Over HTTP.
    Http {
        /// Whether nobody on the way can read it.
        is_tls: bool,
        /// Whether it never leaves the machine.
        is_loopback: bool,
    },
}

/// Something that is asked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the words say it")]
pub enum Probe {
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

/// One exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The status; `None` where there is none.
    pub status: Option<u16>,
    /// The content type, without parameters.
    pub media: String,
    /// The session id that came with it.
    pub session_id: Option<String>,
    /// Whether proxies are told not to hold it back.
    pub is_unbuffered: bool,
    /// The challenges to somebody who is not let in.
    pub challenges: Vec<String>,
    /// The answer.
    pub answer: Answer,
    /// What is wrong with the answer's form.
    pub form_fault: Option<String>,
    /// The first messages beside it.
    pub remarks: Vec<Value>,
    /// How many bytes came.
    pub bytes: usize,
    /// How long it took.
    pub took: Duration,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The exchange ended without a message.
    Nothing,
    /// A result.
    Result(Value),
    /// An error.
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

/// A list that was read.
#[derive(Clone, Debug)]
pub struct Listing {
    /// What was listed.
    pub kind: ListKind,
    /// In which era.
    pub era: Era,
    /// In which session: lists of equal numbers were read in one.
    pub session: u8,
    /// Its pages.
    pub pages: Vec<ListPage>,
    /// How it ended.
    pub end: ListEnd,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// What is on it.
    pub items: Vec<Value>,
    /// `ttlMs`, if it is there.
    pub ttl_ms: Option<Value>,
    /// `cacheScope`, if it is there.
    pub scope: Option<Value>,
}

/// How the reading of a list ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ListEnd {
    /// There was no next page.
    Complete,
    /// A cursor came a second time.
    Loop,
    /// More pages, entries or bytes than are read.
    TooLong,
    /// The server refused it.
    Refused(RpcError),
    /// It does not have the form of a list.
    Malformed(String),
    /// It failed.
    Failed(String),
}

/// How a server is protected.
#[derive(Clone, Debug, Default)]
pub struct AccessFacts {
    /// The challenges of its refusal.
    pub challenges: Vec<String>,
    /// Where the metadata should be.
    pub metadata_url: Option<String>,
    /// The metadata, or why there is none.
    pub metadata: Option<Result<Value, String>>,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The tool.
    pub tool: String,
    /// Its result, or why there is none.
    pub outcome: Result<Value, String>,
    /// How long it took.
    pub took: Duration,
}

/// What a program does besides answering.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Lines on standard output that are no messages: the first, and how many.
    pub noise: Tally,
    /// What came on standard error: the first lines, and how many bytes.
    pub remarks: Tally,
    /// Requests that it sent in the modern era.
    pub modern_requests: Tally,
    /// How long after the end of its input it exited; `None` if it had to be stopped.
    pub exit: Option<Duration>,
    /// Whether its input was ended by us, and how it exited if it did so before.
    pub crash: Option<String>,
}

/// The first of many, and how many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The first.
    pub first: Vec<String>,
    /// How many there were.
    pub total: usize,
}

impl ListKind {
    /// All.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The method that lists them.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The member of the result that holds them.
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an entry that is unique.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// The capability that declares them.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }
}

impl Listing {
    /// What is listed.
    pub fn items(&self) -> impl Iterator<Item = &Value> {
        self.pages.iter().flat_map(|page| &page.items)
    }
}

impl Tally {
    /// One more, of which at most `shown_max` are kept.
    pub fn add(&mut self, text: impl FnOnce() -> String, shown_max: usize) {
        self.total += 1;
        if self.first.len() < shown_max {
            self.first.push(text());
        }
    }
}

impl Facts {
    /// The answer to a probe.
    pub fn answer(&self, probe: Probe) -> Option<&Exchange> {
        self.exchanges.get(&probe)
    }

    /// Whether it speaks Streamable HTTP.
    pub fn is_http(&self) -> bool {
        matches!(self.reached, Reached::Http { .. }) && !self.is_http_sse
    }

    /// The introduction of the newest version.
    pub fn introduction(&self) -> Option<&Introduction> {
        self.modern.as_ref().or_else(|| self.legacy.first().map(|(_, introduction)| introduction))
    }

    /// What the server declares in this era.
    pub fn capabilities(&self, era: Era) -> &Value {
        let introduction = match era {
            Era::Modern => self.modern.as_ref(),
            Era::Legacy => self.legacy.first().map(|(_, introduction)| introduction),
        };
        introduction.map_or(&Value::Null, |introduction| &introduction.capabilities)
    }

    /// The list of this kind that the other checks go by: the first that was read.
    pub fn listing(&self, kind: ListKind) -> Option<&Listing> {
        self.listings.iter().find(|listing| listing.kind == kind)
    }

    /// The tools.
    pub fn tools(&self) -> impl Iterator<Item = &Value> {
        self.listing(ListKind::Tools).into_iter().flat_map(Listing::items)
    }
}

impl Exchange {
    /// One that did not get as far as a reply.
    pub fn failed(answer: Answer, took: Duration) -> Self {
        Self {
            status: None,
            media: String::new(),
            session_id: None,
            is_unbuffered: false,
            challenges: Vec::new(),
            answer,
            form_fault: None,
            remarks: Vec::new(),
            bytes: 0,
            took,
        }
    }

    /// The result, if it is one.
    pub fn result(&self) -> Option<&Value> {
        match &self.answer {
            Answer::Result(result) => Some(result),
            _ => None,
        }
    }

    /// The error, if it is one.
    pub fn error(&self) -> Option<&RpcError> {
        match &self.answer {
            Answer::Error(error) => Some(error),
            _ => None,
        }
    }

    /// In a few words, what came.
    pub fn words(&self) -> String {
        let what = match &self.answer {
            Answer::Nothing => "no message".to_owned(),
            Answer::Result(_) => "a result".to_owned(),
            Answer::Document(_) => "a JSON document".to_owned(),
            Answer::Error(error) => format!("error {}", error.code),
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
pub fn clip(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut clipped: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        clipped.push('…');
    }
    clipped
}
