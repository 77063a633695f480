//! The configurations of desktop and IDE clients, read and written. Pure but for `files.rs`: text in, text
//! out.
//!
//! | file | what it is |
//! |---|---|
//! | `json.rs` | JSON with comments and trailing commas |
//! | `document.rs` | the text of a client → its entries, wherever that client keeps them |
//! | `entry.rs` | what an entry says, by all the names that clients have for it |
//! | `remote.rs` | programs that only stand in for a server elsewhere → its URL |
//! | `placeholder.rs` | `${env:NAME}`, `${input:id}` and their like |
//! | `template.rs` | what of these the configuration reads itself |
//! | `sensitive.rs` | what may be a secret |
//! | `address.rs` | a URL without what is secret in it |
//! | `program.rs` | a program, its arguments and its environment |
//! | `assigned.rs` | variables among the words of a command: `NAME=value program`, `docker run -e NAME=value` |
//! | `windows.rs` | programs and paths of Windows |
//! | `short_name.rs` | the names of upstreams |
//! | `shell.rs` | a program some of whose arguments come from the environment |
//! | `upstream.rs` | an entry → `[upstream.NAME]`, with a comment for each decision |
//! | `toml_text.rs` | TOML and its comments, whatever strangers wrote |
//! | `import.rs` | all of it → a configuration |
//! | `client.rs`, `export.rs` | the entry that a client needs to reach the gateway |
//! | `gateway_url.rs` | where the configuration says that the gateway is |
//! | `files.rs` | reading and writing the files of an import |
//!
//! Deliberately not here: the environment.
//!
//! Invariants: a configuration that comes out is valid where the environment has what every program inherits
//! ([`config::parse_source`] takes it); what may be a secret is never
//! in it, nor in what is said about it, but in [`StoredSecret`] alone; whatever cannot be carried over is said.

mod address;
mod assigned;
mod client;
mod document;
mod entry;
mod export;
pub mod files;
mod gateway_url;
mod import;
mod json;
mod placeholder;
mod program;
mod remote;
mod sensitive;
mod shell;
mod short_name;
mod template;
#[cfg(test)]
mod tests;
pub mod toml_text;
mod upstream;
mod windows;

pub use self::client::DesktopClient;
pub use self::export::{Export, ExportKey, ExportedEntry, export};
pub use self::gateway_url::GatewayUrl;
pub use self::import::{ClientFile, ImportError, ImportSettings, Imported, StoredSecret, import};
