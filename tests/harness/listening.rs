//! A scripted server that can be listened to: it opens a stream for every `subscriptions/listen`, and the test says
//! what is told on it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use super::{Gate, Offer, Received, Reply, Upstream, eventually, literal};

/// How the body of a chunked reply ends.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A server with streams.
pub(crate) struct Listening {
    pub(crate) upstream: Upstream,
    streams: Arc<Mutex<Vec<Stream>>>,
}

/// How a server takes a `subscriptions/listen`.
pub(crate) enum Listened {
    /// It agrees to everything.
    Honoured,
    /// It agrees to this filter, as JSON, as soon as the gate is open.
    Partly(String, Gate),
    /// It says something else.
    Answered(Reply),
}

/// One stream, as the server sees it. Dropped, its connection is cut.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) request: Received,
    bytes: Sender<Vec<u8>>,
}

impl Listening {
    /// A server that agrees to everything.
    pub(crate) fn start(offer: Offer) -> Self {
        Self::taking(offer, |_| Listened::Honoured)
    }

    /// A server that takes a request to listen as `take` says.
    pub(crate) fn taking(offer: Offer, take: impl Fn(&Received) -> Listened + Send + Sync + 'static) -> Self {
        Self::beside(move |request| offer.answer(request), take)
    }

    /// As [`taking`](Self::taking), with other answers to everything else.
    pub(crate) fn beside(
        answer: impl Fn(&Received) -> Reply + Send + Sync + 'static,
        take: impl Fn(&Received) -> Listened + Send + Sync + 'static,
    ) -> Self {
        let streams = Arc::new(Mutex::new(Vec::new()));
        let opened = Arc::clone(&streams);
        let upstream = Upstream::start(move |request| {
            if request.method() != "subscriptions/listen" {
                return answer(request);
            }
            let (filter, gate) = match take(request) {
                Listened::Honoured => {
                    let gate = Gate::default();
                    gate.open();
                    (literal(&request.body, &["params", "notifications"]), gate)
                }
                Listened::Partly(filter, gate) => (filter, gate),
                Listened::Answered(reply) => return reply,
            };
            let (stream, bytes) = Stream::answering(request);
            opened.lock().unwrap().push(stream);
            let acknowledgement = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{}}},"notifications":{filter}}}}}"#,
                request.id()
            );
            Reply::stream().wait(&gate).event(&acknowledgement).pipe(bytes).reset()
        });
        Self { upstream, streams }
    }

    /// The streams so far for which `is_meant` holds, ended ones included.
    pub(crate) fn streams(&self, is_meant: impl Fn(&serde_json::Value) -> bool) -> Vec<Stream> {
        let streams = self.streams.lock().unwrap();
        let filter = |stream: &Stream| stream.request.json()["params"]["notifications"].clone();
        streams.iter().filter(|stream| is_meant(&filter(stream))).cloned().collect()
    }

    /// Those among them that the gateway has not closed.
    pub(crate) fn open_streams(&self) -> Vec<Stream> {
        let all = self.streams(|_| true);
        all.into_iter().filter(|stream| !self.upstream.is_closed(stream.request.connection)).collect()
    }

    /// The latest stream that carries this field of a filter with this value in it; waits for it.
    pub(crate) fn stream_with(&self, field: &str, value: &str) -> Stream {
        let fits = |filter: &serde_json::Value| filter[field].to_string().contains(value);
        eventually("the upstream is listened to", || self.streams(fits).pop())
    }

    /// The latest stream for changes of tools.
    pub(crate) fn tools_stream(&self) -> Stream {
        self.stream_with("toolsListChanged", "true")
    }

    /// Cuts every stream.
    pub(crate) fn cut(&self) {
        self.streams.lock().unwrap().clear();
    }
}

impl Stream {
    /// A stream that answers this request, and its bytes as the server is to write them.
    pub(crate) fn answering(request: &Received) -> (Self, Receiver<Vec<u8>>) {
        let (sender, bytes) = channel();
        (Self { request: request.clone(), bytes: sender }, bytes)
    }

    /// Sends a notification. `params` are members of its parameters, each followed by a comma.
    pub(crate) fn notify(&self, method: &str, params: &str) {
        let id = self.request.id();
        self.event(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        ));
    }

    /// Says that a resource has changed.
    pub(crate) fn update(&self, uri: &str) {
        self.notify("resources/updated", &format!("\"uri\":\"{uri}\","));
    }

    /// Sends an event.
    pub(crate) fn event(&self, data: &str) {
        self.chunk(&format!("data: {data}\n\n"));
    }

    /// Sends part of the stream. The gateway may have closed it.
    pub(crate) fn chunk(&self, bytes: &str) {
        let _ = self.bytes.send(format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes());
    }

    /// Ends the stream properly.
    pub(crate) fn end(&self) {
        let _ = self.bytes.send(LAST_CHUNK.to_vec());
    }
}
