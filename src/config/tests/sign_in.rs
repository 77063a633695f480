//! Sign-in: what of it is refused, and the keys that become data for the gateway.

use super::*;

const PROVIDER: &str = "[[jwt]]\nname = \"login\"\nissuer = \"https://login.example.com\"\n";
const SIGN_IN: &str = "[sign_in]\nurl = \"https://mcp.example.com\"\nprovider = \"login\"\nclient_id = \"trunkline\"\n\
                       client_secret = { file = \"/etc/trunkline/provider-secret\" }\n";
const ENDPOINT: &str = "public_url = \"https://mcp.example.com/mcp\"\nauth = [\"sign_in\"]\n";
const CLIENT: &str =
    "[[sign_in.client]]\nid = \"claude\"\nname = \"Claude\"\nredirects = [\"https://claude.ai/cb\"]\n";

/// A configuration with sign-in, of these parts.
fn text(provider: &str, sign_in: &str, endpoint: &str) -> String {
    let endpoint = base_with("[[endpoint]]", &format!("[[endpoint]]\n{endpoint}"));
    format!("state_directory = \"/var/lib/trunkline\"\n{endpoint}{provider}{sign_in}")
}

fn with(lines: &str) -> String {
    text(PROVIDER, &format!("{SIGN_IN}{lines}"), ENDPOINT)
}

fn errors(text: &str) -> Vec<String> {
    let found = parse(text).err();
    found.iter().flat_map(ConfigErrors::iter).map(|error| error.message.clone()).collect()
}

fn warnings(text: &str) -> Vec<String> {
    parsed(text).warnings.into_iter().map(|warning| warning.message).collect()
}

/// Exactly one error, which begins so, or none where nothing is expected.
fn assert_error(text: &str, expected: &str) {
    let found = errors(text);
    match expected {
        "" => assert_eq!(found, Vec::<String>::new(), "{text}"),
        expected => assert!(found.len() == 1 && found[0].starts_with(expected), "{text}\n{found:?}"),
    }
}

#[test]
fn sign_in_is_data_with_its_defaults() {
    let config = parsed(&with(""));
    let expected = SignIn {
        url: "https://mcp.example.com".into(),
        provider: "login".into(),
        provider_client: ProviderClient {
            id: "trunkline".into(),
            proof: ProviderProof::Basic(SecretSource::File("/etc/trunkline/provider-secret".into())),
        },
        require: Vec::new(),
        scopes: Vec::new(),
        redirects: Vec::new(),
        provider_scopes: Vec::new(),
        parameters: Vec::new(),
        key_file: None,
        access_token_lifetime: Duration::from_hours(1),
        grant_lifetime: Duration::from_hours(30 * 24),
        grant_idle_max: Duration::from_hours(7 * 24),
        grant_lifetime_without_refresh: Duration::from_hours(12),
        refresh_reuse: Duration::from_mins(1),
        recheck_interval: Duration::from_mins(15),
        provider_patience: Duration::from_hours(1),
        consent_remembered: Duration::from_hours(30 * 24),
        grants_per_principal_max: 64,
        store_records_max: 1_000_000,
        store_bytes_max: 4 << 30,
        clients_denied: Vec::new(),
        client_documents: ClientDocuments::Fetch,
        registration: true,
        clients: Vec::new(),
    };
    assert_eq!(config.sign_in, Some(expected));
    assert_eq!(config.endpoints[0].auth, [AuthMethod::SignIn]);
    assert_eq!(config.warnings, []);
}

#[test]
fn the_file_of_sign_ins_has_bounds_that_fit_each_other() {
    let config = parsed(&with("store_records_max = 5000\nstore_bytes_max = \"64MiB\"\n"));
    let bounds = config.sign_in.map(|sign_in| (sign_in.store_records_max, sign_in.store_bytes_max));
    assert_eq!(bounds, Some((5000, 64 << 20)));
    for (line, expected) in [
        ("store_bytes_max = \"1MiB\"", "`store_bytes_max`: "),
        ("store_records_max = 10", "`store_records_max`: "),
        ("store_records_max = 100000000", "so many records never fit"),
        ("store_records_max = 1000000\nstore_bytes_max = \"16MiB\"", "so many records never fit"),
        // The default of the other is no wish.
        ("store_bytes_max = \"16MiB\"", ""),
    ] {
        assert_error(&with(&format!("{line}\n")), expected);
    }
    let shared = format!(
        "{}key = {{ file = \"/etc/trunkline/sign-in.key\" }}\n[session]\nkey = {{ file = \"/etc/trunkline/session.key\" }}\n\
         [shared]\nredis = \"redis://127.0.0.1:6379\"\n",
        with("store_bytes_max = \"64MiB\"\n")
    );
    let expected = "with [shared], sign-ins are kept in Redis: `store_bytes_max`";
    assert!(warnings(&shared).iter().any(|warning| warning.starts_with(expected)));
}

#[test]
fn sign_in_counts_only_where_it_is_named() {
    let key = format!("[[api_key]]\nname = \"ci\"\nsha256 = \"{}\"\n", "aB".repeat(32));
    let both = format!("{}{key}", with("").replace("[\"sign_in\"]", "[\"sign_in\", \"api_key\"]"));
    assert_eq!(parsed(&both).endpoints[0].auth, [AuthMethod::SignIn, AuthMethod::ApiKey]);
    let none = format!("{}{key}", text(PROVIDER, SIGN_IN, "public_url = \"https://mcp.example.com/mcp\""));
    assert_eq!(parsed(&none).endpoints[0].auth, [AuthMethod::ApiKey, AuthMethod::Jwt]);
    assert_eq!(warnings(&none), ["no endpoint uses sign-in: write `auth = [\"sign_in\"]` at one"]);
}

#[test]
fn an_endpoint_with_sign_in_needs_the_section_and_a_url() {
    assert_error(&text(PROVIDER, "", ENDPOINT), "no client could authenticate: add [sign_in]");
    assert_error(&text(PROVIDER, SIGN_IN, "auth = [\"sign_in\"]"), "a sign-in is for one endpoint");
    assert_error(&with("").replace("[\"sign_in\"]", "[\"sso\"]"), "`auth`: must be one of");
    let second = |path: &str, url: &str| {
        format!(
            "{}[[endpoint]]\npath = \"{path}\"\nupstreams = [\"a\"]\nauth = [\"sign_in\"]\npublic_url = \"{url}\"\n",
            with("")
        )
    };
    assert_error(&second("/b", "https://mcp.example.com/b"), "");
    assert_error(
        &second("/b", "https://MCP.example.com:443/mcp/"),
        "another endpoint with sign-in has this public URL",
    );
    assert_error(&second("/b", "https://mcp.example.com/a/../b"), "clients do not agree");
}

#[test]
fn the_url_of_sign_in_is_an_origin_as_browsers_write_it() {
    for (url, expected) in [
        ("https://mcp.example.com:8443", ""),
        ("http://localhost:8080", ""),
        ("http://127.0.0.1:8080", ""),
        ("http://[::1]:8080", ""),
        ("https://mcp.example.com/", "not the URL of sign-in"),
        ("https://mcp.example.com/sign-in", "not the URL of sign-in"),
        ("https://mcp.example.com?a", "not the URL of sign-in"),
        ("https://mcp.example.com#a", "not the URL of sign-in"),
        ("https://u@mcp.example.com", "not the URL of sign-in"),
        ("http://mcp.example.com", "not the URL of sign-in"),
        ("http://127.0.0.2", "not the URL of sign-in"),
        ("ftp://mcp.example.com", "not the URL of sign-in"),
        ("mcp.example.com", "not the URL of sign-in"),
        (
            "https://MCP.example.com",
            "browsers write this origin in another way: write `https://mcp.example.com`",
        ),
        ("https://mcp.example.com:443", "browsers write this origin in another way"),
        ("http://localhost:80", "browsers write this origin in another way: write `http://localhost`"),
    ] {
        assert_error(
            &with("").replace("url = \"https://mcp.example.com\"", &format!("url = \"{url}\"")),
            expected,
        );
    }
}

#[test]
fn the_gateway_proves_itself_to_the_provider_by_one_way() {
    let secret = "client_secret = { file = \"/etc/trunkline/provider-secret\" }";
    let key = "client_key = { env = \"KEY\" }";
    let with = |lines: &str| with("").replace(secret, lines);
    let proof = |lines: &str| parsed(&with(lines)).sign_in.expect("sign-in").provider_client.proof;
    let file = || SecretSource::File("/etc/trunkline/provider-secret".into());
    let by_key = |key_id: Option<&str>| ProviderProof::PrivateKeyJwt {
        key: SecretSource::Env("KEY".into()),
        key_id: key_id.map(str::to_owned),
    };
    assert_eq!(proof(&format!("{secret}\nclient_authentication = \"post\"")), ProviderProof::Post(file()));
    assert_eq!(proof(key), by_key(None));
    assert_eq!(proof(&format!("{key}\nclient_key_id = \"1\"")), by_key(Some("1")));
    let both = format!("{key}\n{secret}\nclient_authentication");
    assert_eq!(proof(&format!("{both} = \"basic\"")), ProviderProof::Basic(file()));
    assert_eq!(proof(&format!("{both} = \"private_key_jwt\"")), by_key(None));
    for (lines, expected) in [
        (String::new(), "the provider would not know the gateway"),
        ("client_secret = \"hunter2\"".into(), "a secret cannot stand here"),
        (format!("{key}\n{secret}"), "both `client_secret` and `client_key`"),
        (format!("{secret}\nclient_key_id = \"1\""), "`client_key_id` is of no use"),
        (
            format!("{secret}\nclient_authentication = \"private_key_jwt\""),
            "`private_key_jwt` needs `client_key`",
        ),
        (format!("{key}\nclient_authentication = \"post\""), "`post` needs `client_secret`"),
        (format!("{secret}\nclient_authentication = \"tls\""), "`client_authentication`: must be one of"),
    ] {
        assert_error(&with(&lines), expected);
    }
}

#[test]
fn the_provider_is_one_that_can_say_who_somebody_is() {
    let issuer = |issuer: &str| PROVIDER.replace("https://login.example.com", issuer);
    let keys = "jwks_file = \"/keys\"\n";
    let google = issuer("https://accounts.google.com");
    let entra = |tenant: &str| issuer(&format!("https://login.microsoftonline.com/{tenant}/v2.0"));
    for (provider, lines, expected) in [
        (PROVIDER.replace("\"login\"", "\"logim\""), "", "no [[jwt]] is named `login`"),
        (entra("0b5a1f5e-6f0a-4c0e-9a43-5a6f1d1c2b3a"), "", ""),
        (entra("common"), "", "this issuer stands for many tenants"),
        (entra("organizations"), "", "this issuer stands for many tenants"),
        (format!("{}{keys}", entra("{tenantid}")), "", "this issuer stands for many tenants"),
        (format!("{}{keys}", issuer("corp")), "", "sign-in asks the provider at its issuer"),
        (
            format!("{}{keys}", issuer("http://login.example.com")),
            "",
            "sign-in asks the provider at its issuer",
        ),
        (issuer("http://127.0.0.1:9000"), "", ""),
        (google.clone(), "", "everybody can have an account at https://accounts.google.com"),
        (google.clone(), "require = {}", "everybody can have an account"),
        (google, "require = { hd = [\"example.com\"] }", ""),
        (entra("9188040d-6c67-4c5b-b112-36a304b66dad"), "", "everybody can have an account"),
    ] {
        assert_error(&text(&provider, &format!("{SIGN_IN}{lines}\n"), ENDPOINT), expected);
    }
}

#[test]
fn a_subject_that_people_can_change_is_a_warning() {
    for (claim, is_warned) in
        [("sub", false), ("oid", false), ("email", true), ("preferred_username", true), ("upn", true)]
    {
        let provider = format!("{PROVIDER}subject_claim = \"{claim}\"\n");
        let found = warnings(&text(&provider, SIGN_IN, ENDPOINT));
        assert_eq!(found.iter().any(|found| found.starts_with(&format!("`{claim}` can change"))), is_warned);
        assert_eq!(found.len(), usize::from(is_warned), "{found:?}");
    }
}

#[test]
fn id_tokens_open_no_endpoint() {
    let expected = "this is `client_id` of [sign_in]";
    let audience = "audiences = [\"api://mcp\", \"trunkline\"]\n";
    assert_error(&text(&format!("{PROVIDER}{audience}"), SIGN_IN, ENDPOINT), expected);
    assert_error(&text(PROVIDER, SIGN_IN, &format!("{ENDPOINT}{audience}")), expected);
    let by_url = SIGN_IN.replace("\"trunkline\"", "\"https://mcp.example.com/mcp/\"");
    assert_error(
        &text(PROVIDER, &by_url, &ENDPOINT.replace("[\"sign_in\"]", "[\"sign_in\", \"jwt\"]")),
        expected,
    );
    assert_error(&text(PROVIDER, &by_url, ENDPOINT), "");
}

#[test]
fn the_paths_of_sign_in_are_its_own_at_its_host() {
    let endpoint = |path: &str, lines: &str| {
        format!("{}[[endpoint]]\npath = \"{path}\"\nupstreams = [\"a\"]\nauth = []\n{lines}\n", with(""))
    };
    for path in [
        "/authorize",
        "/token",
        "/register",
        "/revoke",
        "/sign-in",
        "/sign-in/callback",
        "/sign-in/x",
        "/.well-known/oauth-authorization-server",
    ] {
        let refused = format!("`{path}` is a path of sign-in at https://mcp.example.com");
        for (lines, expected) in [
            ("", &*refused),
            ("hosts = [\"mcp.example.com\"]", &refused),
            ("hosts = [\"a.example\", \"MCP.example.com:8443\"]", &refused),
            ("hosts = [\"*.example.com\"]", &refused),
            ("public_url = \"https://mcp.example.com/x\"", &refused),
            ("hosts = [\"other.example.com\", \"*.mcp.example.com\"]", ""),
            ("public_url = \"https://other.example.com/x\"", ""),
        ] {
            assert_error(&endpoint(path, lines), expected);
        }
    }
    for path in ["/", "/tokens", "/sign-ins", "/mcp/token", "/.well-known/x"] {
        assert_error(&endpoint(path, ""), "");
    }
}

#[test]
fn answers_are_sent_to_places_that_can_be_trusted_to_be_themselves() {
    for (redirect, expected) in [
        ("https://claude.ai", ""),
        ("https://claude.ai:8443", ""),
        ("https://claude.ai/api/mcp/auth_callback", ""),
        ("cursor://anysphere.cursor-mcp/oauth/callback", ""),
        ("com.example.app:/callback", ""),
        ("http://localhost/callback", ""),
        ("http://[::1]:8080/", ""),
        ("https://claude.ai/", "an origin has no final slash: write `https://claude.ai`"),
        ("http://claude.ai", "no answer is sent there: redirect_uri is http"),
        ("javascript:alert(1)", "no answer is sent there: redirect_uri has a scheme"),
        ("data:text/html,x", "no answer is sent there: redirect_uri has a scheme"),
        ("https://*.claude.ai", "no answer is sent there"),
        ("claude.ai", "no answer is sent there"),
        ("https://u:p@claude.ai", "no answer is sent there"),
        ("https://claude.ai/?code=x", "no answer is sent there"),
        ("", "no answer is sent there"),
    ] {
        assert_error(&with(&format!("redirects = [\"{redirect}\"]\n")), expected);
    }
}

#[test]
fn lists_of_sign_in_hold_what_they_can_hold() {
    let many: Vec<String> = (0..33).map(|n| format!("s{n} = [\"*\"]")).collect();
    for (lines, expected) in [
        ("scopes = { \"mcp:read\" = [\"*\"], \"mcp:none\" = [] }".to_owned(), ""),
        ("scopes = { \"a b\" = [\"*\"] }".to_owned(), "not a scope"),
        ("scopes = { \"a\\\"b\" = [\"*\"] }".to_owned(), "not a scope"),
        ("scopes = { \"ä\" = [\"*\"] }".to_owned(), "not a scope"),
        ("scopes = { \"\" = [\"*\"] }".to_owned(), "not a scope"),
        ("scopes = { a = [\"b c\"] }".to_owned(), "not the name of a group"),
        ("scopes = { a = \"b\" }".to_owned(), "`a`: expected an array"),
        (format!("scopes = {{ {} }}", many.join(", ")), "at most 32 scopes"),
        ("require = { groups = [] }".to_owned(), "`groups` is empty"),
        ("require = { groups = [\"\"] }".to_owned(), "not the value of a claim"),
        ("parameters = { prompt = \"consent\", access_type = \"offline\" }".to_owned(), ""),
        ("parameters = { state = \"x\" }".to_owned(), "`state` is set by sign-in itself"),
        ("parameters = { redirect_uri = \"x\" }".to_owned(), "`redirect_uri` is set by sign-in itself"),
        (
            "parameters = { scope = \"x\" }".to_owned(),
            "`scope` is set by sign-in itself: write `provider_scopes`",
        ),
        ("parameters = { \"a b\" = \"x\" }".to_owned(), "a parameter has 1 to 64"),
        ("parameters = { a = \"\\n\" }".to_owned(), "not the value of a parameter"),
        ("provider_scopes = [\"a b\"]".to_owned(), "not a scope"),
        ("clients_denied = [\"evil.example\", \"https://a.example/c.json\"]".to_owned(), ""),
        ("clients_denied = [\"*.evil.example\"]".to_owned(), "neither the id of a client nor a host"),
        ("access_token_lifetime = \"1m\"".to_owned(), "`access_token_lifetime`: must be from 5m to 1d"),
        ("refresh_reuse = \"1h\"".to_owned(), "`refresh_reuse`: must be from 0ms to 10m"),
        ("grants_per_principal_max = 0".to_owned(), "`grants_per_principal_max`: must be"),
        ("grants_per_principal_max = 257".to_owned(), "`grants_per_principal_max`: must be"),
    ] {
        assert_error(&with(&format!("{lines}\n")), expected);
    }
}

#[test]
fn documents_of_clients_are_fetched_or_files_or_not_at_all() {
    for (value, expected) in [
        ("\"fetch\"", ClientDocuments::Fetch),
        ("\"off\"", ClientDocuments::Off),
        ("[\"/etc/a.json\"]", ClientDocuments::Files(vec!["/etc/a.json".into()])),
    ] {
        let config = parsed(&with(&format!("client_documents = {value}\n")));
        assert_eq!(config.sign_in.expect("sign-in").client_documents, expected);
    }
    for (value, expected) in [
        ("\"files\"", "`client_documents`: must be one of `fetch`, `off`"),
        ("[]", "`client_documents` is empty"),
        ("[\"a.json\"]", "not an absolute path"),
        ("true", "`client_documents`: expected a string"),
    ] {
        assert_error(&with(&format!("client_documents = {value}\n")), expected);
    }
}

#[test]
fn a_configured_client_has_an_id_that_all_clients_send_unchanged() {
    let allowed = "redirects = [\"https://claude.ai\", \"app:/cb\"]\n";
    let client = |from: &str, to: &str| with(&format!("{allowed}{}", CLIENT.replace(from, to)));
    let clients = parsed(&client("", "")).sign_in.expect("sign-in").clients;
    let expected = SignInClient {
        id: "claude".into(),
        name: "Claude".into(),
        redirects: vec!["https://claude.ai/cb".into()],
        secret: None,
        consent: Consent::Ask,
    };
    assert_eq!(clients, [expected]);
    for (from, to, expected) in [
        ("\"claude\"", "\"A-z.0_~\"", ""),
        ("\"claude\"", "\"a+b\"", "not the id of a client"),
        ("\"claude\"", "\"a%20b\"", "not the id of a client"),
        ("\"claude\"", "\"a:b\"", "not the id of a client"),
        ("\"claude\"", "\"https://claude.ai/c\"", "not the id of a client"),
        ("\"claude\"", "\"tlc_a\"", "not the id of a client"),
        ("\"claude\"", "\"\"", "not the id of a client"),
        ("\"Claude\"", "\"\"", "not the name of a client"),
        ("https://claude.ai/cb", "javascript:alert(1)", "no answer is sent there: redirect_uri has a scheme"),
        (
            "https://claude.ai/cb",
            "https://other.example/cb",
            "no answer is sent there: add `https://other.example`",
        ),
        ("https://claude.ai/cb", "http://localhost/cb", ""),
        ("[\"https://claude.ai/cb\"]", "[]", "`redirects` is empty"),
        ("[\"https://claude.ai/cb\"]\n", "[\"https://claude.ai/cb\"]\nconsent = \"none\"\n", ""),
        (
            "[\"https://claude.ai/cb\"]\n",
            "[\"http://localhost/cb\"]\nconsent = \"none\"\n",
            "`none` is for https redirects only",
        ),
        (
            "[\"https://claude.ai/cb\"]\n",
            "[\"app:/cb\"]\nconsent = \"none\"\n",
            "`none` is for https redirects only",
        ),
        ("name", "secret = \"hunter2\"\nname", "a secret cannot stand here"),
    ] {
        assert_error(&client(from, to), expected);
    }
    assert_error(&with(&format!("{allowed}{CLIENT}{CLIENT}")), "two clients have this id");
    assert_error(
        &with(&CLIENT.replace("[[sign_in.client]]", "[sign_in.client]")),
        "write [[sign_in.client]]",
    );
}

#[test]
fn sign_ins_have_a_place_where_they_are_kept() {
    let without = with("").replace("state_directory = \"/var/lib/trunkline\"\n", "");
    let shared = "[shared]\nredis = \"rediss://redis.example.com\"\n";
    assert_error(&without, "nobody would stay signed in");
    assert_error(&format!("{without}{shared}"), "[shared] needs `key` in [sign_in]");
    let key = without.replace("[sign_in]\n", "[sign_in]\nkey = { file = \"/etc/trunkline/sign-in.key\" }\n");
    assert_error(&format!("{key}{shared}"), "");
    let source = ConfigSource::new("", without);
    let environment = |name: &str| (name == "STATE_DIRECTORY").then(|| "/var/lib/trunkline".to_owned());
    assert!(parse_source(&source, &environment).is_ok(), "systemd names one");
}

#[test]
fn scopes_that_no_sign_in_is_granted_are_a_warning() {
    let asked = format!("{ENDPOINT}scopes = [\"mcp:read\", \"mcp:write\"]\n");
    let sign_in = format!("{SIGN_IN}scopes = {{ \"mcp:read\" = [\"*\"] }}\n");
    let found = warnings(&text(PROVIDER, &sign_in, &asked));
    assert_eq!(found, ["nobody who signs in is granted `mcp:write`: add it to `scopes` of [sign_in]"]);
}

#[test]
fn all_that_sign_in_reads_is_named() {
    let lines = format!(
        "redirects = [\"https://claude.ai\"]\nkey = {{ file = \"/k\" }}\nclient_documents = [\"/d\"]\n{CLIENT}secret = {{ env = \"S\" }}\n"
    );
    let config = parsed(&with(&lines));
    let named = config.named();
    assert_eq!(named.files, [Path::new("/k"), Path::new("/d")]);
    let secrets =
        [SecretSource::File("/etc/trunkline/provider-secret".into()), SecretSource::Env("S".into())];
    assert_eq!(named.secrets, secrets.iter().collect::<Vec<_>>());
}
