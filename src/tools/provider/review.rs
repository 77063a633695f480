//! Faults of the answer of a provider. An error: nobody could sign in. A warning: something works less well than it might, or
//! cannot be told from metadata.

use config::is_changeable_claim;
use identity::provider::metadata::{MetadataFault, ProviderMetadata};
use protocol::text::shown;
use serde_json::Value;

use super::ask::ProviderAnswer;
use super::place::ProviderPlace;

/// Something that a person should know of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderFinding {
    /// No person can sign in before it is mended.
    pub is_error: bool,
    /// The fault, and the remedy.
    pub text: String,
}

/// Metadata of which each member is looked at as it is.
#[derive(Debug, Default)]
pub(super) struct Named(Value);

impl Named {
    /// Of a document; empty for what is none.
    pub(super) fn of(metadata: &[u8]) -> Self {
        Self(serde_json::from_slice(metadata).unwrap_or_default())
    }

    /// True of what is no JSON object.
    pub(super) fn is_nothing(&self) -> bool {
        !self.0.is_object()
    }

    /// The texts of a list; none where it is missing.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let values = self.0.get(name).and_then(Value::as_array);
        values.map_or_else(Vec::new, |values| values.iter().filter_map(Value::as_str).collect())
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// True where the list is there, and the value is not in it.
    fn lacks(&self, name: &str, value: &str) -> bool {
        let named = self.list(name);
        !named.is_empty() && !named.contains(&value)
    }
}

/// All that is wrong or missing, errors first.
pub fn review(place: &ProviderPlace<'_>, answer: &ProviderAnswer) -> Vec<ProviderFinding> {
    let named = Named::of(&answer.metadata);
    let mut findings = Findings::default();
    if let Err(fault) = ProviderMetadata::read(place.issuer, &answer.metadata) {
        findings.error(fault_of_metadata(&fault, &named));
    }
    if named.is_nothing() {
        return findings.0;
    }
    if let Some(Err(why)) = &answer.keys {
        findings.error(format!("its keys cannot be had, so no token of it is believed: {why}"));
    }
    proof(place, &named, &mut findings);
    signatures(place, &named, &mut findings);
    subject(place, &mut findings);
    pkce(&named, &mut findings);
    refresh_tokens(place, &named, &mut findings);
    groups(place, &named, &mut findings);
    scopes(place, &named, &mut findings);
    findings.0.sort_by_key(|finding| !finding.is_error);
    findings.0
}

#[derive(Default)]
struct Findings(Vec<ProviderFinding>);

impl Findings {
    fn error(&mut self, text: impl Into<String>) {
        self.0.push(ProviderFinding { is_error: true, text: text.into() });
    }

    fn warning(&mut self, text: impl Into<String>) {
        self.0.push(ProviderFinding { is_error: false, text: text.into() });
    }
}

fn fault_of_metadata(fault: &MetadataFault, named: &Named) -> String {
    let issuer = shown(named.text("issuer"));
    match fault {
        MetadataFault::Issuer if !issuer.is_empty() => format!(
            "its metadata name another issuer, which is that of its tokens: write `issuer = \"{issuer}\"` if you trust it"
        ),
        MetadataFault::Templated => format!(
            "its metadata are for many tenants, and name `{issuer}`: take the issuer of your own tenant, with its id"
        ),
        MetadataFault::Unsupported(_) | MetadataFault::Endpoint(_) => format!("nobody can sign in: {fault}"),
        fault => format!("what is there are no metadata that can be used: {fault}"),
    }
}

/// The gateway has to prove itself in a way that the provider takes. Where none is named, that is the header alone
/// (`OpenID` Connect Discovery §3), but not all keep to it.
fn proof(place: &ProviderPlace<'_>, named: &Named, findings: &mut Findings) {
    let offered = named.list("token_endpoint_auth_methods_supported");
    let way = place.authentication(&offered);
    if offered.is_empty() || offered.contains(&way) {
        return;
    }
    let key = match way {
        "client_secret_basic" if offered.contains(&"client_secret_post") => {
            "; write `client_authentication = \"post\"`"
        }
        "client_secret_post" if offered.contains(&"client_secret_basic") => {
            "; write `client_authentication = \"basic\"`"
        }
        _ if offered.contains(&"private_key_jwt") => "; write `client_key`, with which the gateway signs",
        _ => "",
    };
    let offered = shown(&offered.join(", "));
    findings.error(format!("the provider does not take {way} from its clients, but {offered}{key}"));
}

fn signatures(place: &ProviderPlace<'_>, named: &Named, findings: &mut Findings) {
    let signed = named.list("id_token_signing_alg_values_supported");
    let Some(jwt) = place.jwt.filter(|_| !signed.is_empty()) else { return };
    if !jwt.algorithms.iter().any(|algorithm| signed.contains(&algorithm.label())) {
        let signed = shown(&signed.join(", "));
        findings.error(format!(
            "no ID token is believed: `algorithms` of [[jwt]] has none of those that it signs with: {signed}"
        ));
    }
}

fn subject(place: &ProviderPlace<'_>, findings: &mut Findings) {
    let claim = place.subject_claim();
    // `check` itself says so of the provider of [sign_in].
    if place.sign_in.is_none() && is_changeable_claim(claim) {
        findings.warning(format!(
            "`subject_claim = \"{claim}\"` can change, and go to somebody else, who then is this principal: take `sub`, or what never changes"
        ));
    }
    if let Some(better) = place.known().subject_claim.filter(|better| *better != claim && claim == "sub")
        && place.takes_own_tokens()
    {
        findings.warning(format!(
            "`sub` is another for each application there: who comes with a token of another one is another principal; write `subject_claim = \"{better}\"`"
        ));
    }
}

fn pkce(named: &Named, findings: &mut Findings) {
    if named.list("code_challenge_methods_supported").is_empty() {
        findings.warning("its metadata do not say that it checks PKCE (S256), which the gateway always sends: require it for this client, if it can be set there");
    }
}

/// Without a refresh token, nobody can be asked about again, and a sign-in is short.
fn refresh_tokens(place: &ProviderPlace<'_>, named: &Named, findings: &mut Findings) {
    let by_scope = named.list("scopes_supported").contains(&"offline_access");
    let by_configuration =
        place.parameters().iter().any(|(name, value)| name == "access_type" && value == "offline")
            || place
                .sign_in
                .is_some_and(|sign_in| sign_in.provider_scopes.iter().any(|scope| scope == "offline_access"));
    if by_configuration {
        return;
    }
    if named.lacks("grant_types_supported", "refresh_token") {
        findings.warning("it gives no refresh tokens (`grant_types_supported`): sign-ins end after `grant_lifetime_without_refresh`, 12 hours by default");
    } else if !by_scope {
        findings.warning(
            "it does not name the scope `offline_access`, which the gateway asks for only where it is named: without a refresh \
             token, sign-ins end after `grant_lifetime_without_refresh`, 12 hours by default. If it gives refresh tokens in another way, \
             switch that on there, or with `provider_scopes` or `parameters`",
        );
    }
}

fn groups(place: &ProviderPlace<'_>, named: &Named, findings: &mut Findings) {
    let claim = place.groups_claim();
    let outermost = claim.split('.').next().unwrap_or_default();
    let names_it = |claims: &[&str]| claims.contains(&claim) || claims.contains(&outermost);
    match place.known().groups {
        None => findings.warning("it tells no groups: rules go by principals and by other claims, and `scopes` can be for everybody alone"),
        Some(_) if names_it(&named.list("claims_supported")) => {}
        Some(how) => findings.warning(format!(
            "its metadata do not name the claim `{claim}`, from which groups are taken: {how}, or rules, `scopes` and `require` by groups fit nobody"
        )),
    }
}

fn scopes(place: &ProviderPlace<'_>, named: &Named, findings: &mut Findings) {
    let asked = place.sign_in.into_iter().flat_map(|sign_in| &sign_in.provider_scopes);
    for scope in asked.filter(|scope| named.lacks("scopes_supported", scope)) {
        findings.warning(format!("its metadata do not name the scope `{scope}` of `provider_scopes`: some refuse a sign-in with one that they do not know"));
    }
}
