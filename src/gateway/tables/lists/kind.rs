//! What can be asked of every upstream at once.

use crate::upstream::changes::ChangedList;
use protocol::method::Method;
use protocol::route::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// What can be asked of every upstream at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CatalogQuery {
    List(List),
    Discover,
}

impl CatalogQuery {
    pub(crate) fn method(self) -> Method {
        match self {
            Self::List(list) => list.method(),
            Self::Discover => Method::Discover,
        }
    }

    /// The notices that make it invalid.
    pub(crate) fn changed(self) -> Option<ChangedList> {
        match self {
            Self::List(List::Tools) => Some(ChangedList::Tools),
            Self::List(List::Prompts) => Some(ChangedList::Prompts),
            Self::List(List::Resources | List::Templates) => Some(ChangedList::Resources),
            Self::Discover => None,
        }
    }

    /// A number of its own, below 8.
    pub(crate) fn index(self) -> u8 {
        match self {
            Self::List(list) => list as u8,
            Self::Discover => 7,
        }
    }
}

impl List {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(crate) fn of(method: Method) -> Option<Self> {
        match method {
            Method::ToolsList => Some(Self::Tools),
            Method::PromptsList => Some(Self::Prompts),
            Method::ResourcesList => Some(Self::Resources),
            Method::TemplatesList => Some(Self::Templates),
            _ => None,
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
        }
    }

    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an entry that it is called by.
    pub(crate) fn own_field(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// What its entries are.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Tools => Kind::Tool,
            Self::Prompts => Kind::Prompt,
            Self::Resources | Self::Templates => Kind::Resource,
        }
    }
}
