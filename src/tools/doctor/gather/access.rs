//! What a server tells those whom it does not let in: its challenge, and the metadata of the protected
//! resource.

use http::Method;

use super::Inspection;
use super::http::HttpTransport;
use crate::doctor::challenge::{metadata_url, well_known};
use crate::doctor::facts::{AccessFacts, Answer, Exchange, Probe};
use crate::doctor::request::{ProbeRequest, Until};
use client::server::HttpServer;

impl Inspection<'_> {
    /// Follows what a refusal with HTTP 401 says, if this got one.
    pub(super) async fn read_refusal(&mut self, address: &HttpServer, refused: Probe) {
        let refusal = self.facts.answer(refused).filter(|exchange| exchange.status == Some(401));
        let Some(challenges) = refusal.map(|refusal| refusal.challenges.clone()) else { return };
        let named = challenges.iter().find_map(|challenge| metadata_url(challenge));
        let is_named = named.is_some();
        let candidates = named.map_or_else(|| well_known(&address.url), |url| vec![url]);
        let mut door = AccessFacts { challenges, ..AccessFacts::default() };
        for url in candidates {
            let found = self.fetch_metadata(address, &url).await;
            door.metadata_url = Some(url);
            let is_found = found.is_ok();
            // A server that has only keys has no metadata, and names none.
            door.metadata = (is_found || is_named).then_some(found);
            if is_found {
                break;
            }
        }
        self.facts.door = Some(door);
    }

    /// Fetches the metadata from this server. What it says of other servers is not followed.
    async fn fetch_metadata(&mut self, address: &HttpServer, url: &str) -> Result<serde_json::Value, String> {
        let wanted = config::server_url(url).map_err(|why| format!("it is no URL: {why}"))?;
        let server = &address.url;
        if (wanted.is_tls, &wanted.host, wanted.port) != (server.is_tls, &server.host, server.port) {
            return Err("it is on another server, which was not asked".to_owned());
        }
        // Without headers: a key is for the server, metadata for everybody.
        let address = HttpServer { url: wanted, headers: http::HeaderMap::new(), tls: address.tls.clone() };
        let http = HttpTransport::new(&address, &self.tasks);
        let mut http = http.map_err(|_| "it cannot be asked for".to_owned())?;
        let ask = ProbeRequest::bare(Method::GET).until(Until::Answer);
        let exchange = self.ask(&mut http, &ask).await.ok_or("it was not asked for")?;
        match (exchange.status, exchange.answer) {
            (Some(200), Answer::Document(document)) => Ok(document),
            (status, answer) => {
                let exchange = Exchange { status, ..Exchange::failed(answer, exchange.took) };
                Err(format!("got {}", exchange.words()))
            }
        }
    }
}
