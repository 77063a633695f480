//! `subscriptions/listen`, fanned in and out: change notices from upstreams to every client that asked for them.
//!
//! Towards each upstream the gateway holds one stream for lists and one for resources and tasks, whatever the number
//! of clients ([`upstream`], on the control thread); a few for resources where the upstream does not take them all in
//! one. Each carries the union of what clients want, without the names that the upstream refuses (`feed`). A client's stream is a response body of its worker ([`client`]) with a small inbox that any thread
//! may fill (`inbox`).
//!
//! What a client is promised: its acknowledgement comes first, when each upstream concerned has answered or after a
//! second. It leaves out what upstreams refuse, and resources that policy hides or nobody knows. An upstream that has
//! not answered by then is counted on, and when it does answer, its subscribers are told that everything may have
//! changed; the same after every gap in a stream. Where lists are merged, their flags are always acknowledged: the
//! merged lists are the gateway's own, and it notices when they change even if no upstream says so.
//!
//! Invariant: a list that changed is invalid in the catalog before any client hears of it.
//! Who listens to what is in the [`Hub`](crate::tables::subscriptions::Hub).

pub(crate) mod client;
pub(crate) mod subscriber;
pub(crate) mod upstream;
