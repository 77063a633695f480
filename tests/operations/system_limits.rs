//! Limits of the system around the process: what it makes of few open files.

use crate::harness::{Config, DEADLINE, Daemon, Upstream, call};

/// What starts the binary with so many open files at most.
fn limited(files: usize) -> [String; 4] {
    ["/bin/sh", "-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"].map(str::to_owned)
}

#[test]
fn few_open_files_are_told_of_at_the_start() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).top("workers = 2").admin();
    let warns = |line: &str| line.contains("leaves room for few client connections");
    for (files, connections) in [(64, 1), (1024, 320)] {
        let program = limited(files);
        let daemon = Daemon::start_by(&program.each_ref().map(String::as_str), &config, DEADLINE);
        let line = daemon.wait_for_log(0, "a warning", warns);
        for field in [format!("connections_max={connections}"), format!("open_files={files}")] {
            assert!(line.contains("WARN") && line.contains(&field), "{field}: {line}");
        }
    }
    // Who says how many there are to be is content with few.
    let program = limited(4096);
    let config = Config::transparent(&upstream).limits("connections_max = 100").admin();
    let daemon = Daemon::start_by(&program.each_ref().map(String::as_str), &config, DEADLINE);
    daemon.send(&call("1", "echo")).assert_ok();
    assert!(!daemon.log().iter().any(|line| warns(line)));
}

#[test]
fn too_few_open_files_are_the_fault_of_the_system_and_no_bug() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).top("workers = 2");
    for files in [16, 24, 31] {
        let program = limited(files);
        let mut daemon = Daemon::spawn_by(&program.each_ref().map(String::as_str), &config);
        assert_eq!(daemon.wait_exit().code(), Some(71), "{files}: {:?}", daemon.log());
        let log = daemon.log().join("\n");
        assert!(log.contains("open files") && !log.contains("bug"), "{files}: {log}");
    }
}
