//! The methods of MCP as a gateway sees them: which have a name to route by, which the gateway answers
//! itself, which are safe to repeat.
//!
//! A method that is not listed here is [`Method::Other`]: endpoints that are transparent pass it on,
//! the others refuse it with −32601.

use super::version::Era;

/// A JSON-RPC method of a client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `server/discover`
    Discover,
    /// `tools/list`
    ToolsList,
    /// `prompts/list`
    PromptsList,
    /// `resources/list`
    ResourcesList,
    /// `resources/templates/list`
    TemplatesList,
    /// `tools/call`
    ToolsCall,
    /// `prompts/get`
    PromptsGet,
    /// `resources/read`
    ResourcesRead,
    /// `tasks/get` of the tasks extension
    TasksGet,
    /// `tasks/update` of the tasks extension
    TasksUpdate,
    /// `tasks/cancel` of the tasks extension
    TasksCancel,
    /// `tasks/result` of the legacy era
    TasksResult,
    /// `tasks/list` of the legacy era
    TasksList,
    /// `completion/complete`
    Complete,
    /// `subscriptions/listen`
    Listen,
    /// `initialize` of the legacy era
    Initialize,
    /// `ping` of the legacy era
    Ping,
    /// `logging/setLevel` of the legacy era
    SetLevel,
    /// `resources/subscribe` of the legacy era
    Subscribe,
    /// `resources/unsubscribe` of the legacy era
    Unsubscribe,
    /// Any `notifications/…`
    Notification,
    /// Everything else
    Other,
}

/// Where the value mirrored in `Mcp-Name` stands in `params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// `params.name`
    Name,
    /// `params.uri`
    Uri,
    /// `params.taskId`
    TaskId,
}

impl Method {
    /// How many methods there are: the size of a table indexed by [`Method::index`].
    pub const COUNT: usize = Method::Other as usize + 1;

    /// Reads a method name; case matters.
    pub fn of(text: &str) -> Self {
        match text {
            "tools/call" => Self::ToolsCall,
            "tools/list" => Self::ToolsList,
            "resources/read" => Self::ResourcesRead,
            "prompts/get" => Self::PromptsGet,
            "server/discover" => Self::Discover,
            "prompts/list" => Self::PromptsList,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::TemplatesList,
            "tasks/get" => Self::TasksGet,
            "tasks/update" => Self::TasksUpdate,
            "tasks/cancel" => Self::TasksCancel,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            "completion/complete" => Self::Complete,
            "subscriptions/listen" => Self::Listen,
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "logging/setLevel" => Self::SetLevel,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            _ if text.starts_with("notifications/") => Self::Notification,
            _ => Self::Other,
        }
    }

    /// The method as a metric label; bounded, so unknown methods share `_other`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Discover => "server/discover",
            Self::ToolsList => "tools/list",
            Self::PromptsList => "prompts/list",
            Self::ResourcesList => "resources/list",
            Self::TemplatesList => "resources/templates/list",
            Self::ToolsCall => "tools/call",
            Self::PromptsGet => "prompts/get",
            Self::ResourcesRead => "resources/read",
            Self::TasksGet => "tasks/get",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksResult => "tasks/result",
            Self::TasksList => "tasks/list",
            Self::Complete => "completion/complete",
            Self::Listen => "subscriptions/listen",
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::SetLevel => "logging/setLevel",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::Notification => "_notification",
            Self::Other => "_other",
        }
    }

    /// A dense index below [`Method::COUNT`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// True for methods that only one era has.
    pub fn is_foreign_to(self, era: Era) -> bool {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::TasksResult
            | Self::TasksList => era == Era::Modern,
            Self::Discover | Self::Listen | Self::TasksUpdate => era == Era::Legacy,
            _ => false,
        }
    }

    /// Which field of `params` names what the method is about, whether or not a header mirrors it.
    pub fn subject(self) -> Option<NameSource> {
        match self {
            Self::Subscribe | Self::Unsubscribe => Some(NameSource::Uri),
            Self::TasksResult => Some(NameSource::TaskId),
            _ => self.name_source(),
        }
    }

    /// Which field of `params` the `Mcp-Name` header mirrors, if the method has one
    /// (Streamable HTTP "Standard Request Headers", and the tasks extension).
    pub fn name_source(self) -> Option<NameSource> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some(NameSource::Name),
            Self::ResourcesRead => Some(NameSource::Uri),
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => Some(NameSource::TaskId),
            _ => None,
        }
    }

    /// True for methods that certainly carry no name, so that an `Mcp-Name` beside them is an orphan.
    pub fn is_nameless(self) -> bool {
        !matches!(self, Self::Other | Self::Notification) && self.subject().is_none()
    }

    /// True where repeating a request that may have been executed does no harm.
    pub fn is_safe_to_repeat(self) -> bool {
        matches!(
            self,
            Self::Discover
                | Self::ToolsList
                | Self::PromptsList
                | Self::ResourcesList
                | Self::TemplatesList
                | Self::PromptsGet
                | Self::ResourcesRead
                | Self::TasksGet
                | Self::TasksResult
                | Self::TasksList
                | Self::Complete
                | Self::SetLevel
                | Self::Subscribe
                | Self::Unsubscribe
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_reads_back() {
        let named = [
            Method::Discover,
            Method::ToolsList,
            Method::PromptsList,
            Method::ResourcesList,
            Method::TemplatesList,
            Method::ToolsCall,
            Method::PromptsGet,
            Method::ResourcesRead,
            Method::TasksGet,
            Method::TasksUpdate,
            Method::TasksCancel,
            Method::TasksResult,
            Method::TasksList,
            Method::Complete,
            Method::Listen,
            Method::Initialize,
            Method::Ping,
            Method::SetLevel,
            Method::Subscribe,
            Method::Unsubscribe,
        ];
        for method in named {
            assert_eq!(Method::of(method.label()), method);
            assert!(method.index() < Method::COUNT);
        }
        assert_eq!(Method::of("Tools/Call"), Method::Other);
        assert_eq!(Method::of("notifications/cancelled"), Method::Notification);
    }

    #[test]
    fn each_era_has_methods_of_its_own() {
        for (method, legacy, modern) in [
            (Method::Initialize, true, false),
            (Method::Ping, true, false),
            (Method::Discover, false, true),
            (Method::Listen, false, true),
            (Method::TasksResult, true, false),
            (Method::TasksList, true, false),
            (Method::ToolsCall, true, true),
            (Method::Other, true, true),
        ] {
            assert_eq!(!method.is_foreign_to(Era::Legacy), legacy, "{method:?}");
            assert_eq!(!method.is_foreign_to(Era::Modern), modern, "{method:?}");
        }
    }

    #[test]
    fn calls_are_never_repeated() {
        for method in [Method::ToolsCall, Method::TasksUpdate, Method::TasksCancel, Method::Other] {
            assert!(!method.is_safe_to_repeat());
        }
    }
}
