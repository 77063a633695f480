//! `[[sign_in.client]]`: clients that are known by configuration.

use identity::redirect_uri::well_formed;
use identity::registration::{NAME_BYTES_MAX, REDIRECT_URIS_MAX};
use identity::sealed::client_id::looks_registered;
use identity::uri::Uri;

use crate::array::Array;
use crate::findings::Findings;
use crate::secret::SecretPlace;
use crate::section::section;
use crate::table::Table;
use crate::text::{Fault, checked, texts};
use crate::value::choice;

section! {
    /// A client that is known by configuration. Its id and its secret are entered at the client.
    pub struct SignInClient {
        /// Its id: letters, digits and `.`, `_`, `~`, `-`, which all clients send unchanged. They do not agree on how others are
        /// escaped.
        #[example("claude")]
        id: ClientId,
        /// The name that people are shown; up to 64 bytes.
        #[example("Claude")]
        name: ClientName,
        /// Its redirect URIs, to the letter; with `localhost`, `127.0.0.1` and `[::1]` any port counts. The others must be among
        /// `redirects` of `[sign_in]`, too.
        #[example(["https://claude.ai/api/mcp/auth_callback"])]
        redirects: Array<ClientRedirect, 1>,
        /// Its secret. Default: it has none, and proves with PKCE alone that it began the sign-in.
        #[example({ file = "/etc/trunkline/claude-secret" })]
        secret: Option<SecretPlace>,
        /// The consent of people: they are asked (`ask`), or not (`none`), which needs redirects that are all https.
        consent: Consent = "ask",
    }
    check check_client;
}

choice! {
    /// The consent of a person to a client.
    pub enum Consent {
        /// It is asked for.
        Ask = "ask",
        /// The operator has given it for all.
        None = "none",
    }
}

texts! {
    /// The id of a configured client.
    pub ClientId -> String, "^[A-Za-z0-9._~-]{1,128}$", |text: &str| checked(
        text,
        is_id(text),
        "not the id of a client: use 1 to 128 letters, digits and `.`, `_`, `~`, `-`, and not the beginning `tlc_`, which \
         registered clients have",
    ), secret: true;
    /// The name of a client.
    pub ClientName -> String, "", |text: &str| checked(
        text,
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control),
        "not the name of a client: 1 to 64 bytes without control characters",
    );
    /// A redirect URI.
    pub ClientRedirect -> String, "^[A-Za-z][A-Za-z0-9+.-]*:", client_redirect;
}

fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(is_plain) && !looks_registered(text)
}

fn client_redirect(text: &str) -> Result<String, Fault> {
    well_formed(text).map_err(|fault| format!("no answer is sent there: {fault}"))?;
    Ok(text.to_owned())
}

fn check_client(client: SignInClient, table: Table<'_>, findings: &mut Findings) -> SignInClient {
    if client.redirects.len() > REDIRECT_URIS_MAX {
        findings.error_at(table, "redirects", format!("a client has at most {REDIRECT_URIS_MAX} redirects"));
    }
    let is_https = |redirect: &String| Uri::read(redirect).is_ok_and(|uri| uri.has_scheme("https"));
    if client.consent == Consent::None
        && findings.span(table, "redirects").is_some()
        && !client.redirects.iter().all(is_https)
    {
        let message = "`none` is for https redirects only: any program on the user's computer could call itself this client";
        findings.error_at(table, "consent", message);
    }
    client
}
