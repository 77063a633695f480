//! Sign-in at a provider, as the configuration says it. A key that it leaves open has a value that a person replaces.

use config::{AuthMethod, Config, Jwt, ProviderProof, SignIn};
use identity::uri::Uri;

use super::known::KnownProvider;

/// A place for the gateway that nobody has.
const EXAMPLE_URL: &str = "https://mcp.example.com";

/// A provider, and the configuration that it is for.
#[derive(Clone, Copy, Debug)]
pub struct ProviderPlace<'c> {
    /// The issuer, to the letter.
    pub issuer: &'c str,
    /// The configuration, where there is one.
    pub config: Option<&'c Config>,
    /// Its section for this issuer.
    pub jwt: Option<&'c Jwt>,
    /// Its sign-in, if that is at this issuer.
    pub sign_in: Option<&'c SignIn>,
}

/// True for an issuer whose metadata can be asked for without a stranger on the way.
pub fn is_safe_issuer(issuer: &str) -> bool {
    Uri::read(issuer).is_ok_and(|uri| is_safe(&uri))
}

fn is_safe(uri: &Uri<'_>) -> bool {
    uri.has_scheme("https") || (uri.has_scheme("http") && uri.is_loopback())
}

impl<'c> ProviderPlace<'c> {
    /// This issuer, in a configuration that may know it.
    pub fn new(issuer: &'c str, config: Option<&'c Config>) -> Self {
        let jwt = config.and_then(|config| config.jwt.iter().find(|jwt| jwt.issuer == issuer));
        let sign_in = config.and_then(|config| config.sign_in.as_ref());
        let sign_in = sign_in.filter(|sign_in| jwt.is_some_and(|jwt| jwt.name == sign_in.provider));
        Self { issuer, config, jwt, sign_in }
    }

    /// The provider of a configuration: that of sign-in, else the only one. An error says what to do.
    pub fn of(config: &'c Config) -> Result<Self, String> {
        let jwt = match (&config.sign_in, &config.jwt[..]) {
            (Some(sign_in), all) => all.iter().find(|jwt| jwt.name == sign_in.provider),
            (None, [only]) => Some(only),
            (None, []) => return Err("the configuration has no [[jwt]]: name the provider, as in --provider https://login.example.com".to_owned()),
            (None, _) => return Err("the configuration has several [[jwt]]: say which is meant with --provider ISSUER".to_owned()),
        };
        let jwt = jwt.ok_or("the configuration has no [[jwt]] for sign-in")?;
        Ok(Self::new(&jwt.issuer, Some(config)))
    }

    /// Facts of such a provider.
    pub(super) fn known(&self) -> &'static KnownProvider {
        KnownProvider::of(self.issuer)
    }

    /// The origin of sign-in: as written, else that of an endpoint.
    pub(super) fn url(&self) -> String {
        let of_endpoint = || {
            let mut endpoints = self.config.into_iter().flat_map(|config| &config.endpoints);
            endpoints.find_map(|endpoint| origin(endpoint.public_url.as_deref()?))
        };
        let written = self.sign_in.map(|sign_in| sign_in.url.clone());
        written.or_else(of_endpoint).unwrap_or_else(|| EXAMPLE_URL.to_owned())
    }

    /// The claim that names a person.
    pub(super) fn subject_claim(&self) -> &str {
        let usual = || self.known().subject_claim.unwrap_or("sub");
        self.jwt.map_or_else(usual, |jwt| &jwt.subject_claim)
    }

    /// The claim with the groups of a person.
    pub(super) fn groups_claim(&self) -> &str {
        let usual = || self.known().groups_claim.unwrap_or("groups");
        self.jwt.map_or_else(usual, |jwt| &jwt.groups_claim)
    }

    /// The way in which the gateway proves to the provider that it is itself, of those that it offers.
    pub(super) fn authentication(&self, offered: &[&str]) -> &'static str {
        match self.sign_in.map(|sign_in| &sign_in.provider_client.proof) {
            Some(ProviderProof::Basic(_)) => return "client_secret_basic",
            Some(ProviderProof::Post(_)) => return "client_secret_post",
            Some(ProviderProof::PrivateKeyJwt { .. }) => return "private_key_jwt",
            None => {}
        }
        let order = if self.known().prefers_post {
            ["client_secret_post", "client_secret_basic", "private_key_jwt"]
        } else {
            ["client_secret_basic", "client_secret_post", "private_key_jwt"]
        };
        order.into_iter().find(|way| offered.contains(way)).unwrap_or("client_secret_basic")
    }

    /// Parameters of the provider's page: as written, else those that it is known to need.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        match self.sign_in {
            Some(sign_in) => sign_in.parameters.clone(),
            None => self.known().parameters.iter().map(pair).collect(),
        }
    }

    /// True where tokens of the provider itself open an endpoint.
    pub(super) fn takes_own_tokens(&self) -> bool {
        let mut endpoints = self.config.into_iter().flat_map(|config| &config.endpoints);
        endpoints.any(|endpoint| endpoint.auth.contains(&AuthMethod::Jwt))
    }
}

/// The origin of a public URL. `None`: sign-in cannot be there.
fn origin(url: &str) -> Option<String> {
    let uri = Uri::read(url).ok().filter(is_safe)?;
    let end = url.len() - uri.path.len() - uri.query.map_or(0, |query| query.len() + 1);
    url.get(..end).map(str::to_owned)
}
