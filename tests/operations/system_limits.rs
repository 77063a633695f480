//! Limits of the system around the process: what it makes of few open files, and of little memory.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use crate::harness::{Config, DEADLINE, Daemon, Folder, Upstream, call};

/// A process in namespaces of its own, for which no rights are needed where a machine allows them.
const NAMESPACES: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

/// A shell that starts the binary with so many open files at most.
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
    // A configured number is content with few.
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

/// Starts a daemon that believes to be in these control groups. A mount namespace of its own shows it the files.
fn start_in_groups(folder: &Folder, groups: &str, files: &[(&str, &str)], config: &Config) -> Daemon {
    let (list, tree) = (folder.path().join("groups"), folder.path().join("tree"));
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).expect("a directory");
    fs::write(&list, groups).expect("a file");
    for (file, text) in files {
        let file = tree.join(file);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(file, text).expect("a file");
    }
    let script = format!(
        "mount --bind {} /sys/fs/cgroup && mount --bind {} /proc/$$/cgroup && exec \"$@\"",
        tree.display(),
        list.display()
    );
    Daemon::start_by(&[&NAMESPACES[..], &["/bin/sh", "-c", &script, "sh"]].concat(), config, DEADLINE)
}

/// True where this machine lets the user that runs the tests mount something for one process.
fn may_mount(folder: &Folder) -> bool {
    let mounted = folder.path().display().to_string();
    let command = [&NAMESPACES[..], &["mount", "--bind", &mounted, "/sys/fs/cgroup"]].concat();
    let output = Command::new(command[0]).args(&command[1..]).output().expect("a process");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        // Past what a test prints, which is shown of failed ones alone: it is counted as skipped.
        let line = format!("skipped: this machine mounts nothing for tests: {}\n", why.trim());
        std::io::stderr().write_all(line.as_bytes()).expect("written");
    }
    output.status.success()
}

#[test]
fn default_bounds_of_memory_are_parts_of_the_limit_of_the_control_group() {
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    if !may_mount(&folder) {
        return;
    }
    let config = || Config::transparent(&upstream).admin();
    let (unified, of_memory) = ("0::/a/b\n", "5:cpu:/\n4:memory:/a/b\n0::/\n");
    let limited = (96 << 20).to_string();
    let file = "memory/a/b/memory.limit_in_bytes";
    for (groups, files, expected) in [
        (unified, [("a/b/memory.max", "max\n"), ("a/memory.max", &*limited)], 32 << 20),
        (unified, [("a/b/memory.max", "max\n"), ("memory.max", "max\n")], 256 << 20),
        (
            of_memory,
            [(file, &*limited), ("memory/a/memory.limit_in_bytes", "9223372036854771712\n")],
            32 << 20,
        ),
    ] {
        let daemon = start_in_groups(&folder, groups, &files, &config());
        assert_eq!(daemon.metric("trunkline_buffered_bytes_max"), expected, "{groups} {files:?}");
    }
    // A bound that is written holds, and is warned of.
    let files = [("a/b/memory.max", &*limited)];
    let daemon =
        start_in_groups(&folder, unified, &files, &config().limits("buffered_bytes_max = \"200MiB\""));
    assert_eq!(daemon.metric("trunkline_buffered_bytes_max"), 200 << 20);
    daemon.wait_for_log(0, "a warning", |line| {
        line.contains("WARN") && line.contains("are more than the limit of memory")
    });
}
