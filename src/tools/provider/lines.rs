//! The registration at a provider, and the configuration for it: TOML whose comments say the rest.

use std::fmt::Write as _;

use config::{AuthMethod, Config, EndpointConfig, Jwt, ProviderProof, SecretSource, SignIn};
use protocol::text::shown;

use super::ask::ProviderAnswer;
use super::place::ProviderPlace;
use super::review::Named;
use crate::client_config::toml_text::{array, key, string};

/// The path of the gateway's callback.
const CALLBACK: &str = "/sign-in/callback";
/// Columns up to a remark.
const REMARK_COLUMN: usize = 58;

/// The text; empty where no metadata came, of which nothing can be said.
pub fn lines(place: &ProviderPlace<'_>, answer: &ProviderAnswer) -> String {
    let named = Named::of(&answer.metadata);
    let mut text = String::new();
    if named.is_nothing() {
        return text;
    }
    registration(place, &named, &mut text);
    let mut sheet = TomlSheet(text);
    state(place, &mut sheet);
    jwt(place, &mut sheet);
    sign_in(place, &named, &mut sheet);
    endpoints(place, &mut sheet);
    sheet.0
}

fn registration(place: &ProviderPlace<'_>, named: &Named, text: &mut String) {
    let known = place.known();
    let offered = named.list("token_endpoint_auth_methods_supported");
    let mut scopes = vec!["openid", "profile"];
    if named.list("scopes_supported").contains(&"offline_access") {
        scopes.push("offline_access");
    }
    scopes.extend(place.sign_in.into_iter().flat_map(|sign_in| &sign_in.provider_scopes).map(String::as_str));
    let mut claims = vec![place.subject_claim()];
    claims.extend(known.member_claim.map(|(claim, _)| claim));
    if known.groups.is_some() {
        claims.push(place.groups_claim());
    }
    let rows = [
        (
            "kind",
            "web application with a secret or key: authorization code, PKCE with S256, refresh token"
                .to_owned(),
        ),
        ("redirect URI", format!("{}{CALLBACK}", place.url())),
        ("scopes", scopes.join(" ")),
        ("claims", format!("{}, in the ID token or in userinfo", claims.join(", "))),
        ("proof", place.authentication(&offered).to_owned()),
    ];
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# To register at {}:", shown(place.issuer));
    for (name, value) in rows {
        let _ = writeln!(text, "#   {name:<13} {}", shown(&value));
    }
    if let Some(page) = known.page {
        let _ = writeln!(text, "# The page docs/sign-in/{page}.md of the book has the steps there.");
    }
}

/// Lines of TOML, some with remarks.
struct TomlSheet(String);

impl TomlSheet {
    fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n{name}");
    }

    fn line(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn remarked(&mut self, key: &str, value: &str, remark: &str) {
        let line = format!("{key} = {value}");
        let _ = writeln!(self.0, "{line:<REMARK_COLUMN$}  # {remark}");
    }

    /// With a remark where the value is an example.
    fn maybe(&mut self, key: &str, value: &str, is_written: bool, remark: &str) {
        if is_written { self.line(key, value) } else { self.remarked(key, value, remark) }
    }
}

/// The place of sign-ins.
fn state(place: &ProviderPlace<'_>, sheet: &mut TomlSheet) {
    let has_place = |config: &Config| config.state_directory.is_some() || config.shared.is_some();
    if !place.config.is_some_and(has_place) {
        let remark = "before all sections, where sign-ins are kept; systemd sets it";
        sheet.0.push('\n');
        sheet.remarked("state_directory", "\"/var/lib/trunkline\"", remark);
    }
}

fn jwt(place: &ProviderPlace<'_>, sheet: &mut TomlSheet) {
    sheet.section("[[jwt]]");
    sheet.line("name", &string(name(place.jwt)));
    sheet.line("issuer", &string(place.issuer));
    if place.subject_claim() != "sub" {
        sheet.line("subject_claim", &string(place.subject_claim()));
    }
    if place.groups_claim() != "groups" {
        sheet.line("groups_claim", &string(place.groups_claim()));
    }
    if let Some(ca) = place.jwt.and_then(|jwt| jwt.ca.as_ref()) {
        sheet.line("ca", &string(&ca.display().to_string()));
    }
}

fn name(jwt: Option<&Jwt>) -> &str {
    jwt.map_or("login", |jwt| &jwt.name)
}

fn sign_in(place: &ProviderPlace<'_>, named: &Named, sheet: &mut TomlSheet) {
    let written = place.sign_in;
    let is_written = written.is_some();
    let client = written.map(|sign_in| &sign_in.provider_client);
    sheet.section("[sign_in]");
    let url = place.url();
    sheet.maybe("url", &string(&url), is_written, "where people and clients reach the gateway");
    sheet.line("provider", &string(name(place.jwt)));
    let id = client.map_or("trunkline", |client| &client.id);
    sheet.maybe("client_id", &string(id), is_written, "the id that the provider gave it");
    let way = place.authentication(&named.list("token_endpoint_auth_methods_supported"));
    let proof = if way == "private_key_jwt" { "client_key" } else { "client_secret" };
    let source = client.map(|client| source(&client.proof));
    let source = source.unwrap_or_else(|| {
        format!("{{ file = \"/etc/trunkline/provider-{}\" }}", proof.trim_start_matches("client_"))
    });
    sheet.line(proof, &source);
    if way == "client_secret_post" {
        sheet.line("client_authentication", "\"post\"");
    }
    let required = required(place, written);
    if !required.is_empty() {
        sheet.maybe("require", &table(&required), is_written, "who may sign in");
    }
    for (name, values) in [
        ("provider_scopes", written.map(|sign_in| &sign_in.provider_scopes)),
        ("redirects", written.map(|sign_in| &sign_in.redirects)),
    ] {
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            sheet.line(name, &array(texts(values)));
        }
    }
    let parameters = place.parameters();
    if !parameters.is_empty() {
        let pairs: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{} = {}", key(name), string(value))).collect();
        sheet.line("parameters", &format!("{{ {} }}", pairs.join(", ")));
    }
}

/// Claims of who may sign in: as written, else an example.
fn required(place: &ProviderPlace<'_>, written: Option<&SignIn>) -> Vec<(String, Vec<String>)> {
    if let Some(sign_in) = written {
        return sign_in.require.clone();
    }
    let known = place.known();
    let (claim, value) = known.member_claim.unwrap_or((place.groups_claim(), known.group));
    vec![(claim.to_owned(), vec![value.to_owned()])]
}

fn source(proof: &ProviderProof) -> String {
    match proof.source() {
        SecretSource::File(path) => format!("{{ file = {} }}", string(&path.display().to_string())),
        SecretSource::Env(name) => format!("{{ env = {} }}", string(name)),
        SecretSource::Credential(name) => format!("{{ credential = {} }}", string(name)),
    }
}

/// The endpoints that have sign-in; without one, those that could.
fn endpoints(place: &ProviderPlace<'_>, sheet: &mut TomlSheet) {
    let all: Vec<&EndpointConfig> = place.config.into_iter().flat_map(|config| &config.endpoints).collect();
    let has = |endpoint: &&&EndpointConfig| endpoint.auth.contains(&AuthMethod::SignIn);
    let with: Vec<&EndpointConfig> = all.iter().filter(has).copied().collect();
    for endpoint in if with.is_empty() { &all } else { &with } {
        sheet.section("[[endpoint]]");
        sheet.line("path", &string(&endpoint.path));
        sheet.line("upstreams", &array(texts(&endpoint.upstreams)));
        let url = endpoint.public_url.clone().unwrap_or_else(|| format!("{}{}", place.url(), endpoint.path));
        sheet.line("public_url", &string(&url));
        let mut auth: Vec<&str> = endpoint.auth.iter().map(|method| method.label()).collect();
        if with.is_empty() {
            auth.insert(0, AuthMethod::SignIn.label());
        }
        sheet.line("auth", &array(auth));
    }
    if all.is_empty() {
        sheet.section("[[endpoint]]");
        sheet.line("path", "\"/mcp\"");
        sheet.remarked("upstreams", "[\"weather\"]", "the names of your [upstream.NAME]");
        sheet.line("public_url", &string(&format!("{}/mcp", place.url())));
        sheet.line("auth", "[\"sign_in\"]");
    }
}

fn table(pairs: &[(String, Vec<String>)]) -> String {
    let pair = |(name, values): &(String, Vec<String>)| format!("{} = {}", key(name), array(texts(values)));
    let pairs: Vec<String> = pairs.iter().map(pair).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn texts(values: &[String]) -> impl Iterator<Item = &str> {
    values.iter().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::super::review;
    use super::*;

    fn answer(issuer: &str, methods: &[&str]) -> ProviderAnswer {
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": "https://login.example.com/authorize",
            "token_endpoint": "https://login.example.com/token",
            "jwks_uri": "https://login.example.com/keys",
            "token_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "offline_access"],
            "claims_supported": ["groups"],
        });
        ProviderAnswer { metadata: Bytes::from(metadata.to_string()), keys: Some(Ok(1)) }
    }

    #[test]
    fn the_lines_for_each_provider_are_a_configuration_without_warnings() {
        for (issuer, methods, line) in [
            ("https://login.example.com", &["client_secret_basic"][..], "require = { groups = [\"staff\"] }"),
            (
                "https://login.example.com",
                &["private_key_jwt"],
                "client_key = { file = \"/etc/trunkline/provider-key\" }",
            ),
            (
                "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
                &["client_secret_post", "private_key_jwt"],
                "subject_claim = \"oid\"",
            ),
            (
                "https://accounts.google.com",
                &["client_secret_basic"],
                "parameters = { access_type = \"offline\", prompt = \"consent\" }",
            ),
            (
                "https://example.eu.auth0.com/",
                &["client_secret_basic", "client_secret_post"],
                "client_authentication = \"post\"",
            ),
            (
                "https://example.okta.com/oauth2/default",
                &[],
                "issuer = \"https://example.okta.com/oauth2/default\"",
            ),
            (
                "https://sso.example.com/realms/staff",
                &[],
                "# The page docs/sign-in/keycloak.md of the book has the steps there.",
            ),
        ] {
            let (place, answer) = (ProviderPlace::new(issuer, None), answer(issuer, methods));
            let text = lines(&place, &answer);
            assert!(
                text.lines().any(|printed| printed.split("  ").next() == Some(line)),
                "{line} is not in {text}"
            );
            let rest = "[listener]\naddress = \"127.0.0.1:1\"\n[upstream.weather]\nurl = \"http://127.0.0.1:1/mcp\"\n";
            let text = format!("{text}{rest}");
            let config =
                config::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("lines", &text)));
            assert!(config.warnings.is_empty(), "{issuer}: {:?}", config.warnings);
            assert!(review(&place, &answer).iter().all(|finding| !finding.is_error), "{issuer}");
        }
    }

    #[test]
    fn nothing_of_a_stranger_ends_a_comment_or_a_string() {
        let issuer = "https://login.example.com/\"\n[admin]\n${HOME}";
        let text = lines(&ProviderPlace::new(issuer, None), &answer(issuer, &["x\ny"]));
        let table: toml::Table = text.parse().expect("TOML");
        assert_eq!(table.keys().collect::<Vec<_>>(), ["endpoint", "jwt", "sign_in", "state_directory"]);
        assert_eq!(
            table["jwt"][0]["issuer"].as_str(),
            Some("https://login.example.com/\"\n[admin]\n$${HOME}")
        );
    }
}
