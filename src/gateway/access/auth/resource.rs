//! What clients are told of the authorization servers of endpoints: metadata of protected resources (RFC 9728).

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::json;

use super::challenge::{metadata_path, takes_tokens};
use config::{self, AuthMethod, Config};

/// Those found at a path, each with the index of its endpoint: several where endpoints differ by host.
pub(crate) type Documents = Vec<(usize, Bytes)>;

/// The documents of all endpoints that take tokens, by the paths that they are found at: after that of the public URL,
/// and after that of the endpoint, where a proxy before the gateway makes them differ.
pub(crate) fn documents(config: &Config) -> HashMap<Box<str>, Documents> {
    let mut documents: HashMap<Box<str>, Documents> = HashMap::new();
    let mut by_own_path = Vec::new();
    for (index, endpoint) in config.endpoints.iter().enumerate() {
        let Some(url) = &endpoint.public_url else { continue };
        if !takes_tokens(endpoint) {
            continue;
        }
        let document = document(endpoint, url, config);
        documents.entry(metadata_path(path_of(url)).into()).or_default().push((index, document.clone()));
        by_own_path.push((metadata_path(&endpoint.path).into(), (index, document)));
    }
    for (path, (index, document)) in by_own_path {
        let at_path = documents.entry(path).or_default();
        if at_path.iter().all(|(other, _)| *other != index) {
            at_path.push((index, document));
        }
    }
    documents
}

fn document(endpoint: &config::EndpointConfig, url: &str, config: &Config) -> Bytes {
    let is_url = |issuer: &&str| issuer.starts_with("https://") || issuer.starts_with("http://");
    let takes = |method| endpoint.auth.contains(&method);
    // Clients take the first: sign-in works for those that nobody registered anywhere.
    let own = config.sign_in.iter().filter(|_| takes(AuthMethod::SignIn)).map(|sign_in| sign_in.url.as_str());
    let issuers = config.jwt.iter().filter(|_| takes(AuthMethod::Jwt)).map(|jwt| jwt.issuer.as_str());
    let servers: Vec<&str> = own.chain(issuers.filter(is_url)).collect();
    let mut document = json!({
        "resource": url,
        "authorization_servers": servers,
        "bearer_methods_supported": ["header"],
        "resource_name": format!("MCP endpoint {}", endpoint.name),
    });
    if !endpoint.scopes.is_empty() {
        document["scopes_supported"] = json!(endpoint.scopes);
    }
    document.to_string().into()
}

fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}
