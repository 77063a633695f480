//! A stub MCP server for load tests: both eras over HTTP/1.1 keep-alive, as cheap as it can be without being blind.
//!
//! It checks what a strict server checks about a modern call (headers against body, a tool it knows), so a proxy
//! that forwards wrongly shows up as errors and not as a good figure. A legacy call needs a session it handed out.
//! It deliberately does no HTTP/2, no TLS and does not look at origins. Prints `listening ADDRESS` on standard output
//! when it is ready.
//!
//! With `--stdio` it is a child that answers on standard output instead, line by line.
//!
//! A GET of a legacy session is kept open and says nothing. A `subscriptions/listen` is acknowledged and kept open; `POST /notice`, which is not MCP, makes every open one that
//! asked for it send `notifications/tools/list_changed`, though the tools stay what they are.

mod http1;
mod pipe;
mod replies;
mod request;
mod results;
mod sessions;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use crate::replies::Replies;
use crate::request::{Request, Subscription};
use crate::sessions::Sessions;

/// A stub MCP server for load tests.
#[derive(Parser, Clone)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// How many tools there are: `tool_0`, `tool_1`, …
    #[arg(long, default_value_t = 10)]
    tools: usize,
    /// About how large the body of a tool's reply is.
    #[arg(long, default_value_t = 256)]
    reply_bytes: usize,
    /// How long to wait before the reply, and between two events of a stream. `POST /delay/N`, which is not MCP, makes
    /// it N.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// How long its lists are fresh, as it says.
    #[arg(long, default_value_t = 60_000)]
    ttl_ms: u64,
    /// Answer tool calls as a stream of this many events, the last of them the result; 0 answers as JSON.
    #[arg(long, default_value_t = 0)]
    sse: usize,
    /// Give these events ids.
    #[arg(long, requires = "sse")]
    event_ids: bool,
    /// Answer what comes on standard input instead of listening.
    #[arg(long)]
    stdio: bool,
    /// Threads, each with a listening socket of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let mut options = Options::parse();
    if options.stdio {
        return Ok(pipe::serve(&Replies::new(options.tools, options.reply_bytes, options.ttl_ms))?);
    }
    let mut listeners = Vec::new();
    for _ in 0..options.threads.max(1) {
        let listener = listen(options.address)?;
        options.address = listener.local_addr()?;
        listeners.push(listener);
    }
    println!("listening {}", options.address);
    let shared = Shared {
        sessions: Arc::new(Sessions::new()),
        notices: watch::Sender::new(0),
        delay_ms: Arc::new(AtomicU64::new(options.delay_ms)),
    };
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let (options, shared) = (options.clone(), shared.clone());
            thread::spawn(move || run(listener, options, shared))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    Ok(())
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn run(listener: std::net::TcpListener, options: Options, shared: Shared) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener)?;
        let replies = Replies::new(options.tools, options.reply_bytes, options.ttl_ms);
        let server = Rc::new(Server { options, replies, shared });
        loop {
            let (stream, _) = listener.accept().await?;
            let server = Rc::clone(&server);
            // A connection that breaks off is the other end's business.
            tokio::task::spawn_local(async move { server.serve(stream).await.ok() });
        }
    })
}

/// What all threads have in common.
#[derive(Clone)]
struct Shared {
    sessions: Arc<Sessions>,
    /// How many notices were asked for.
    notices: watch::Sender<u64>,
    delay_ms: Arc<AtomicU64>,
}

struct Server {
    options: Options,
    replies: Replies,
    shared: Shared,
}

impl Server {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match self.converse(&mut stream).await? {
            Some(subscription) => self.keep_open(&subscription, stream).await,
            None => Ok(()),
        }
    }

    /// Answers requests until the other end closes or subscribes; then the connection is the subscription's.
    async fn converse(&self, stream: &mut TcpStream) -> io::Result<Option<Subscription>> {
        let mut input = Vec::with_capacity(16 * 1024);
        let mut output = Vec::with_capacity(16 * 1024);
        loop {
            while let Some(message) = http1::parse(&input).map_err(|_| io::ErrorKind::InvalidData)? {
                let request = Request::read(&message);
                if let Some(subscription) = self.stream_for(&request) {
                    stream.write_all(&output).await?;
                    return Ok(Some(subscription));
                }
                if request.asks_for_notice() {
                    self.shared.notices.send_modify(|count| *count += 1);
                    replies::write_empty("202 Accepted", &mut output);
                } else if let Some(delay_ms) = request.asks_for_delay_ms() {
                    self.shared.delay_ms.store(delay_ms, Ordering::Relaxed);
                    replies::write_empty("202 Accepted", &mut output);
                } else if self.options.sse > 0 && request.is_tool_call() {
                    self.stream_reply(&request, stream).await?;
                } else {
                    self.pause().await;
                    self.replies.write(&request, &self.shared.sessions, &mut output);
                }
                let length = message.length;
                input.drain(..length);
            }
            if !output.is_empty() {
                stream.write_all(&output).await?;
                output.clear();
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// What the connection is kept open for, if it is.
    fn stream_for(&self, request: &Request<'_>) -> Option<Subscription> {
        if request.opens_stream() && self.shared.sessions.stage(request.session).is_some() {
            return Some(Subscription::default());
        }
        request.subscription()
    }

    async fn stream_reply(&self, request: &Request<'_>, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(replies::STREAM_HEAD).await?;
        for event in 1..=self.options.sse {
            self.pause().await;
            let mut chunk = Vec::new();
            let event_id = self.options.event_ids.then_some(event);
            if event < self.options.sse {
                replies::write_progress(request, (event, self.options.sse), event_id, &mut chunk);
            } else {
                self.replies.write_last_event(request, event_id, &mut chunk);
            }
            stream.write_all(&chunk).await?;
        }
        Ok(())
    }

    /// A subscription, until the client closes it. Whatever else comes on its connection is not read as HTTP.
    async fn keep_open(&self, subscription: &Subscription, mut stream: TcpStream) -> io::Result<()> {
        let mut notices = self.shared.notices.subscribe();
        stream.write_all(&[replies::STREAM_HEAD, &subscription.acknowledgement].concat()).await?;
        let mut ignored = [0; 64];
        loop {
            tokio::select! {
                read = stream.read(&mut ignored) => if read? == 0 { return Ok(()) },
                changed = notices.changed() => match (changed, &subscription.tools_list_changed) {
                    (Err(_), _) => return Ok(()),
                    (Ok(()), Some(notice)) => stream.write_all(notice).await?,
                    (Ok(()), None) => {}
                },
            }
        }
    }

    async fn pause(&self) {
        let delay_ms = self.shared.delay_ms.load(Ordering::Relaxed);
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
    }
}
