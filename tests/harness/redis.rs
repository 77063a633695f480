//! A real redis-server as a child process: at a socket of its own, without a file, stopped when dropped.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::tls::{Certificates, Identity};
use super::{DEADLINE, eventually};

/// A server that can be stopped and started again at the same place.
pub(crate) struct Redis {
    folder: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Redis {
    /// A server that answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with further arguments, such as `--requirepass`.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let mut redis = Self::not_started(arguments);
        redis.go_on();
        redis
    }

    /// Where a server may be started later.
    pub(crate) fn not_started(arguments: &[&str]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Paths of sockets must be short.
        let name = format!("redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a directory can be made");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { folder, arguments, child: None }
    }

    /// Starts it, without any data.
    pub(crate) fn go_on(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(&self.folder)
            .arg("--unixsocket")
            .arg(self.socket())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.child = Some(child);
        eventually("redis-server listens", || UnixStream::connect(self.socket()).ok());
    }

    /// Kills it. What it knew is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Stops it without a word: connections stay, and nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// A server that also speaks TLS with this certificate, at a port.
    pub(crate) fn start_tls(files: &Certificates, identity: &Identity) -> (Self, u16) {
        let chain = files.write("redis.pem", &identity.chain).display().to_string();
        let key = files.write("redis.key", &identity.key).display().to_string();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port").port();
        let number = port.to_string();
        let tls = ["--tls-port", &number, "--tls-auth-clients", "no", "--tls-ca-cert-file", &chain];
        let files = ["--tls-cert-file", &chain, "--tls-key-file", &key, "--bind", "127.0.0.1"];
        (Self::start_with(&[tls, files].concat()), port)
    }

    /// The keys that make it what is shared; `lines` are further ones.
    pub(crate) fn section(&self, lines: &str) -> String {
        format!("[shared]\nredis = \"unix://{}\"\n{lines}", self.socket().display())
    }

    /// Runs a command and returns everything that was answered, as it came.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("redis-server listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let authentication = self.arguments.iter().position(|argument| argument == "--requirepass");
        if let Some(password) = authentication.and_then(|at| self.arguments.get(at + 1)) {
            stream.write_all(format!("AUTH {password}\r\n").as_bytes()).expect("it can be written");
        }
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(request.as_bytes()).expect("it can be written");
        let (mut answer, mut stream) = (Vec::new(), BufReader::new(stream));
        if authentication.is_some() {
            read_answer(&mut stream, &mut Vec::new());
        }
        read_answer(&mut stream, &mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Everything that is kept: each key and its value, line by line.
    pub(crate) fn everything(&self) -> String {
        let keys = self.command(&["KEYS", "*"]);
        let keys = keys.lines().filter(|line| !line.is_empty());
        let read = |key| match self.command(&["TYPE", key]).trim() {
            "hash" => self.command(&["HGETALL", key]),
            _ => self.command(&["GET", key]),
        };
        keys.flat_map(|key| [key.to_owned(), "\n".to_owned(), read(key), "\n".to_owned()]).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it can be signalled");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Appends what an answer says, one element a line.
fn read_answer(stream: &mut impl BufRead, answer: &mut Vec<u8>) {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    let (kind, said) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let bytes = said.parse::<i64>().expect("a length");
            let mut body = vec![0; usize::try_from(bytes).map_or(0, |bytes| bytes + 2)];
            stream.read_exact(&mut body).expect("a body");
            answer.extend_from_slice(body.strip_suffix(b"\r\n").unwrap_or_default());
            answer.push(b'\n');
        }
        "*" => {
            for _ in 0..said.parse::<usize>().expect("a count") {
                read_answer(stream, answer);
            }
        }
        _ => {
            answer.extend_from_slice(said.as_bytes());
            answer.push(b'\n');
        }
    }
}
