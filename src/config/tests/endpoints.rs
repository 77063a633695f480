//! Endpoints: paths, names, aliases, who may call and from where.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "no path",
        replace: r#"path = "/mcp"
"#,
        by: "",
        rendered: r#"
f.toml:3:1: error: [[endpoint]] has no `path`: write for example `path = "/mcp"`
  |
3 | [[endpoint]]
  | ^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no upstreams",
        replace: r#"upstreams = ["a", "b"]
"#,
        by: "",
        rendered: r#"
f.toml:3:1: error: [[endpoint]] has no `upstreams`: write for example `upstreams = ["weather"]`
  |
3 | [[endpoint]]
  | ^^^^^^^^^^^^
"#,
    },
    Case {
        name: "path without slash",
        replace: r#"path = "/mcp""#,
        by: r#"path = "mcp""#,
        rendered: r#"
f.toml:4:8: error: a path begins with `/`
  |
4 | path = "mcp"
  |        ^^^^^
"#,
    },
    Case {
        name: "path with query",
        replace: r#"path = "/mcp""#,
        by: r#"path = "/mcp?x""#,
        rendered: r#"
f.toml:4:8: error: a path has no query and no fragment: remove `?` or `#` and what follows
  |
4 | path = "/mcp?x"
  |        ^^^^^^^^
"#,
    },
    Case {
        name: "path with fragment",
        replace: r#"path = "/mcp""#,
        by: r#"path = "/#x""#,
        rendered: r#"
f.toml:4:8: error: a path has no query and no fragment: remove `?` or `#` and what follows
  |
4 | path = "/#x"
  |        ^^^^^
"#,
    },
    Case {
        name: "path with slash at its end",
        replace: r#"path = "/mcp""#,
        by: r#"path = "/mcp/""#,
        rendered: r#"
f.toml:4:8: error: a path does not end with `/`
  |
4 | path = "/mcp/"
  |        ^^^^^^^
"#,
    },
    Case {
        name: "path with a space",
        replace: r#"path = "/mcp""#,
        by: r#"path = "/m cp""#,
        rendered: r#"
f.toml:4:8: error: a path is visible ASCII: write other characters as %XX
  |
4 | path = "/m cp"
  |        ^^^^^^^
"#,
    },
    Case {
        name: "path twice",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[endpoint]]
path = "/mcp"
upstreams = ["a"]
"#,
        rendered: r#"
f.toml:11:8: error: two endpoints have this path: choose another, or say with `hosts` which hosts each is for
   |
11 | path = "/mcp"
   |        ^^^^^^
"#,
    },
    Case {
        name: "path twice for a host",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[endpoint]]
path = "/mcp"
hosts = ["a.test", "*.b.test"]
upstreams = ["a"]
[[endpoint]]
path = "/mcp"
hosts = ["b.test", "*.B.test"]
upstreams = ["a"]
"#,
        rendered: r#"
f.toml:16:20: error: another endpoint has the path `/mcp` for `*.b.test`: choose another host or path
   |
16 | hosts = ["b.test", "*.B.test"]
   |                    ^^^^^^^^^^
"#,
    },
    Case {
        name: "unknown upstream",
        replace: "[upstream.a]",
        by: r#"[upstream.weather]
url = "http://127.0.0.1:9103/"
[upstream.aa]"#,
        rendered: r#"
f.toml:5:14: error: no upstream is named `a`: add [upstream.a]
  |
5 | upstreams = ["a", "b"]
  |              ^^^
"#,
    },
    Case {
        name: "misspelt upstream",
        replace: r#"upstreams = ["a", "b"]
[upstream.a]"#,
        by: r#"upstreams = ["wether", "b"]
[upstream.weather]"#,
        rendered: r#"
f.toml:5:14: error: no upstream is named `wether`: add [upstream.wether]
  |
5 | upstreams = ["wether", "b"]
  |              ^^^^^^^^ did you mean `weather`?
"#,
    },
    Case {
        name: "upstream twice",
        replace: r#"upstreams = ["a", "b"]"#,
        by: r#"upstreams = ["a", "b", "a"]"#,
        rendered: r#"
f.toml:5:24: error: `a` is named twice
  |
5 | upstreams = ["a", "b", "a"]
  |                        ^^^
"#,
    },
    Case {
        name: "the same prefix",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
prefix = "b""#,
        rendered: r#"
f.toml:5:19: error: upstreams `a` and `b` have the same prefix `b`: give one of them another `prefix`
  |
5 | upstreams = ["a", "b"]
  |                   ^^^
"#,
    },
    Case {
        name: "transparent with several",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
names = "transparent""#,
        rendered: r#"
f.toml:4:9: error: several upstreams cannot be transparent: choose `names = "prefixed"` or `names = "bare"`
  |
4 | names = "transparent"
  |         ^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "empty alias",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
aliases = { "" = "a__x" }"#,
        rendered: r#"
f.toml:4:13: error: an alias has 1 to 128 bytes and no control characters
  |
4 | aliases = { "" = "a__x" }
  |             ^^
"#,
    },
    Case {
        name: "alias like a public name",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
aliases = { a__y = "a__x" }"#,
        rendered: r#"
f.toml:4:13: error: alias `a__y` could be a name of upstream `a`: choose one that does not begin with `a__`
  |
4 | aliases = { a__y = "a__x" }
  |             ^^^^
"#,
    },
    Case {
        name: "alias without upstream",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
aliases = { y = "x" }"#,
        rendered: r#"
f.toml:4:17: error: an alias stands for `UPSTREAM__NAME`: the upstream, two underscores, what it calls it
  |
4 | aliases = { y = "x" }
  |                 ^^^
"#,
    },
    Case {
        name: "alias without name",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
aliases = { y = "a__" }"#,
        rendered: r#"
f.toml:4:17: error: an alias stands for `UPSTREAM__NAME`: the upstream, two underscores, what it calls it
  |
4 | aliases = { y = "a__" }
  |                 ^^^^^
"#,
    },
    Case {
        name: "alias of an unknown upstream",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
aliases = { y = "weather__x" }"#,
        rendered: r#"
f.toml:4:17: error: this endpoint has no upstream named `weather`
  |
4 | aliases = { y = "weather__x" }
  |                 ^^^^^^^^^^^^
"#,
    },
    Case {
        name: "alias by prefix",
        replace: r#"path = "/mcp"
upstreams = ["a", "b"]
[upstream.a]"#,
        by: r#"path = "/mcp"
aliases = { y = "wx__x" }
upstreams = ["a", "b"]
[upstream.a]
prefix = "wx""#,
        rendered: r#"
f.toml:5:17: error: this endpoint has no upstream named `wx`
  |
5 | aliases = { y = "wx__x" }
  |                 ^^^^^^^ `wx` is its prefix: write `a__x`
"#,
    },
    Case {
        name: "glob",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
allow = ["*", "a[", "{b"]
deny = ["[z-a]"]"#,
        rendered: r#"
f.toml:4:15: error: not a glob: unclosed character class; missing ']'
  |
4 | allow = ["*", "a[", "{b"]
  |               ^^^^

f.toml:4:21: error: not a glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
  |
4 | allow = ["*", "a[", "{b"]
  |                     ^^^^

f.toml:5:9: error: not a glob: invalid range; 'z' > 'a'
  |
5 | deny = ["[z-a]"]
  |         ^^^^^^^
"#,
    },
    Case {
        name: "open to a network by default",
        replace: r#"address = "127.0.0.1:8080""#,
        by: r#"address = "0.0.0.0:8080""#,
        rendered: "
f.toml:3:1: error: anyone who reaches 0.0.0.0:8080 could call this endpoint: add an [[api_key]], listen on 127.0.0.1, or write `allow_unauthenticated = true`
  |
3 | [[endpoint]]
  | ^^^^^^^^^^^^
",
    },
    Case {
        name: "open to a network explicitly",
        replace: r#"address = "127.0.0.1:8080"
[[endpoint]]"#,
        by: r#"address = "[::]:8080"
[[endpoint]]
auth = []"#,
        rendered: "
f.toml:4:8: error: anyone who reaches [::]:8080 could call this endpoint: add an [[api_key]], listen on 127.0.0.1, or write `allow_unauthenticated = true`
  |
4 | auth = []
  |        ^^
",
    },
    Case {
        name: "auth without keys",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
auth = ["api_key"]"#,
        rendered: r#"
f.toml:4:9: error: no client could authenticate: add an [[api_key]], made by `trunkline key NAME`
  |
4 | auth = ["api_key"]
  |         ^^^^^^^^^
"#,
    },
    Case {
        name: "origin",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]"#,
        rendered: r#"
f.toml:4:12: error: `*` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards
  |
4 | origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]
  |            ^^^

f.toml:4:17: error: `null` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards
  |
4 | origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]
  |                 ^^^^^^

f.toml:4:25: error: `app.example.com` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards
  |
4 | origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]
  |                         ^^^^^^^^^^^^^^^^^

f.toml:4:44: error: an origin has no path: write `https://app.example.com`
  |
4 | origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]
  |                                            ^^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:4:72: error: `https://` is not an origin: write `scheme://host` or `scheme://host:port`, no wildcards
  |
4 | origins = ["*", "null", "app.example.com", "https://app.example.com/", "https://"]
  |                                                                        ^^^^^^^^^^
"#,
    },
    Case {
        name: "host",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
hosts = ["https://mcp.example.com", "a.*.example.com", "mcp.example.com:0"]"#,
        rendered: r#"
f.toml:4:10: error: `https://mcp.example.com` is not a host: write `host`, `host:port` or `*.host`, without scheme and path
  |
4 | hosts = ["https://mcp.example.com", "a.*.example.com", "mcp.example.com:0"]
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:4:37: error: `a.*.example.com` is not a host: write `host`, `host:port` or `*.host`, without scheme and path
  |
4 | hosts = ["https://mcp.example.com", "a.*.example.com", "mcp.example.com:0"]
  |                                     ^^^^^^^^^^^^^^^^^

f.toml:4:56: error: `mcp.example.com:0` is not a host: write `host`, `host:port` or `*.host`, without scheme and path
  |
4 | hosts = ["https://mcp.example.com", "a.*.example.com", "mcp.example.com:0"]
  |                                                        ^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no hosts",
        replace: "[[endpoint]]",
        by: "[[endpoint]]
hosts = []",
        rendered: "
f.toml:4:9: error: `hosts` is empty: name at least one, or leave the key out
  |
4 | hosts = []
  |         ^^
",
    },
    Case {
        name: "public_url",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
public_url = "mcp.example.com/mcp""#,
        rendered: r#"
f.toml:4:14: error: not the URL of an endpoint: write for example "https://mcp.example.com/mcp", without user, query and fragment
  |
4 | public_url = "mcp.example.com/mcp"
  |              ^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "public_url with a password",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
public_url = "https://me:pw@mcp.example.com/mcp""#,
        rendered: r#"
f.toml:4:14: error: not the URL of an endpoint: write for example "https://mcp.example.com/mcp", without user, query and fragment
  |
4 | public_url = ***********************************
  |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
];
