//! Upstreams: names, prefixes, URLs.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "upstream name",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[upstream.My_Server]
url = "http://127.0.0.1:9103/"
"#,
        rendered: "
f.toml:10:11: error: `My_Server` cannot name an upstream: use a lower-case letter, then up to 31 of a-z, 0-9 and -
   |
10 | [upstream.My_Server]
   |           ^^^^^^^^^
",
    },
    Case {
        name: "prefix",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
prefix = "9x""#,
        rendered: r#"
f.toml:7:10: error: `9x` cannot be a prefix: use a lower-case letter, then up to 31 of a-z, 0-9 and -
  |
7 | prefix = "9x"
  |          ^^^^
"#,
    },
    Case {
        name: "no era",
        replace: "[upstream.a]",
        by: "[upstream.a]
eras = []",
        rendered: "
f.toml:7:8: error: `eras` is empty: name at least one, or leave the key out
  |
7 | eras = []
  |        ^^
",
    },
    Case {
        name: "an era twice",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
eras = ["modern", "modern"]"#,
        rendered: r#"
f.toml:7:19: error: `modern` is named twice
  |
7 | eras = ["modern", "modern"]
  |                   ^^^^^^^^
"#,
    },
    Case {
        name: "no url",
        replace: r#"url = "http://127.0.0.1:9101/"
"#,
        by: "",
        rendered: r#"
f.toml:6:1: error: [upstream.a] has no `url`: write `url = "http://HOST:PORT/mcp"`, or the `command` that starts it
  |
6 | [upstream.a]
  | ^^^^^^^^^^^^
"#,
    },
    Case {
        name: "url and urls",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
urls = ["http://127.0.0.1:9103/"]"#,
        rendered: r#"
f.toml:7:8: error: `url` and `urls` exclude each other: put all replicas in `urls`
  |
7 | urls = ["http://127.0.0.1:9103/"]
  |        ^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "url and command",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
command = "server""#,
        rendered: r#"
f.toml:8:7: error: `url` and `command` exclude each other: keep one
  |
8 | url = "http://127.0.0.1:9101/"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no program",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: "command = []",
        rendered: "
f.toml:7:11: error: `command` is empty: name at least one, or leave the key out
  |
7 | command = []
  |           ^^
",
    },
    Case {
        name: "a relative directory and a variable without a name",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"command = ["server", "-v"]
directory = "here"
env = { "A=B" = "x" }
env_pass = [""]"#,
        rendered: r#"
f.toml:8:13: error: not an absolute path: write one that begins with `/`, such as "/etc/trunkline/file"
  |
8 | directory = "here"
  |             ^^^^^^

f.toml:9:9: error: not the name of an environment variable
  |
9 | env = { "A=B" = "*" }
  |         ^^^^^

f.toml:10:13: error: not the name of an environment variable
   |
10 | env_pass = [""]
   |             ^^
"#,
    },
    Case {
        name: "keys of a command without one",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
args = ["-v"]"#,
        rendered: r#"
f.toml:7:8: error: `args` is for upstreams that are started by a `command`
  |
7 | args = ["**"]
  |        ^^^^^^
"#,
    },
    Case {
        name: "no urls",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: "urls = []",
        rendered: "
f.toml:7:8: error: `urls` is empty: name at least one, or leave the key out
  |
7 | urls = []
  |        ^^
",
    },
    Case {
        name: "url twice",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"urls = ["http://a/", "http://a", "http://a:80"]"#,
        rendered: r#"
f.toml:7:22: error: the same URL twice: name each replica once
  |
7 | urls = ["http://a/", "http://a", "http://a:80"]
  |                      ^^^^^^^^^^

f.toml:7:34: error: the same URL twice: name each replica once
  |
7 | urls = ["http://a/", "http://a", "http://a:80"]
  |                                  ^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no scheme",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "127.0.0.1:9101/mcp""#,
        rendered: r#"
f.toml:7:7: error: an upstream's URL begins with `http://` or `https://`
  |
7 | url = "127.0.0.1:9101/mcp"
  |       ^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no host",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http:///mcp""#,
        rendered: r#"
f.toml:7:7: error: not a URL: write for example "http://127.0.0.1:9101/mcp"
  |
7 | url = "http:///mcp"
  |       ^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "password",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://me:pw@127.0.0.1/mcp""#,
        rendered: "
f.toml:7:7: error: a URL must not hold a user or password: remove what stands before `@`
  |
7 | url = ****************************
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
",
    },
    Case {
        name: "fragment",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1/mcp#x""#,
        rendered: r#"
f.toml:7:7: error: a URL to call has no fragment: remove `#` and what follows
  |
7 | url = "http://127.0.0.1/mcp#*"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "port",
        replace: r#"url = "http://127.0.0.1:9101/""#,
        by: r#"url = "http://127.0.0.1:99999/mcp""#,
        rendered: r#"
f.toml:7:7: error: not a port: write a number from 1 to 65535 after the host
  |
7 | url = "http://127.0.0.1:99999/mcp"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
];
