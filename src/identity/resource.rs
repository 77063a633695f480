//! The parameter `resource` (RFC 8707): which endpoint a client wants a token for.

use crate::oauth_error::{ErrorCode, OAuthError};
use crate::uri::Uri;

/// The index of the endpoint that `resource` names among these public URLs. Where it is missing, the only one.
pub fn endpoint_of(resource: Option<&str>, public_urls: &[&str]) -> Result<usize, OAuthError> {
    let refused = |why| Err(OAuthError::new(ErrorCode::InvalidTarget, why));
    let Some(resource) = resource else {
        return match public_urls {
            [_] => Ok(0),
            _ => refused("resource is missing, and there is more than one endpoint"),
        };
    };
    match public_urls.iter().position(|url| is_same(resource, url)) {
        Some(index) => Ok(index),
        None => refused("resource names no endpoint with sign-in at this server"),
    }
}

/// True where both name one endpoint: the case of scheme and host, a default port and a final slash make no difference.
pub fn is_same(one: &str, another: &str) -> bool {
    let (Ok(one), Ok(another)) = (Uri::read(one), Uri::read(another)) else { return false };
    one.is_web() && one.has_origin_of(&another) && path(&one) == path(&another) && one.query == another.query
}

fn path<'u>(uri: &Uri<'u>) -> &'u str {
    uri.path.strip_suffix('/').unwrap_or(uri.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENDPOINTS: [&str; 3] =
        ["https://mcp.example.com/mcp", "https://mcp.example.com/other", "https://root.example.com"];

    #[test]
    fn must_4_a_resource_names_one_endpoint_or_is_refused() {
        for (resource, expected) in [
            ("https://mcp.example.com/mcp", Some(0)),
            ("HTTPS://MCP.Example.com/mcp", Some(0)),
            ("https://mcp.example.com:443/mcp/", Some(0)),
            ("https://mcp.example.com/other", Some(1)),
            ("https://root.example.com", Some(2)),
            ("https://root.example.com/", Some(2)),
            ("https://mcp.example.com/MCP", None),
            ("https://mcp.example.com/mcp//", None),
            ("https://mcp.example.com/mcp/x", None),
            ("https://mcp.example.com/mc", None),
            ("https://mcp.example.com/mcp?a", None),
            ("https://mcp.example.com/mcp#a", None),
            ("https://mcp.example.com/a/../mcp", None),
            ("https://mcp.example.com/m%63p", None),
            ("https://mcp.example.com", None),
            ("https://mcp.example.com:8443/mcp", None),
            ("http://mcp.example.com/mcp", None),
            ("http://mcp.example.com:443/mcp", None),
            ("https://user@mcp.example.com/mcp", None),
            ("https://mcp.example.com./mcp", None),
            ("mcp.example.com/mcp", None),
            ("other", None),
        ] {
            let found = endpoint_of(Some(resource), &ENDPOINTS);
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{resource}");
            assert!(found.is_ok() || found.is_err_and(|error| error.code == ErrorCode::InvalidTarget));
        }
    }

    #[test]
    fn a_missing_resource_is_the_only_endpoint() {
        assert_eq!(endpoint_of(None, &ENDPOINTS[..1]), Ok(0));
        for several in [&ENDPOINTS[..], &[]] {
            assert_eq!(endpoint_of(None, several).map_err(|error| error.code), Err(ErrorCode::InvalidTarget));
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = endpoint_of(Some(&text), &ENDPOINTS);
        }
    }
}
