//! The bytes of a client's connection, with TLS or without.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use net::socket::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A connection. Deliberately no trait object: what is in clear costs one branch.
pub(super) enum ClientSocket {
    Clear(TcpStream),
    Tls(Tls),
}

/// A connection with TLS, which says when it ends, however it ends.
pub(super) struct Tls(pub(super) Box<TlsStream<TcpStream>>);

impl Drop for Tls {
    fn drop(&mut self) {
        let (socket, connection) = self.0.get_mut();
        connection.send_close_notify();
        // As far as the socket takes it: a client that does not read needs to be told nothing.
        let mut socket = TryWrite(socket);
        while connection.wants_write() && connection.write_tls(&mut socket).is_ok_and(|count| count > 0) {}
    }
}

/// A socket that takes what it can without waiting.
pub(super) struct TryWrite<'s>(pub(super) &'s TcpStream);

impl Write for TryWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut stream.0).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(cx),
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
