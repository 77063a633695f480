//! Sockets as the gateway wants them.
//!
//! Dead peers are noticed on both sides: keep-alive probes while idle, `TCP_USER_TIMEOUT` while bytes wait. What a peer does
//! not read stays where it came from: the kernel takes little of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The gateway names the types of its sockets by these, so that another network can be put in their place.
pub use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How long written bytes may stay unacknowledged, or a peer's window closed.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
/// As much the kernel keeps of what it cannot send yet. By default that is 4 MiB for each connection whose peer does not read,
/// which nobody is charged for. Whoever reads is served as fast: only what is not on its way counts.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A socket that listens, of either kind.
#[derive(Debug)]
pub enum ListenerSocket {
    /// At an address.
    Tcp(std::net::TcpListener),
    /// At a path.
    Unix(std::os::unix::net::UnixListener),
}

impl ListenerSocket {
    /// The same socket for another worker: whoever is first accepts.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
        })
    }
}

/// Accepts connections of either kind.
#[derive(Debug)]
pub enum ClientAcceptor {
    /// Of a network.
    Tcp(TcpListener),
    /// Of this machine.
    Unix(UnixListener),
}

impl ClientAcceptor {
    /// Registers it with the runtime of this thread.
    pub fn new(socket: ListenerSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenerSocket::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket)?),
            ListenerSocket::Unix(socket) => Self::Unix(UnixListener::from_std(socket)?),
        })
    }

    /// The next connection, and where it comes from if that is a network.
    pub async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| (stream, Some(peer))),
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((as_one_of_tcp(stream)?, None))
            }
        }
    }
}

/// Both are streams of bytes behind a descriptor that is read, written and closed alike, so that a call need not tell them
/// apart. What only TCP has must not be asked of it.
fn as_one_of_tcp(stream: UnixStream) -> io::Result<TcpStream> {
    let descriptor = OwnedFd::from(stream.into_std()?);
    TcpStream::from_std(std::net::TcpStream::from(descriptor))
}

/// A socket of a listener.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The socket.
    pub socket: ListenerSocket,
    /// Whether others hold it, too: what nobody here accepts waits for the next process.
    pub outlives_us: bool,
}

/// Sets what every connection needs.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_AFTER),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(())
}

/// A listening socket. With `is_shared`, several may listen at one address and the kernel spreads
/// connections over them.
pub fn listen(address: SocketAddr, is_shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if is_shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection that first gives back what was already read of it, and tells how many bytes each read brought.
///
/// Deliberately not vectored: hyper then copies head and body into one buffer, which for messages of a few
/// kilobytes costs less than a second vector (7 % of a call's CPU on both sides together).
pub struct Observed<S, F> {
    start: Vec<u8>,
    inner: S,
    on_read: F,
}

impl<S, F: Fn(usize)> Observed<S, F> {
    /// `start` was read before; `on_read` is not told of it.
    pub fn new(start: Vec<u8>, inner: S, on_read: F) -> Self {
        Self { start, inner, on_read }
    }
}

impl<S: AsyncRead + Unpin, F: Fn(usize) + Unpin> AsyncRead for Observed<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.start.len().min(buf.remaining());
        buf.put_slice(&self.start[..count]);
        self.start.drain(..count);
        let had_start = count > 0;
        let before = buf.filled().len();
        // After the start, too: hyper doubles a read buffer that a first read did not fill, for as long as it lives.
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        let count = buf.filled().len() - before;
        if count > 0 {
            (self.on_read)(count);
        }
        // What is wrong with the rest is found by the next read.
        if had_start { Poll::Ready(Ok(())) } else { result }
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for Observed<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_keeps_little_of_what_nobody_reads() {
        let as_it_comes = taken_unread(|_| ()).await;
        let tuned = taken_unread(|writer| tune(writer).expect("a connection over TCP")).await;
        assert!(as_it_comes > 8 * UNSENT_BYTES_MAX as usize, "{as_it_comes} bytes without it");
        assert!(tuned <= 4 * UNSENT_BYTES_MAX as usize, "{tuned} bytes, {as_it_comes} without it");
    }

    /// How many bytes a socket takes whose peer reads none. The window of the peer is fixed: otherwise the kernel may widen it.
    #[cfg(target_os = "linux")]
    async fn taken_unread(prepare: fn(&TcpStream)) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let reader = tokio::net::TcpSocket::new_v4().expect("a socket");
        reader.set_recv_buffer_size(UNSENT_BYTES_MAX / 2).expect("a window");
        let _reader = reader.connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (writer, _) = listener.accept().await.expect("a connection");
        prepare(&writer);
        let mut taken = 0;
        while let Ok(count) = writer.try_write(&[0; 16 * 1024]) {
            taken += count;
        }
        taken
    }
}
