//! A proxy between the gateway and the Internet: it is asked by CONNECT, or by a whole URL, leads where the test says and
//! records what it was shown.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The fate of a request at a proxy.
pub(crate) enum Lead {
    /// Leads to this address.
    To(SocketAddr),
    /// Says these bytes, and ends the connection.
    Say(Vec<u8>),
    /// Says nothing, and keeps the connection.
    Keep,
}

/// A proxy. Stopped when dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    has_ended: Arc<AtomicBool>,
}

impl Proxy {
    /// One that does with each request as `lead` says of its head.
    pub(crate) fn start(lead: impl Fn(&str) -> Lead + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (heads, has_ended) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(false)));
        let (noted, ended) = (Arc::clone(&heads), Arc::clone(&has_ended));
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Some((head, more)) = read_head(&stream) else { continue };
                let then = lead(&head);
                noted.lock().unwrap().push(head.clone());
                match then {
                    Lead::To(server) => drop(std::thread::spawn(move || pass(stream, server, &head, &more))),
                    Lead::Say(answer) => drop((&stream).write_all(&answer)),
                    Lead::Keep => kept.push(stream),
                }
            }
        });
        Self { address, heads, has_ended }
    }

    /// One that leads everything to `server`.
    pub(crate) fn to(server: SocketAddr) -> Self {
        Self::start(move |_| Lead::To(server))
    }

    /// The table that names it, with further keys.
    pub(crate) fn table(&self, lines: &str) -> String {
        format!("[outbound]\nproxy = \"http://{}\"\n{lines}", self.address)
    }

    /// The heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Their first lines.
    pub(crate) fn asked(&self) -> Vec<String> {
        let first = |head: String| head.lines().next().unwrap_or_default().to_owned();
        self.heads().into_iter().map(first).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// The head of a request, and what came with it.
fn read_head(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some((head, reader.buffer().to_vec()))
}

fn pass(client: TcpStream, server: SocketAddr, head: &str, more: &[u8]) {
    let Ok(mut server) = TcpStream::connect(server) else { return };
    let begun = if head.starts_with("CONNECT ") {
        (&client)
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .and_then(|()| server.write_all(more))
    } else {
        server.write_all(&[head.as_bytes(), more].concat())
    };
    let (Ok(()), Ok(to_client), Ok(from_server)) = (begun, client.try_clone(), server.try_clone()) else {
        return;
    };
    let back = std::thread::spawn(move || copy(from_server, to_client));
    copy(client, server);
    let _ = back.join();
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
