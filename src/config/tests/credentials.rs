//! Credentials towards upstreams: where they come from, and that nothing of a misplaced one is shown.

use super::*;

fn upstream(lines: &str) -> UpstreamConfig {
    parsed(&base_with("url = \"http://127.0.0.1:9101/\"\n", lines)).upstreams.remove(0)
}

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "an inline token, and another in the same line",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
headers = { a-key = "hunter2", x-token = "hunter3" }
bearer = "hunter4""#,
        rendered: r#"
f.toml:8:21: error: the value of `a-key` may be a secret and cannot stand here: write where it is read from, as in `{ file = "/etc/trunkline/secret" }`, `{ env = "NAME" }` or `{ credential = "NAME" }`
  |
8 | headers = { a-key = *********, x-token = "*******" }
  |                     ^^^^^^^^^

f.toml:8:42: error: the value of `x-token` may be a secret and cannot stand here: write where it is read from, as in `{ file = "/etc/trunkline/secret" }`, `{ env = "NAME" }` or `{ credential = "NAME" }`
  |
8 | headers = { a-key = "*******", x-token = ********* }
  |                                          ^^^^^^^^^

f.toml:9:10: error: a secret cannot stand here: write where it is read from, as in `{ file = "/etc/trunkline/secret" }`, `{ env = "NAME" }` or `{ credential = "NAME" }`
  |
9 | bearer = *********
  |          ^^^^^^^^^
"#,
    },
    Case {
        name: "tokens in lines that are no TOML",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
headers = { a-key = "hunter2", x = 1 2 }
bearer = "hunter3"#,
        rendered: r#"
f.toml:8:13: error: not TOML: string values must be quoted, expected literal string
  |
8 | headers = { …
  |             ^

f.toml:9:11: error: not TOML: invalid basic string, expected `"`
  |
9 | bearer = "…
  |           ^
"#,
    },
    Case {
        name: "tables that do not fit",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
basic = { user = "me", pasword = "hunter2" }
oauth = "hunter2"
env = "A=hunter2""#,
        rendered: r#"
f.toml:8:24: error: unknown key `pasword` in [upstream.a.basic]
  |
8 | basic = { user = "**", pasword = "*******" }
  |                        ^^^^^^^ did you mean `password`?

f.toml:9:9: error: expected [upstream.a.oauth], followed by its keys
  |
9 | oauth = *********
  |         ^^^^^^^^^

f.toml:10:7: error: `env`: expected a table, found a string
   |
10 | env = ***********
   |       ^^^^^^^^^^^
"#,
    },
    Case {
        name: "an unknown key that sounds like a secret",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
bearers = "hunter2""#,
        rendered: r#"
f.toml:8:1: error: unknown key `bearers` in [upstream.a]
  |
8 | bearers = "*******"
  | ^^^^^^^ did you mean `bearer`?
"#,
    },
    Case {
        name: "two ways to be known",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
bearer = { env = "A" }
basic = { user = "me:you", password = { env = "B" } }"#,
        rendered: r#"
f.toml:9:9: error: `bearer`, `basic`, `oauth` and a header `authorization` exclude each other: keep one
  |
9 | basic = { user = "******", password = { env = "*" } }
  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:9:18: error: a user holds no colon and no control characters
  |
9 | basic = { user = ********, password = { env = "*" } }
  |                  ^^^^^^^^
"#,
    },
    Case {
        name: "headers that are not the operator's",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
headers = { Mcp-Name = "a", X-A = "1", x-a = "2" }
forward_headers = ["Authorization", "cookie", "content-length", "x-a", "x-b", "X-B", "a b"]"#,
        rendered: r#"
f.toml:8:13: error: `mcp-name` is written by the gateway itself
  |
8 | headers = { Mcp-Name = "*", X-A = "*", x-a = "*" }
  |             ^^^^^^^^

f.toml:8:40: error: the same header twice: their case does not count
  |
8 | headers = { Mcp-Name = "*", X-A = "*", x-a = "*" }
  |                                        ^^^

f.toml:9:20: error: `authorization` is never handed on: what a client shows the gateway is for the gateway alone
  |
9 | forward_headers = ["*************", "******", "**************", "***", "***", "***", "***"]
  |                    ^^^^^^^^^^^^^^^

f.toml:9:37: error: `cookie` is never handed on: what a client shows the gateway is for the gateway alone
  |
9 | forward_headers = ["*************", "******", "**************", "***", "***", "***", "***"]
  |                                     ^^^^^^^^

f.toml:9:47: error: `content-length` is written by the gateway itself
  |
9 | forward_headers = ["*************", "******", ****************, "***", "***", "***", "***"]
  |                                               ^^^^^^^^^^^^^^^^

f.toml:9:65: error: `x-a` is among `headers` already: keep one
  |
9 | forward_headers = ["*************", "******", "**************", "***", "***", "***", "***"]
  |                                                                 ^^^^^

f.toml:9:79: error: `x-b` is named twice
  |
9 | forward_headers = ["*************", "******", "**************", "***", "***", "***", "***"]
  |                                                                               ^^^^^

f.toml:9:86: error: not the name of a header
  |
9 | forward_headers = ["*************", "******", "**************", "***", "***", "***", *****]
  |                                                                                      ^^^^^
"#,
    },
    Case {
        name: "TLS that does nothing or is half of it",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
tls = { certificate = "/c.pem", ca = "c.pem", server_name = "a b" }"#,
        rendered: r#"
f.toml:8:7: error: `tls` is for URLs that begin with `https://`: this upstream has none
  |
8 | tls = { certificate = "/c.pem", ca = "c.pem", server_name = "a b" }
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:8:23: error: `certificate` needs its `key`: write `key = { file = "…" }`
  |
8 | tls = { certificate = ********, ca = "c.pem", server_name = "a b" }
  |                       ^^^^^^^^

f.toml:8:38: error: not an absolute path: write one that begins with `/`, such as "/etc/trunkline/file"
  |
8 | tls = { certificate = "/c.pem", ca = "c.pem", server_name = "a b" }
  |                                      ^^^^^^^

f.toml:8:61: error: not the name of a server: write a host name or an IP address
  |
8 | tls = { certificate = "/c.pem", ca = "c.pem", server_name = "a b" }
  |                                                             ^^^^^
"#,
    },
    Case {
        name: "a token endpoint in clear text",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:9101/"
[upstream.a.oauth]
token_url = "http://issuer.example/token"
client_id = "me"
scopes = ["a b"]"#,
        rendered: r#"
f.toml:8:1: error: [upstream.a.oauth] has no `client_secret`: write for example `client_secret = { file = "/etc/trunkline/client-secret" }`
  |
8 | [upstream.a.oauth]
  | ^^^^^^^^^^^^^^^^^^

f.toml:9:13: error: secrets are sent there: write a URL that begins with `https://`
  |
9 | token_url = "http://issuer.example/token"
  |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:11:11: error: not a scope: 1 to 256 visible ASCII characters, without spaces, quotes and `\`; name each by itself
   |
11 | scopes = ["a b"]
   |           ^^^^^
"#,
    },
    Case {
        name: "a child process",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"command = "server"
env = { A = { value = "hunter2" } }
bearer = { env = "B" }"#,
        rendered: r#"
f.toml:8:13: error: expected one of `file`, `env` and `credential`, each a string, and nothing else
  |
8 | env = { A = { value = "*******" } }
  |             ^^^^^^^^^^^^^^^^^^^^^

f.toml:9:10: error: `bearer` is for upstreams with a URL: a child process gets its credentials in `env`
  |
9 | bearer = { env = "*" }
  |          ^^^^^^^^^^^^^
"#,
    },
];

#[test]
fn credentials_are_resolved() {
    let found = upstream(
        r#"url = "https://tools.example/"
headers = { X-Tenant = "acme", x-api-key = { env = "KEY" } }
forward_headers = ["X-Request-Id"]
[upstream.a.tls]
ca = "/ca.pem"
certificate = "/c.pem"
key = { credential = "key" }
server_name = "other.example"
[upstream.a.oauth]
token_url = "https://issuer.example/token"
client_id = "me"
client_secret = { file = "/secret" }
scopes = ["a", "b"]
resource = "https://tools.example/"
client_auth = "post"
"#,
    );
    let tls = ClientTls {
        ca: Some("/ca.pem".into()),
        identity: Some(("/c.pem".into(), SecretSource::Credential("key".to_owned()))),
        server_name: Some("other.example".to_owned()),
    };
    assert_eq!(found.tls, tls);
    let name = http::HeaderName::from_static;
    let oauth = OAuth {
        token_url: "https://issuer.example/token".to_owned(),
        client_id: "me".to_owned(),
        client_secret: SecretSource::File("/secret".into()),
        scopes: vec!["a".to_owned(), "b".to_owned()],
        resource: Some("https://tools.example/".to_owned()),
        client_auth: ClientAuth::Post,
        ca: None,
    };
    let credentials = Credentials {
        headers: vec![
            (name("x-tenant"), HeaderSource::Text(http::HeaderValue::from_static("acme"))),
            (name("x-api-key"), HeaderSource::Secret(SecretSource::Env("KEY".to_owned()))),
        ],
        query: Vec::new(),
        authorization: Some(Authorization::OAuth(Box::new(oauth))),
        forward: vec![name("x-request-id")],
    };
    assert_eq!(found.credentials, credentials);

    let child = upstream("command = \"server\"\nenv = { A = \"b\", C = { env = \"D\" } }\n");
    let command = child.command.expect("a command");
    assert_eq!(command.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(command.secret_env, [("C".to_owned(), SecretSource::Env("D".to_owned()))]);
}

#[test]
fn secrets_in_clear_text_over_a_network_are_a_warning() {
    for (url, warned) in [
        ("http://tools.example/", true),
        ("https://tools.example/", false),
        ("http://127.0.0.1/", false),
        ("http://localhost/", false),
    ] {
        let text = base_with("http://127.0.0.1:9101/", url)
            .replace("[upstream.b]", "bearer = { env = \"A\" }\n[upstream.b]");
        assert_eq!(parsed(&text).warnings.len(), usize::from(warned), "{url}");
    }
}
