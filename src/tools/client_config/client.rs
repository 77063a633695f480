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
    pub(super) form: ConfigFormat,
    pub(super) key: KeySupport,
}

/// What an entry looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigFormat {
    /// `mcpServers`, with a URL under this member, and this type where one is said.
    McpServers { url: &'static str, kind: Option<&'static str> },
    /// `mcpServers`, for programs alone.
    Programs,
    /// `servers` of VS Code.
    Servers,
    /// `context_servers` of Zed.
    ContextServers,
    /// `mcp` of opencode.
    Mcp,
    /// `mcp_servers` of Codex, in TOML.
    Toml,
}

/// How an entry comes by a key without holding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySupport {
    /// An environment variable: what stands before and after its name.
    Variable(&'static str, &'static str),
    /// The client asks for it.
    Input,
    /// It does not: a program has to stand in that reads it from a file.
    Nothing,
}

const PLAIN: ConfigFormat = ConfigFormat::McpServers { url: "url", kind: None };

/// All of them.
static CLIENTS: [DesktopClient; 11] = [
    DesktopClient {
        name: "claude-code",
        title: "Claude Code",
        file: ".mcp.json of the project, or for all of them: claude mcp add-json --scope user NAME 'ENTRY'",
        form: ConfigFormat::McpServers { url: "url", kind: Some("http") },
        key: KeySupport::Variable("${", "}"),
    },
    DesktopClient {
        name: "claude-desktop",
        title: "Claude Desktop",
        file: "claude_desktop_config.json (Settings, Developer, Edit Config)",
        form: ConfigFormat::Programs,
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "cline",
        title: "Cline",
        file: "cline_mcp_settings.json (MCP Servers, Configure)",
        form: ConfigFormat::McpServers { url: "url", kind: Some("streamableHttp") },
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "codex",
        title: "Codex",
        file: "~/.codex/config.toml",
        form: ConfigFormat::Toml,
        key: KeySupport::Variable("", ""),
    },
    DesktopClient {
        name: "cursor",
        title: "Cursor",
        file: "~/.cursor/mcp.json, or .cursor/mcp.json of the project",
        form: PLAIN,
        key: KeySupport::Variable("${env:", "}"),
    },
    DesktopClient {
        name: "gemini-cli",
        title: "Gemini CLI",
        file: "~/.gemini/settings.json, or .gemini/settings.json of the project",
        form: ConfigFormat::McpServers { url: "httpUrl", kind: None },
        key: KeySupport::Variable("$", ""),
    },
    DesktopClient {
        name: "lm-studio",
        title: "LM Studio",
        file: "~/.lmstudio/mcp.json (Program, Install, Edit mcp.json)",
        form: PLAIN,
        key: KeySupport::Nothing,
    },
    DesktopClient {
        name: "opencode",
        title: "opencode",
        file: "~/.config/opencode/opencode.json, or opencode.json of the project",
        form: ConfigFormat::Mcp,
        key: KeySupport::Variable("{env:", "}"),
    },
    DesktopClient {
        name: "vscode",
        title: "VS Code",
        file: ".vscode/mcp.json of the project, or for all of them: the command MCP: Open User Configuration",
        form: ConfigFormat::Servers,
        key: KeySupport::Input,
    },
    DesktopClient {
        name: "windsurf",
        title: "Windsurf",
        file: "~/.codeium/windsurf/mcp_config.json",
        form: ConfigFormat::McpServers { url: "serverUrl", kind: None },
        key: KeySupport::Variable("${env:", "}"),
    },
    DesktopClient {
        name: "zed",
        title: "Zed",
        file: "~/.config/zed/settings.json",
        form: ConfigFormat::ContextServers,
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
        self.form == ConfigFormat::Programs
    }

    /// The member of its file that the entry goes into.
    pub fn section(&self) -> &'static str {
        match self.form {
            ConfigFormat::McpServers { .. } | ConfigFormat::Programs => "mcpServers",
            ConfigFormat::Servers => "servers",
            ConfigFormat::ContextServers => "context_servers",
            ConfigFormat::Mcp => "mcp",
            ConfigFormat::Toml => "mcp_servers",
        }
    }
}
