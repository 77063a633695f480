//! A real redis-server that keeps a log, and a proxy before it that cuts connections at a chosen commit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use net::socket::{UnixListener, UnixStream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;

use crate::redis::Redis;
use crate::redis::run::{PeerEvent, run};
use crate::telemetry::metrics::Metrics;

const DEADLINE: Duration = Duration::from_secs(20);
/// Stands in each commit, and in nothing else.
const IN_COMMITS: &[u8] = b"sign-in-counter";
/// The most that is read at once: more than any command of these tests.
const CHUNK_BYTES: usize = 256 * 1024;

/// A server in a directory of its own; what it has confirmed is there after it was killed.
pub(super) struct RedisServer {
    folder: tempfile::TempDir,
    child: Child,
    /// Lines of `[shared]` that say who gateways are to it.
    login: String,
}

impl RedisServer {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("session.key"), "7".repeat(64)).expect("a key file");
        let child = spawn(folder.path());
        await_server(folder.path()).await;
        Self { folder, child, login: String::new() }
    }

    /// Makes a user by this command. Gateways are that one from now on, with its password from the book.
    pub(super) async fn restrict(&mut self, command: &str) {
        let mut stream = UnixStream::connect(self.socket()).await.expect("it listens");
        stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("it can be written");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"+OK\r\n", "{command}");
        let password = self.folder.path().join("password");
        std::fs::write(&password, "PASSWORD").expect("a file");
        self.login =
            format!("username = \"trunkline\"\npassword = {{ file = \"{}\" }}\n", password.display());
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis")
    }

    /// Kills it, and starts it again with what its log has.
    pub(super) async fn kill_and_start(&mut self) {
        self.kill();
        self.child = spawn(self.folder.path());
        await_server(self.folder.path()).await;
    }

    /// Kills it, and starts it again without any data.
    pub(super) async fn kill_and_start_empty(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(self.folder.path().join("appendonlydir"));
        let _ = std::fs::remove_file(self.folder.path().join("appendonly.aof"));
        self.child = spawn(self.folder.path());
        await_server(self.folder.path()).await;
    }

    /// A connection of a gateway, by this socket. What others tell is handed to `hear`.
    pub(super) async fn connect(&self, socket: &Path, hear: impl Fn(PeerEvent) + 'static) -> Arc<Redis> {
        let text = format!(
            "[listener]\naddress = \"127.0.0.1:0\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\
             [upstream.up]\nurl = \"http://127.0.0.1:1/mcp\"\n[session]\nkey = {{ file = \"{}\" }}\n\
             [shared]\nredis = \"unix://{}\"\ntimeout = \"10s\"\n{}",
            self.folder.path().join("session.key").display(),
            socket.display(),
            self.login
        );
        let config = config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("test", &text)));
        let shared = config.shared.expect("a section");
        let redis =
            Redis::new(&shared, Metrics::new(10).expect("metrics").shared.clone()).expect("no secret");
        spawn_local(run(Arc::clone(&redis), || "key".to_owned(), hear));
        redis.first_connection().await;
        assert!(redis.is_connected());
        redis
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(self.socket());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &Path) -> Child {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--unixsocket"])
        .arg(folder.join("redis"));
    command.arg("--dir").arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("redis-server is installed")
}

/// Waits until it answers: it listens before it has read its log.
async fn await_server(folder: &Path) {
    eventually("redis-server answers", async || {
        let mut stream = UnixStream::connect(folder.join("redis")).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.ok()?;
        (&answer == b"+PONG").then_some(())
    })
    .await;
}

/// Asks again and again until there is an answer.
pub(super) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("it did not happen: {what}"))
}

/// The place at which a connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The server never sees the commit.
    Before,
    /// The server has done it, and its answer gets lost.
    After,
}

/// A socket before the server at which the connection of a commit can be reset.
pub(super) struct CuttingProxy {
    socket: PathBuf,
    cut: Arc<Mutex<Option<Cut>>>,
}

impl CuttingProxy {
    pub(super) fn start(server: &RedisServer) -> Self {
        let socket = server.folder.path().join("proxy");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (cut, to) = (Arc::new(Mutex::new(None)), server.socket());
        let cutting = Arc::clone(&cut);
        spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                spawn_local(forward(client, to.clone(), Arc::clone(&cutting)));
            }
        });
        Self { socket, cut }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Resets the connection of the next commit.
    pub(super) fn cut(&self, cut: Cut) {
        *self.cut.lock() = Some(cut);
    }

    /// True once that has happened.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.lock().is_none()
    }
}

async fn forward(mut client: UnixStream, to: PathBuf, cut: Arc<Mutex<Option<Cut>>>) {
    let Ok(mut server) = UnixStream::connect(to).await else { return };
    let (mut asked, mut answered) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                let command = &asked[..count];
                let is_commit = command.windows(IN_COMMITS.len()).any(|window| window == IN_COMMITS);
                let chosen = if is_commit { cut.lock().take() } else { None };
                if chosen == Some(Cut::Before) || server.write_all(command).await.is_err() {
                    return;
                }
                if chosen == Some(Cut::After) {
                    // It does what it was told, and closes.
                    let _ = server.shutdown().await;
                    while server.read(&mut answered).await.is_ok_and(|count| count > 0) {}
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
