//! The operating system's limit of open files, which bounds the connections that can be promised.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Connections where nothing is configured and the system allows them.
const CONNECTIONS_MAX_DEFAULT: u64 = 16_384;
/// A call may need its client's connection and its upstream's.
const FILES_PER_CONNECTION: u64 = 2;
/// Listeners, the connections of the admin listener and of that of metrics, those for probing and learning names, logs.
const OTHER_FILES: u64 = 320;
/// The part of all files that may be connections for listening to upstreams, and how many that is at most.
const LISTENING_PART: u64 = 16;
const LISTENING_MAX: u64 = 1024;

/// Fewer connections than this are worth a word.
const CONNECTIONS_FEW: usize = 1024;
/// Without so many files a process does not come to serve: those that it is started with, its libraries' and the control
/// thread's; and those of each worker.
const START_FILES: u64 = 20;
const START_FILES_PER_WORKER: u64 = 6;

/// The system's limit of open files is of no use.
#[derive(Debug, thiserror::Error)]
pub enum OpenFilesError {
    /// The system does not raise it to what it allows.
    #[error("cannot raise the limit of open files: {0}")]
    Raise(#[from] std::io::Error),
    /// It is too low to start.
    #[error(
        "the limit of open files is {hard_limit}, and a start needs {needed}: raise LimitNOFILE, or lower workers"
    )]
    TooLow {
        /// Files that the system allows.
        hard_limit: u64,
        /// Files that a process with these workers takes before it serves anybody.
        needed: u64,
    },
}

/// More connections are configured than the system lets us open.
#[derive(Debug, thiserror::Error)]
#[error(
    "limits.connections_max = {connections_max} needs {needed} open files, but the hard limit is {hard_limit}: lower it, or raise LimitNOFILE"
)]
pub struct TooFewFiles {
    connections_max: usize,
    needed: u64,
    hard_limit: u64,
}

/// Raises the limit as far as the system allows, if that is enough for so many workers.
pub(crate) fn raise_limit(workers: usize) -> Result<(), OpenFilesError> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(std::io::Error::from)?;
    let hard_limit = limit.maximum.unwrap_or(u64::MAX);
    let needed = START_FILES + START_FILES_PER_WORKER * workers as u64;
    if hard_limit < needed { Err(OpenFilesError::TooLow { hard_limit, needed }) } else { Ok(()) }
}

/// Tells the operator where the system's limit, and no configuration, leaves few connections.
pub(crate) fn warn_of_few(configured: Option<usize>, connections_max: usize) {
    if configured.is_none() && connections_max < CONNECTIONS_FEW {
        let open_files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        tracing::warn!(
            connections_max,
            open_files,
            "the limit of open files leaves room for few client connections: raise LimitNOFILE"
        );
    }
}

/// How many connections may be open to listen to upstreams.
pub(crate) fn listening_connections_max() -> usize {
    let hard_limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    usize::try_from(listening_max(hard_limit)).unwrap_or(1)
}

fn listening_max(hard_limit: u64) -> u64 {
    (hard_limit / LISTENING_PART).clamp(1, LISTENING_MAX)
}

/// How many connections may be open, given what is configured and what the system allows.
pub(crate) fn connections_max(configured: Option<usize>) -> Result<usize, TooFewFiles> {
    let hard_limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    choose(configured, hard_limit)
}

fn choose(configured: Option<usize>, hard_limit: u64) -> Result<usize, TooFewFiles> {
    let other = OTHER_FILES + listening_max(hard_limit);
    let possible = hard_limit.saturating_sub(other) / FILES_PER_CONNECTION;
    match configured {
        Some(connections_max) if connections_max as u64 > possible => Err(TooFewFiles {
            connections_max,
            needed: connections_max as u64 * FILES_PER_CONNECTION + other,
            hard_limit,
        }),
        Some(connections_max) => Ok(connections_max),
        None => Ok(usize::try_from(possible.clamp(1, CONNECTIONS_MAX_DEFAULT)).unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_only_what_can_be_kept() {
        for (configured, hard_limit, expected) in [
            (None, u64::MAX, Some(16_384)),
            (None, 4096, Some(1760)),
            (None, 10, Some(1)),
            (Some(1760), 4096, Some(1760)),
            (Some(1761), 4096, None),
            (Some(100_000), u64::MAX, Some(100_000)),
        ] {
            assert_eq!(choose(configured, hard_limit).ok(), expected, "{configured:?} of {hard_limit}");
        }
    }
}
