//! Idle streams, opened and counted as standard input says, one JSON line for each command.
//!
//! Modern ones are `subscriptions/listen`: the first event must acknowledge it with its own id, every later one must
//! carry that id. A notice is timed from before the stub is asked for it to when a stream has the whole event. Legacy
//! ones are the GETs of sessions of their own, open when they are answered. Deliberately nothing is opened again: a
//! stream that ends is an error of the server under test.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::calls::{Call, FIRST_ID, address, check};
use crate::inbox::Inbox;
use crate::load::Connection;
use crate::tally::Fault;
use crate::{Era, Options};

/// How long to wait for the last acknowledgement or notice.
const PATIENCE: Duration = Duration::from_secs(30);
/// Streams that are being opened at once.
const OPENING_MAX: usize = 64;

/// Does what standard input says until it ends.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let notice_url = options.notice.clone();
    let streams = Rc::new(Streams {
        address: address(&options.url)?,
        kind: Kind::new(&options),
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
            ("state", "") => streams.state(),
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
    kind: Kind,
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

/// What is held open.
enum Kind {
    Listen(Call),
    Session {
        opening: [Call; 2],
        /// Makes the server under test open a session at its upstream.
        call: Option<Call>,
        stream: Call,
    },
}

impl Kind {
    fn new(options: &Options) -> Self {
        if options.era == Era::Modern {
            return Self::Listen(Call::listen(options));
        }
        Self::Session {
            opening: Call::opening(options),
            call: options.call_first.then(|| Call::first(options)),
            stream: Call::session_stream(options),
        }
    }
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
        let mut state = self.state();
        state["opening_s"] = begin.elapsed().as_secs_f64().into();
        state
    }

    /// What is open, and what went wrong so far.
    fn state(&self) -> serde_json::Value {
        json!({
            "streams": self.opened.get(),
            "acknowledged": self.acknowledged.get(),
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
        match &self.kind {
            Kind::Listen(listen) => self.hold_subscription(listen, id).await,
            Kind::Session { opening, call, stream } => {
                self.hold_session(opening, call.as_ref(), stream, id).await
            }
        }
    }

    async fn hold_session(
        &self,
        opening: &[Call; 2],
        call: Option<&Call>,
        stream: &Call,
        id: u64,
    ) -> Result<(), Fault> {
        let permit = self.opening.acquire().await.map_err(|_| Fault::Connect)?;
        let mut connection = Connection::connect(self.address, None).await?;
        connection.initialize(opening).await?;
        if let Some(call) = call {
            connection.exchange(call, id, |reply| check(reply, id, false)).await?;
        }
        let mut request = Vec::new();
        stream.write(id, &connection.session, &mut request);
        // What it has buffered is not needed any more.
        let mut stream = connection.stream;
        stream.write_all(&request).await.map_err(|_| Fault::Closed)?;
        drop(request);
        let (mut inbox, mut permit) = (Inbox::default(), Some(permit));
        while !inbox.has_ended {
            if stream.read_buf(&mut inbox.framed).await.map_err(|_| Fault::Closed)? == 0 {
                break;
            }
            // Whatever an idle session is told is no fault: keep-alives, changes of lists.
            while inbox.next_event()?.is_some() {}
            if inbox.is_past_head && permit.take().is_some() {
                self.acknowledged.set(self.acknowledged.get() + 1);
                self.progress.notify_one();
            }
        }
        Err(Fault::Closed)
    }

    async fn hold_subscription(&self, listen: &Call, id: u64) -> Result<(), Fault> {
        // Closed only when the process ends, hence never.
        let permit = self.opening.acquire().await.map_err(|_| Fault::Connect)?;
        let mut stream = TcpStream::connect(self.address).await.map_err(|_| Fault::Connect)?;
        let mut request = Vec::new();
        listen.write(id, b"", &mut request);
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
            let ended = inbox.has_ended;
            if ended || stream.read_buf(&mut inbox.framed).await.map_err(|_| Fault::Closed)? == 0 {
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
