//! Keys that do not fit the shape of the file.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "syntax",
        replace: r#"path = "/mcp"
upstreams = ["a", "b"]"#,
        by: "path = /mcp
upstreams = [a, b]",
        rendered: "
f.toml:4:8: error: not TOML: string values must be quoted, expected literal string
  |
4 | path = …
  |        ^

f.toml:5:14: error: not TOML: string values must be quoted, expected literal string
  |
5 | upstreams = […
  |              ^
",
    },
    Case {
        name: "syntax, unclosed",
        replace: "[listener]",
        by: "metrics = {
[listener]",
        rendered: r#"
f.toml:2:1: error: not TOML: missing key for inline table element, expected key
  |
2 | [listener]
  | ^

f.toml:4:1: error: not TOML: missing key for inline table element, expected `,`
  |
4 | [[endpoint]]
  | ^

f.toml:5:1: error: not TOML: missing comma between key-value pairs, expected `,`
  |
5 | path = "…
  | ^
"#,
    },
    Case {
        name: "duplicate key",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
path = "/x""#,
        rendered: r#"
f.toml:5:1: error: not TOML: duplicate key
  |
5 | path = "…
  | ^^^^
"#,
    },
    Case {
        name: "unknown key, near",
        replace: "[listener]",
        by: r#"[listener]
adress = "127.0.0.1:1""#,
        rendered: r#"
f.toml:2:1: error: unknown key `adress` in [listener]
  |
2 | adress = "***********"
  | ^^^^^^ did you mean `address`?
"#,
    },
    Case {
        name: "unknown key, far",
        replace: "[listener]",
        by: "[listener]
colour = 1",
        rendered: "
f.toml:2:1: error: unknown key `colour` in [listener]
  |
2 | colour = 1
  | ^^^^^^ the keys here are: address, socket_mode, socket_group, proxy_protocol, tls
",
    },
    Case {
        name: "unknown key of the top level",
        replace: "[listener]",
        by: "worker = 1
[listener]",
        rendered: "
f.toml:1:1: error: unknown key `worker`
  |
1 | worker = 1
  | ^^^^^^ did you mean `workers`?
",
    },
    Case {
        name: "unknown table",
        replace: "[upstream.a]",
        by: "[upstreams.a]",
        rendered: r#"
f.toml:5:14: error: no upstream is named `a`: add [upstream.a]
  |
5 | upstreams = ["a", "b"]
  |              ^^^

f.toml:6:2: error: unknown key `upstreams`
  |
6 | [upstreams.a]
  |  ^^^^^^^^^ did you mean `upstream`?
"#,
    },
    Case {
        name: "unknown key in an upstream",
        replace: "[upstream.a]",
        by: "[upstream.a]
response_timeout_ms = 5",
        rendered: "
f.toml:7:1: error: unknown key `response_timeout_ms` in [upstream.a]
  |
7 | response_timeout_ms = 5
  | ^^^^^^^^^^^^^^^^^^^ did you mean `response_timeout`?
",
    },
    Case {
        name: "a table that is an array",
        replace: "[[endpoint]]",
        by: "[endpoint]",
        rendered: "
f.toml:3:1: error: write [[endpoint]] instead of [endpoint]: there may be several
  |
3 | [endpoint]
  | ^^^^^^^^^^
",
    },
    Case {
        name: "keys of a table that is an array",
        replace: "[[endpoint]]",
        by: "[rule]
name = \"a b\"
effect = \"permit\"
[[endpoint]]",
        rendered: "
f.toml:3:1: error: write [[rule]] instead of [rule]: there may be several
  |
3 | [rule]
  | ^^^^^^

f.toml:4:8: error: not a name: use 1 to 64 letters, digits and `.`, `_`, `-`
  |
4 | name = \"a b\"
  |        ^^^^^

f.toml:5:10: error: `effect`: must be one of `allow`, `deny`
  |
5 | effect = \"permit\"
  |          ^^^^^^^^ did you mean `allow`?
",
    },
    Case {
        name: "an array that is a table",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[limits]]
"#,
        rendered: "
f.toml:10:1: error: expected [limits], followed by its keys
   |
10 | [[limits]]
   | ^^^^^^^^^^
",
    },
    Case {
        name: "an array of values that is a table",
        replace: "[listener]",
        by: "limits = [1, 2]
[listener]",
        rendered: "
f.toml:1:10: error: expected [limits], followed by its keys
  |
1 | limits = [1, 2]
  |          ^^^^^^
",
    },
    Case {
        name: "an array of values that is tables",
        replace: "[listener]",
        by: r#"upstream.c = ["http://127.0.0.1:9103/"]
[listener]"#,
        rendered: r#"
f.toml:1:14: error: expected [upstream.c], followed by its keys
  |
1 | upstream.c = ["http://127.0.0.1:9103/"]
  |              ^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "not an array",
        replace: r#"upstreams = ["a", "b"]"#,
        by: r#"upstreams = "a""#,
        rendered: r#"
f.toml:5:13: error: `upstreams`: expected an array, found a string
  |
5 | upstreams = "a"
  |             ^^^ write ["a"]
"#,
    },
    Case {
        name: "a table for a number",
        replace: "[listener]",
        by: "workers = {}
[listener]",
        rendered: "
f.toml:1:11: error: `workers`: expected a whole number from 1 to 256, found a table
  |
1 | workers = {}
  |           ^^
",
    },
    Case {
        name: "an array for a string",
        replace: r#"path = "/mcp""#,
        by: "path = []",
        rendered: "
f.toml:4:8: error: `path`: expected a string, found an array
  |
4 | path = []
  |        ^^
",
    },
    Case {
        name: "not a table",
        replace: r#"[listener]
address = "127.0.0.1:8080""#,
        by: r#"listener = "127.0.0.1:8080""#,
        rendered: r#"
f.toml:1:12: error: expected [listener], followed by its keys
  |
1 | listener = "127.0.0.1:8080"
  |            ^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "wrong type",
        replace: r#"path = "/mcp""#,
        by: "path = 1",
        rendered: "
f.toml:4:8: error: `path`: expected a string, found an integer
  |
4 | path = 1
  |        ^
",
    },
    Case {
        name: "wrong type in an array",
        replace: r#"upstreams = ["a", "b"]"#,
        by: r#"upstreams = ["a", 2]"#,
        rendered: r#"
f.toml:5:19: error: `upstreams`: expected a string, found an integer
  |
5 | upstreams = ["a", 2]
  |                   ^
"#,
    },
    Case {
        name: "wrong variant",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
names = "prefix""#,
        rendered: r#"
f.toml:4:9: error: `names`: must be one of `transparent`, `prefixed`, `bare`
  |
4 | names = "prefix"
  |         ^^^^^^^^ did you mean `prefixed`?
"#,
    },
    Case {
        name: "wrong method",
        replace: "[[endpoint]]",
        by: r#"[[endpoint]]
auth = ["password"]"#,
        rendered: r#"
f.toml:4:9: error: `auth`: must be one of `api_key`, `jwt`, `client_certificate`, `sign_in`
  |
4 | auth = ["password"]
  |         ^^^^^^^^^^
"#,
    },
    Case {
        name: "count of nothing",
        replace: "[listener]",
        by: "workers = 0
[listener]",
        rendered: "
f.toml:1:11: error: `workers`: must be a whole number from 1 to 256
  |
1 | workers = 0
  |           ^
",
    },
    Case {
        name: "count too large",
        replace: "[listener]",
        by: "workers = 257
[listener]",
        rendered: "
f.toml:1:11: error: `workers`: must be a whole number from 1 to 256
  |
1 | workers = 257
  |           ^^^
",
    },
    Case {
        name: "count negative",
        replace: "[listener]",
        by: "workers = -1
[listener]",
        rendered: "
f.toml:1:11: error: `workers`: must be a whole number from 1 to 256
  |
1 | workers = -1
  |           ^^
",
    },
    Case {
        name: "count beyond 64 bits",
        replace: "[listener]",
        by: "workers = 99999999999999999999999
[listener]",
        rendered: "
f.toml:1:11: error: `workers`: must be a whole number from 1 to 256
  |
1 | workers = 99999999999999999999999
  |           ^^^^^^^^^^^^^^^^^^^^^^^
",
    },
    Case {
        name: "count in quotes",
        replace: "[listener]",
        by: r#"workers = "2"
[listener]"#,
        rendered: r#"
f.toml:1:11: error: `workers`: expected a whole number from 1 to 256, found a string
  |
1 | workers = "2"
  |           ^^^
"#,
    },
    Case {
        name: "size without unit",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_bytes_max = "4"
"#,
        rendered: r#"
f.toml:11:18: error: `body_bytes_max`: expected a size such as "64KiB", "4MiB" or "1GiB", or a number of bytes
   |
11 | body_bytes_max = "4"
   |                  ^^^
"#,
    },
    Case {
        name: "size in decimal units",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_bytes_max = "4MB"
"#,
        rendered: r#"
f.toml:11:18: error: `body_bytes_max`: expected a size such as "64KiB", "4MiB" or "1GiB", or a number of bytes
   |
11 | body_bytes_max = "4MB"
   |                  ^^^^^
"#,
    },
    Case {
        name: "size too small",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_bytes_max = 100
"#,
        rendered: "
f.toml:11:18: error: `body_bytes_max`: must be from 1KiB to 1GiB
   |
11 | body_bytes_max = 100
   |                  ^^^
",
    },
    Case {
        name: "size too large",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_bytes_max = "2GiB"
"#,
        rendered: r#"
f.toml:11:18: error: `body_bytes_max`: must be from 1KiB to 1GiB
   |
11 | body_bytes_max = "2GiB"
   |                  ^^^^^^
"#,
    },
    Case {
        name: "duration without unit",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_timeout = 30
"#,
        rendered: r#"
f.toml:11:16: error: `body_timeout`: a unit is missing: expected a duration such as "250ms", "5s", "10m", "1h" or "30d"
   |
11 | body_timeout = 30
   |                ^^
"#,
    },
    Case {
        name: "duration with a space",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_timeout = "30 s"
"#,
        rendered: r#"
f.toml:11:16: error: `body_timeout`: expected a duration such as "250ms", "5s", "10m", "1h" or "30d"
   |
11 | body_timeout = "30 s"
   |                ^^^^^^
"#,
    },
    Case {
        name: "duration of nothing",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_timeout = "0s"
"#,
        rendered: r#"
f.toml:11:16: error: `body_timeout`: must be from 1ms to 1h
   |
11 | body_timeout = "0s"
   |                ^^^^
"#,
    },
    Case {
        name: "duration too long",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_timeout = "2h"
"#,
        rendered: r#"
f.toml:11:16: error: `body_timeout`: must be from 1ms to 1h
   |
11 | body_timeout = "2h"
   |                ^^^^
"#,
    },
    Case {
        name: "fraction of a duration",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_timeout = "1.5s"
"#,
        rendered: r#"
f.toml:11:16: error: `body_timeout`: expected a duration such as "250ms", "5s", "10m", "1h" or "30d"
   |
11 | body_timeout = "1.5s"
   |                ^^^^^^
"#,
    },
    Case {
        name: "several at once",
        replace: r#"address = "127.0.0.1:8080"
[[endpoint]]
path = "/mcp""#,
        by: r#"adress = "127.0.0.1:8080"
[[endpoint]]
path = "mcp"
names = 1"#,
        rendered: r#"
f.toml:2:1: error: unknown key `adress` in [listener]
  |
2 | adress = "**************"
  | ^^^^^^ did you mean `address`?

f.toml:4:8: error: a path begins with `/`
  |
4 | path = "mcp"
  |        ^^^^^

f.toml:5:9: error: `names`: expected a string, found an integer
  |
5 | names = 1
  |         ^
"#,
    },
];
