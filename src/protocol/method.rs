//! The methods of MCP as a gateway sees them: which have a name to route by, which the gateway answers
//! itself, which are safe to repeat.
//!
//! A method that is not listed here is [`Method::Other`]: endpoints that are transparent pass it on,
//! the others refuse it with −32601.

use super::version::Era;

crate::words! {
    /// A JSON-RPC method of a client's message, with its metric label; bounded, so unknown methods share `_other`.
    #[derive(Hash)]
    pub enum Method reads of_label, says label {
        Discover = "server/discover",
        ToolsList = "tools/list",
        PromptsList = "prompts/list",
        ResourcesList = "resources/list",
        TemplatesList = "resources/templates/list",
        ToolsCall = "tools/call",
        PromptsGet = "prompts/get",
        ResourcesRead = "resources/read",
        TasksGet = "tasks/get",
        TasksUpdate = "tasks/update",
        TasksCancel = "tasks/cancel",
        TasksResult = "tasks/result",
        TasksList = "tasks/list",
        Complete = "completion/complete",
        Listen = "subscriptions/listen",
        Initialize = "initialize",
        Ping = "ping",
        SetLevel = "logging/setLevel",
        Subscribe = "resources/subscribe",
        Unsubscribe = "resources/unsubscribe",
        /// Any `notifications/…`.
        Notification = "_notification",
        /// Everything else.
        Other = "_other",
    }
}

crate::words! {
    /// Where the value mirrored in `Mcp-Name` stands.
    pub enum NameSource reads of, says path {
        Name = "params.name",
        Uri = "params.uri",
        TaskId = "params.taskId",
    }
}

impl Method {
    /// How many methods there are: the size of a table indexed by [`Method::index`].
    pub const COUNT: usize = Self::ALL.len();

    /// Reads a method name; case matters.
    pub fn of(text: &str) -> Self {
        match Self::of_label(text) {
            Some(Self::Notification | Self::Other) => Self::Other,
            Some(method) => method,
            None if text.starts_with("notifications/") => Self::Notification,
            None => Self::Other,
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
        let (named, general) = Method::ALL.split_at(Method::COUNT - 2);
        for method in named {
            assert_eq!(Method::of(method.label()), *method);
            assert!(method.index() < Method::COUNT);
        }
        assert_eq!(general, [Method::Notification, Method::Other]);
        assert_eq!(Method::of("_notification"), Method::Other);
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
