//! Who may call: issuers of tokens, certificates, and what endpoints ask for.

use super::*;

fn errors(lines: &str, endpoint: &str) -> Vec<String> {
    let text = format!("{}{lines}", base_with("[[endpoint]]", &format!("[[endpoint]]\n{endpoint}")));
    match parse(&text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

const GOOD: &str = "[[jwt]]\nname = \"a\"\nissuer = \"https://a\"\njwks_url = \"https://a/keys\"\n";
const PUBLIC: &str = "public_url = \"https://mcp/mcp\"";

#[test]
fn an_issuer_needs_a_name_and_keys_that_nobody_can_change() {
    let with = |from: &str, to: &str| GOOD.replace(from, to);
    for (lines, expected) in [
        (GOOD.to_owned(), ""),
        (with("https://a/keys", "http://127.0.0.1:8/keys"), ""),
        (with("https://a/keys", "http://[::1]/keys"), ""),
        (with("https://a/keys", "http://a/keys"), "not a URL to fetch keys from"),
        (with("https://a/keys", "http://127.0.0.1.evil/keys"), "not a URL to fetch keys from"),
        (with("https://a/keys", "file:///keys"), "not a URL to fetch keys from"),
        (with("https://a/keys", "https://u:p@a/keys"), "not a URL to fetch keys from"),
        (with("jwks_url = \"https://a/keys\"", "jwks_file = \"/keys\""), ""),
        (with("jwks_url = \"https://a/keys\"", "jwks_file = \"keys\""), "not an absolute path"),
        (with("jwks_url = \"https://a/keys\"", ""), ""),
        (with("jwks_url = \"https://a/keys\"", "").replace("https://a", "http://a"), "no keys"),
        (with("jwks_url = \"https://a/keys\"", "").replace("https://a", "corp"), "no keys"),
        (with("jwks_url = \"https://a/keys\"", "").replace("https://a", "https://a/{tenantid}"), "no keys"),
        (with("jwks_url = \"https://a/keys\"", "").replace("https://a", "https://a?b"), "no keys"),
        (with("jwks_url = \"https://a/keys\"", "").replace("https://a", "http://127.0.0.1:8"), ""),
        (format!("{GOOD}jwks_file = \"/keys\""), "both `jwks_url` and `jwks_file`"),
        (format!("{GOOD}algorithms = []"), "`algorithms` is empty"),
        (format!("{GOOD}algorithms = [\"HS256\"]"), "`algorithms`: must be one of `RS256`"),
        (format!("{GOOD}algorithms = [\"none\"]"), "`algorithms`: must be one of `RS256`"),
        (format!("{GOOD}leeway = \"1h\""), "`leeway`: must be from 0ms to 5m"),
        (format!("{GOOD}audiences = [\"\"]"), "not an audience"),
        (format!("{GOOD}subject_claim = \"\""), "not the name of a claim"),
        (with("name = \"a\"", "name = \"a b\""), "not a name"),
        (with("issuer = \"https://a\"", ""), "[[jwt]] has no `issuer`"),
        (format!("{GOOD}{GOOD}"), "two [[jwt]] are named `a`"),
        (format!("{GOOD}{}", with("name = \"a\"", "name = \"b\"")), "two [[jwt]] have the issuer"),
    ] {
        let found = errors(&lines, PUBLIC);
        match expected {
            "" => assert_eq!(found, Vec::<String>::new(), "{lines}"),
            expected => assert!(found.iter().any(|error| error.starts_with(expected)), "{lines}: {found:?}"),
        }
    }
}

#[test]
fn keys_are_where_it_is_written_or_where_the_issuer_says() {
    let source = |issuer: &str, keys: &str| {
        let text = format!("{BASE}[[jwt]]\nname = \"a\"\nissuer = \"{issuer}\"\n{keys}");
        let text = text.replace("[[endpoint]]", "[[endpoint]]\npublic_url = \"https://mcp/mcp\"");
        parsed(&text).jwt.remove(0).keys
    };
    let discovery = |url: &'static str| KeySource::Discovery(http::Uri::from_static(url));
    for (issuer, url) in [
        ("https://a", "https://a/.well-known/openid-configuration"),
        ("https://a/", "https://a/.well-known/openid-configuration"),
        ("https://a:8/b/c", "https://a:8/b/c/.well-known/openid-configuration"),
    ] {
        assert_eq!(source(issuer, ""), discovery(url));
    }
    assert_eq!(source("https://a", "jwks_file = \"/k\""), KeySource::File("/k".into()));
    let url = KeySource::Url(http::Uri::from_static("https://b/k"));
    assert_eq!(source("https://a", "jwks_url = \"https://b/k\""), url);
}

#[test]
fn an_endpoint_says_how_clients_authenticate() {
    let key = format!("[[api_key]]\nname = \"ci\"\nsha256 = \"{}\"\n", "aB".repeat(32));
    for (lines, endpoint, expected) in [
        (GOOD, PUBLIC.to_owned(), Ok(vec![AuthMethod::Jwt])),
        (&format!("{key}{GOOD}"), PUBLIC.to_owned(), Ok(vec![AuthMethod::ApiKey, AuthMethod::Jwt])),
        (&format!("{key}{GOOD}"), "auth = [\"api_key\"]".to_owned(), Ok(vec![AuthMethod::ApiKey])),
        (GOOD, String::new(), Err("tokens (JWT) are for one endpoint")),
        (&key, format!("{PUBLIC}\nauth = [\"jwt\"]"), Err("no client could authenticate: add a [[jwt]]")),
        (
            &key,
            "auth = [\"client_certificate\"]".to_owned(),
            Err("no client could authenticate: add `client_cert"),
        ),
        (&key, "scopes = [\"a b\"]".to_owned(), Err("not a scope")),
        ("", "scopes = [\"a\"]".to_owned(), Err("`scopes` are asked of nobody")),
        ("[client_certificate]\ngroups = { ops = [\"[\"] }", String::new(), Err("not a glob")),
    ] {
        let found = errors(lines, &endpoint);
        match expected {
            Ok(methods) => {
                assert_eq!(found, Vec::<String>::new(), "{lines} {endpoint}");
                let text =
                    format!("{}{lines}", base_with("[[endpoint]]", &format!("[[endpoint]]\n{endpoint}")));
                assert_eq!(parsed(&text).endpoints[0].auth, methods);
            }
            Err(expected) => {
                assert!(found.iter().any(|error| error.starts_with(expected)), "{endpoint}: {found:?}");
            }
        }
    }
}
