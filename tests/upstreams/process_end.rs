//! Nothing of a program outlives who started it, however that ends, and whatever the program has started itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Config, Daemon, Folder, eventually, side_by_side, trunkline};

/// Programs that start others, as a script for `sh`. `$1` is a file into which each process writes its number; all of
/// them ignore that their input ends.
const TREES: [(&str, &str); 6] = [
    ("as npx forks", r#"echo $$ >>"$1"; sh -c 'echo $$ >>"$1"; sleep 1000; true' sh "$1"; true"#),
    ("as uv forks", r#"echo $$ >>"$1"; sleep 1000 & echo $! >>"$1"; wait; true"#),
    (
        "forks twice",
        r#"(sh -c 'echo $$ >>"$1"; exec sleep 1000' sh "$1" &); echo $$ >>"$1"; exec sleep 1000"#,
    ),
    (
        "ignores SIGTERM",
        r#"trap "" TERM; echo $$ >>"$1"; sh -c 'echo $$ >>"$1"; exec sleep 1000' sh "$1"; true"#,
    ),
    (
        "leaves the session",
        r#"setsid sh -c 'echo $$ >>"$1"; exec sleep 1000' sh "$1" & echo $$ >>"$1"; exec sleep 1000"#,
    ),
    (
        "leaves the session twice",
        r#"setsid sh -c 'setsid sh -c "echo \$\$ >>$1; exec sleep 1000" & echo $$ >>"$1"; exec sleep 1000' sh "$1" &
        sleep 1000"#,
    ),
];

/// A tree that runs.
struct Tree {
    folder: Folder,
    script: &'static str,
}

impl Tree {
    fn new(script: &'static str) -> Self {
        Self { folder: Folder::new(), script }
    }

    fn command(&self) -> [String; 5] {
        let file = self.folder.path().join("pids").display().to_string();
        ["sh".into(), "-c".into(), self.script.into(), "sh".into(), file]
    }

    fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.folder.path().join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Waits until it has grown.
    fn wait(&self) {
        eventually("both processes run", || (self.pids().len() >= 2).then_some(()));
        assert!(self.pids().into_iter().all(is_alive));
    }

    fn wait_gone(&self, what: &str) {
        eventually(&format!("nobody is left of one that {what}"), || {
            (!self.pids().into_iter().any(is_alive)).then_some(())
        });
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for pid in self.pids().into_iter().filter(|pid| is_alive(*pid)).filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// One that has ended may not be waited for by anybody.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|fields| !fields.is_empty() && !fields.starts_with(['Z', 'X']))
}

/// A gateway that runs each tree as the child process of an upstream.
fn gateway(trees: &[Tree]) -> Daemon {
    let upstreams = trees.iter().enumerate().fold(Config::new().admin(), |config, (number, tree)| {
        let keys = format!("command = {:?}\nstop_timeout = \"300ms\"\neras = [\"legacy\"]", tree.command());
        config.raw(&format!("up{number}"), &keys)
    });
    // None of them ever answers.
    let upstreams = upstreams.limits("children_starting_max = 6");
    Daemon::start(&upstreams.section("[drain]\nquiet = \"0s\"\nmax = \"5s\""))
}

#[test]
fn nothing_of_a_child_outlives_the_gateway() {
    for signal in [Signal::KILL, Signal::TERM] {
        let trees = TREES.map(|(_, script)| Tree::new(script));
        let mut daemon = gateway(&trees);
        trees.iter().for_each(Tree::wait);
        if signal == Signal::KILL {
            daemon.kill();
        } else {
            daemon.terminate();
            daemon.wait_exit();
        }
        for (tree, (what, _)) in trees.iter().zip(TREES) {
            tree.wait_gone(what);
        }
    }
}

/// Its input ends with the gateway, which is what tells a server to end.
#[test]
fn a_child_may_end_by_itself_when_the_gateway_was_killed() {
    let folder = Folder::new();
    let (started, done) = (folder.path().join("started"), folder.path().join("done"));
    let script =
        format!(": >{}; while read -r line; do :; done; sleep 0.2; : >{}", started.display(), done.display());
    let keys = format!("command = {:?}\neras = [\"legacy\"]", ["sh", "-c", &script]);
    let mut daemon = Daemon::start(&Config::new().raw("up", &keys));
    eventually("it runs", || started.exists().then_some(()));
    daemon.kill();
    eventually("it has done what it does at its end", || done.exists().then_some(()));
}

/// All that it started is gone with the program: nobody guards it any more.
#[test]
fn nothing_of_a_child_outlives_the_child() {
    let trees = TREES.map(|(_, script)| Tree::new(script));
    let _daemon = gateway(&trees);
    trees.iter().for_each(Tree::wait);
    let pids: Vec<Vec<i32>> = trees.iter().map(Tree::pids).collect();
    for pids in &pids {
        let (_, program) = guardian_and_program(pids[0]).expect("a program under a guardian");
        kill_process(Pid::from_raw(program).expect("a number"), Signal::KILL).expect("it can be killed");
    }
    for (pids, (what, _)) in pids.iter().zip(TREES) {
        eventually(&format!("nobody is left of one that {what}"), || {
            (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
        });
    }
}

/// The parent of a process and its process group.
fn kin(pid: i32) -> Option<(i32, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ').skip(1).map_while(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}

/// The guardian of a process, and the program that it started.
fn guardian_and_program(pid: i32) -> Option<(i32, i32)> {
    let (parent, group) = kin(pid)?;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    if name.trim() == "guardian" { Some((parent, group)) } else { guardian_and_program(parent) }
}

/// Starts a command that speaks to a program.
fn start(command: &str, tree: &Tree) -> Child {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args([command, "--"])
        .args(tree.command())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

#[test]
fn nothing_of_a_program_outlives_the_command_that_started_it() {
    let cases = ["tools", "doctor"]
        .into_iter()
        .flat_map(|command| [Signal::KILL, Signal::INT].map(|signal| (command, signal)));
    side_by_side(cases, |(command, signal)| {
        let trees = TREES.map(|(_, script)| Tree::new(script));
        let mut commands: Vec<Child> = trees.iter().map(|tree| start(command, tree)).collect();
        trees.iter().for_each(Tree::wait);
        for child in &mut commands {
            kill_process(Pid::from_child(child), signal).expect("it can be signalled");
            child.wait().expect("it ends");
        }
        for (tree, (what, _)) in trees.iter().zip(TREES) {
            tree.wait_gone(&format!("{what}, after {command} and {signal:?}"));
        }
    });
}

/// What happens to a program is told as if nobody stood between.
#[test]
fn the_end_of_a_program_is_told_as_it_was() {
    for (script, said) in
        [("exit 7", "exit code 7"), ("kill -9 $$", "signal 9"), ("kill -15 $$", "signal 15")]
    {
        let (output, _) = trunkline(&["tools", "--", "sh", "-c", script], None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
}

/// By the `PATH` that it gets, not that of the gateway, where there is another of the name.
#[test]
fn a_child_is_found_by_its_own_path() {
    let folder = Folder::new();
    let (program, found) = (folder.path().join("true"), folder.path().join("found"));
    fs::write(&program, format!("#!/bin/sh\n: >{}\nread -r line", found.display())).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its own");
    let path = folder.path().display();
    let keys = format!(
        "command = [\"true\"]\nenv = {{ PATH = \"/nowhere:{path}\" }}\ndirectory = \"/\"\neras = [\"legacy\"]"
    );
    let _daemon = Daemon::start(&Config::new().raw("up", &keys));
    eventually("the right one runs", || found.exists().then_some(()));
}

/// As the C library looks for programs.
#[test]
fn a_program_is_found_without_a_path() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["tools", "--", "sh", "-c", "exit 7"]).env_remove("PATH").stdin(Stdio::null());
    let output = command.output().expect("the binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("exit code 7"), "{stderr}");
}

/// A guardian is small: there may be many.
#[test]
fn a_guardian_is_small() {
    let trees = [Tree::new(TREES[2].1)];
    let _daemon = gateway(&trees);
    trees[0].wait();
    let (guardian, program) = guardian_and_program(trees[0].pids()[0]).expect("a guardian");
    let rollup =
        fs::read_to_string(format!("/proc/{guardian}/smaps_rollup")).expect("the kernel counts memory");
    let of = |name: &str| -> u64 {
        let lines = rollup.lines().filter_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        lines.filter_map(|kb| kb.trim().parse::<u64>().ok()).sum()
    };
    assert!(of("Anonymous:") < 4096, "{rollup}");
    let threads = fs::read_dir(format!("/proc/{guardian}/task")).expect("threads").count();
    assert_eq!(threads, 1);
    for stream in 0..3 {
        let stream = fs::read_link(format!("/proc/{program}/fd/{stream}")).expect("a stream of the program");
        // The program may be there before the guardian has let go.
        eventually(&format!("{stream:?} is not kept open"), || {
            let files = fs::read_dir(format!("/proc/{guardian}/fd")).expect("files").flatten();
            let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
            files.all(|file| file != stream).then_some(())
        });
    }
}
