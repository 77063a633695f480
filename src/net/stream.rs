//! The bytes of a TCP connection, with TLS or without.

use std::io::{self, IoSlice, Write};
use std::ops::DerefMut;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ConnectionCommon;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connection. Deliberately no trait object: what is in clear costs one branch.
#[derive(Debug)]
pub enum MaybeTls {
    /// In clear text.
    Clear(TcpStream),
    /// With TLS.
    Tls(Tls),
}

/// A connection with TLS, which says when it ends, however it ends: over TLS an end without a word looks like an attack.
#[derive(Debug)]
pub struct Tls(pub Box<TlsStream<TcpStream>>);

impl MaybeTls {
    /// Writes at least one byte.
    pub fn poll_write_some(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(self).poll_write(cx, bytes)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        }
    }

    /// Writes at least one byte of these, which follow each other.
    pub fn poll_write_both(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(self).poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)])) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        match &mut *self.0 {
            TlsStream::Client(stream) => say_goodbye(stream.get_mut()),
            TlsStream::Server(stream) => say_goodbye(stream.get_mut()),
        }
    }
}

/// As far as the socket takes it: who does not read needs to be told nothing.
fn say_goodbye<D>((socket, connection): (&mut TcpStream, &mut impl DerefMut<Target = ConnectionCommon<D>>)) {
    connection.send_close_notify();
    let mut socket = TryWrite(socket);
    while connection.wants_write() && connection.write_tls(&mut socket).is_ok_and(|count| count > 0) {}
}

/// A socket that takes what it can without waiting.
#[derive(Debug)]
pub struct TryWrite<'s>(pub &'s TcpStream);

impl Write for TryWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for MaybeTls {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for MaybeTls {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.0.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_shutdown(cx),
        }
    }
}
