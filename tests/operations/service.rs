//! What systemd is told and gives: readiness, watchdog, sockets, exit codes, units.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Config, Connection, DEADLINE, Daemon, Folder, Gate, Reply, Upstream, call, eventually, trunkline,
};

/// What plays systemd: it hears what the daemon says.
struct Ear {
    socket: UnixDatagram,
    name: String,
    _folder: Option<Folder>,
}

impl Ear {
    fn at_a_path() -> Self {
        let folder = Folder::new();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        Self::new(socket, path.display().to_string(), Some(folder))
    }

    fn at_an_abstract_name() -> Self {
        let name = Folder::new().path().display().to_string();
        let address = UnixAddress::from_abstract_name(&name).expect("a name");
        Self::new(UnixDatagram::bind_addr(&address).expect("a socket"), format!("@{name}"), None)
    }

    fn new(socket: UnixDatagram, name: String, folder: Option<Folder>) -> Self {
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self { socket, name, _folder: folder }
    }

    fn environment(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", &self.name)
    }

    /// The lines of the next message that has this one.
    #[track_caller]
    fn wait_for(&self, line: &str) -> Vec<String> {
        let mut bytes = [0; 4096];
        loop {
            let count = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("no {line}: {error}"));
            let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let lines: Vec<String> = message.lines().map(str::to_owned).collect();
            if lines.iter().any(|said| said == line) {
                return lines;
            }
        }
    }

    /// How many messages with this line come in this time.
    fn count(&self, line: &str, time: Duration) -> usize {
        let (mut bytes, end, mut count) = ([0; 4096], Instant::now() + time, 0);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return count;
            }
            self.socket.set_read_timeout(Some(left)).expect("a timeout");
            if let Ok(length) = self.socket.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
                count += usize::from(message.lines().any(|said| said == line));
            }
        }
    }
}

fn value<'a>(lines: &'a [String], key: &str) -> &'a str {
    let found = lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {lines:?}"))
}

/// A socket as systemd opens it, and where.
fn open_socket() -> (OwnedFd, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("its address");
    (socket.into(), address)
}

fn at(upstream: &Upstream, address: impl std::fmt::Display) -> Config {
    Config::transparent(upstream).listener(&format!("address = \"{address}\""))
}

#[test]
fn readiness_is_told_when_calls_are_served() {
    let upstream = Upstream::with_tools(&["echo"]);
    for ear in [Ear::at_a_path(), Ear::at_an_abstract_name()] {
        let (socket, address) = open_socket();
        let passed = vec![("trunkline.socket", socket)];
        let _daemon = Daemon::spawn_passed(&at(&upstream, address), &[ear.environment()], passed);
        let told = ear.wait_for("READY=1");
        let status = value(&told, "STATUS");
        assert_eq!(status, "serving 1 endpoint over 1 upstream; 0 connections");
        let mut connection = Connection::open(address);
        connection.write(&call("1", "echo").bytes());
        connection.response().assert_ok();
    }
}

#[test]
fn a_service_manager_that_is_gone_stops_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    for name in ["/no/such/socket", "@trunkline-no-such-name", "vsock:2:1", ""] {
        let daemon = Daemon::start_with(&Config::transparent(&upstream), &[("NOTIFY_SOCKET", name)]);
        daemon.send(&call("1", "echo")).assert_ok();
    }
}

#[test]
fn a_reload_is_told_with_its_beginning_and_its_end() {
    let (ear, upstream) = (Ear::at_a_path(), Upstream::with_tools(&["echo"]));
    let config = Config::transparent(&upstream);
    let daemon = Daemon::start_with(&config, &[ear.environment()]);
    ear.wait_for("READY=1");
    for (config, status) in [
        (config.clone().endpoint("colour = \"blue\""), "the last reload failed"),
        (config.path("/new"), "serving 1 endpoint over 1 upstream; "),
    ] {
        let before = monotonic_usec();
        daemon.reload(&config);
        let begun = value(&ear.wait_for("RELOADING=1"), "MONOTONIC_USEC").parse::<u128>().expect("a number");
        assert!((before..=monotonic_usec()).contains(&begun), "{before} {begun}");
        let told = ear.wait_for("READY=1");
        assert!(value(&told, "STATUS").contains(status), "{told:?}");
        assert_eq!(value(&told, "STATUS").contains("failed"), status.contains("failed"));
    }
}

fn monotonic_usec() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).expect("it runs forwards").as_micros()
}

#[test]
fn the_drain_asks_for_its_time_and_says_what_it_waits_for() {
    let (ear, gates) = (Ear::at_a_path(), [Gate::default(), Gate::default()]);
    let held = gates.clone();
    let upstream = Upstream::calling(move |request| {
        let gate = &held[usize::from(request.client_id() == "2")];
        Reply::default().wait(gate).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"100ms\"\nmax = \"90s\"");
    let mut daemon = Daemon::start_with(&config, &[ear.environment()]);
    let mut connections = [daemon.connect(), daemon.connect()];
    for (connection, id) in connections.iter_mut().zip(["1", "2"]) {
        connection.write(&call(id, "echo").bytes());
    }
    upstream.wait_for("tools/call", 2);
    daemon.terminate();
    let told = ear.wait_for("STOPPING=1");
    let extended: u64 = value(&told, "EXTEND_TIMEOUT_USEC").parse().expect("a number");
    assert!(extended > 90_000_000, "{extended}");
    assert_eq!(value(&told, "STATUS"), "draining: 2 calls left");
    gates[0].open();
    connections[0].response().assert_ok();
    ear.wait_for("STATUS=draining: 1 call left");
    gates[1].open();
    connections[1].response().assert_ok();
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn signs_of_life_come_at_half_the_watchdogs_time_and_only_to_who_asked() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream);
    let ear = Ear::at_a_path();
    let _daemon = Daemon::start_with(&config, &[ear.environment(), ("WATCHDOG_USEC", "400000")]);
    for _ in 0..3 {
        ear.wait_for("WATCHDOG=1");
    }
    let ear = Ear::at_a_path();
    let another = [ear.environment(), ("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "1")];
    let _daemon = Daemon::start_with(&config, &another);
    assert_eq!(ear.count("WATCHDOG=1", Duration::from_millis(900)), 0);
}

/// Stops one thread, as a computation without end would, until its input ends.
const HOLD_A_THREAD: &str = "
import ctypes, os, sys
libc, thread = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
ATTACH, DETACH = 16, 17
if libc.ptrace(ATTACH, thread, None, None) != 0: sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, 0x40000000)
print('held', flush=True)
sys.stdin.read()
libc.ptrace(DETACH, thread, None, None)
";

#[test]
fn a_worker_that_hangs_silences_the_whole_process() {
    let (ear, upstream) = (Ear::at_a_path(), Upstream::with_tools(&["echo"]));
    let config = Config::transparent(&upstream).top("workers = 2");
    let daemon = Daemon::start_with(&config, &[ear.environment(), ("WATCHDOG_USEC", "400000")]);
    ear.wait_for("WATCHDOG=1");
    let mut holder = hold(thread_of(&daemon, "worker-1"));
    daemon.wait_for_log(0, "the watchdog", |line| line.contains("ERROR") && line.contains("a worker hangs"));
    ear.count("WATCHDOG=1", Duration::from_millis(10));
    assert_eq!(ear.count("WATCHDOG=1", Duration::from_millis(800)), 0, "one worker speaks for both");
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    ear.socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    ear.wait_for("WATCHDOG=1");
}

/// Nobody answers `/readyz` then, but what runs is finished, and the exit code says that it was a bug.
#[test]
fn a_control_thread_that_hangs_ends_the_process_in_order() {
    let gate = Gate::default();
    let passing = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&passing).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"10ms\"\nmax = \"8s\"");
    let ear = Ear::at_a_path();
    // The control thread may be silent for half of it.
    let mut daemon = Daemon::start_with(&config, &[ear.environment(), ("WATCHDOG_USEC", "10000000")]);
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    let mut holder = hold(daemon.pid());
    let hangs = |line: &str| line.contains("ERROR") && line.contains("the control thread hangs");
    daemon.wait_for_log(0, "the supervisor", hangs);
    ear.wait_for("STOPPING=1");
    gate.open();
    connection.response().assert_ok();
    daemon.wait_for_log(0, "the end", |line| line.contains("stopped"));
    // Until then the thread was not let go on.
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    assert_eq!(daemon.wait_exit().code(), Some(70));
}

#[test]
fn a_worker_that_hangs_does_not_hold_up_the_end() {
    let upstream = Upstream::with_tools(&["echo"]);
    let drain = "[drain]\nquiet = \"10ms\"\nmax = \"100ms\"";
    let config = Config::transparent(&upstream).top("workers = 2").section(drain);
    let mut daemon = Daemon::start(&config);
    let mut holder = hold(thread_of(&daemon, "worker-1"));
    daemon.terminate();
    daemon.wait_for_log(0, "that nobody waits any more", |line| line.contains("leaving all the same"));
    daemon.wait_for_log(0, "the end", |line| line.contains("stopped"));
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

/// As a disk that hangs would make it.
#[test]
fn a_journal_that_hangs_does_not_hold_up_the_end() {
    let (ear, upstream, folder) = (Ear::at_a_path(), Upstream::with_tools(&["echo"]), Folder::new());
    let config = Config::transparent(&upstream).top(&folder.key()).section("[drain]\nquiet = \"10ms\"");
    // The control thread may be silent for half of it.
    let mut daemon = Daemon::start_with(&config, &[ear.environment(), ("WATCHDOG_USEC", "10000000")]);
    let mut holder = hold(thread_of(&daemon, "journal"));
    daemon.terminate();
    let is_told =
        |line: &str| line.contains("WARN") && line.contains("the session journal is not written in time");
    daemon.wait_for_log(0, "that nobody waits any more", is_told);
    daemon.wait_for_log(0, "the end", |line| line.contains("stopped"));
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(!daemon.log().iter().any(|line| line.contains("hangs")), "{:?}", daemon.log());
}

/// A thread that is held until the input of this process ends.
fn hold(thread: u32) -> std::process::Child {
    let mut holder = Command::new("python3")
        .args(["-c", HOLD_A_THREAD, &thread.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut said = String::new();
    let output = holder.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut said).expect("it speaks");
    assert_eq!(said, "held\n", "this system lets nobody stop a thread");
    holder
}

fn thread_of(daemon: &Daemon, name: &str) -> u32 {
    let is_it = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|it| it.trim() == name);
    // A thread names itself when it first runs.
    let found = eventually("a thread of this name", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("it lives");
        threads.map(|thread| thread.expect("a thread").path()).find(is_it)
    });
    found.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number")
}

#[test]
fn passed_sockets_go_by_name_or_by_address() {
    let upstream = Upstream::with_tools(&["echo"]);
    for (names, configured) in [
        (["trunkline.socket", "trunkline.socket"], None),
        (["listener", "admin"], Some("127.0.0.1:0")),
        (["admin", "listener"], Some("127.0.0.1:0")),
    ] {
        let sockets = [open_socket(), open_socket()];
        let addresses = [sockets[0].1, sockets[1].1];
        let (main, admin) = if names[0] == "admin" { (1, 0) } else { (0, 1) };
        let written = |place: usize| configured.map_or_else(|| addresses[place].to_string(), str::to_owned);
        let config = at(&upstream, written(main))
            .section(&format!("[admin]\naddress = \"{}\"", written(admin).replace(":0", ":1")))
            .top("workers = 3");
        let passed = names.into_iter().zip(sockets).map(|(name, (socket, _))| (name, socket)).collect();
        let daemon = Daemon::start_passed(&config, &[], passed);
        assert_eq!(daemon.address(), addresses[main], "{names:?}");
        assert_eq!(daemon.admin(), addresses[admin], "{names:?}");
        for _ in 0..12 {
            daemon.send(&call("1", "echo")).assert_ok();
        }
        assert_eq!(daemon.get_admin("/readyz").status, 200);
    }
}

#[test]
fn what_was_passed_to_another_process_is_left_alone() {
    let upstream = Upstream::with_tools(&["echo"]);
    for environment in [
        &[("LISTEN_FDS", "1"), ("LISTEN_PID", "1")][..],
        &[("LISTEN_FDS", "1")],
        &[("LISTEN_FDS", "nonsense"), ("LISTEN_PID", "1")],
    ] {
        let daemon = Daemon::start_with(&Config::transparent(&upstream), environment);
        daemon.send(&call("1", "echo")).assert_ok();
    }
}

#[test]
fn a_socket_that_fits_nothing_is_refused_with_the_reason() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let unix: OwnedFd = UnixListener::bind(folder.path().join("s")).expect("a socket").into();
    let udp: OwnedFd = UdpSocket::bind("127.0.0.1:0").expect("a socket").into();
    let public: OwnedFd = TcpListener::bind("0.0.0.0:0").expect("a socket").into();
    let (listening, _address) = open_socket();
    let connection: OwnedFd = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        std::net::TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens").into()
    };
    let file: OwnedFd = std::fs::File::open("/dev/null").expect("it is there").into();
    let two = |name: &'static str| [name, name].map(|name| (name, open_socket().0)).into_iter().collect();
    for (passed, reason) in [
        (vec![("trunkline.socket", listening)], "nothing in the configuration listens at 127.0.0.1:"),
        (vec![("listener", unix)], "write an address and a port in ListenStream="),
        (vec![("listener", udp)], "neither a TCP nor a Unix stream socket"),
        (vec![("listener", file)], "neither a TCP nor a Unix stream socket"),
        (vec![("listener", connection)], "write Accept=no"),
        (vec![("listener", public)], "it would be open to a network"),
        (two("listener"), "nothing in the configuration listens"),
        (vec![("admin", open_socket().0)], "nothing in the configuration listens"),
        (vec![("listener-2", open_socket().0)], "nothing in the configuration listens"),
    ] {
        let mut daemon = Daemon::spawn_passed(&Config::transparent(&upstream), &[], passed);
        let line = daemon.wait_for_log(0, reason, |line| line.contains("ERROR"));
        assert!(line.contains(reason), "{line}");
        assert_eq!(daemon.wait_exit().code(), Some(78), "{line}");
    }
    for count in ["nonsense", "-1", "65", "99999999999999999999"] {
        let config = Config::transparent(&upstream);
        let mut daemon = Daemon::spawn_passed(&config, &[("LISTEN_FDS", count)], Vec::new());
        daemon.wait_for_log(0, "the reason", |line| line.contains("ERROR") && line.contains("LISTEN_FDS"));
        assert_eq!(daemon.wait_exit().code(), Some(78), "{count}");
    }
}

#[test]
fn every_way_to_fail_at_the_start_has_its_exit_code() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = || Config::transparent(&upstream);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let taken = taken.local_addr().map(|address| (address, taken)).expect("its address");
    let folder = Folder::new();
    let file = folder.path().join("a file");
    std::fs::write(&file, "").expect("written");
    let open = "allow_unauthenticated = true";
    let no_certificate = "address = \"127.0.0.1:0\"\n[listener.tls]\n\
                          certificates = [{ chain = \"/no/cert\", key = { file = \"/no/key\" } }]";
    let held = Daemon::start(&config().top(&folder.key()));
    for (code, config, said) in [
        (78, config().endpoint("colour = \"blue\""), "colour"),
        (78, config().listener("address = \"nonsense\""), "nonsense"),
        (69, at(&upstream, taken.0), "cannot listen at"),
        (69, config().listener("address = \"192.0.2.1:8080\"").endpoint(open), "cannot listen at"),
        (69, config().section(&format!("[admin]\naddress = \"{}\"", taken.0)), "cannot listen at"),
        (66, config().listener(no_certificate), "/no/cert"),
        (73, config().top(&format!("state_directory = \"{}/below\"", file.display())), "state directory"),
        (73, config().top("state_directory = \"/proc/trunkline\""), "state directory"),
        (73, config().top(&folder.key()), "used by another process: give each its own by `state_directory`"),
    ] {
        let (output, _) = trunkline(&["run"], Some(&config.to_string()));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{config}\n{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
    let path = folder.path().join("trunkline.toml");
    std::fs::write(&path, config().limits("connections_max = 10000").to_string()).expect("written");
    let script = "ulimit -n 4096; exec \"$@\"";
    let few_files = Command::new("/bin/sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_trunkline"), "run", "--config"])
        .arg(&path)
        .output()
        .expect("the shell starts");
    let stderr = String::from_utf8_lossy(&few_files.stderr);
    assert_eq!(few_files.status.code(), Some(71), "{stderr}");
    assert!(stderr.contains("LimitNOFILE"), "{stderr}");
    let (missing, _) = trunkline(&["run", "--config", "/no/such/file"], None);
    assert_eq!(missing.status.code(), Some(78));
    let (unknown, _) = trunkline(&["run", "--nonsense"], None);
    assert_eq!(unknown.status.code(), Some(2));
    drop(held);
}

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

/// Every command of the units, with the path that the package installs it at.
fn commands(unit: &str) -> Vec<Vec<&str>> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once('='));
    lines.map(|(_, command)| command.split_whitespace().collect()).collect()
}

#[test]
fn the_units_name_only_what_the_command_line_has() {
    let unit = std::fs::read_to_string(units().join("trunkline.service")).expect("it is there");
    let ours: Vec<_> =
        commands(&unit).into_iter().filter(|command| command[0] == "/usr/bin/trunkline").collect();
    assert!(ours.iter().any(|command| command[1] == "run") && ours.len() > 1, "{ours:?}");
    for command in ours {
        let (help, _) = trunkline(&[command[1], "--help"], None);
        assert!(help.status.success(), "{command:?}");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for flag in command.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "{flag} of {command:?} is not in:\n{help}");
        }
    }
    // Codes that mean the same however often it is started.
    assert!(unit.contains("\nRestartPreventExitStatus=2 78\n"), "{unit}");
}

/// A folder with the units as they would be installed, with this binary in place of the installed one.
fn installed(with_drop_ins: bool) -> Folder {
    let folder = Folder::new();
    for entry in std::fs::read_dir(units()).expect("it is there").map(|entry| entry.expect("an entry").path())
    {
        let to = folder.path().join(entry.file_name().expect("a name"));
        if entry.is_file() {
            install(&entry, &to);
        } else if with_drop_ins {
            std::fs::create_dir(&to).expect("made");
            for drop_in in std::fs::read_dir(&entry).expect("read").map(|it| it.expect("an entry").path()) {
                install(&drop_in, &to.join(drop_in.file_name().expect("a name")));
            }
        }
    }
    folder
}

fn install(from: &Path, to: &Path) {
    let unit = std::fs::read_to_string(from).expect("it is text");
    let unit = unit.replace("/usr/bin/trunkline", env!("CARGO_BIN_EXE_trunkline"));
    std::fs::write(to, unit).expect("written");
}

fn analyze(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).output().expect("systemd-analyze is there");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let version: u32 = {
        let (_, said) = analyze(&["--version"]);
        let number = said.split_whitespace().nth(1).and_then(|it| it.split('.').next()?.parse().ok());
        number.expect("a version")
    };
    for with_drop_ins in [false, true] {
        let folder = installed(with_drop_ins);
        let unit = |name: &str| folder.path().join(name).display().to_string();
        let units = ["trunkline.service", "trunkline.socket", "trunkline-admin.socket"].map(unit);
        let (is_clean, said) =
            analyze(&["verify", "--man=no", "--recursive-errors=one", &units[0], &units[1], &units[2]]);
        // An older systemd does not know notify-reload, says so, and ignores the line.
        let said: Vec<_> = said
            .lines()
            .filter(|line| version >= 253 || !(with_drop_ins && line.contains("notify-reload.conf")))
            .collect();
        let is_clean = is_clean || (with_drop_ins && version < 253);
        assert!(is_clean && said.is_empty(), "{said:#?}");
    }
}

#[test]
fn the_service_is_confined() {
    let folder = installed(false);
    let unit = folder.path().join("trunkline.service").display().to_string();
    let (is_below, said) = analyze(&["security", "--offline=true", "--threshold=15", "--no-pager", &unit]);
    assert!(is_below, "{said}");
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).expect("a verdict");
    println!("{overall}");
}

#[test]
fn the_drain_fits_into_the_time_that_the_unit_gives_it() {
    let seconds = |text: &str, before: &str, after: &str| -> u64 {
        let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        found.expect("it is written").0.parse().expect("in seconds")
    };
    let unit = std::fs::read_to_string(units().join("trunkline.service")).expect("it is there");
    let config = units().with_file_name("config").join("trunkline.toml");
    let config = std::fs::read_to_string(config).expect("it is there");
    let drain = config.split_once("\n[drain]\n").expect("a section").1;
    assert!(seconds(&unit, "\nTimeoutStopSec=", "s\n") > seconds(drain, "max = \"", "s\""));
}
