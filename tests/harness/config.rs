//! A configuration to start the binary with, in its own words: TOML, put together line by line.

use std::fmt::{self, Display, Write as _};
use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use super::Upstream;

const LEGACY_ONLY: &str = "eras = [\"legacy\"]";

/// One listener on port 0, one endpoint at `/mcp`, and the upstreams it is given. With one upstream the endpoint is
/// transparent, with several it is prefixed, as the defaults have it.
#[derive(Clone, Default)]
pub(crate) struct Config {
    top: String,
    listener: String,
    endpoint: String,
    path: String,
    names: Vec<String>,
    upstreams: String,
    limits: String,
    sections: String,
}

impl Config {
    /// An endpoint without upstreams yet, at `/mcp`.
    pub(crate) fn new() -> Self {
        let listener = "address = \"127.0.0.1:0\"\n".into();
        Self { listener, path: "/mcp".into(), ..Self::default() }
    }

    /// The usual case of one upstream called `up`.
    pub(crate) fn transparent(upstream: &Upstream) -> Self {
        Self::new().upstream("up", upstream.address, "")
    }

    /// The usual case of one upstream called `up` that speaks the legacy era only.
    pub(crate) fn legacy(upstream: &Upstream) -> Self {
        Self::new().upstream("up", upstream.address, LEGACY_ONLY)
    }

    /// Two of them, called `files` and `weather`, in this order.
    pub(crate) fn legacy_pair(files: &Upstream, weather: &Upstream) -> Self {
        let files = Self::new().upstream("files", files.address, LEGACY_ONLY);
        files.upstream("weather", weather.address, LEGACY_ONLY)
    }

    /// One upstream called `up`, reached by clients of its own era only.
    pub(crate) fn unbridged(upstream: &Upstream) -> Self {
        Self::new().upstream("up", upstream.address, "bridge.enabled = false")
    }

    /// Two upstreams, called `files` and `weather`, in this order.
    pub(crate) fn prefixed(files: &Upstream, weather: &Upstream) -> Self {
        Self::new().upstream("files", files.address, "").upstream("weather", weather.address, "")
    }

    /// Adds an upstream to the endpoint; `lines` are further keys of it. Unless they say which eras it speaks, it is
    /// modern, and so the gateway has nothing to ask it on its own behalf.
    pub(crate) fn upstream(self, name: &str, address: SocketAddr, lines: &str) -> Self {
        let is_told = lines.contains("eras =");
        let eras = if is_told { "" } else { "eras = [\"modern\"]\n" };
        self.probed(name, address, &format!("{eras}{lines}"))
    }

    /// Adds an upstream whose eras the gateway must find out.
    pub(crate) fn probed(mut self, name: &str, address: SocketAddr, lines: &str) -> Self {
        self.names.push(format!("{name:?}"));
        let _ = write!(self.upstreams, "\n[upstream.{name}]\nurl = \"http://{address}/mcp\"\n{lines}\n");
        self
    }

    /// Adds an upstream that is said by its keys alone.
    pub(crate) fn raw(mut self, name: &str, lines: &str) -> Self {
        self.names.push(format!("{name:?}"));
        let _ = write!(self.upstreams, "\n[upstream.{name}]\n{lines}\n");
        self
    }

    /// Adds keys to the endpoint.
    pub(crate) fn endpoint(mut self, lines: &str) -> Self {
        let _ = writeln!(self.endpoint, "{lines}");
        self
    }

    /// Serves the endpoint at another path.
    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// Adds keys to the listener.
    pub(crate) fn listener(mut self, lines: &str) -> Self {
        self.listener = format!("{lines}\n");
        self
    }

    /// Adds an admin listener.
    pub(crate) fn admin(self) -> Self {
        self.section("[admin]\naddress = \"127.0.0.1:0\"")
    }

    /// Adds limits of the process.
    pub(crate) fn limits(mut self, lines: &str) -> Self {
        let _ = writeln!(self.limits, "{lines}");
        self
    }

    /// Adds whole tables, such as `[log]`.
    pub(crate) fn section(mut self, lines: &str) -> Self {
        let _ = writeln!(self.sections, "\n{lines}");
        self
    }

    /// Adds keys outside any table.
    pub(crate) fn top(mut self, lines: &str) -> Self {
        let _ = writeln!(self.top, "{lines}");
        self
    }
}

impl Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { top, listener, endpoint, path, names, upstreams, limits, sections } = self;
        let names = names.join(", ");
        write!(f, "{top}\n[listener]\n{listener}\n[limits]\n{limits}{sections}")?;
        write!(f, "\n[[endpoint]]\npath = \"{path}\"\nupstreams = [{names}]\n{endpoint}{upstreams}")
    }
}

/// The configuration entry of an API key.
pub(crate) fn api_key(name: &str, key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let hex = digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("[[api_key]]\nname = \"{name}\"\nsha256 = \"{hex}\"")
}
