//! The real binary as a child process: started on port 0, followed by its log, killed when dropped.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Connection, DEADLINE, Request, Response, eventually_within};

/// A running `trunkline run`. Dropping it kills the process, and fails the test if the process panicked on the way.
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Log>,
    config: PathBuf,
    /// The addresses of the listeners, in the order of the configuration.
    pub(crate) addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    exited: Option<ExitStatus>,
}

impl Daemon {
    /// Starts the binary with this configuration and waits until it logs that it is ready.
    pub(crate) fn start(config: &impl Display) -> Self {
        Self::start_with(config, &[])
    }

    /// As [`start`](Self::start), with more environment variables.
    pub(crate) fn start_with(config: &impl Display, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(BINARY);
        command.envs(environment.iter().copied());
        Self::start_command(command, config)
    }

    /// As [`start`](Self::start), of a binary that was built otherwise.
    pub(crate) fn start_build(binary: impl AsRef<OsStr>, config: &impl Display) -> Self {
        Self::start_command(Command::new(binary), config)
    }

    fn start_command(mut command: Command, config: &impl Display) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut daemon = Self::spawn(command, config);
        daemon.await_ready();
        daemon
    }

    /// As [`start`](Self::start), by another program that takes the binary as its last argument and may be as slow as
    /// `patience` says.
    pub(crate) fn start_by(program: &[&str], config: &impl Display, patience: Duration) -> Self {
        let mut daemon = Self::spawn_by(program, config);
        daemon.await_ready_for(patience);
        daemon
    }

    /// As [`start_by`](Self::start_by), for a daemon that may have reason not to start.
    pub(crate) fn spawn_by(program: &[&str], config: &impl Display) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(BINARY).stdin(Stdio::null()).stdout(Stdio::null());
        Self::spawn(command, config)
    }

    /// As [`start_with`](Self::start_with), with sockets that are open already, as systemd passes them.
    pub(crate) fn start_passed(
        config: &impl Display,
        environment: &[(&str, &str)],
        sockets: Vec<(&str, OwnedFd)>,
    ) -> Self {
        let mut daemon = Self::spawn_passed(config, environment, sockets);
        daemon.await_ready();
        daemon
    }

    /// As [`start_passed`](Self::start_passed), for a daemon that may have reason not to start. At most two sockets.
    pub(crate) fn spawn_passed(
        config: &impl Display,
        environment: &[(&str, &str)],
        sockets: Vec<(&str, OwnedFd)>,
    ) -> Self {
        let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
        let (names, count) = (names.join(":"), sockets.len().to_string());
        let mut sockets = sockets.into_iter().map(|(_, socket)| Stdio::from(socket));
        let mut command = Command::new("/bin/sh");
        // The process must find its own number in the environment.
        let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ exec \"$@\"";
        command
            .args(["-c", script, "sh", BINARY])
            .envs([("LISTEN_FDS", count), ("LISTEN_FDNAMES", names)])
            .envs(environment.iter().copied())
            .stdin(sockets.next().unwrap_or_else(Stdio::null))
            .stdout(sockets.next().unwrap_or_else(Stdio::null));
        assert!(sockets.next().is_none(), "no more than two sockets can be passed");
        Self::spawn(command, config)
    }

    fn spawn(mut command: Command, config: &impl Display) -> Self {
        let path = scratch_directory().join("trunkline.toml");
        fs::write(&path, config.to_string()).expect("the configuration can be written");
        command.args(["run", "--config"]).arg(&path).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let log = Log::follow(child.stderr.take().expect("stderr is piped"));
        Self { child, log, config: path, addresses: Vec::new(), admin: None, exited: None }
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The address of the first listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The address of the admin listener, which the configuration must have asked for.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("the configuration has an admin listener")
    }

    /// A new connection to the first listener.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address())
    }

    /// Sends one request on a connection of its own and reads the whole reply.
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.send_bytes(&request.bytes())
    }

    /// Sends one request on a connection of its own; its reply is still to be read.
    pub(crate) fn begin(&self, request: &Request) -> Connection {
        let mut connection = self.connect();
        connection.write(&request.bytes());
        connection
    }

    /// As [`send`](Self::send), for bytes that no [`Request`] can spell.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.write(bytes);
        connection.response()
    }

    /// A GET on the admin listener.
    pub(crate) fn get_admin(&self, path: &str) -> Response {
        let mut connection = Connection::open(self.admin());
        connection.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        connection.response()
    }

    /// Every log line so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lines()
    }

    /// Waits for the first log line at or after `from` that fits, and returns it.
    pub(crate) fn wait_for_log(&self, from: usize, what: &str, fits: impl Fn(&str) -> bool) -> String {
        self.log.wait(from, fits).unwrap_or_else(|| panic!("no log line in {DEADLINE:?}: {what}"))
    }

    /// Replaces the configuration file, and says nothing of it.
    pub(crate) fn write_config(&self, config: &impl Display) {
        fs::write(&self.config, config.to_string()).expect("the configuration can be written");
    }

    /// Replaces the configuration file and sends SIGHUP. Does not wait for the effect.
    pub(crate) fn reload(&self, config: &impl Display) {
        self.write_config(config);
        self.signal(Signal::HUP);
    }

    /// Where the configuration file is.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// Sends SIGHUP and leaves the configuration file as it is.
    pub(crate) fn hangup(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends SIGTERM. Does not wait for the effect.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stands still while `action` runs, and then finds all at once what happened meanwhile.
    pub(crate) fn paused(&self, action: impl FnOnce()) {
        self.signal(Signal::STOP);
        action();
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait_exit();
    }

    /// The most memory the process has held so far, in bytes.
    pub(crate) fn peak_resident_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// The memory the process holds, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The same but for the text of files.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process is alive");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel counts memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        self.wait_exit_for(DEADLINE)
    }

    /// As [`wait_exit`](Self::wait_exit), for one that may be as slow as `patience` says.
    pub(crate) fn wait_exit_for(&mut self, patience: Duration) -> ExitStatus {
        let child = &mut self.child;
        let ended = || child.try_wait().expect("the child can be waited for");
        let status = eventually_within(patience, "the daemon exits", ended);
        self.exited = Some(status);
        status
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the daemon can be signalled");
    }

    fn await_ready(&mut self) {
        self.await_ready_for(DEADLINE);
    }

    fn await_ready_for(&mut self, patience: Duration) {
        let is_ready = |line: &str| event(line).is_some_and(|(message, _)| message == "ready");
        let started = self.log.wait_for(patience, 0, is_ready);
        assert!(started.is_some(), "the daemon never said that it is ready");
        for (message, address) in self.log.lines().iter().filter_map(|line| event(line)) {
            match message.as_str() {
                "admin listening" => self.admin = address,
                "listening" => self.addresses.extend(address),
                _ => {}
            }
        }
        assert!(!self.addresses.is_empty(), "the daemon logged no listening address");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let died = self.exited.is_none() && matches!(self.child.try_wait(), Ok(Some(_)));
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.config.parent().map(fs::remove_dir_all);
        let lines = self.log.wait_end();
        if std::thread::panicking() {
            eprintln!("---- log of the daemon ----\n{}\n---- end of the log ----", lines.join("\n"));
            return;
        }
        assert!(
            !lines.iter().any(|line| line.contains("panicked at")),
            "the daemon panicked:\n{}",
            lines.join("\n")
        );
        assert!(!died, "the daemon died during the test:\n{}", lines.join("\n"));
    }
}

/// A directory of its own, which is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(scratch_directory())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The configuration key that makes it the state directory.
    pub(crate) fn key(&self) -> String {
        format!("state_directory = \"{}\"", self.0.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the binary to its end with these arguments, and with `config` (when given) written to a file that is passed
/// as `--config`. Returns what it printed, and the file's path as it was passed.
pub(crate) fn trunkline(arguments: &[&str], config: Option<&str>) -> (Output, PathBuf) {
    let path = scratch_directory().join("trunkline.toml");
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(config) = config {
        fs::write(&path, config).expect("the configuration can be written");
        command.arg("--config").arg(&path);
    }
    let mut child = command.spawn().expect("the binary starts");
    let end = Instant::now() + DEADLINE;
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("`trunkline {}` did not end in {DEADLINE:?}", arguments.join(" "));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = Output {
        status,
        stdout: stdout.join().expect("stdout is read"),
        stderr: stderr.join().expect("stderr is read"),
    };
    let _ = path.parent().map(fs::remove_dir_all);
    (output, path)
}

pub(super) const BINARY: &str = env!("CARGO_BIN_EXE_trunkline");

fn collect(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    let mut stream = stream.expect("the stream is piped");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}

/// An empty directory of the test's own.
fn scratch_directory() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("daemon-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).expect("a scratch directory can be made");
    directory
}

/// The message of a log line, in any format, and its address field if it has one.
fn event(line: &str) -> Option<(String, Option<SocketAddr>)> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(line) {
        let fields = &json["fields"];
        let address = fields["address"].as_str().and_then(|address| address.parse().ok());
        return Some((fields["message"].as_str()?.to_owned(), address));
    }
    if let Some((_, said)) = line.split_once(" msg=") {
        let message = match said.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next()?,
            None => said.split(' ').next()?,
        };
        let address = said.split(' ').find_map(|word| word.strip_prefix("address=")?.parse().ok());
        return Some((message.to_owned(), address));
    }
    let (_, said) = line.split_once(": ")?;
    let words = said.split(' ');
    let message: Vec<&str> = words.clone().take_while(|word| !word.contains('=')).collect();
    let address = words.clone().find_map(|word| word.strip_prefix("address=")?.parse().ok());
    Some((message.join(" "), address))
}

/// The child's stderr, line by line.
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    ended: bool,
}

impl Log {
    fn follow(stderr: impl Read + Send + 'static) -> Arc<Self> {
        let log = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                writer.state.lock().unwrap().lines.push(line);
                writer.changed.notify_all();
            }
            writer.state.lock().unwrap().ended = true;
            writer.changed.notify_all();
        });
        log
    }

    fn lines(&self) -> Vec<String> {
        self.state.lock().unwrap().lines.clone()
    }

    fn wait(&self, from: usize, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.wait_for(DEADLINE, from, fits)
    }

    fn wait_for(&self, patience: Duration, from: usize, fits: impl Fn(&str) -> bool) -> Option<String> {
        let find = |state: &LogState| state.lines.iter().skip(from).find(|line| fits(line)).cloned();
        let state = self.state.lock().unwrap();
        let waiting = |state: &mut LogState| !state.ended && find(state).is_none();
        let (state, _) = self.changed.wait_timeout_while(state, patience, waiting).unwrap();
        find(&state)
    }

    fn wait_end(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, DEADLINE, |state| !state.ended).unwrap();
        state.lines.clone()
    }
}
