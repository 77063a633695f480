//! Which era and revision client and server speak.
//!
//! Without a wish, `server/discover` is tried first and `initialize` after it, unless the answer says that the server
//! is modern after all or that it cannot be told now (2026-07-28, "Backward Compatibility").

use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::connection::{
    ClientSettings, ClientTransport, Connection, Request, client_info, own_meta, with_meta,
};
use super::error::{RequestError, RpcError, texts};
use super::exchange_error::ExchangeError;
use super::incoming_handler::IncomingHandler;
use super::introduction::Introduction;
use super::server::Server;
use super::streamable_http::StreamableHttp;
use super::user_interaction::UserInteraction;
use super::{child_process, http_sse};
use protocol::version::{Era, LegacyVersion, MODERN};

/// How long a program may leave `server/discover` without an answer before it is taken for a legacy one.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The era that is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// The newest that the server knows.
    #[default]
    Auto,
    /// The modern one alone.
    Modern,
    /// The legacy one alone, with this revision offered.
    Legacy(LegacyVersion),
}

enum Discovered {
    Modern(Introduction),
    /// The server does not know it, for this reason.
    Legacy(RequestError),
}

/// Opens the way to a server and a conversation on it.
pub(super) async fn open(
    server: &Server,
    wanted: EraChoice,
    user: Rc<dyn UserInteraction>,
    settings: &ClientSettings,
) -> Result<(Connection, Introduction), RequestError> {
    let handler = Rc::new(IncomingHandler::new(user));
    let way = match server {
        Server::Http(address) => ClientTransport::Http(StreamableHttp::new(address, Rc::clone(&handler))?),
        Server::Stdio(program) => ClientTransport::Lines(child_process::start(program, Rc::clone(&handler))?),
    };
    let link = Connection::new(way, handler);
    let version = match wanted {
        EraChoice::Legacy(version) => version,
        EraChoice::Auto | EraChoice::Modern => match (discover(&link, settings).await?, wanted) {
            (Discovered::Modern(introduction), _) => return Ok((link, introduction)),
            (Discovered::Legacy(why), EraChoice::Modern) => return Err(why),
            (Discovered::Legacy(_), _) => LegacyVersion::NEWEST,
        },
    };
    let failure = match initialize(&link, version, settings).await {
        Ok(introduction) => return Ok((link, introduction)),
        Err(failure) => failure,
    };
    let (Server::Http(address), true) = (server, may_be_older(&failure)) else { return Err(failure) };
    // What a server without the older transport says to a GET tells nobody anything.
    let older = http_sse::open(address, Rc::clone(&link.handler), settings.timeout).await;
    let link = Connection::new(ClientTransport::Lines(older.map_err(|_| failure)?), link.handler);
    let introduction = initialize(&link, version, settings).await?;
    Ok((link, introduction))
}

/// Whether a server refuses `initialize` like one of HTTP+SSE alone.
fn may_be_older(failure: &RequestError) -> bool {
    let status = match failure {
        RequestError::Exchange(ExchangeError::Status(status)) => status.as_u16(),
        RequestError::Rpc(error) => error.status.unwrap_or_default(),
        _ => return false,
    };
    matches!(status, 400 | 404 | 405)
}

async fn discover(link: &Connection, settings: &ClientSettings) -> Result<Discovered, RequestError> {
    let newest = MODERN.first().copied().unwrap_or_default();
    let timeout = match link.way {
        ClientTransport::Http(_) => settings.timeout,
        ClientTransport::Lines(_) => settings.timeout.min(DISCOVER_TIMEOUT),
    };
    let params = with_meta(json!({}), |meta| {
        own_meta(meta, newest, link.handler.user.capabilities(), None);
    });
    let (id, method) = (link.next_id(), "server/discover");
    let request = Request { id, method, params, modern: Some(newest), param_headers: HeaderMap::new() };
    let failure = match link.exchange(&request, timeout).await {
        Ok(result) => return understood(result),
        Err(failure) => failure,
    };
    match &failure {
        RequestError::Rpc(error) => match error.code {
            -32022
                if error.supported_versions().iter().any(|version| LegacyVersion::of(version).is_some()) =>
            {
                Ok(Discovered::Legacy(failure))
            }
            -32022 => Err(RequestError::NoCommonVersion(error.supported_versions())),
            -32020 | -32021 => Err(failure),
            _ if is_for_now(error.status) => Err(failure),
            _ => Ok(Discovered::Legacy(failure)),
        },
        RequestError::Exchange(ExchangeError::Status(status)) if !is_for_now(Some(status.as_u16())) => {
            Ok(Discovered::Legacy(failure))
        }
        RequestError::Exchange(ExchangeError::TimedOut) if matches!(link.way, ClientTransport::Lines(_)) => {
            Ok(Discovered::Legacy(failure))
        }
        RequestError::Invalid { .. } => Ok(Discovered::Legacy(failure)),
        _ => Err(failure),
    }
}

/// The result of `server/discover`: the newest revision of both, if there is one.
fn understood(result: Value) -> Result<Discovered, RequestError> {
    let supported = texts(result.get("supportedVersions").unwrap_or(&Value::Null));
    let common = MODERN.iter().find(|version| supported.iter().any(|other| other == *version));
    match common {
        Some(version) => Ok(Discovered::Modern(Introduction::read(Era::Modern, version, result))),
        None if supported.iter().any(|version| LegacyVersion::of(version).is_some()) => {
            Ok(Discovered::Legacy(RequestError::NoCommonVersion(supported)))
        }
        None => Err(RequestError::NoCommonVersion(supported)),
    }
}

/// Whether a status says nothing about the era.
fn is_for_now(status: Option<u16>) -> bool {
    let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) else { return false };
    status.is_redirection()
        || status.is_server_error()
        || matches!(status.as_u16(), 401 | 403 | 407 | 408 | 429)
}

/// Opens a session, in place of any that was lost.
pub(super) async fn initialize(
    link: &Connection,
    version: LegacyVersion,
    settings: &ClientSettings,
) -> Result<Introduction, RequestError> {
    let method = "initialize";
    let capabilities = link.handler.user.capabilities();
    let params = json!({
        "protocolVersion": version.as_str(), "capabilities": capabilities, "clientInfo": client_info(),
    });
    let result = link.ask(method, params, settings.timeout).await?;
    let agreed = result.get("protocolVersion").and_then(Value::as_str).map(str::to_owned);
    let Some(agreed) = agreed else {
        let why = "it names no protocolVersion".to_owned();
        return Err(RequestError::Invalid { method: method.to_owned(), why });
    };
    let Some(version) = LegacyVersion::of(&agreed) else {
        return Err(RequestError::NoCommonVersion(vec![agreed]));
    };
    if let ClientTransport::Http(http) = &link.way {
        http.speak(version);
    }
    link.notify("notifications/initialized", settings.timeout).await?;
    if let ClientTransport::Http(http) = &link.way {
        http.listen().await;
    }
    let introduction = Introduction::read(Era::Legacy, version.as_str(), result);
    if let Some(level) = settings.log_level.filter(|_| introduction.has("logging")) {
        let params = json!({"level": level.as_str()});
        match link.ask("logging/setLevel", params, settings.timeout).await {
            // A server that says it has levels and does not know the method: what it sends is shown.
            Ok(_) | Err(RequestError::Rpc(RpcError { code: -32601, .. })) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(introduction)
}
