//! A client, however it is known: by the configuration, by its own registration here, or by a document at its id's URL.

use crate::oauth_error::{ErrorCode, OAuthError};
use crate::presented::Presented;
use crate::sealed::Seals;
use crate::sealed::client_id::{AuthMethod, RegisteredClient, looks_registered};
use crate::uri::{Uri, UriFault};

/// Longer ids are nobody's: those that are registered here have 1 KiB.
pub const CLIENT_ID_BYTES_MAX: usize = 1 << 10;
/// Bytes of an id that is a URL, which travels in cookies.
pub const URL_BYTES_MAX: usize = 512;

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its id.
    pub id: String,
    /// As it calls itself; may be empty.
    pub name: String,
    /// The way in which it is known.
    pub source: ClientSource,
    /// All that it may use.
    pub redirect_uris: Vec<String>,
    /// The proof that it is itself.
    pub auth_method: AuthMethod,
}

/// The way in which a client is known.
#[derive(Clone, Debug)]
pub enum ClientSource {
    /// It registered itself; its secret is a MAC of its id.
    Registered,
    /// By the document at its id.
    Document {
        /// Those that it signs with, where it does.
        keys: Option<ClientKeys>,
    },
    /// By the configuration, with the secret that stands there.
    Configured {
        /// The secret.
        secret: Option<Presented>,
    },
}

/// The keys by which a client signs its assertions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientKeys {
    /// A set of keys within the document, as JSON.
    Set(String),
    /// The URL of the set, which is fetched by the rules of documents.
    Url(String),
}

/// The kind of a client id, by its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdKind {
    /// The configuration names it.
    Configured,
    /// It holds its registration.
    Registered,
    /// A document has to be fetched.
    Document,
}

/// The clients that are barred.
#[derive(Clone, Debug, Default)]
pub struct DeniedClients {
    /// Ids, and hosts of ids or of redirect URIs.
    entries: Vec<String>,
}

/// The cause for which a client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// No id.
    #[error("client_id is missing")]
    Missing,
    /// Not one of ours, or its key is gone.
    #[error("client_id is unknown here: have the client forget it and register again")]
    Unknown,
    /// The configuration bars it.
    #[error("this client is not allowed here")]
    Denied,
    /// Its URL.
    #[error("client_id is refused: {0}")]
    Url(#[from] ClientUrlFault),
}

/// The cause for which a URL is no id of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientUrlFault {
    /// No URL that all read in the same way.
    #[error(transparent)]
    Uri(#[from] UriFault),
    /// A URL of another form.
    #[error(
        "the URL must be https, at a host name, at port 443, with a path, and of at most {URL_BYTES_MAX} bytes"
    )]
    Form,
}

impl From<ClientFault> for OAuthError {
    fn from(fault: ClientFault) -> Self {
        let code = match fault {
            ClientFault::Missing => ErrorCode::InvalidRequest,
            ClientFault::Denied => ErrorCode::UnauthorizedClient,
            ClientFault::Unknown | ClientFault::Url(_) => ErrorCode::InvalidClient,
        };
        Self::new(code, fault.to_string())
    }
}

/// Refuses URLs that are no id of a client, and that nothing is fetched from.
pub fn check_url(url: &str) -> Result<Uri<'_>, ClientUrlFault> {
    let uri = Uri::read(url)?;
    let is_good = url.len() <= URL_BYTES_MAX
        && url.starts_with("https://")
        && uri.port_or_default() == Some(443)
        && !uri.has_address()
        // A name without a dot, such as localhost, is one of a network of our own.
        && uri.host.is_some_and(|host| host.contains('.'))
        && uri.path.len() > 1;
    if is_good { Ok(uri) } else { Err(ClientUrlFault::Form) }
}

impl ClientIdKind {
    /// The kind of this id. Whatever the configuration names is its own.
    pub fn of(client_id: Option<&str>, is_configured: impl Fn(&str) -> bool) -> Result<Self, ClientFault> {
        let id = client_id.ok_or(ClientFault::Missing)?;
        if id.len() > CLIENT_ID_BYTES_MAX {
            return Err(ClientFault::Unknown);
        }
        if is_configured(id) {
            return Ok(Self::Configured);
        }
        if looks_registered(id) {
            return Ok(Self::Registered);
        }
        if Uri::read(id).is_ok_and(|uri| uri.is_web()) {
            check_url(id)?;
            return Ok(Self::Document);
        }
        Err(ClientFault::Unknown)
    }
}

impl Client {
    /// The client that holds its own registration.
    pub fn registered(client_id: &str, seals: &Seals, issuer: &str) -> Result<Self, ClientFault> {
        let registered: RegisteredClient =
            seals.open(client_id, issuer, 0).map_err(|_| ClientFault::Unknown)?;
        Ok(Self {
            id: client_id.to_owned(),
            name: registered.name,
            source: ClientSource::Registered,
            redirect_uris: registered.redirect_uris,
            auth_method: registered.auth_method,
        })
    }

    /// The URL of the keys that it signs with, where they are not in its document.
    pub fn keys_url(&self) -> Option<&str> {
        match &self.source {
            ClientSource::Document { keys: Some(ClientKeys::Url(url)) } => Some(url),
            _ => None,
        }
    }

    /// The host of its document.
    pub fn host(&self) -> Option<String> {
        let is_document = matches!(self.source, ClientSource::Document { .. });
        host_of(&self.id).filter(|_| is_document)
    }
}

impl DeniedClients {
    /// The entries of the configuration.
    pub fn new(entries: impl IntoIterator<Item = String>) -> Self {
        Self { entries: entries.into_iter().collect() }
    }

    /// True for an id, or a redirect URI, that an entry bars: itself, or by its host or a domain above that.
    pub fn bars(&self, text: &str) -> bool {
        let host = host_of(text);
        self.entries.iter().any(|entry| {
            entry == text || host.as_deref().is_some_and(|host| is_within(host, &entry.to_ascii_lowercase()))
        })
    }
}

fn host_of(text: &str) -> Option<String> {
    Uri::read(text).ok()?.host.map(str::to_ascii_lowercase)
}

fn is_within(host: &str, domain: &str) -> bool {
    host == domain || host.strip_suffix(domain).is_some_and(|above| above.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_is_of_the_kind_of_its_form() {
        let kind = |id: &str| ClientIdKind::of(Some(id), |id| id == "own" || id == "https://own.example/c");
        for (id, expected) in [
            ("own", Some(ClientIdKind::Configured)),
            ("https://own.example/c", Some(ClientIdKind::Configured)),
            ("tlc_abc", Some(ClientIdKind::Registered)),
            ("https://app.example/c.json", Some(ClientIdKind::Document)),
            ("http://app.example/c.json", None),
            ("https://app.example", None),
            ("https://127.0.0.1/c.json", None),
            ("other", None),
            ("", None),
        ] {
            assert_eq!(kind(id).ok(), expected, "{id}");
        }
        assert_eq!(kind(&format!("tlc_{}", "a".repeat(1025))), Err(ClientFault::Unknown));
        assert_eq!(ClientIdKind::of(None, |_| true), Err(ClientFault::Missing));
    }

    #[test]
    fn bad_input_a_url_that_is_no_id_is_refused() {
        for url in [
            "http://app.example.com/c",
            "HTTPS://app.example.com/c",
            "https://app.example.com",
            "https://app.example.com/",
            "https://app.example.com:8443/c",
            "https://user@app.example.com/c",
            "https://app.example.com/c#d",
            "https://app.example.com/a/../c",
            "https://app.example.com/%2e%2e/c",
            "https://127.0.0.1/c",
            "https://[::1]/c",
            "https://8.8.8.8/c",
            "https://localhost/c",
            "https://intranet/c",
            "https://2130706433/c",
            "ftp://app.example.com/c",
            &format!("https://app.example.com/{}", "c".repeat(URL_BYTES_MAX)),
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
        assert!(
            check_url("https://app.example.com/c.json").is_ok()
                && check_url("https://app.example.com:443/c").is_ok()
        );
    }

    #[test]
    fn barred_are_ids_and_hosts_with_what_is_below_them() {
        let denied = DeniedClients::new(["Evil.example", "tlc_x", "https://a.example/c"].map(str::to_owned));
        for (text, expected) in [
            ("tlc_x", true),
            ("https://a.example/c", true),
            ("https://a.example/d", false),
            ("https://evil.example/c", true),
            ("https://EVIL.example:8443/c", true),
            ("https://sub.evil.example/c", true),
            ("https://notevil.example/c", false),
            ("https://evil.example.org/c", false),
            ("tlc_y", false),
        ] {
            assert_eq!(denied.bars(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = ClientIdKind::of(Some(&text), |_| false);
            let _ = check_url(&format!("https://{text}"));
            let _ = DeniedClients::new([text.clone()]).bars(&format!("https://{text}"));
        }
    }
}
