//! The state of a gateway as its admin listener tells it. Pure.
//!
//! | file | what it describes |
//! |---|---|
//! | `gateway.rs` | `/status`: the gateway itself |
//! | `servers.rs` | its endpoints and upstreams |
//! | `calls.rs` | how many calls, how they ended, how long they took |
//! | `callers.rs` | who calls |
//! | `history.rs` | `/status/history`: the last minutes |
//! | `tools.rs`, `query.rs` | `/status/tools`: a page of tools, and which ones are asked for |
//! | `object.rs` | how all of these are read |
//!
//! Each object is declared once: the gateway writes it with serde, `status` and `top` read it with [`parse`]. The
//! description of the admin API in the book is made of the same declarations.
//!
//! Invariants: a reader relies on no member, so that older and newer gateways can be read: what is missing or of another
//! type is unknown, and nothing is an error. What is read is bounded in entries and characters. Texts are a stranger's:
//! whoever shows them makes them fit for a terminal.

#[macro_use]
mod object;

mod callers;
mod calls;
mod gateway;
mod history;
mod query;
mod servers;
mod tools;

pub use self::callers::{CallerStatus, CallersStatus};
pub use self::calls::{FailedCalls, Figures, Recent};
pub use self::gateway::{
    Cache, Certificate, ConfigStatus, ConnectionsStatus, LimitStatus, ListenerStatus, ReloadStatus, Sample,
    SessionsStatus, SharedStatus, Status, TracesStatus,
};
pub use self::history::{History, HistoryLine, HistoryLines};
pub use self::object::{Object, parse};
pub use self::query::{ToolsQuery, ToolsSort};
pub use self::servers::{
    BridgeStatus, CallSlots, ChildrenStatus, EndpointStatus, PinStatus, ReplicaStatus, UpstreamStatus,
};
pub use self::tools::{PublicName, Rankings, ToolStatus, ToolsPage};
