//! Lists and `server/discover` of an endpoint, merged from its upstreams at every request.
//!
//! Deliberately absent: a cache. Every list is fetched when it is asked for, each upstream under a deadline
//! of its own, so that a dead one neither empties nor delays the others. Order is the configured order of the
//! upstreams, and within each its own; every field of every entry stays as its upstream wrote it.

pub mod discover;
pub mod fetch;
pub mod learn;
pub mod list;

use crate::protocol::mapping;
use crate::protocol::method::Method;

/// The four lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The list a method asks for.
    pub fn of(method: Method) -> Option<Self> {
        match method {
            Method::ToolsList => Some(Self::Tools),
            Method::PromptsList => Some(Self::Prompts),
            Method::ResourcesList => Some(Self::Resources),
            Method::TemplatesList => Some(Self::Templates),
            _ => None,
        }
    }

    /// The method that asks for it.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
        }
    }

    /// The field of the result that holds the entries.
    pub fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    fn entries(self) -> mapping::List {
        match self {
            Self::Tools => mapping::List::Tools,
            Self::Prompts => mapping::List::Prompts,
            Self::Resources => mapping::List::Resources,
            Self::Templates => mapping::List::Templates,
        }
    }
}
