//! Idle `subscriptions/listen` streams, opened and counted as standard input says, one JSON line for each command.
//!
//! Every stream's first event must acknowledge it with its own id, every later one must carry that id. A notice is
//! timed from before the stub is asked for it to when a stream has the whole event. Deliberately nothing is opened
//! again: a stream that ends is an error of the server under test.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use memchr::memmem;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::calls::{Call, FIRST_ID, address};
use crate::tally::Fault;
use crate::{Options, http1};

/// How long to wait for the last acknowledgement or notice.
const PATIENCE: Duration = Duration::from_secs(30);
/// Streams that are being opened at once.
const OPENING_MAX: usize = 64;

/// Does what standard input says until it ends.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let notice_url = options.notice.clone();
    let streams = Rc::new(Streams {
        address: address(&options.url)?,
        listen: Call::listen(&options),
        opening: Semaphore::new(OPENING_MAX),
        opened: Cell::new(0),
        acknowledged: Cell::new(0),
        faults: RefCell::default(),
        asked: Cell::new(None),
        delays: RefCell::default(),
        unasked: Cell::new(0),
        progress: Notify::new(),
    });
    let mut commands = commands();
    while let Some(command) = commands.recv().await {
        let answer = match command.split_once(' ').unwrap_or((&command, "")) {
            ("open", count) => streams.open(count.parse().context("open takes a number")?).await,
            ("notice", "") => streams.notice(notice_url.as_ref().context("--notice is missing")?).await?,
            _ => bail!("unknown command: {command}"),
        };
        println!("{answer}");
    }
    Ok(())
}

/// The lines of standard input, read by a thread because it may be a terminal.
fn commands() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

struct Streams {
    address: SocketAddr,
    listen: Call,
    opening: Semaphore,
    /// Also those that failed.
    opened: Cell<u64>,
    acknowledged: Cell<u64>,
    faults: RefCell<BTreeMap<Fault, u64>>,
    /// When the last notice was asked for, and which one it is.
    asked: Cell<Option<(Instant, u64)>>,
    /// How long that notice took, for each stream that has it.
    delays: RefCell<Vec<Duration>>,
    /// Notices that came before any was asked for, or twice.
    unasked: Cell<u64>,
    progress: Notify,
}

impl Streams {
    /// Opens streams until there are `count`, and waits until all are acknowledged.
    async fn open(self: &Rc<Self>, count: u64) -> serde_json::Value {
        let begin = Instant::now();
        for number in self.opened.get()..count {
            let streams = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if let Err(fault) = streams.hold(FIRST_ID + number).await {
                    *streams.faults.borrow_mut().entry(fault).or_default() += 1;
                    streams.progress.notify_one();
                }
            });
        }
        self.opened.set(count);
        self.wait_for(|| self.acknowledged.get() + self.failed() >= count).await;
        json!({
            "streams": count,
            "acknowledged": self.acknowledged.get(),
            "opening_s": begin.elapsed().as_secs_f64(),
            "errors": self.failed(),
            "errors_by_kind": self.faults_by_name(),
        })
    }

    /// Asks for a notice, and waits until all streams that are acknowledged have it.
    async fn notice(&self, url: &http::Uri) -> anyhow::Result<serde_json::Value> {
        let mut stub = TcpStream::connect(address(url)?).await.context("the stub cannot be reached")?;
        let request = format!("POST {} HTTP/1.1\r\nHost: stub\r\nContent-Length: 0\r\n\r\n", url.path());
        self.delays.take();
        let turn = self.asked.get().map_or(1, |(_, turn)| turn + 1);
        self.asked.set(Some((Instant::now(), turn)));
        stub.write_all(request.as_bytes()).await?;
        let holding = || usize::try_from(self.acknowledged.get()).unwrap_or(usize::MAX);
        self.wait_for(|| self.delays.borrow().len() >= holding()).await;
        let mut delays = self.delays.borrow().clone();
        delays.sort_unstable();
        let ms = |share: f64| {
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let index = (delays.len().saturating_sub(1) as f64 * share) as usize;
            delays.get(index).map(|delay| delay.as_secs_f64() * 1_000.0)
        };
        Ok(json!({
            "streams": self.acknowledged.get(),
            "delivered": delays.len(),
            "first_ms": ms(0.0),
            "p50_ms": ms(0.5),
            "p99_ms": ms(0.99),
            "last_ms": ms(1.0),
            "unasked": self.unasked.get(),
            "errors": self.failed(),
            "errors_by_kind": self.faults_by_name(),
        }))
    }

    /// One stream, from the connection to its end, which is a fault.
    async fn hold(&self, id: u64) -> Result<(), Fault> {
        // Closed only when the process ends, hence never.
        let permit = self.opening.acquire().await.map_err(|_| Fault::Connect)?;
        let mut stream = TcpStream::connect(self.address).await.map_err(|_| Fault::Connect)?;
        let mut request = Vec::new();
        self.listen.write(id, b"", &mut request);
        stream.write_all(&request).await.map_err(|_| Fault::Closed)?;
        drop(request);
        let mut inbox = Inbox::default();
        let mut permit = Some(permit);
        let mut turn_seen = 0;
        loop {
            while let Some(event) = inbox.next_event()? {
                let Event { method, params } =
                    serde_json::from_slice(&event).map_err(|_| Fault::Malformed)?;
                if params.meta.subscription_id != id {
                    return Err(Fault::WrongId);
                }
                match (method.as_str(), permit.take()) {
                    ("notifications/subscriptions/acknowledged", Some(_))
                        if params.notifications.tools_list_changed =>
                    {
                        self.acknowledged.set(self.acknowledged.get() + 1);
                        self.progress.notify_one();
                    }
                    ("notifications/tools/list_changed", None) => self.take_notice(&mut turn_seen),
                    _ => return Err(Fault::Malformed),
                }
            }
            if stream.read_buf(&mut inbox.framed).await.map_err(|_| Fault::Closed)? == 0 {
                return Err(Fault::Closed);
            }
        }
    }

    fn take_notice(&self, turn_seen: &mut u64) {
        match self.asked.get() {
            Some((begin, turn)) if turn > *turn_seen => {
                *turn_seen = turn;
                self.delays.borrow_mut().push(begin.elapsed());
                self.progress.notify_one();
            }
            _ => self.unasked.set(self.unasked.get() + 1),
        }
    }

    async fn wait_for(&self, condition: impl Fn() -> bool) {
        let met = async {
            while !condition() {
                self.progress.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, met).await.ok();
    }

    fn failed(&self) -> u64 {
        self.faults.borrow().values().sum()
    }

    fn faults_by_name(&self) -> BTreeMap<String, u64> {
        self.faults.borrow().iter().map(|(fault, count)| (fault.name(), *count)).collect()
    }
}

#[derive(Deserialize)]
struct Event {
    method: String,
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Meta,
    #[serde(default)]
    notifications: Notifications,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    subscription_id: u64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Notifications {
    #[serde(default)]
    tools_list_changed: bool,
}

/// Bytes of one stream's reply, from the status line on.
#[derive(Default)]
struct Inbox {
    /// As they came, with chunked framing.
    framed: Vec<u8>,
    /// Without it, up to an event that is not whole yet.
    text: Vec<u8>,
    is_past_head: bool,
}

impl Inbox {
    /// The data of the next whole event; comments and events without data are passed over.
    fn next_event(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if !self.is_past_head {
            let Some(head) = http1::parse_head(&self.framed) else { return Ok(None) };
            let status = head.start_line().get(9..12).unwrap_or_default();
            if status != b"200" {
                return Err(Fault::Status(String::from_utf8_lossy(status).into_owned()));
            }
            if !head.header("content-type").is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
                return Err(Fault::Malformed);
            }
            let length = head.length;
            self.framed.drain(..length);
            self.is_past_head = true;
        }
        while let Some((data, length)) = http1::next_chunk(&self.framed).map_err(|_| Fault::Malformed)? {
            if data.is_empty() {
                return Err(Fault::Closed);
            }
            self.text.extend_from_slice(data);
            self.framed.drain(..length);
        }
        while let Some(end) = memmem::find(&self.text, b"\n\n") {
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            let data = event.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"data:"));
            if let Some(data) = data.filter(|data| !data.trim_ascii().is_empty()) {
                return Ok(Some(data.to_vec()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

    fn events(bytes: &[u8], step: usize) -> Result<Vec<String>, Fault> {
        let (mut inbox, mut events) = (Inbox::default(), Vec::new());
        for part in bytes.chunks(step) {
            inbox.framed.extend_from_slice(part);
            while let Some(event) = inbox.next_event()? {
                events.push(String::from_utf8(event).unwrap());
            }
        }
        Ok(events)
    }

    #[test]
    fn events_are_found_however_they_arrive() {
        let text = format!("{HEAD}8\r\ndata: a\n\r\n1\r\n\n\r\n6\r\n: b\n\nd\r\nA\r\nata:{{}}\n\nda\r\n");
        for step in 1..text.len() {
            assert_eq!(events(text.as_bytes(), step).unwrap(), [" a", "{}"], "{step}");
        }
    }

    #[test]
    fn what_is_no_stream_is_a_fault() {
        let refused = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        let ended = format!("{HEAD}0\r\n\r\n");
        for (text, fault) in [
            (refused, Fault::Status("503".into())),
            (json, Fault::Malformed),
            (ended.as_str(), Fault::Closed),
        ] {
            assert_eq!(events(text.as_bytes(), text.len()), Err(fault), "{text}");
        }
    }
}
