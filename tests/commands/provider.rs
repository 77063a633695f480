//! `trunkline check --provider`: what a provider lacks, what to register there, and the configuration for it.

use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{
    Config, Folder, Lead, PROVIDER_CLIENT, PROVIDER_SECRET, Provider, Proxy, trunkline, write_secret,
};

const DISCOVERY: &str = "/.well-known/openid-configuration";
/// The lines that are left to write beside those that are printed.
const REST: &str =
    "[listener]\naddress = \"127.0.0.1:0\"\n[upstream.weather]\nurl = \"http://127.0.0.1:1/mcp\"\n";

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr))
}

/// Asks the provider with this issuer, of which there is no configuration.
fn ask(issuer: &str) -> Output {
    trunkline(&["check", "--provider", issuer], None).0
}

/// A configuration with sign-in at this provider, and further keys of its sections.
fn configured(folder: &Folder, issuer: &str, jwt: &str, sign_in: &str) -> String {
    let secret = folder.path().join("secret");
    write_secret(&secret, PROVIDER_SECRET);
    let sign_in = format!(
        "[sign_in]\nurl = \"https://mcp.example.net\"\nprovider = \"login\"\nclient_id = \"{PROVIDER_CLIENT}\"\n\
         client_secret = {{ file = \"{}\" }}\n{sign_in}",
        secret.display()
    );
    Config::new()
        .upstream("weather", ([127, 0, 0, 1], 1).into(), "")
        .top(&format!("state_directory = \"{}\"", folder.path().display()))
        .section(&format!("[[jwt]]\nname = \"login\"\nissuer = \"{issuer}\"\n{jwt}"))
        .section(&sign_in)
        .endpoint("public_url = \"https://mcp.example.net/mcp\"\nauth = [\"sign_in\"]\n")
        .to_string()
}

#[test]
fn the_lines_that_it_prints_are_a_configuration() {
    let provider = Provider::start(&["https://mcp.example.com/sign-in/callback"]);
    let output = ask(&provider.issuer());
    let (lines, errors) = said(&output);
    assert!(output.status.success() && errors.is_empty(), "{output:?}");
    assert!(lines.contains("redirect URI  https://mcp.example.com/sign-in/callback\n"), "{lines}");
    assert!(lines.contains("scopes        openid profile offline_access\n"), "{lines}");
    let (output, _) = trunkline(&["check", "--no-files"], Some(&format!("{lines}{REST}")));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn of_a_configuration_it_prints_its_own_values() {
    let (provider, folder) = (Provider::start(&["https://mcp.example.net/sign-in/callback"]), Folder::new());
    let keys = "require = { groups = [\"people\"] }\nprovider_scopes = [\"email\"]\nredirects = [\"https://claude.ai\"]\n";
    let config = configured(&folder, &provider.issuer(), "", keys);
    let (output, _) = trunkline(&["check", "--provider"], Some(&config));
    let (lines, errors) = said(&output);
    assert!(output.status.success() && errors.is_empty(), "{output:?}");
    for line in [
        "#   redirect URI  https://mcp.example.net/sign-in/callback",
        "#   scopes        openid profile offline_access email",
        "url = \"https://mcp.example.net\"",
        "require = { groups = [\"people\"] }",
        "redirects = [\"https://claude.ai\"]",
        "public_url = \"https://mcp.example.net/mcp\"",
        "auth = [\"sign_in\"]",
    ] {
        assert!(lines.lines().any(|printed| printed == line), "{line} is not in {lines}");
    }
    let state = format!("state_directory = \"{}\"\n", folder.path().display());
    let (output, _) = trunkline(&["check"], Some(&format!("{state}{lines}{REST}")));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn before_sign_in_is_configured_the_endpoint_and_its_url_are_taken() {
    let provider = Provider::start(&[]);
    let config = Config::new()
        .upstream("weather", ([127, 0, 0, 1], 1).into(), "")
        .section(&format!(
            "[[jwt]]\nname = \"staff\"\nissuer = \"{}\"\nsubject_claim = \"email\"",
            provider.issuer()
        ))
        .endpoint("public_url = \"https://tools.example.org/mcp\"\n");
    let (output, _) = trunkline(&["check", "--provider"], Some(&config.to_string()));
    let (lines, errors) = said(&output);
    assert!(output.status.success(), "{output:?}");
    assert!(errors.contains("`subject_claim = \"email\"` can change"), "{errors}");
    for line in ["provider = \"staff\"", "auth = [\"sign_in\", \"jwt\"]"] {
        assert!(lines.lines().any(|printed| printed == line), "{line} is not in {lines}");
    }
    assert!(lines.contains("url = \"https://tools.example.org\" "), "{lines}");
}

#[test]
fn what_a_provider_lacks_is_said() {
    let provider = Provider::start(&[]);
    let issuer = provider.issuer();
    let templated = format!("{issuer}/{{tenantid}}");
    for (changes, code, says) in [
        (json!({ "code_challenge_methods_supported": ["plain"] }), 1, "does not support PKCE by S256"),
        (json!({ "code_challenge_methods_supported": null }), 0, "do not say that it checks PKCE"),
        (json!({ "scopes_supported": ["openid"] }), 0, "does not name the scope `offline_access`"),
        (
            json!({ "scopes_supported": ["openid"], "grant_types_supported": ["authorization_code"] }),
            0,
            "gives no refresh tokens",
        ),
        (json!({ "claims_supported": ["sub"] }), 0, "do not name the claim `groups`"),
        (
            json!({ "issuer": "https://login.example.net" }),
            1,
            "write `issuer = \"https://login.example.net\"`",
        ),
        (json!({ "issuer": templated }), 1, "are for many tenants"),
        (json!({ "token_endpoint": null }), 1, "token_endpoint is missing"),
        (json!({ "jwks_uri": format!("{issuer}/nothing") }), 1, "its keys cannot be had"),
        (
            json!({ "token_endpoint_auth_methods_supported": ["tls_client_auth"] }),
            1,
            "does not take client_secret_basic",
        ),
    ] {
        provider.faults(&json!({ "answers": { DISCOVERY: changes } }));
        let output = ask(&issuer);
        let (_, errors) = said(&output);
        let kind = if code == 0 { "warning: " } else { "error: " };
        assert_eq!(output.status.code(), Some(code), "{changes}: {output:?}");
        assert!(
            errors.lines().any(|line| line.starts_with(kind) && line.contains(says)),
            "{changes}: {errors}"
        );
    }
}

#[test]
fn what_does_not_fit_the_configuration_is_said() {
    let (provider, folder) = (Provider::start(&[]), Folder::new());
    let post: Value = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] });
    for (changes, jwt, sign_in, code, says) in [
        (post.clone(), "", "", 1, "write `client_authentication = \"post\"`"),
        (post, "", "client_authentication = \"post\"\n", 0, ""),
        (json!({}), "algorithms = [\"RS256\"]\n", "", 1, "those that it signs with: ES256"),
        (json!({}), "", "provider_scopes = [\"api\"]\n", 0, "do not name the scope `api`"),
        (json!({}), "groups_claim = \"roles\"\n", "", 0, "do not name the claim `roles`"),
        (
            json!({ "scopes_supported": ["openid"] }),
            "",
            "parameters = { access_type = \"offline\" }\n",
            0,
            "",
        ),
    ] {
        provider.faults(&json!({ "answers": { DISCOVERY: changes } }));
        let config = configured(&folder, &provider.issuer(), jwt, sign_in);
        let (output, _) = trunkline(&["check", "--provider"], Some(&config));
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(errors.contains(says) && errors.is_empty() == says.is_empty(), "{says}: {errors}");
    }
}

#[test]
fn a_provider_that_is_not_there_is_told_from_one_that_lies() {
    let provider = Provider::start(&[]);
    let issuer = provider.issuer();
    for (faults, code, says) in [
        (json!({ "status": 404 }), 1, "has status 404: is this the issuer, to the letter?"),
        (json!({ "html": true }), 1, "no metadata that can be used"),
    ] {
        provider.faults(&faults);
        let output = ask(&issuer);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).1.contains(says) && output.stdout.is_empty(), "{output:?}");
    }
    drop(provider);
    let output = ask(&issuer);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(said(&output).1.contains("cannot be asked"), "{output:?}");
}

#[test]
fn it_is_asked_by_the_way_of_the_gateway_itself() {
    let proxy = Proxy::start(|_| Lead::Say(b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec()));
    let folder = Folder::new();
    let config = configured(&folder, "https://login.example.test", "", &proxy.table(""));
    let (output, _) = trunkline(&["check", "--provider"], Some(&config));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(said(&output).1.contains("proxy"), "{output:?}");
    let heads = proxy.heads();
    assert!(heads.iter().any(|head| head.starts_with("CONNECT login.example.test:443 ")), "{heads:?}");
}

#[test]
fn bad_input_what_is_no_provider_is_refused_before_anything_is_asked() {
    let without = good();
    for (arguments, config, code, says) in [
        (
            &["check", "--provider", "http://login.example.com"][..],
            None,
            2,
            "by https, or by http at a loopback address",
        ),
        (&["check", "--provider", "trunkline.toml"], None, 2, "write its URL"),
        (&["check", "--provider", "https://login.example.com", "--as", "ci"], None, 2, "cannot be used with"),
        (&["check", "--provider"], Some(&without), 2, "the configuration has no [[jwt]]"),
    ] {
        let (output, _) = trunkline(arguments, config.map(String::as_str));
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(said(&output).1.contains(says), "{output:?}");
    }
}

fn good() -> String {
    Config::new().upstream("up", ([127, 0, 0, 1], 1).into(), "").to_string()
}
