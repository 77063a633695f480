//! What a server is inspected for, one by one: what to say of a server that does well, and of one that does
//! not.

use protocol::version::Era;

/// Where all sections that are referred to stand.
pub(super) const SPECIFICATION: &str = "https://modelcontextprotocol.io/specification";

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Clients fail, or somebody is in danger.
    Error,
    /// Some clients fail, or all do worse than they could.
    Warning,
    /// It could be better.
    Advice,
}

impl Severity {
    /// All, what matters most first.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Advice];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Advice => "advice",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
    Access,
    Versions,
    Requests,
    Sessions,
    Process,
    Lists,
    Tools,
    Speed,
}

impl Area {
    pub(crate) const ALL: [Self; 8] = [
        Self::Access,
        Self::Versions,
        Self::Requests,
        Self::Sessions,
        Self::Process,
        Self::Lists,
        Self::Tools,
        Self::Speed,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Versions => "versions",
            Self::Requests => "requests",
            Self::Sessions => "sessions",
            Self::Process => "process",
            Self::Lists => "lists",
            Self::Tools => "tools",
            Self::Speed => "speed",
        }
    }
}

/// What a server is inspected for.
#[derive(Debug)]
pub struct InspectionRule {
    /// The name for it, which never changes.
    pub(crate) id: &'static str,
    /// How much it matters that a server breaks it.
    pub(crate) severity: Severity,
    pub(crate) area: Area,
    /// What is said of a server that keeps it.
    pub(crate) good: &'static str,
    /// What is said of a server that does not.
    pub(crate) bad: &'static str,
    pub(crate) why: &'static str,
    pub(crate) fix: &'static str,
    /// The section of the specification, below its address; empty if there is none.
    pub(crate) section: &'static str,
}

impl InspectionRule {
    /// Where to read more, in a revision that the server speaks; `None` where the specification says nothing of it.
    pub(crate) fn link(&self, era: Era) -> Option<String> {
        let section = match era {
            Era::Modern => self.section.to_owned(),
            Era::Legacy => self.legacy_section(),
        };
        (!section.is_empty()).then(|| format!("{SPECIFICATION}/{section}"))
    }

    /// The same in the newest revision of the legacy era, as far as it has it.
    fn legacy_section(&self) -> String {
        let section = match self.id {
            // What it does not have, or says nothing of.
            "order"
            | "varying-list"
            | "varying-definitions"
            | "remote-references"
            | "schema-size"
            | "x-mcp-header"
            | "modern"
            | "legacy" => {
                return self.section.to_owned();
            }
            "clear-text" => "basic/authorization#communication-security",
            "origin" => "basic/transports#security-warning",
            "stdout" | "stderr" => "basic/transports#stdio",
            "exit" | "crash" => "basic/lifecycle#shutdown",
            "unknown-method" => "basic#responses",
            "garbage" | "batch" | "notification" | "accept" => {
                "basic/transports#sending-messages-to-the-server"
            }
            _ => return self.section.replace("2026-07-28/", "2025-11-25/"),
        };
        format!("2025-11-25/{section}")
    }
}

/// Makes rules, and the list of them.
macro_rules! rules {
    ($($name:ident: $severity:ident $area:ident $id:literal
        good $good:literal bad $bad:literal why $why:literal fix $fix:literal section $section:literal;)*) => {
        $(
            pub(in crate::doctor) static $name: $crate::doctor::rule::InspectionRule = $crate::doctor::rule::InspectionRule {
                id: $id,
                severity: $crate::doctor::rule::Severity::$severity,
                area: $crate::doctor::rule::Area::$area,
                good: $good,
                bad: $bad,
                why: $why,
                fix: $fix,
                section: $section,
            };
        )*
        /// The rules of this file.
        pub(super) static ALL: &[&$crate::doctor::rule::InspectionRule] = &[$(&$name),*];
    };
}
pub(super) use rules;
