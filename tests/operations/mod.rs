//! The daemon as its operator knows it: from start to stop, under systemd, beside other gateways.
//!
//! What `trunkline check` says of a configuration is in `commands/check.rs`.
//!
//! | File | The question it answers |
//! |---|---|
//! | [`start_and_drain`] | What does a start wait for, and what does a drain let finish? |
//! | [`reload`] | What does a new configuration change, what does it leave alone, and what if it is wrong? |
//! | [`restart`] | Does one process follow the other under load without losing a call? |
//! | [`state_disk`] | What is told of a full state disk, and what does a restart after it know? |
//! | [`service`] | What does systemd say and hear: readiness, watchdog, sockets, exit codes, units? |
//! | [`system_limits`] | What does the process make of few open files, and of little memory? |
//! | [`admin`] | Who may use the admin listener: health, `/status`, log level, reload? |
//! | [`metrics_listener`] | What does the listener for metrics alone answer, and where is it after a reload? |
//! | [`verbs`] | What do `trunkline reload`, `ready`, `log-level` and `drain` do? |
//! | [`status_page`] | What do the status page and the requests behind it get? |
//! | [`status_calls`] | What does `/status` tell of failed calls, of callers, and of since when something is down? |
//! | [`outbound`] | Which of the gateway's own requests go through a proxy, and what if it leads nowhere? |
//! | [`examples`] | Does a gateway start with each example, and do what it says? |
//! | [`redis`] | What do several gateways share in Redis, and what if it does not answer? |
//! | [`valgrind`] | Does the daemon run under valgrind, so that instructions can be counted? |

mod admin;
mod examples;
mod metrics_listener;
mod named_files;
mod outbound;
mod redis;
mod reload;
mod restart;
mod service;
mod start_and_drain;
mod state_disk;
mod status_calls;
mod status_page;
mod system_limits;
mod valgrind;
mod verbs;
