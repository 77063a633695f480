//! What a server tells those whom it does not let in: its challenge, and the metadata of the protected
//! resource.

use http::Method;

use super::http::HttpTransport;
use super::transport::{Budget, ProbeTransport};
use crate::doctor::challenge::{metadata_url, well_known};
use crate::doctor::facts::{AccessFacts, Answer, Exchange};
use crate::doctor::request::{ProbeRequest, Until};
use client::http_endpoint::HttpEndpoint;
use client::server::HttpServer;
use net::tasks::Tasks;

/// Follows what a refusal says.
pub(super) async fn read(
    address: &HttpServer,
    refusal: &Exchange,
    budget: &Budget,
    tasks: &Tasks,
) -> AccessFacts {
    let mut door = AccessFacts {
        challenges: refusal.challenges.clone(),
        status: refusal.status.unwrap_or_default(),
        ..AccessFacts::default()
    };
    let named = refusal.challenges.iter().find_map(|challenge| metadata_url(challenge));
    let is_named = named.is_some();
    let candidates = named.map_or_else(|| well_known(&address.url), |url| vec![url]);
    for url in candidates {
        let found = fetch(address, &url, budget, tasks).await;
        door.metadata_url = Some(url);
        let is_found = found.is_ok();
        // A server that has only keys has no metadata, and names none.
        door.metadata = (is_found || is_named).then_some(found);
        if is_found {
            break;
        }
    }
    door
}

/// Fetches the metadata from this server. What it says of other servers is not followed.
async fn fetch(
    address: &HttpServer,
    url: &str,
    budget: &Budget,
    tasks: &Tasks,
) -> Result<serde_json::Value, String> {
    let wanted = config::server_url(url).map_err(|why| format!("it is no URL: {why}"))?;
    let server = &address.url;
    if (wanted.is_tls, &wanted.host, wanted.port) != (server.is_tls, &server.host, server.port) {
        return Err("it is on another server, which was not asked".to_owned());
    }
    // Without headers: a key is for the server, metadata for everybody.
    let address = HttpServer { url: wanted, headers: http::HeaderMap::new(), tls: address.tls.clone() };
    let endpoint =
        HttpEndpoint::new(&address, tasks.clone()).map_err(|_| "it cannot be asked for".to_owned())?;
    let transport = HttpTransport::new(endpoint);
    let ask = ProbeRequest::bare(Method::GET).until(Until::Answer);
    let exchange = ProbeTransport::Http(&transport).ask(budget, &ask).await.ok_or("it was not asked for")?;
    match (exchange.status, exchange.answer) {
        (Some(200), Answer::Document(document)) => Ok(document),
        (status, answer) => {
            let exchange = Exchange { status, ..Exchange::failed(answer, exchange.took) };
            Err(format!("got {}", exchange.words()))
        }
    }
}
