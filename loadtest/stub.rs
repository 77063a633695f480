//! A stub MCP server for load tests: both eras over HTTP/1.1 keep-alive, as cheap as it can be without being blind.
//!
//! It checks what a strict server checks about a modern call (headers against body, a tool it knows), so a proxy
//! that forwards wrongly shows up as errors and not as a good figure. It deliberately does no HTTP/2, no TLS, keeps
//! no sessions and does not look at origins. Prints `listening ADDRESS` on standard output when it is ready.

mod http1;
mod replies;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};

use crate::replies::{Replies, Request};

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
    /// How long to wait before the reply, and between two events of a stream.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Answer tool calls as a stream of this many events, the last of them the result; 0 answers as JSON.
    #[arg(long, default_value_t = 0)]
    sse: usize,
    /// Threads, each with a listening socket of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let mut options = Options::parse();
    let mut listeners = Vec::new();
    for _ in 0..options.threads.max(1) {
        let listener = listen(options.address)?;
        options.address = listener.local_addr()?;
        listeners.push(listener);
    }
    println!("listening {}", options.address);
    let threads: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let options = options.clone();
            thread::spawn(move || run(listener, options))
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

fn run(listener: std::net::TcpListener, options: Options) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener)?;
        let server = Rc::new(Server { replies: Replies::new(options.tools, options.reply_bytes), options });
        loop {
            let (stream, _) = listener.accept().await?;
            let server = Rc::clone(&server);
            // A connection that breaks off is the other end's business.
            tokio::task::spawn_local(async move { server.serve(stream).await.ok() });
        }
    })
}

struct Server {
    options: Options,
    replies: Replies,
}

impl Server {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Vec::with_capacity(16 * 1024);
        let mut output = Vec::with_capacity(16 * 1024);
        loop {
            while let Some(message) = http1::parse(&input).map_err(|_| io::ErrorKind::InvalidData)? {
                let request = Request::read(&message);
                if self.options.sse > 0 && request.is_tool_call() {
                    self.stream_reply(&request, &mut stream).await?;
                } else {
                    self.pause().await;
                    self.replies.write(&request, &mut output);
                }
                let length = message.length;
                input.drain(..length);
            }
            if !output.is_empty() {
                stream.write_all(&output).await?;
                output.clear();
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn stream_reply(&self, request: &Request<'_>, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(replies::STREAM_HEAD).await?;
        for event in 1..=self.options.sse {
            self.pause().await;
            let mut chunk = Vec::new();
            if event < self.options.sse {
                replies::write_progress(event, self.options.sse, &mut chunk);
            } else {
                self.replies.write_last_event(request, &mut chunk);
            }
            stream.write_all(&chunk).await?;
        }
        Ok(())
    }

    async fn pause(&self) {
        if self.options.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.options.delay_ms)).await;
        }
    }
}
