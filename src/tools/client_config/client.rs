//! The clients that are known: what their entries look like and where they stand, as their documentation had it in
//! November 2026.

/// A client, such as a desktop application or an editor.
#[derive(Debug, PartialEq, Eq)]
pub struct DesktopClient {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it is called by its makers.
    pub title: &'static str,
    /// Where its entries stand.
    pub file: &'static str,
    pub(super) format: EntryFormat,
    pub(super) key: KeySupport,
}

/// What an entry looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryFormat {
    /// The member of the file that holds the entries.
    section: &'static str,
    /// The member of an entry that holds the URL; `None`: the client can only start programs.
    pub(super) url: Option<&'static str>,
    /// `type` of an entry with a URL and of a program, where the client wants it.
    pub(super) url_type: Option<&'static str>,
    pub(super) command_type: Option<&'static str>,
    /// Whether a program and its arguments stand in one array.
    pub(super) is_one_command: bool,
    pub(super) is_toml: bool,
}

/// How an entry comes by a key without holding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySupport {
    /// An environment variable: what stands before and after its name.
    Variable(&'static str, &'static str),
    /// An environment variable, whose name stands in this member.
    VariableName(&'static str),
    /// The client asks for it.
    Input,
    /// It does not: a program has to stand in that reads it from a file.
    Nothing,
}

/// That of most clients.
const MCP_SERVERS: EntryFormat = EntryFormat {
    section: "mcpServers",
    url: Some("url"),
    url_type: None,
    command_type: None,
    is_one_command: false,
    is_toml: false,
};

static CLIENTS: [DesktopClient; 11] = [
    DesktopClient {
        name: "claude-code",
        title: "Claude Code",
        file: ".mcp.json of the project, or for all of them: claude mcp add-json --scope user NAME 'ENTRY'",
        format: EntryFormat { url_type: Some("http"), ..MCP_SERVERS },
        key: KeySupport::Variable("${", "}"),
    },
    DesktopClient {
        name: "claude-desktop",
        title: "Claude Desktop",
        file: "claude_desktop_config.json (Settings, Developer, Edit Config)",
        format: EntryFormat { url: None, ..MCP_SERVERS },
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "cline",
        title: "Cline",
        file: "cline_mcp_settings.json (MCP Servers, Configure)",
        format: EntryFormat { url_type: Some("streamableHttp"), ..MCP_SERVERS },
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "codex",
        title: "Codex",
        file: "~/.codex/config.toml",
        format: EntryFormat { section: "mcp_servers", is_toml: true, ..MCP_SERVERS },
        key: KeySupport::VariableName("bearer_token_env_var"),
    },
    DesktopClient {
        name: "cursor",
        title: "Cursor",
        file: "~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        format: MCP_SERVERS,
        key: KeySupport::Variable("${env:", "}"),
    },
    DesktopClient {
        name: "gemini-cli",
        title: "Gemini CLI",
        file: "~/.gemini/settings.json, or .gemini/settings.json of the project",
        format: EntryFormat { url: Some("httpUrl"), ..MCP_SERVERS },
        key: KeySupport::Variable("$", ""),
    },
    DesktopClient {
        name: "lm-studio",
        title: "LM Studio",
        file: "~/.lmstudio/mcp.json (Program, Install, Edit mcp.json)",
        format: MCP_SERVERS,
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "opencode",
        title: "opencode",
        file: "~/.config/opencode/opencode.json, or opencode.json of the project",
        format: EntryFormat {
            section: "mcp",
            url_type: Some("remote"),
            command_type: Some("local"),
            is_one_command: true,
            ..MCP_SERVERS
        },
        key: KeySupport::Variable("{env:", "}"),
    },
    DesktopClient {
        name: "vscode",
        title: "VS Code",
        file: ".vscode/mcp.json of the project, or for all of them: the command MCP: Open User Configuration",
        format: EntryFormat {
            section: "servers",
            url_type: Some("http"),
            command_type: Some("stdio"),
            ..MCP_SERVERS
        },
        key: KeySupport::Input,
    },
    DesktopClient {
        name: "windsurf",
        title: "Windsurf",
        file: "~/.codeium/windsurf/mcp_config.json",
        format: EntryFormat { url: Some("serverUrl"), ..MCP_SERVERS },
        key: KeySupport::Variable("${env:", "}"),
    },
    DesktopClient {
        name: "zed",
        title: "Zed",
        file: "~/.config/zed/settings.json",
        format: EntryFormat { section: "context_servers", ..MCP_SERVERS },
        key: KeySupport::Nothing,
    },
];

impl DesktopClient {
    /// All clients, by name.
    pub fn all() -> &'static [Self] {
        &CLIENTS
    }

    /// The client of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// Whether it can only start programs.
    pub fn is_for_programs_alone(&self) -> bool {
        self.format.url.is_none()
    }

    /// The member of its file that the entry goes into.
    pub fn section(&self) -> &'static str {
        self.format.section
    }
}
