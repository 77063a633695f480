//! The states of upstreams in words, and what is told of why. Pure.

use crate::servers::FaultStatus;

/// The phase of a program that starts with its first call.
pub const FIRST_CALL: &str = "first_call";

/// The state of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    /// It is told nothing, as its `enabled` is false.
    Off,
    /// It answers.
    Up,
    /// It answers those who show it credentials of their own.
    WantsCallersCredentials,
    /// It was not asked yet, or its program is about to start.
    Starting,
    /// It answers some, or answers with errors.
    Failing,
    /// It answers, but not what it offers.
    NotListed,
    /// Something else answers in its place.
    NotMcp,
    /// It does not take the credentials of the gateway.
    RefusesCredentials,
    /// Nothing answers.
    Down,
}

/// The state of an upstream, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: UpstreamState,
    /// The reason for which it is not up, or that its program starts with its first call.
    pub why: Option<String>,
    /// The same without any text of a server's; empty: it is up.
    pub cause: String,
    /// The part that others of its cause tell as well; `None`: all of it.
    pub common: Option<CommonCause>,
    /// Since when, in seconds since 1970.
    pub since_s: Option<u64>,
    /// True if calls get through, at least some, and its tools can be listed.
    pub is_usable: bool,
}

/// The part that several upstreams of one cause have in common, though each of them tells more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonCause {
    /// In words, without counts, times and texts of servers.
    pub words: String,
    /// The last error of this one; `None`: it is no more than that.
    pub last: Option<String>,
}

impl UpstreamState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Off,
        Self::Up,
        Self::WantsCallersCredentials,
        Self::Starting,
        Self::Failing,
        Self::NotListed,
        Self::NotMcp,
        Self::RefusesCredentials,
        Self::Down,
    ];

    /// As all views say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Up => "up",
            Self::WantsCallersCredentials => "wants the caller's own credentials",
            Self::Starting => "starting",
            Self::Failing => "failing",
            Self::NotListed => "cannot be listed",
            Self::NotMcp => "is no MCP server",
            Self::RefusesCredentials => "refuses our credentials",
            Self::Down => "down",
        }
    }

    /// The state of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl Standing {
    pub(crate) fn new(state: UpstreamState, is_usable: bool) -> Self {
        Self { state, why: None, cause: String::new(), common: None, since_s: None, is_usable }
    }

    pub(crate) fn because(mut self, why: impl Into<String>, cause: &str) -> Self {
        self.why = Some(why.into()).filter(|why: &String| !why.is_empty());
        cause.clone_into(&mut self.cause);
        self
    }

    /// `words`: its cause without counts, times and texts of servers; where there are none it has only itself in common.
    /// `last`: the fault that it was met with last.
    pub(crate) fn shares(self, words: String, last: Option<&FaultStatus>) -> Self {
        let last = last.map(|fault| fault.why.clone());
        let common = (!words.is_empty()).then_some(CommonCause { words, last });
        Self { common, ..self }
    }

    pub(crate) fn since(self, since_s: Option<u64>) -> Self {
        Self { since_s, ..self }
    }

    /// True if it is wrong, be it that calls get through.
    pub fn is_wrong(&self) -> bool {
        use UpstreamState as State;
        !matches!(self.state, State::Off | State::Up | State::WantsCallersCredentials | State::Starting)
    }
}
