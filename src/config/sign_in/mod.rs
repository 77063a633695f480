//! `[sign_in]`: the gateway as the authorization server of its clients, which has people sign in at a provider (`[[jwt]]`).
//!
//! `provider.rs` has the keys that say who the gateway is at the provider, `client.rs` the clients that are configured, and
//! `check.rs` the rules between this section and others.
//!
//! Deliberately not here: the answers of a provider, and files. Invariant: redirects, scopes and parameters are judged by the
//! very functions of the crate `identity` that judge them in a request.

mod check;
mod client;
mod provider;

use std::path::PathBuf;

use identity::redirect_uri::AllowedRedirects;
use identity::sealed::account::GRANTS_MAX;
use identity::uri::Uri;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::array::{Array, Map, Tables};
use super::endpoint::origin;
use super::findings::{Findings, Node};
use super::process::KeyFile;
use super::schema::Definitions;
use super::secret::SecretSource;
use super::section::section;
use super::text::{AbsolutePath, Fault, GroupName, KeyName, Scope, checked, is_plain, texts};
use super::value::{Count, DAY_MS, HOUR_MS, MIB, MINUTE_MS, Period, Setting, Size, TIB, choice};

pub(super) use self::check::check;
use self::check::check_section;
pub use self::check::is_changeable_claim;
pub use self::client::{Consent, SignInClient};
pub use self::provider::{ProviderAuthentication, ProviderClient, ProviderProof};

use self::provider::ProviderClientKeys;

section! {
    /// Sign-in: the gateway as the authorization server of its clients (OAuth 2.1). A client that was registered nowhere sends
    /// its user to the provider, and gets tokens of the gateway's own for one endpoint. It counts at endpoints with `"sign_in"`
    /// in `auth`. Sign-ins are kept in the state directory, or in Redis with `[shared]`; one of both must be there. Default:
    /// nothing.
    pub struct SignIn {
        /// The origin at which browsers and clients reach sign-in, and its name as an issuer: `https`, or `http` on a loopback
        /// address, without path and final slash. Its paths are answered for this host only.
        #[example("https://mcp.example.com")]
        url: SignInUrl,
        /// The name of the `[[jwt]]` at which people sign in. Principals are those that its own tokens would have.
        #[example("login")]
        provider: KeyName,
        /// Claims that a person needs to sign in, each with values of which one is enough; all claims must hold, at every answer
        /// of the provider. It must be there where everybody has an account at the provider, as at Google. Default: all whom the
        /// provider lets in.
        #[example({ groups = ["staff"] })]
        require: Map<Array<ClaimValue, 1>> = {},
        /// Scopes that clients may be granted, each with the groups whose members may have it; `*` is everybody who may sign
        /// in. A scope that is not here is granted to nobody. Up to 32.
        #[example({ "mcp:read" = ["*"], "mcp:write" = ["ops"] })]
        scopes: Map<Array<GroupName>> = {},
        /// Places that an answer may be sent to, beside programs on the user's own computer (`http://localhost`, `127.0.0.1`,
        /// `[::1]`): origins with https, or exact URIs of private schemes. They count for every client, however it came.
        #[example(["https://claude.ai", "https://vscode.dev", "cursor://anysphere.cursor-mcp/oauth/callback"])]
        redirects: Array<AllowedRedirect> = [],
        /// Scopes that the provider is asked for, beside `openid`, `profile` and, where it has it, `offline_access`.
        #[example(["groups"])]
        provider_scopes: Array<Scope> = [],
        /// Further parameters of the page at the provider. Those that sign-in sets itself are refused.
        #[example({ prompt = "select_account" })]
        parameters: Map<ParameterValue> = {},
        /// The keys that seal tokens, codes, cookies and what is stored; `trunkline session-key FILE` makes such a file, and puts
        /// a new key into it. Registered clients are known as long as the key of their id stands there. Gateways that share a Redis
        /// need the same. Default: `sign_in.key` in the state directory, made at the first start.
        #[example({ file = "/etc/trunkline/sign-in.key" })]
        key_file as "key": Option<KeyFile>,
        /// Time for which a token is good. Clients are told a minute less, since some never renew one that has ended.
        access_token_lifetime: Period<{ 5 * MINUTE_MS }, DAY_MS> = "1h",
        /// Time from a sign-in to its end, however much it is used; then the browser is opened again.
        grant_lifetime: Period<DAY_MS, { 365 * DAY_MS }> = "30d",
        /// Time after which a sign-in ends whose client fetched no token.
        grant_idle_max: Period<DAY_MS, { 365 * DAY_MS }> = "7d",
        /// Time from a sign-in to its end where the provider gives no refresh token: it cannot be asked again whether the person
        /// still may.
        grant_lifetime_without_refresh: Period<HOUR_MS, { 30 * DAY_MS }> = "12h",
        /// Time for which a refresh token that was just used gets the same answer again: answers get lost, and some clients run
        /// in several processes. Afterwards, one that is used twice ends its sign-in.
        refresh_reuse: Period<0, { 10 * MINUTE_MS }> = "60s",
        /// Time after which the provider is asked again about a person who is at work: for groups, `require`, and whether the
        /// account still exists.
        recheck_interval: Period<MINUTE_MS, DAY_MS> = "15m",
        /// Time for which all goes on while the provider does not answer; then no new tokens are given out until it does.
        provider_patience: Period<0, { 7 * DAY_MS }> = "1h",
        /// Time for which a browser's consent to a client with https redirects is remembered; `0s`: it is asked for each time.
        consent_remembered: Period<0, { 365 * DAY_MS }> = "30d",
        /// Sign-ins of one person. Beyond, the one that was unused for longest ends.
        grants_per_principal_max: Count<1, { GRANTS_MAX as u64 }> = 64,
        /// Records in the file of sign-ins: one for each sign-in and for each account, and those that remember an end or a code
        /// for a day. Beyond, nobody new can sign in. It counts from the next start on. With `[shared]`, there is no file.
        store_records_max: Count<1000, 100_000_000> = 1_000_000,
        /// Size of that file, which doubles as it grows; three eighths of it can be records. A sign-in and its account take
        /// 2 KiB at most times. Beyond, nobody new can sign in. It counts from the next start on.
        store_bytes_max: Size<{ 16 * MIB }, TIB> = "4GiB",
        /// Clients that are refused: ids, or hosts of their ids, redirects and keys with all that is below them.
        #[example(["evil.example"])]
        clients_denied: Array<DeniedClient> = [],
        /// Documents in which clients describe themselves at the URL that is their id: they are fetched (`fetch`) from public
        /// addresses, not looked at (`off`), or only those in files are known (an array of absolute paths), for a gateway without
        /// Internet.
        client_documents: ClientDocuments = "fetch",
        /// Clients may register themselves (RFC 7591). Nothing is stored of them: the id holds the registration.
        registration: bool = true,
        /// Clients that are known by configuration, for those that can neither register nor have a document.
        clients as "client": Tables<SignInClient>,
    }
    groups {
        /// The gateway as a client of the provider.
        provider_client: ProviderClientKeys
    }
    check check_section;
}

impl SignIn {
    /// The sources of the gateway's own secret at the provider, and of those of its clients.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretSource> {
        let of_clients = self.clients.iter().filter_map(|client| client.secret.as_ref());
        std::iter::once(self.provider_client.proof.source()).chain(of_clients)
    }
}

/// The documents of clients that are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientDocuments {
    /// Those at the URLs that are ids of clients.
    Fetch,
    /// None.
    Off,
    /// Those in these files.
    Files(Vec<PathBuf>),
}

choice! {
    /// A way to come by documents of clients, where no files are named.
    pub enum DocumentWord {
        /// They are fetched.
        Fetch = "fetch",
        /// They are not looked at.
        Off = "off",
    }
}

impl Setting for ClientDocuments {
    type Out = Self;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<Self> {
        match node.get_ref() {
            DeValue::Array(_) => Array::<AbsolutePath, 1>::read(node, findings).map(Self::Files),
            _ => DocumentWord::read(node, findings).map(|word| match word {
                DocumentWord::Fetch => Self::Fetch,
                DocumentWord::Off => Self::Off,
            }),
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [DocumentWord::schema(definitions), Array::<AbsolutePath, 1>::schema(definitions)] })
    }
}

texts! {
    /// An origin, as browsers write it.
    pub SignInUrl -> String, "^https?://[^/@?#]+$", sign_in_url;
    /// A value of a claim.
    pub ClaimValue -> String, "", |text: &str| checked(
        text,
        (1..=256).contains(&text.len()) && !text.chars().any(char::is_control),
        "not the value of a claim: 1 to 256 bytes without control characters",
    );
    /// A value of a parameter.
    pub ParameterValue -> String, "", |text: &str| checked(
        text,
        text.len() <= 512 && !text.chars().any(char::is_control),
        "not the value of a parameter: at most 512 bytes without control characters",
    );
    /// An id of a client, or a host.
    pub DeniedClient -> String, "", |text: &str| checked(
        text,
        is_plain(text, 1024) && !text.contains('*'),
        "neither the id of a client nor a host: a host stands for all below it, so it needs no `*`",
    );
    /// An entry of `redirects`.
    pub AllowedRedirect -> String, "^[A-Za-z][A-Za-z0-9+.-]*:", allowed_redirect;
}

fn sign_in_url(text: &str) -> Result<String, Fault> {
    let shape = "not the URL of sign-in: write an origin such as \"https://mcp.example.com\", without path and final slash; \
                 `http` counts on localhost, 127.0.0.1 and [::1] only";
    let uri = Uri::read(text).map_err(|_| shape)?;
    let is_safe = uri.has_scheme("https") || (uri.has_scheme("http") && uri.is_loopback());
    if !is_safe || !uri.path.is_empty() || uri.query.is_some() {
        return Err(shape.into());
    }
    // Clients compare it byte for byte, and pages are posted with the origin in the browser's spelling.
    let as_browsers = origin(text)?;
    if as_browsers != text {
        return Err(format!("browsers write this origin in another way: write `{as_browsers}`").into());
    }
    Ok(as_browsers)
}

fn allowed_redirect(text: &str) -> Result<String, Fault> {
    AllowedRedirects::new(&[text]).map_err(|(_, fault)| format!("no answer is sent there: {fault}"))?;
    let is_rooted_origin =
        Uri::read(text).is_ok_and(|uri| uri.has_scheme("https") && uri.path == "/" && uri.query.is_none());
    let origin = text.trim_end_matches('/');
    if is_rooted_origin {
        return Err(format!("an origin has no final slash: write `{origin}`").into());
    }
    Ok(text.to_owned())
}
