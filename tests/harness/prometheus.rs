//! A real Prometheus as a child process: on loopback, with a folder of its own, stopped when dropped. And `promtool`.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Connection;

/// Starting, scraping and evaluating takes it some seconds on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server that scrapes one target.
pub(crate) struct Prometheus {
    folder: PathBuf,
    address: SocketAddr,
    child: Child,
}

impl Prometheus {
    /// Starts one that scrapes `target` and evaluates the rules in these files.
    pub(crate) fn start(target: SocketAddr, rules: &[PathBuf]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("prometheus-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a directory can be made");
        let rules: Vec<String> = rules.iter().map(|file| format!("  - {}\n", file.display())).collect();
        let config = format!(
            "global:\n  scrape_interval: 250ms\n  scrape_timeout: 250ms\n  evaluation_interval: 250ms\nrule_files:\n{}scrape_configs:\n  - job_name: trunkline\n    static_configs:\n      - targets: [\"{target}\"]\n",
            rules.concat()
        );
        std::fs::write(folder.join("prometheus.yml"), config).expect("the configuration can be written");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a port");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed");
        let prometheus = Self { folder, address, child };
        prometheus.eventually("it is ready", || {
            let ready = prometheus.get("/-/ready")?;
            (ready.0 == 200).then_some(())
        });
        prometheus
    }

    /// Waits until a query has a result that fits, and returns its first value.
    pub(crate) fn wait_for(&self, query: &str, fits: impl Fn(f64) -> bool) -> f64 {
        self.eventually(query, || {
            let data = self.data(&format!("/api/v1/query?query={}", escape(query)))?;
            let value = data["result"][0]["value"][1].as_str()?.parse().ok()?;
            fits(value).then_some(value)
        })
    }

    /// The data of an answer of its HTTP API.
    pub(crate) fn data(&self, target: &str) -> Option<Value> {
        let (status, body) = self.get(target)?;
        let mut answer: Value = serde_json::from_str(&body).ok()?;
        assert_eq!((status, &answer["status"]), (200, &Value::from("success")), "{target}: {body}");
        Some(answer["data"].take())
    }

    fn get(&self, target: &str) -> Option<(u16, String)> {
        let mut connection = Connection::try_open(self.address)?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        connection.write(request.as_bytes());
        let response = connection.try_response().ok()?;
        Some((response.status, response.text()))
    }

    fn eventually<T>(&self, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = attempt() {
                return value;
            }
            assert!(Instant::now() < end, "did not happen in {PATIENCE:?} at {}: {what}", self.address);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs `promtool`, in `directory`, with something on its standard input.
pub(crate) fn promtool(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("promtool ends");
    let _ = writer.join();
    output
}

fn escape(query: &str) -> String {
    query.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"))
}
