//! An `OpenID` provider with the users alice and bob: that of the demo, which can be told to lie and fail.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use demo::{ProviderServer, ProviderSettings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Connection, Request, Response, post};

/// The id of the client at the provider.
pub(crate) const PROVIDER_CLIENT: &str = "trunkline";
/// The secret of the client.
pub(crate) const PROVIDER_SECRET: &str = "a secret of the client";

/// A provider that ends when it is dropped.
pub(crate) struct Provider {
    address: SocketAddr,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop.cancel();
        let _ = self.serving.take().map(JoinHandle::join);
    }
}

impl Provider {
    /// A provider whose client may have browsers come back to these addresses.
    pub(crate) fn start(redirect_uris: &[&str]) -> Self {
        let settings = ProviderSettings {
            client_id: PROVIDER_CLIENT.into(),
            client_secret: PROVIDER_SECRET.into(),
            redirect_uris: redirect_uris.iter().map(ToString::to_string).collect(),
            takes_faults: true,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let bound = runtime.block_on(ProviderServer::bind((Ipv4Addr::LOCALHOST, 0).into(), settings));
        let server = bound.expect("a free port");
        let (address, stop) = (server.address, CancellationToken::new());
        let stopped = stop.clone();
        let serving = std::thread::spawn(move || runtime.block_on(server.serve(stopped)));
        Self { address, stop, serving: Some(serving) }
    }

    /// Its issuer, as `[[jwt]]` names it.
    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn ask(&self, request: Request) -> Response {
        let mut connection = Connection::open(self.address);
        connection.write(&request.set("Host", self.address.to_string()).bytes());
        connection.response()
    }

    /// Has it lie and fail; `{}` ends all faults. Those there are: `src/demo/provider/faults.rs`.
    pub(crate) fn faults(&self, faults: &Value) {
        let response = self.ask(post(faults.to_string()).target("/faults"));
        assert_eq!(response.status, 204, "{response:?}");
    }

    /// The number of requests to a path so far.
    pub(crate) fn requests(&self, path: &str) -> u64 {
        let counts = self.ask(post("").method("GET").target("/faults")).json();
        counts["requests"][path].as_u64().unwrap_or_default()
    }

    /// Goes where a browser is sent, and signs in as a user. Returns the address that the browser goes back to.
    pub(crate) fn sign_in(&self, visit: &str, user: &str) -> String {
        let target = visit.strip_prefix(&self.issuer()).expect("an address of the provider");
        let page = self.ask(post("").method("GET").target(target));
        assert!(page.text().contains(&format!("value=\"{user}\"")), "{page:?}");
        let answer = post(format!("user={user}")).target(target);
        let back = self.ask(answer.set("Content-Type", "application/x-www-form-urlencoded"));
        assert_eq!(back.status, 303, "{back:?}");
        back.header("location").expect("an address").to_owned()
    }
}
