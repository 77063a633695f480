//! Servers over Streamable HTTP, by both eras; whoever speaks neither may speak HTTP+SSE.

use http::StatusCode;
use http::header::AUTHORIZATION;

use super::Inspection;
use super::http::HttpTransport;
use super::spoken_era::SpokenEra;
use crate::doctor::facts::{Answer, Exchange, Probe, Reached};
use crate::doctor::introduction;
use crate::doctor::request::ProbeRequest;
use client::server::HttpServer;
use protocol::error::Redirect;
use protocol::version::LEGACY;

/// A host name that is nobody's.
const FOREIGN_HOST: &str = "page.example";

impl Inspection<'_> {
    /// Asks it everything.
    pub(super) async fn inspect_http(&mut self, address: &HttpServer) {
        self.facts.reached =
            Reached::Http { is_tls: address.url.is_tls, is_loopback: is_loopback(&address.url.host) };
        self.facts.url = Some(address.url.clone());
        self.say("asking which revisions it speaks");
        let mut http = match HttpTransport::new(address, &self.tasks) {
            Ok(http) => http,
            Err(error) => {
                self.facts.not_inspected = Some(error.to_string());
                return;
            }
        };
        self.probe(&mut http, Probe::Discover, &SpokenEra::Modern.idle("discover")).await;
        if let Some(why) = self.why_not() {
            self.facts.not_inspected = Some(why);
            self.read_refusal(address, Probe::Discover).await;
            return;
        }
        self.facts.modern = self.facts.answer(Probe::Discover).and_then(introduction::modern);
        let newest = self.open_session(&mut http, LEGACY[0]).await;
        let dialect = match &newest {
            None if self.facts.modern.is_none() => {
                if !self.inspect_http_sse(&mut http, address).await {
                    self.facts.not_inspected = Some(self.no_server());
                }
                return;
            }
            Some(legacy) if self.facts.modern.is_none() => legacy.clone(),
            _ => SpokenEra::Modern,
        };
        let first = match dialect {
            SpokenEra::Modern => dialect.idle("discover"),
            SpokenEra::Legacy { .. } => ProbeRequest::initialize(LEGACY[0]),
        };
        if let Some(mut stranger) = keyless(address).and_then(|it| HttpTransport::new(&it, &self.tasks).ok())
        {
            self.probe(&mut stranger, Probe::WithoutKey, &first).await;
            self.read_refusal(address, Probe::WithoutKey).await;
        }
        self.ask_foreign_host(address, &first).await;
        let others = if newest.is_some() { self.open_more_sessions(&mut http).await } else { Vec::new() };
        if self.facts.modern.is_some() {
            self.say("asking by the rules of 2026");
            self.inquire_modern(&mut http, true).await;
        }
        if let Some(legacy) = &newest {
            self.say("asking by the rules of before 2026");
            self.begin_session(&mut http, legacy).await;
            self.inquire_in_session(&mut http, legacy).await;
        }
        self.time(&mut http, &dialect).await;
        if let Some(legacy) = &newest {
            self.inquire_http_session(&mut http, legacy).await;
            self.inquire_in_others(&mut http, &others).await;
            self.end_sessions(&mut http, &others).await;
        }
    }

    /// What a server of this machine says to a page whose host name was made to lead here.
    pub(super) async fn ask_foreign_host(&mut self, address: &HttpServer, ask: &ProbeRequest) {
        if self.facts.reached != (Reached::Http { is_tls: false, is_loopback: true }) {
            return;
        }
        let mut rebound = address.clone();
        FOREIGN_HOST.clone_into(&mut rebound.url.authority);
        if let Ok(mut http) = HttpTransport::new(&rebound, &self.tasks) {
            self.probe(&mut http, Probe::ForeignHost, ask).await;
        }
    }

    /// Why a server cannot be inspected that gave this first answer.
    fn why_not(&self) -> Option<String> {
        let Some(exchange) = self.facts.answer(Probe::Discover) else { return self.budget.spent.clone() };
        match (&exchange.answer, exchange.status) {
            (_, Some(401)) => Some("it asks for a key, or rejects this one (HTTP 401)".to_owned()),
            (_, Some(403)) => Some("it refuses access (HTTP 403)".to_owned()),
            (_, Some(status @ 300..=399)) => {
                let redirect = Redirect::new(StatusCode::FOUND, exchange.location.as_deref());
                Some(format!(
                    "it redirects (HTTP {status}) to {}, which is not followed: give that URL",
                    redirect.target()
                ))
            }
            (_, Some(421)) => Some(
                "it does not accept this Host (HTTP 421): give the URL of a host that it serves".to_owned(),
            ),
            (Answer::Nonsense(_), Some(200)) if exchange.coding.is_some() => Some(exchange.words()),
            (_, Some(status @ (429 | 502..=504))) => {
                Some(format!("it is not able to answer now (HTTP {status})"))
            }
            (Answer::Failed(why), None) => Some(why.clone()),
            (Answer::Failed(why), Some(status)) => Some(format!("{why} (HTTP {status})")),
            // Servers of before 2026 may wait in silence for what they know.
            _ => None,
        }
    }

    /// What a server is told that gave these answers.
    fn no_server(&self) -> String {
        let words = |probe| self.facts.answer(probe).map_or("nothing".to_owned(), Exchange::words);
        format!(
            "it is no MCP server: server/discover got {}, initialize {}; is this the whole URL?",
            words(Probe::Discover),
            words(Probe::Initialize(LEGACY[0]))
        )
    }
}

/// The server as somebody reaches it who has no key; `None` if none was given.
pub(super) fn keyless(address: &HttpServer) -> Option<HttpServer> {
    let mut keyless = address.clone();
    keyless.headers.remove(AUTHORIZATION)?;
    Some(keyless)
}

/// Whether what is sent there stays on the machine.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
