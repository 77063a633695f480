//! What MCP is.
