//! What a `WWW-Authenticate` header says of metadata, and what the metadata of a protected resource (RFC
//! 9728) must say. Pure.

use serde_json::Value;

use super::facts::clip;
use config::Url;

/// The address of the metadata that a challenge names.
pub(super) fn metadata_url(challenge: &str) -> Option<String> {
    let lower = challenge.to_ascii_lowercase();
    let after = &challenge[lower.find("resource_metadata")? + "resource_metadata".len()..];
    let value = after.trim_start().strip_prefix('=')?.trim_start();
    let url = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => value.split([',', ' ']).next()?,
    };
    (!url.is_empty()).then(|| clip(url, 2000))
}

/// Whether a challenge is one that clients know.
pub(super) fn is_bearer(challenge: &str) -> bool {
    let lower = challenge.to_ascii_lowercase();
    lower == "bearer" || lower.starts_with("bearer ") || lower.contains(", bearer")
}

/// Where the metadata of a server may be that names none.
pub(super) fn well_known(url: &Url) -> Vec<String> {
    let scheme = if url.is_tls { "https" } else { "http" };
    let root = format!("{scheme}://{}/.well-known/oauth-protected-resource", url.authority);
    let path = url.path_and_query.split('?').next().unwrap_or_default().trim_end_matches('/');
    if path.is_empty() { vec![root] } else { vec![format!("{root}{path}"), root] }
}

/// What is wrong with metadata.
pub(super) fn fault(metadata: &Value, server: Option<&Url>) -> Option<String> {
    let Some(resource) = metadata.get("resource").and_then(Value::as_str) else {
        return Some("it has no resource".to_owned());
    };
    let servers = metadata.get("authorization_servers").and_then(Value::as_array);
    if servers.is_none_or(|servers| servers.is_empty() || !servers.iter().all(Value::is_string)) {
        return Some("it has no authorization_servers".to_owned());
    }
    let Ok(resource_url) = config::server_url(resource) else {
        return Some(format!("its resource {:?} is no URL", clip(resource, 200)));
    };
    let path =
        |url: &Url| url.path_and_query.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned();
    let fits = server.is_none_or(|server| {
        let is_same_host =
            resource_url.host.eq_ignore_ascii_case(&server.host) && resource_url.port == server.port;
        is_same_host && path(server).starts_with(&path(&resource_url))
    });
    (!fits).then(|| format!("its resource is {:?}, which is not this server", clip(resource, 200)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn challenges_name_metadata_in_all_their_spellings() {
        for (challenge, url) in [
            (r#"Bearer resource_metadata="https://a/m", scope="x""#, Some("https://a/m")),
            ("Bearer realm=\"x\", Resource_Metadata = https://a/m", Some("https://a/m")),
            ("Bearer resource_metadata=https://a/m,error=x", Some("https://a/m")),
            ("Bearer resource_metadata=\"\"", None),
            ("Bearer", None),
            ("Basic resource_metadata", None),
        ] {
            assert_eq!(metadata_url(challenge).as_deref(), url, "{challenge}");
        }
        assert!(is_bearer("Bearer") && is_bearer("bearer realm=x") && is_bearer("Basic x, Bearer y"));
        assert!(!is_bearer("Basic realm=bearer"));
    }

    #[test]
    fn metadata_must_be_of_this_server() {
        let url = |text| config::server_url(text).unwrap();
        let server = url("https://host/mcp?x=1");
        assert_eq!(
            well_known(&server),
            [
                "https://host/.well-known/oauth-protected-resource/mcp",
                "https://host/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(well_known(&url("http://h:1/")), ["http://h:1/.well-known/oauth-protected-resource"]);
        let servers = json!(["https://as"]);
        for (metadata, expected) in [
            (json!({"resource": "https://host/mcp", "authorization_servers": servers}), None),
            (json!({"resource": "https://host", "authorization_servers": servers}), None),
            (
                json!({"resource": "https://other/mcp", "authorization_servers": servers}),
                Some("its resource is"),
            ),
            (json!({"resource": "https://host/mcp", "authorization_servers": []}), Some("it has no auth")),
            (json!({"resource": "host", "authorization_servers": servers}), Some("its resource \"host\"")),
            (json!({"authorization_servers": servers}), Some("it has no resource")),
            (json!(7), Some("it has no resource")),
        ] {
            let found = fault(&metadata, Some(&server));
            assert_eq!(found.is_some(), expected.is_some(), "{metadata}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{metadata}");
        }
    }
}
