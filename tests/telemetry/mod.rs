//! What the gateway tells of itself: metrics, logs, traces.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`metrics`] | Which metrics are there, what do they count, and does Prometheus read them? |
//! | [`exposition`] | Is `/metrics` well-formed, and can a client make series? |
//! | [`dashboards`] | Do alert rules and dashboard name metrics that exist, and do alerts fire? |
//! | [`logs`] | Which log lines are written, in which form, where, and without which secrets? |
//! | [`access_log`] | What does the access log say of each call? |
//! | [`traces`] | Which trace context goes in and out, and which spans does an OTLP receiver get? |
//! | [`trace_meta`] | Does the context that stands in `_meta` make one trace of what client, gateway and server do? |

mod access_log;
mod dashboards;
mod exposition;
mod logs;
mod metrics;
mod trace_meta;
mod traces;
