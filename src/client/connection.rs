//! A client and its server: requests and their results.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::duplex::DuplexTransport;
use super::error::RequestError;
use super::exchange_error::ExchangeError;
use super::handshake::{self, EraChoice};
use super::incoming_handler::IncomingHandler;
use super::introduction::Introduction;
use super::mrtr;
use super::param_headers::ParamHeaders;
use super::server::Server;
use super::streamable_http::StreamableHttp;
use super::user_interaction::UserInteraction;
use protocol::json::Scratch;
use protocol::level::Level;
use protocol::version::{Era, LegacyVersion};

/// What a list may have at most.
const PAGES_MAX: usize = 2000;
const ENTRIES_MAX: usize = 200_000;
const LIST_BYTES_MAX: usize = 256 << 20;
/// How deep a list of tools, or the arguments of one, may be nested.
const DEPTH_MAX: usize = 128;
/// Requests whose progress is of interest.
const WITH_PROGRESS: &[&str] = &["tools/call", "prompts/get", "resources/read"];

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// How long a reply may take to begin, a message of it to arrive, and the pause before the next.
    pub timeout: Duration,
    /// The least level of log lines that are asked for; `None`: whatever the server sends unasked.
    pub log_level: Option<Level>,
}

/// A client of one server. It must live on a local runtime, and [`Client::close`] be its end.
pub struct Client {
    link: Connection,
    introduction: Introduction,
    settings: ClientSettings,
    param_headers: RefCell<ParamHeaders>,
}

pub(super) enum ClientTransport {
    Http(Rc<StreamableHttp>),
    Lines(Rc<DuplexTransport>),
}

/// The way to a server, and what is counted on it.
pub(super) struct Connection {
    pub(super) way: ClientTransport,
    pub(super) handler: Rc<IncomingHandler>,
    pub(super) ids: Cell<u64>,
}

/// A request that is about to leave.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) params: Value,
    /// The revision, in the modern era.
    pub(super) modern: Option<&'a str>,
    pub(super) param_headers: HeaderMap,
}

impl Client {
    /// Opens a conversation in the wanted era.
    pub async fn open(
        server: &Server,
        wanted: EraChoice,
        user: Rc<dyn UserInteraction>,
        settings: ClientSettings,
    ) -> Result<Self, RequestError> {
        let (link, introduction) = handshake::open(server, wanted, user, &settings).await?;
        Ok(Self { link, introduction, settings, param_headers: RefCell::default() })
    }

    /// How the server introduced itself.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// Sends a request and returns its result. What the server asks before it goes to the user. Dropped, it is
    /// cancelled.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let result = match self.introduction.era {
            Era::Modern => mrtr::result(self, method, params).await?,
            Era::Legacy => self.exchange_in_session(method, params).await?,
        };
        if method == "tools/list" {
            let (mut scratch, text) = (Scratch::default(), result.to_string());
            if let Ok(document) = scratch.index(text.as_bytes(), DEPTH_MAX) {
                self.param_headers.borrow_mut().learn(document.root());
            }
        }
        Ok(result)
    }

    /// All entries of a list: what stands under `key` on every page.
    pub async fn list(&self, method: &str, key: &str) -> Result<Vec<Value>, RequestError> {
        let endless = |why| RequestError::List { method: method.to_owned(), why };
        let (mut entries, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0);
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let mut page = self.request(method, params).await?;
            bytes += page.to_string().len();
            let cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let Some(Value::Array(more)) = page.get_mut(key).map(Value::take) else {
                let why = format!("there is no array {key:?} in it");
                return Err(RequestError::Invalid { method: method.to_owned(), why });
            };
            entries.extend(more);
            if entries.len() > ENTRIES_MAX || bytes > LIST_BYTES_MAX {
                return Err(endless("the list is longer than is read"));
            }
            let Some(cursor) = cursor else { return Ok(entries) };
            params = json!({"cursor": cursor});
            if !seen.insert(cursor) {
                return Err(endless("a page leads back to one before it: the list has no end"));
            }
        }
        Err(endless("the list has more pages than are read"))
    }

    /// Ends the conversation: the session, and the program.
    pub async fn close(self) {
        match self.link.way {
            ClientTransport::Http(http) => http.close().await,
            ClientTransport::Lines(lines) => lines.close().await,
        }
    }

    /// What takes the messages of the server that are no responses.
    pub(super) fn handler(&self) -> &IncomingHandler {
        &self.link.handler
    }

    /// One request and its result. A session that the server has lost is opened anew, once: what it refused for that
    /// it did not do.
    async fn exchange_in_session(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        match self.exchange(method, params.clone()).await {
            Err(RequestError::Exchange(ExchangeError::SessionGone)) => {
                let version = LegacyVersion::of(&self.introduction.version).unwrap_or(LegacyVersion::NEWEST);
                handshake::initialize(&self.link, version, &self.settings).await?;
                self.exchange(method, params).await
            }
            outcome => outcome,
        }
    }

    /// One request and its result.
    pub(super) async fn exchange(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let id = self.link.next_id();
        let modern = (self.introduction.era == Era::Modern).then_some(&*self.introduction.version);
        let param_headers = match modern {
            Some(_) if method == "tools/call" => self.mirrored(&params),
            _ => HeaderMap::new(),
        };
        let log_level = self.settings.log_level.map(Level::as_str);
        let params = with_meta(params, |meta| {
            if WITH_PROGRESS.contains(&method) {
                meta.insert("progressToken".to_owned(), json!(id));
            }
            if let Some(version) = modern {
                own_meta(meta, version, self.link.handler.user.capabilities(), log_level);
            }
        });
        let request = Request { id, method, params, modern, param_headers };
        self.link.exchange(&request, self.settings.timeout).await
    }

    /// The headers that mirror arguments of a `tools/call`.
    fn mirrored(&self, params: &Value) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = params.get("arguments").map(Value::to_string).unwrap_or_default();
        if let Ok(document) = Scratch::default().index(arguments.as_bytes(), DEPTH_MAX) {
            self.param_headers.borrow().mirror(name, Some(document.root()), &mut headers);
        }
        headers
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("introduction", &self.introduction).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(way: ClientTransport, handler: Rc<IncomingHandler>) -> Self {
        Self { way, handler, ids: Cell::new(0) }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }

    /// A request of the legacy era.
    pub(super) async fn ask(
        &self,
        method: &str,
        params: Value,
        timeout: Duration,
    ) -> Result<Value, RequestError> {
        let param_headers = HeaderMap::new();
        self.exchange(&Request { id: self.next_id(), method, params, modern: None, param_headers }, timeout)
            .await
    }

    pub(super) async fn exchange(
        &self,
        request: &Request<'_>,
        timeout: Duration,
    ) -> Result<Value, RequestError> {
        self.handler.begin(request.id);
        let _under_way = InFlightGuard { handler: &self.handler, id: request.id };
        match &self.way {
            ClientTransport::Http(http) => http.exchange(request, timeout).await,
            ClientTransport::Lines(lines) => lines.exchange(request, timeout).await,
        }
    }

    pub(super) async fn notify(&self, method: &str, timeout: Duration) -> Result<(), RequestError> {
        let message = json!({"jsonrpc": "2.0", "method": method});
        match &self.way {
            ClientTransport::Http(http) => http.tell(&message, timeout).await,
            ClientTransport::Lines(lines) => lines.tell(&message).await,
        }
    }
}

struct InFlightGuard<'a> {
    handler: &'a IncomingHandler,
    id: u64,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.handler.end(self.id);
    }
}

impl Request<'_> {
    pub(super) fn text(&self) -> Vec<u8> {
        let Self { id, method, params, .. } = self;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().into_bytes()
    }
}

/// Takes the request with this id back.
pub(super) fn cancellation(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "no longer wanted"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// What every request of the modern era says about its sender.
pub(super) fn own_meta(
    meta: &mut Map<String, Value>,
    version: &str,
    capabilities: Value,
    level: Option<&str>,
) {
    let mut say = |key: &str, value| meta.insert(format!("io.modelcontextprotocol/{key}"), value);
    say("protocolVersion", json!(version));
    say("clientInfo", client_info());
    say("clientCapabilities", capabilities);
    if let Some(level) = level {
        say("logLevel", json!(level));
    }
}

/// Who we are.
pub(super) fn client_info() -> Value {
    json!({"name": "trunkline", "title": "Trunkline", "version": env!("CARGO_PKG_VERSION")})
}

/// `params` with more in its `_meta`, which is left out if it is empty.
pub(super) fn with_meta(mut params: Value, add: impl FnOnce(&mut Map<String, Value>)) -> Value {
    if !params.is_object() {
        params = json!({});
    }
    let Some(members) = params.as_object_mut() else { return params };
    let mut meta = match members.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    add(&mut meta);
    if !meta.is_empty() {
        members.insert("_meta".to_owned(), Value::Object(meta));
    }
    params
}
