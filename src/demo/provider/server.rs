//! The provider on a socket: accepts, collects bodies, has the time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Provider, ProviderSettings};
use crate::http::{ResponseBody, collect, empty, has_local_host, has_local_origin};
use crate::serving;

/// A provider that has its address, but serves only inside [`ProviderServer::serve`].
pub struct ProviderServer {
    /// Its address, which is one of this machine alone.
    pub address: SocketAddr,
    listener: TcpListener,
    provider: Provider,
}

impl ProviderServer {
    /// Takes an address, which must be a loopback address; port 0 takes a free one. Browsers can connect from now on and are
    /// answered once `serve` runs.
    pub async fn bind(address: SocketAddr, settings: ProviderSettings) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let error = "the provider asks for no passwords: give it a loopback address";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let provider = Provider::new(issuer(address), settings);
        let provider = provider.map_err(|_| io::Error::other("the system has no randomness to give"))?;
        Ok(Self { address, listener, provider })
    }

    /// Its issuer, below which everything is found.
    pub fn issuer(&self) -> String {
        issuer(self.address)
    }

    /// Serves until `stop`; then open exchanges have a second to finish.
    pub async fn serve(self, stop: CancellationToken) {
        let provider = Arc::new(Mutex::new(self.provider));
        let answer = move |request| exchange(Arc::clone(&provider), request);
        serving::serve(self.listener, stop, answer).await;
    }
}

fn issuer(address: SocketAddr) -> String {
    format!("http://{address}")
}

async fn exchange(provider: Arc<Mutex<Provider>>, request: Request<Incoming>) -> Response<ResponseBody> {
    if !has_local_host(request.headers()) || !has_local_origin(request.headers()) {
        return empty(StatusCode::FORBIDDEN);
    }
    let (head, body) = request.into_parts();
    let body: Bytes = match collect(body).await {
        Ok(body) => body,
        Err(status) => return empty(status),
    };
    let pause_ms = provider.lock().pause_ms(head.uri.path());
    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let response = provider.lock().answer(&Request::from_parts(head, body), now_s);
    response.map(|body| Full::new(body).boxed_unsync())
}
