//! `trunkline demo --sign-in`: the provider, `[sign_in]`, and what to try with it.
//!
//! Invariant: nothing of it outlives the program. Keys, sign-ins and the gateway's secret at the provider are in a folder that
//! goes with it, and of other machines nothing is asked.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use demo::{ProviderServer, ProviderSettings};
use protocol::text::shown;
use tools::client_config::toml_text::string;

use super::Servers;
use super::folder::TemporaryFolder;

/// The gateway at the provider.
const CLIENT_ID: &str = "trunkline";
/// The port that a browser leaves out.
const HTTP_PORT: u16 = 80;
/// A client on the TypeScript SDK that shows what it can use.
const NODE_CLIENT: &str = "mcp-remote@0.15.1";

/// The provider and the folder, before anybody signs in.
pub(super) struct SignInDemo {
    /// The gateway's address; its port is a number.
    pub(super) address: SocketAddr,
    pub(super) provider: ProviderServer,
    /// It goes when it is dropped.
    pub(super) folder: TemporaryFolder,
}

/// True for an address that browsers and clients take for this machine without TLS.
pub(super) fn is_usual(address: SocketAddr) -> bool {
    ["127.0.0.1", "::1"].contains(&&*address.ip().to_string())
}

impl SignInDemo {
    /// Takes a port for the provider, which browsers can open from now on, and makes the folder.
    pub(super) async fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let address = with_port(address).with_context(|| format!("cannot listen on {address}"))?;
        let folder = TemporaryFolder::new().context("cannot make a folder for sign-ins")?;
        let secret = secret()?;
        let settings = ProviderSettings {
            client_id: CLIENT_ID.to_owned(),
            client_secret: secret.clone(),
            redirect_uris: vec![format!("{}/sign-in/callback", origin(address))],
            takes_faults: false,
        };
        let provider = ProviderServer::bind(SocketAddr::new(address.ip(), 0), settings).await?;
        let demo = Self { address, provider, folder };
        write_secret(&demo.secret_file(), &secret)?;
        write_secret(&demo.token_file(), &self::secret()?)?;
        Ok(demo)
    }

    /// The place of sign-ins, for the head of the configuration.
    pub(super) fn state(&self) -> String {
        format!("state_directory = {}", string(&self.folder.path().display().to_string()))
    }

    /// The sections that sign-in needs. Clients register: documents of clients would be fetched from other machines.
    pub(super) fn sections(&self) -> String {
        let (issuer, url) = (self.provider.issuer(), origin(self.address));
        let secret = string(&self.secret_file().display().to_string());
        format!(
            r#"
[[jwt]]
name = "demo"
issuer = "{issuer}"
[sign_in]
url = "{url}"
provider = "demo"
client_id = "{CLIENT_ID}"
client_secret = {{ file = {secret} }}
require = {{ groups = ["staff"] }}
redirects = ["https://vscode.dev", "https://insiders.vscode.dev", "cursor://anysphere.cursor-mcp/oauth/callback", "https://www.cursor.com"]
client_documents = "off"
[[endpoint]]
path = "/mcp"
public_url = "{url}/mcp"
auth = ["sign_in"]
upstreams = ["weather", "notes"]
[[rule]]
name = "operators"
effect = "allow"
groups = ["ops"]
[[rule]]
name = "staff"
effect = "allow"
groups = ["staff"]
upstreams = ["weather"]
"#
        )
    }

    /// The token of operators, for `[admin]`: without one, the admin listener shows nobody's sign-ins.
    pub(super) fn operators_token(&self) -> String {
        format!("token = {{ file = {} }}", string(&self.token_file().display().to_string()))
    }

    fn secret_file(&self) -> PathBuf {
        self.folder.path().join("provider-secret")
    }

    fn token_file(&self) -> PathBuf {
        self.folder.path().join("admin-token")
    }

    /// Where everything is, and what a person does first.
    pub(super) fn what_to_try(&self, program: &str, admin: &str, servers: &Servers) -> String {
        let (url, provider) = (origin(self.address), self.provider.issuer());
        let (weather, notes) = (servers.weather.url(), servers.notes.url());
        let (folder, token) =
            (self.folder.path().display().to_string(), self.token_file().display().to_string());
        let (folder, token) = (shown(&folder), shown(&token));
        format!(
            "\
Trunkline runs at {url}/mcp, in front of two demo servers: weather and notes.
It lets in who signs in, at a demo provider whose two users have no passwords:

   alice, in staff and ops: uses both servers
   bob, in staff: uses weather alone

Press Ctrl-C to stop. Nothing is kept: after a new start, clients have to register anew. Things to try:

1. Give this URL to any MCP client; it opens a browser, in which you allow it and choose a user:
   {url}/mcp

2. If you have none at hand, this one needs Node, and shows what there is:
   npx -y -p {NODE_CLIENT} mcp-remote-client {url}/mcp

3. Open your own sign-ins in a browser, and end them:
   {url}/sign-in/

4. See who is signed in, as an operator does, and end the sign-ins of a user:
   {program} grants list --admin {admin} --token-file {token}
   {program} grants revoke --admin {admin} --token-file {token} --user alice

5. See what a client sees that nobody signed in with, and where it finds sign-in:
   curl -i {url}/mcp -H 'Content-Type: application/json' -d '{{}}'
   curl -sw '\\n' {url}/.well-known/oauth-authorization-server

6. Have the provider checked, as you would your own, and get the lines of the configuration for it:
   {program} check --provider {provider}

Also running: the status page at http://{admin}/, which asks for the token in {token},
the provider at {provider}, the servers at {weather} and {notes}.
Keys and sign-ins are in {folder} until it stops.
"
        )
    }
}

/// The address with a number for port 0: URLs of it are told before the gateway takes it.
fn with_port(address: SocketAddr) -> std::io::Result<SocketAddr> {
    if address.port() != 0 {
        return Ok(address);
    }
    TcpListener::bind(address)?.local_addr()
}

/// The origin, as browsers write it.
fn origin(address: SocketAddr) -> String {
    let written = address.to_string();
    let host = written.strip_suffix(&format!(":{HTTP_PORT}")).unwrap_or(&written);
    format!("http://{host}")
}

fn write_secret(path: &Path, secret: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.as_bytes())
}

fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; size_of::<u128>()];
    getrandom::fill(&mut bytes).context("the system has no randomness to give")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_do() {
        for (address, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1:80", "http://127.0.0.1"),
            ("[::1]:80", "http://[::1]"),
            ("[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(origin(address.parse().expect("an address")), expected);
        }
    }
}
