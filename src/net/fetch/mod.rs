//! Documents that the gateway itself fetches from web servers: keys of token issuers, tokens for upstreams.
//!
//! A connection for each; bounded in bytes and time; redirects are not followed. Never on the way of a call.
//!
//! They take the [way out](crate::outbound) that is in force. What strangers name is fetched by
//! [`fetch_chosen`](Fetcher::fetch_chosen), which no proxy takes part in: it would look the host up by itself, and
//! connect to an address that was not judged.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::timeout_at;

use crate::dial::look_up_in;
use crate::http_client::{Destination, HttpClient, HttpError};
use crate::outbound::Outbound;
use crate::proxy::ProxyFault;
use crate::tasks::Tasks;
use crate::tls::Connector;

/// A thread's way to fetch.
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// The tasks that connections run in.
    pub tasks: Tasks,
    /// The way that requests take.
    pub outbound: Arc<Outbound>,
}

impl Fetcher {
    /// Sends `request`, whose URI is absolute, and reads the whole answer, of whatever status. `tls`: how `https` is
    /// spoken; `None`: only `http` can be fetched.
    pub async fn fetch(
        &self,
        mut request: Request<Full<Bytes>>,
        tls: Option<&Arc<Connector>>,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response<Bytes>, HttpError> {
        let Target { host, port, is_tls, path } = Target::of(&mut request)?;
        let tls = match (is_tls, tls) {
            (false, _) => None,
            (true, Some(tls)) => Some(Arc::clone(tls)),
            (true, None) => return Err(HttpError::Url),
        };
        let way = self.outbound.current();
        let destination = match (way.proxy_to(&host, port), tls) {
            (None, tls) => Destination::Tcp { host, port, tls },
            (Some(proxy), Some(tls)) => Destination::Tunnel { proxy: Arc::clone(proxy), host, port, tls },
            (Some(proxy), None) => {
                proxy.show(&mut request);
                let client = HttpClient::new(Destination::Proxy(Arc::clone(proxy)), self.tasks.clone());
                let answer = client.fetch(request, bytes_max, deadline).await?;
                return match answer.status() {
                    // No other status is the proxy's own for certain.
                    status @ StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                        Err(HttpError::of_proxy(proxy, ProxyFault::Refused(status)))
                    }
                    _ => Ok(answer),
                };
            }
        };
        *request.uri_mut() = path.into();
        HttpClient::new(destination, self.tasks.clone()).fetch(request, bytes_max, deadline).await
    }

    /// As [`fetch`](Self::fetch), over TLS, never through a proxy, and from the very address that `choose` picks of all
    /// that the host has: they are looked up once, in `place`, which is taken until that is over.
    pub async fn fetch_chosen(
        &self,
        mut request: Request<Full<Bytes>>,
        tls: &Arc<Connector>,
        choose: impl FnOnce(&[IpAddr]) -> Option<IpAddr>,
        bytes_max: usize,
        deadline: Instant,
        place: impl Send + 'static,
    ) -> Result<Response<Bytes>, HttpError> {
        let Target { host, port, is_tls: true, path } = Target::of(&mut request)? else {
            return Err(HttpError::Url);
        };
        let found = timeout_at(deadline.into(), look_up_in(place, &host, port)).await;
        let found = found.map_err(|_| HttpError::TimedOut)?.map_err(HttpError::Unreachable)?;
        let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
        let chosen = choose(&addresses).ok_or(HttpError::Address)?;
        let destination =
            Destination::Address { address: SocketAddr::new(chosen, port), host, tls: Arc::clone(tls) };
        *request.uri_mut() = path.into();
        HttpClient::new(destination, self.tasks.clone()).fetch(request, bytes_max, deadline).await
    }
}

/// The server that the absolute URI of a request names.
struct Target {
    /// A name, or an address without brackets.
    host: String,
    port: u16,
    is_tls: bool,
    path: PathAndQuery,
}

impl Target {
    /// The target of `request`, which gets its `Host`.
    fn of<B>(request: &mut Request<B>) -> Result<Self, HttpError> {
        let is_tls = match request.uri().scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(HttpError::Url),
        };
        let authority = request.uri().authority().ok_or(HttpError::Url)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let header = authority.as_str().parse().map_err(|_| HttpError::Url)?;
        let path = request.uri().path_and_query().cloned().ok_or(HttpError::Url)?;
        request.headers_mut().insert(HOST, header);
        Ok(Self { host, port, is_tls, path })
    }
}

#[cfg(test)]
mod tests;
