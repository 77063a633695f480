//! The commands of `trunkline` other than `run`.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`broken_lines`] | What is said of a line that is no TOML, and what of it is shown? |
//! | [`check`] | What do `check` and `schema` say, and with what does `run` refuse to start? |
//! | [`config_files`] | What is a configuration of several files, with variables, defaults and entries that are off? |
//! | [`call`] | What do `trunkline tools` and `trunkline call` do? (`tools/call` as a request: `protocol/`.) |
//! | [`connect`] | How does `trunkline connect` serve a client that can only start a child? |
//! | [`demo`] | What does `trunkline demo` say of itself? |
//! | [`doctor`] | What does `trunkline doctor` find in servers of every kind? |
//! | [`provider`] | What does `check --provider` find at a provider, and print? |
//! | [`top`] | What do `trunkline top` and `trunkline status` show? |
//! | [`import_export`] | What do `trunkline import` and `trunkline export` read and write? |
//! | [`version`] | What does `trunkline --version` say, and of which commit? |
//! | [`output`] | What does any command write into a pipe, to a full disk, or for completion in shells? |

mod broken_lines;
mod call;
mod check;
mod config_files;
mod connect;
mod demo;
mod doctor;
mod import_export;
mod output;
mod provider;
mod top;
mod version;
