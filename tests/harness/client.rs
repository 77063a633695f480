//! A client that speaks HTTP/1.1 byte by byte, so that a test can be slow, rude or half-closed.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::DEADLINE;
use super::tls::Wire;

/// What came back, whole or (where a test reads piece by piece) only its head.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header that must not be there twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(present, _)| present.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice: {:?}", self.headers);
        value
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the body is UTF-8")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Checks a JSON-RPC error as the gateway must write it: status, code, and the very id, or none.
    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, code: i64, id: Option<&str>) -> Value {
        assert_eq!(self.status, status, "status of {self:?} {}", String::from_utf8_lossy(&self.body));
        assert!(
            self.header("content-type").is_some_and(|value| value.starts_with("application/json")),
            "{self:?}"
        );
        let json = self.json();
        assert_eq!(json["error"]["code"], code, "code of {json}");
        assert_eq!(json["jsonrpc"], "2.0", "{json}");
        assert!(
            json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()),
            "no message in {json}"
        );
        assert!(json.get("result").is_none(), "{json}");
        let expected = id.map(|id| serde_json::from_str::<Value>(id).expect("the id is JSON"));
        assert_eq!(json.get("id"), expected.as_ref(), "id of {json}");
        json
    }

    /// Checks a complete answer of an upstream.
    #[track_caller]
    pub(crate) fn assert_ok(&self) {
        assert_eq!(self.status, 200, "{self:?} {}", String::from_utf8_lossy(&self.body));
        let members = super::members(&self.body, &[]);
        assert!(members.contains_key("result") && !members.contains_key("error"), "{}", self.text());
    }
}

/// Why no whole response could be read.
#[derive(Debug)]
#[expect(dead_code, reason = "what came is printed when a test fails")]
pub(crate) enum Broken {
    /// The connection ended before a byte of it.
    Closed,
    /// The connection ended in the middle; what came until then.
    Truncated(Response),
    /// Nothing more came, and the connection stayed open.
    Silent,
    /// What came is not HTTP.
    Nonsense(String),
}

/// One connection to the gateway.
pub(crate) struct Connection {
    stream: Wire,
    buffer: VecDeque<u8>,
    framing: Framing,
    events: String,
}

#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
    Ended,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect_timeout(&address, DEADLINE).expect("the gateway accepts"))
    }

    /// A connection, if there is anybody who takes it.
    pub(crate) fn try_open(address: SocketAddr) -> Option<Self> {
        TcpStream::connect_timeout(&address, DEADLINE).ok().map(Self::over)
    }

    /// A connection that comes from another loopback address.
    pub(crate) fn open_from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("a loopback address can be bound");
        socket.connect_timeout(&address.into(), DEADLINE).expect("the gateway accepts");
        Self::over(socket.into())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("nodelay can be set");
        Self::of(Wire::Clear(stream))
    }

    pub(crate) fn of(stream: Wire) -> Self {
        Self { stream, buffer: VecDeque::new(), framing: Framing::Ended, events: String::new() }
    }

    /// Writes what it can: a peer that stops listening is seen by what is read, or by `false` here.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// Ends our half of the connection.
    pub(crate) fn finish(&mut self) {
        self.stream.finish();
    }

    /// The socket alone, of a connection in clear.
    pub(crate) fn into_socket(self) -> TcpStream {
        match self.stream {
            Wire::Clear(socket) => socket,
            Wire::Tls(_) => panic!("TLS cannot be taken off"),
        }
    }

    /// What it runs over.
    pub(crate) fn wire(&self) -> &Wire {
        &self.stream
    }

    /// Reads one whole response, which must come.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        self.try_response().unwrap_or_else(|broken| panic!("no response: {broken:?}"))
    }

    /// Reads one whole response, or learns why there is none.
    pub(crate) fn try_response(&mut self) -> Result<Response, Broken> {
        let mut response = self.try_head()?;
        loop {
            match self.try_piece() {
                Ok(Some(piece)) => response.body.extend_from_slice(&piece),
                Ok(None) => return Ok(response),
                Err(Broken::Closed) => return Err(Broken::Truncated(response)),
                Err(broken) => return Err(broken),
            }
        }
    }

    /// Reads the head of a response, which must come; the body stays to be read piece by piece or event by event.
    #[track_caller]
    pub(crate) fn head(&mut self) -> Response {
        self.try_head().unwrap_or_else(|broken| panic!("no head: {broken:?}"))
    }

    /// The rest of a body whose head was read already.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        while let Some(piece) = self.try_piece()? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// The next piece of a body whose head was read already; `None` at its end.
    pub(crate) fn piece(&mut self) -> Option<Vec<u8>> {
        self.try_piece().unwrap_or_else(|broken| panic!("the body broke: {broken:?}"))
    }

    /// As [`head`](Self::head), where there may be none.
    pub(crate) fn try_head(&mut self) -> Result<Response, Broken> {
        loop {
            let response = self.try_any_head()?;
            if response.status >= 200 {
                return Ok(response);
            }
        }
    }

    /// As [`head`](Self::head), or an interim one.
    #[track_caller]
    pub(crate) fn any_head(&mut self) -> Response {
        self.try_any_head().unwrap_or_else(|broken| panic!("no head: {broken:?}"))
    }

    fn try_any_head(&mut self) -> Result<Response, Broken> {
        let head = self.take_through(b"\r\n\r\n")?;
        let head = String::from_utf8(head).map_err(|error| Broken::Nonsense(error.to_string()))?;
        let response = parse_head(&head)?;
        if response.status >= 200 {
            self.framing = framing(&response)?;
        }
        Ok(response)
    }

    /// The next piece of the body: a chunk, or what has come of a body of known length. `None` at its end.
    fn try_piece(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        match self.framing {
            Framing::Ended => Ok(None),
            Framing::Length(0) => {
                self.framing = Framing::Ended;
                Ok(None)
            }
            Framing::Length(left) => {
                if self.buffer.is_empty() {
                    self.fill()?;
                }
                let piece: Vec<u8> = self.buffer.drain(..left.min(self.buffer.len())).collect();
                self.framing = Framing::Length(left - piece.len());
                Ok(Some(piece))
            }
            Framing::Chunked => {
                let line = String::from_utf8_lossy(&self.take_through(b"\r\n")?).into_owned();
                let size = usize::from_str_radix(line.trim_end(), 16).map_err(|_| Broken::Nonsense(line))?;
                let chunk = self.take(size)?;
                if self.take(2)? != b"\r\n" {
                    return Err(Broken::Nonsense("a chunk without its end".into()));
                }
                if size == 0 {
                    self.framing = Framing::Ended;
                }
                Ok((size > 0).then_some(chunk))
            }
        }
    }

    /// The next event of an event stream, with its blank line; `None` when the stream has ended properly.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Option<String> {
        self.try_event()
            .unwrap_or_else(|broken| panic!("the stream broke: {broken:?} after {:?}", self.events))
    }

    /// As [`event`](Self::event), where the stream may break.
    pub(crate) fn try_event(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(end) = self.events.find("\n\n").map(|at| at + 2) {
                return Ok(Some(self.events.drain(..end).collect()));
            }
            let Some(piece) = self.try_piece()? else { return Ok(None) };
            self.events.push_str(std::str::from_utf8(&piece).expect("events are UTF-8"));
        }
    }

    /// Waits until the gateway has closed the connection, and returns what it still sent.
    #[track_caller]
    pub(crate) fn wait_closed(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(Broken::Closed) => return self.buffer.drain(..).collect(),
                Err(broken) => panic!("the connection stayed open: {broken:?}"),
            }
        }
    }

    /// Reads to the end. Whether the other side said that this is the end; in clear every end looks alike.
    pub(crate) fn ends_properly(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn take_through(&mut self, end: &[u8]) -> Result<Vec<u8>, Broken> {
        loop {
            let at = self.buffer.make_contiguous().windows(end.len()).position(|window| window == end);
            match at {
                Some(at) => return Ok(self.buffer.drain(..at + end.len()).collect()),
                None => self.fill()?,
            }
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Broken> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn fill(&mut self) -> Result<(), Broken> {
        let mut bytes = [0; 16 * 1024];
        let end = Instant::now() + DEADLINE;
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => {
                    self.buffer.extend(&bytes[..count]);
                    return Ok(());
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(Broken::Silent);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted && Instant::now() < end => {}
                Err(_) => return Err(Broken::Closed),
            }
        }
    }
}

fn parse_head(head: &str) -> Result<Response, Broken> {
    let nonsense = || Broken::Nonsense(head.to_owned());
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).ok_or_else(nonsense)?;
    let status = status.get(..3).and_then(|code| code.parse().ok()).ok_or_else(nonsense)?;
    let headers = lines
        .map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned())))
        .collect::<Option<_>>()
        .ok_or_else(nonsense)?;
    Ok(Response { status, headers, body: Vec::new() })
}

fn framing(response: &Response) -> Result<Framing, Broken> {
    let length = response.header("content-length");
    match (response.header("transfer-encoding"), length) {
        (Some("chunked"), None) => Ok(Framing::Chunked),
        (None, Some(length)) => {
            length.parse().map(Framing::Length).map_err(|_| Broken::Nonsense(length.to_owned()))
        }
        (None, None) if matches!(response.status, 202 | 204 | 304) => Ok(Framing::Ended),
        framing => Err(Broken::Nonsense(format!("framed by {framing:?}: {response:?}"))),
    }
}

/// The names of the tools that a response lists.
#[track_caller]
pub(crate) fn tool_names(response: &Response) -> Vec<String> {
    response.assert_ok();
    let tools = response.json()["result"]["tools"].as_array().expect("an array").clone();
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// The message of a server-sent event.
#[track_caller]
pub(crate) fn event_data(event: &str) -> Value {
    serde_json::from_str(event.trim_end().strip_prefix("data: ").expect("a data line")).expect("JSON")
}
