//! A scripted MCP server on a loopback socket: it records every request byte for byte and answers as the test says.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use super::listening::LAST_CHUNK;
use super::reply::Step;
use super::{DEADLINE, Gate, Offer, Reply, literal, members};

/// A server that is stopped when dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// The head, from the request line to the blank line.
    pub(crate) head: String,
    /// The body, without chunk framing.
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Every value of a header.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(present, _)| present.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// The names of all headers, in lower case.
    pub(crate) fn header_names(&self) -> Vec<String> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.map(|(name, _)| name.to_ascii_lowercase()).collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("what goes upstream is JSON")
    }

    /// The JSON-RPC method of the body; nothing for a response; of a request without body, its HTTP method.
    pub(crate) fn method(&self) -> String {
        if self.body.is_empty() {
            return self.http_method().to_owned();
        }
        let method = members(&self.body, &[]).remove("method").unwrap_or_else(|| "\"\"".into());
        serde_json::from_str(&method).expect("the method is a string")
    }

    /// The session that it names; nothing if it names none.
    pub(crate) fn session(&self) -> String {
        self.headers("mcp-session-id").join(",")
    }

    /// The HTTP method.
    pub(crate) fn http_method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// The id as it is spelled.
    pub(crate) fn id(&self) -> String {
        literal(&self.body, &["id"])
    }

    /// A message written with the client's id, with the id of this request in its place.
    pub(crate) fn with_id(&self, message: &str) -> String {
        message.replace(&format!("\"id\":{}", self.client_id()), &format!("\"id\":{}", self.id()))
    }

    /// The body with the client's id.
    pub(crate) fn client_body(&self) -> Vec<u8> {
        String::from_utf8_lossy(&self.body).replace(&self.id(), &self.client_id()).into_bytes()
    }

    /// The id that its client gave it: an id of the gateway's own ends with it.
    pub(crate) fn client_id(&self) -> String {
        let id = self.id();
        let own = id.strip_prefix("\"trunkline-").and_then(|rest| rest.strip_suffix('"'));
        let inner = own.and_then(|own| own.splitn(4, '-').nth(3)).and_then(|inner| inner.split_at_checked(1));
        match inner {
            Some(("n", digits)) => digits.to_owned(),
            Some(("s", text)) => format!("\"{text}\""),
            Some(("x", hex)) => {
                let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                let bytes = digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect();
                String::from_utf8(bytes).expect("an id is text")
            }
            _ => id,
        }
    }
}

impl Upstream {
    /// A server that asks `answer` what to do with each request.
    pub(crate) fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_for(answer, false)
    }

    /// The same for clients that may send bodies that are no messages.
    pub(crate) fn taking_anything(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_for(answer, true)
    }

    fn start_for(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static, takes_anything: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            takes_anything,
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &accepting));
        Self { address, shared }
    }

    /// A server that makes no mistakes and offers tools of these names.
    pub(crate) fn with_tools(names: &[&str]) -> Self {
        Self::offering(Offer::tools(names))
    }

    /// A server that makes no mistakes.
    pub(crate) fn offering(offer: Offer) -> Self {
        Self::start(move |request| offer.answer(request))
    }

    /// A server that answers every `tools/call` like this, and anything else without mistakes.
    pub(crate) fn calling(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let offer = Offer::tools(&["echo"]);
        Self::start(move |request| match request.method().as_str() {
            "tools/call" => answer(request),
            _ => offer.answer(request),
        })
    }

    /// A server whose calls are answered once the gate is open, and anything else at once.
    pub(crate) fn gated() -> (Self, Gate) {
        let gate = Gate::default();
        let held = gate.clone();
        let upstream = Self::calling(move |request| {
            Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
        });
        (upstream, gate)
    }

    /// Everything that has arrived.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).received.clone()
    }

    /// What has arrived of one method.
    pub(crate) fn received_of(&self, method: &str) -> Vec<Received> {
        self.received().into_iter().filter(|request| request.method() == method).collect()
    }

    /// The sessions in which tools were called, in order.
    pub(crate) fn sessions_of_calls(&self) -> Vec<String> {
        self.received_of("tools/call").iter().map(Received::session).collect()
    }

    /// What has arrived on behalf of clients: all but what the gateway asks in its own name, and lists of the legacy era,
    /// which name nobody, with the id that its own have.
    pub(crate) fn forwarded(&self) -> Vec<Received> {
        let is_own = |request: &Received| {
            let body = String::from_utf8_lossy(&request.body);
            let is_list = || request.method().ends_with("/list") && request.id() == "1";
            body.contains(r#"clientInfo":{"name":"trunkline","#)
                || (!body.contains("clientInfo") && is_list())
        };
        self.received().into_iter().filter(|request| !is_own(request)).collect()
    }

    /// The one `tools/call` that must have arrived.
    #[track_caller]
    pub(crate) fn only_call(&self) -> Received {
        let mut calls = self.received_of("tools/call");
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls.remove(0)
    }

    /// Waits until this many requests of the method have arrived, and returns the last of them.
    #[track_caller]
    pub(crate) fn wait_for(&self, method: &str, count: usize) -> Received {
        let of = |state: &State| state.received.iter().filter(|request| request.method() == method).count();
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.shared.changed.wait_timeout_while(state, DEADLINE, |state| of(state) < count).unwrap();
        drop(waited);
        let mut arrived = self.received_of(method);
        assert!(arrived.len() >= count, "{count} × {method} never arrived, but {arrived:?}");
        arrived.remove(count - 1)
    }

    /// Waits until the gateway has closed this connection.
    #[track_caller]
    pub(crate) fn wait_closed(&self, connection: usize) {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |state: &mut State| !state.closed.contains(&connection);
        let (state, _) = self.shared.changed.wait_timeout_while(state, DEADLINE, open).unwrap();
        assert!(state.closed.contains(&connection), "connection {connection} is still open");
    }

    /// Whether the gateway has closed this connection.
    pub(crate) fn is_closed(&self, connection: usize) -> bool {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed.contains(&connection)
    }

    /// How many connections have been accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).connections.len()
    }
}

impl Drop for Upstream {
    /// Fails the test if anything ambiguous was sent to this server.
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, DEADLINE);
        for stream in self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .connections
            .iter()
            .filter_map(Weak::upgrade)
        {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let faults =
            std::mem::take(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).faults);
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "the scripted server: {faults:?}");
        }
    }
}

/// An address that refuses every connection for as long as the socket lives.
pub(crate) fn refusing_address() -> (SocketAddr, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    (socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address"), socket)
}

/// An address that neither accepts nor refuses for as long as the sockets live: its backlog is full.
pub(crate) fn unresponsive_address() -> (SocketAddr, Vec<Socket>) {
    let (address, socket) = refusing_address();
    socket.listen(0).expect("the socket listens");
    let mut sockets = vec![socket];
    for _ in 0..4 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        filler.set_nonblocking(true).expect("a socket that does not block");
        let _ = filler.connect(&address.into());
        sockets.push(filler);
    }
    (address, sockets)
}

struct Shared {
    answer: Box<dyn Fn(&Received) -> Reply + Send + Sync>,
    takes_anything: bool,
    stopped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    closed: HashSet<usize>,
    connections: Vec<Weak<TcpStream>>,
    /// What no server should have to read.
    faults: Vec<String>,
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().map_while(Result::ok) {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let connection = {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.connections.push(Arc::downgrade(&stream));
            state.connections.len() - 1
        };
        let (requests, answers) = channel();
        let (reader, writer) = (Arc::clone(&stream), stream);
        let (reading, writing) = (Arc::clone(shared), Arc::clone(shared));
        std::thread::spawn(move || read(&reading, &reader, connection, &requests));
        std::thread::spawn(move || write(&writing, &writer, &answers));
    }
}

/// Reads until the peer closes, so that its closing is noticed at once, whatever the writer waits for.
fn read(shared: &Shared, mut stream: &TcpStream, connection: usize, requests: &Sender<Received>) {
    let mut buffer = Vec::new();
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        buffer.extend_from_slice(&bytes[..count]);
        if let Err(fault) = take_requests(&mut buffer, connection, shared.takes_anything, |request| {
            shared.state.lock().unwrap_or_else(PoisonError::into_inner).received.push(request.clone());
            shared.changed.notify_all();
            let _ = requests.send(request);
        }) {
            shared.state.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed.insert(connection);
    shared.changed.notify_all();
}

fn write(shared: &Shared, mut stream: &TcpStream, requests: &Receiver<Received>) {
    for request in requests {
        let cut = CutOnPanic { shared, stream, request: &request };
        let steps = (shared.answer)(&request).steps;
        drop(cut);
        for step in steps {
            let written = match step {
                Step::Write(bytes) => stream.write_all(&bytes),
                Step::Wait(gate) => {
                    gate.pass();
                    Ok(())
                }
                Step::Pipe(bytes) => match pipe(&bytes, stream) {
                    Ok(true) => break,
                    written => written.map(drop),
                },
                Step::Drip(bytes, pause) => bytes.iter().try_for_each(|byte| {
                    std::thread::sleep(pause);
                    stream.write_all(&[*byte])
                }),
                Step::Finish => stream.shutdown(Shutdown::Write),
                Step::Reset => {
                    // The RST leaves when the last handle is dropped: the reader must let go of its own first.
                    let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
                    let _ = stream.shutdown(Shutdown::Read);
                    return;
                }
            };
            if written.is_err() {
                return;
            }
        }
    }
}

/// What becomes of a connection whose script panics: it is cut, and the test fails, instead of waiting for an answer.
struct CutOnPanic<'a> {
    shared: &'a Shared,
    stream: &'a TcpStream,
    request: &'a Received,
}

impl Drop for CutOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let fault = format!("the script has no answer to {:?}", self.request);
            self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Writes a stream. True: it has ended properly, and the connection takes the next request, whoever still holds it.
fn pipe(bytes: &Mutex<Receiver<Vec<u8>>>, mut stream: &TcpStream) -> std::io::Result<bool> {
    for piece in bytes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        stream.write_all(&piece)?;
        if piece == LAST_CHUNK {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Hands every whole request in the buffer to `found`. The gateway is held to plain framing and sound JSON.
fn take_requests(
    buffer: &mut Vec<u8>,
    connection: usize,
    takes_anything: bool,
    found: impl Fn(Received),
) -> Result<(), String> {
    while let Some(head_end) = buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4) {
        let head = String::from_utf8(buffer[..head_end].to_vec()).map_err(|error| error.to_string())?;
        let request = Received { connection, head, body: Vec::new() };
        let length = match *request.headers("content-length") {
            [] if request.http_method() != "POST" && request.headers("transfer-encoding").is_empty() => {
                Some(0)
            }
            [length] if request.headers("transfer-encoding").is_empty() => length.parse::<usize>().ok(),
            _ => None,
        };
        let length = length.ok_or_else(|| format!("ambiguous framing: {}", request.head))?;
        let Some(body) = buffer.get(head_end..head_end + length) else { return Ok(()) };
        let request = Received { body: body.to_vec(), ..request };
        let is_sound = match request.http_method() {
            "POST" => serde_json::from_slice::<Fields<'_>>(&request.body).is_ok(),
            _ => request.body.is_empty(),
        };
        if !is_sound && !takes_anything {
            return Err(format!("not JSON-RPC: {request:?}"));
        }
        buffer.drain(..head_end + length);
        found(request);
    }
    Ok(())
}

/// What every message that goes upstream must have. Keys may be spelled with escapes, hence the owned map.
type Fields<'a> = std::collections::BTreeMap<String, &'a serde_json::value::RawValue>;
