//! The daemon under valgrind: instructions can be counted, and memory watched, in the very binary that is tested.

use std::time::Duration;

use crate::harness::{Config, Daemon, Folder, Upstream, call};

/// Valgrind starts the daemon some thirty times slower than it starts by itself.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn a_call_is_counted_from_start_to_stop() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let counts = folder.path().join("counts");
    let written_to = format!("--callgrind-out-file={}", counts.display());
    let program = ["valgrind", "--quiet", "--tool=callgrind", &written_to];
    let config = Config::transparent(&upstream).top("workers = 1");
    let mut daemon = Daemon::start_by(&program, &config, PATIENCE);
    daemon.send(&call("7", "echo")).assert_ok();
    assert_eq!(upstream.only_call().id(), "7");
    daemon.terminate();
    assert_eq!(daemon.wait_exit_for(PATIENCE).code(), Some(0), "{:?}", daemon.log());
    let counts = std::fs::read_to_string(&counts).expect("counts");
    let total = counts.lines().find_map(|line| line.strip_prefix("totals: ")?.parse::<u64>().ok());
    assert!(total.is_some_and(|total| total > 1_000_000), "{total:?} instructions");
}
