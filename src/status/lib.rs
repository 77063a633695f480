//! The state of a gateway as its admin listener tells it. Pure.
//!
//! | file | what it describes |
//! |---|---|
//! | `gateway.rs` | `/status`: the gateway itself |
//! | `servers.rs` | its endpoints and upstreams |
//! | `state.rs` | how an upstream is, by what the gateway knows of it |
//! | `faults.rs`, `programs.rs` | the same by what it met, and by how its program fares |
//! | `standing.rs` | the words for that |
//! | `problem.rs`, `problems/` | what is wrong, worst first |
//! | `seen.rs` | counts a minute ago, by which it is told what happens now |
//! | `words.rs` | numbers as sentences have them |
//! | `calls.rs` | how many calls, how they ended, how long they took |
//! | `callers.rs` | who calls |
//! | `sign_in.rs` | sign-in |
//! | `grants.rs` | `/grants`: who is signed in |
//! | `history.rs` | `/status/history`: the last minutes |
//! | `tools.rs`, `query.rs` | `/status/tools`: a page of tools, and which ones are asked for |
//! | `object.rs` | how all of these are read |
//!
//! Each object is declared once: the gateway writes it with serde, `status` and `top` read it with [`parse`]. The
//! description of the admin API in the book is made of the same declarations. States and problems are computed here alone: the
//! gateway tells them, and all views show them.
//!
//! Invariants: a reader relies on no member, so that older and newer gateways can be read: what is missing or of another
//! type is unknown, and nothing is an error. What is read is bounded in entries and characters. Texts are a stranger's:
//! whoever shows them makes them fit for a terminal.

#[macro_use]
mod object;

mod callers;
mod calls;
mod faults;
mod gateway;
mod grants;
mod history;
pub mod problem;
pub mod problems;
mod programs;
mod query;
mod seen;
mod servers;
mod sign_in;
mod standing;
mod state;
mod tools;
pub mod words;

pub use self::callers::{CallerStatus, CallersStatus};
pub use self::calls::{FailedCalls, Figures, Recent};
pub use self::gateway::{
    Cache, Certificate, ConfigStatus, ConnectionsStatus, LimitStatus, ListenerStatus, LogStatus,
    ReloadStatus, Sample, SessionsStatus, SharedStatus, StateFileFaultStatus, Status, TracesStatus,
};
pub use self::grants::{EndedGrants, GrantStatus, GrantsBackUp, GrantsPage};
pub use self::history::{History, HistoryLine, HistoryLines};
pub use self::object::{Object, parse};
pub use self::query::{ToolsQuery, ToolsSort};
pub use self::seen::{Seen, SeenCalls};
pub use self::servers::{
    BridgeStatus, CallSlots, ChildrenStatus, EndpointStatus, FaultStatus, HOST_PREFIX, ListCut, LongNames,
    PinStatus, ReplicaStatus, StartStatus, UpstreamStatus, VaryingTool,
};
pub use self::sign_in::{SignInFaultStatus, SignInStatus, SignInStoreStatus};
pub use self::standing::{CommonCause, FIRST_CALL, Standing, UpstreamState};
pub use self::state::standing;
pub use self::tools::{PublicName, Rankings, ToolStatus, ToolsPage};
