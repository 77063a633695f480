//! Sections of the process: addresses, limits, drain, keys.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "no listener",
        replace: r#"[listener]
address = "127.0.0.1:8080"
"#,
        by: "",
        rendered: r#"
f.toml:1:1: error: no listener: add [listener] with `address = "127.0.0.1:8080"`
  |
1 | [[endpoint]]
  | ^
"#,
    },
    Case {
        name: "no endpoint",
        replace: r#"[[endpoint]]
path = "/mcp"
upstreams = ["a", "b"]
"#,
        by: "",
        rendered: r#"
f.toml:1:1: error: no endpoint: add [[endpoint]] with `path = "/mcp"` and its `upstreams`
  |
1 | [listener]
  | ^
"#,
    },
    Case {
        name: "nothing",
        replace: r#"[listener]
address = "127.0.0.1:8080"
[[endpoint]]
path = "/mcp"
upstreams = ["a", "b"]
[upstream.a]
url = "http://127.0.0.1:9101/"
[upstream.b]
url = "http://127.0.0.1:9102/"
"#,
        by: "",
        rendered: r#"
f.toml:1:1: error: no listener: add [listener] with `address = "127.0.0.1:8080"`
  |
1 | 
  | ^

f.toml:1:1: error: no endpoint: add [[endpoint]] with `path = "/mcp"` and its `upstreams`
  |
1 | 
  | ^
"#,
    },
    Case {
        name: "no address",
        replace: r#"address = "127.0.0.1:8080"
"#,
        by: "",
        rendered: r#"
f.toml:1:1: error: [listener] has no `address`: write for example `address = "127.0.0.1:8080"`
  |
1 | [listener]
  | ^^^^^^^^^^
"#,
    },
    Case {
        name: "no address of admin",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[admin]
"#,
        rendered: r#"
f.toml:10:1: error: [admin] has no `address`: write for example `address = "127.0.0.1:9090"`
   |
10 | [admin]
   | ^^^^^^^
"#,
    },
    Case {
        name: "a host name",
        replace: r#"address = "127.0.0.1:8080""#,
        by: r#"address = "localhost:8080""#,
        rendered: r#"
f.toml:2:11: error: an IP address is needed, not a name: write "127.0.0.1:8080"
  |
2 | address = "localhost:8080"
  |           ^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "no port",
        replace: r#"address = "127.0.0.1:8080""#,
        by: r#"address = "127.0.0.1""#,
        rendered: r#"
f.toml:2:11: error: the port is missing: write for example "127.0.0.1:8080"
  |
2 | address = "127.0.0.1"
  |           ^^^^^^^^^^^
"#,
    },
    Case {
        name: "an address twice",
        replace: "[listener]",
        by: r#"[[listener]]
address = "127.0.0.1:8080"
[[listener]]"#,
        rendered: r#"
f.toml:4:11: error: 127.0.0.1:8080 is used twice: choose another port
  |
4 | address = "127.0.0.1:8080"
  |           ^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "the address of admin is taken",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[admin]
address = "127.0.0.1:8080"
"#,
        rendered: r#"
f.toml:11:11: error: 127.0.0.1:8080 is used twice: choose another port
   |
11 | address = "127.0.0.1:8080"
   |           ^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "more from an address than in all",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
connections_max = 10
connections_per_address_max = 11
"#,
        rendered: "
f.toml:12:31: error: `connections_per_address_max` is more than `connections_max` (10)
   |
12 | connections_per_address_max = 11
   |                               ^^
",
    },
    Case {
        name: "a body that cannot be buffered",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
body_bytes_max = "512MiB"
"#,
        rendered: r#"
f.toml:11:18: error: `body_bytes_max` (536870912 bytes) is more than `buffered_bytes_max` (268435456 bytes), so the largest could never be held
   |
11 | body_bytes_max = "512MiB"
   |                  ^^^^^^^^
"#,
    },
    Case {
        name: "a buffer below the defaults",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[limits]
buffered_bytes_max = "8MiB"
"#,
        rendered: r#"
f.toml:11:22: error: `reply_bytes_max` (16777216 bytes) is more than `buffered_bytes_max` (8388608 bytes), so the largest could never be held
   |
11 | buffered_bytes_max = "8MiB"
   |                      ^^^^^^
"#,
    },
    Case {
        name: "drain ends early",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[drain]
quiet = "30s"
"#,
        rendered: r#"
f.toml:11:9: error: `max` (20s) ends before `quiet` (30s): make it at least as long
   |
11 | quiet = "30s"
   |         ^^^^^
"#,
    },
    Case {
        name: "drain ends early, both written",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[drain]
quiet = "3s"
max = "2s"
"#,
        rendered: r#"
f.toml:12:7: error: `max` (2s) ends before `quiet` (3s): make it at least as long
   |
12 | max = "2s"
   |       ^^^^
"#,
    },
    Case {
        name: "a state directory that depends on where one stands",
        replace: "[listener]",
        by: r#"state_directory = "state"
[listener]"#,
        rendered: r#"
f.toml:1:19: error: not an absolute path: write one that begins with `/`, such as "/etc/trunkline/file"
  |
1 | state_directory = "state"
  |                   ^^^^^^^
"#,
    },
    Case {
        name: "session keys",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[session]
key = { file = "session.key" }
expiry = "721h"
idle_timeout = "500ms"
sessions_max = 0
streams_max = 0
streams_per_principal_max = 0
stream_queue_bytes_max = "1KiB"
keep_alive_interval = "10m"
"#,
        rendered: r#"
f.toml:11:16: error: not an absolute path: write one that begins with `/`, such as "/etc/trunkline/file"
   |
11 | key = { file = "session.key" }
   |                ^^^^^^^^^^^^^

f.toml:12:10: error: `expiry`: must be from 1m to 30d
   |
12 | expiry = "721h"
   |          ^^^^^^

f.toml:13:16: error: `idle_timeout`: must be from 1s to 1d
   |
13 | idle_timeout = "500ms"
   |                ^^^^^^^

f.toml:14:16: error: `sessions_max`: must be a whole number from 1 to 10000000
   |
14 | sessions_max = 0
   |                ^

f.toml:15:15: error: `streams_max`: must be a whole number from 1 to 1048576
   |
15 | streams_max = 0
   |               ^

f.toml:16:29: error: `streams_per_principal_max`: must be a whole number from 1 to 1048576
   |
16 | streams_per_principal_max = 0
   |                             ^

f.toml:17:26: error: `stream_queue_bytes_max`: must be from 4KiB to 64MiB
   |
17 | stream_queue_bytes_max = "1KiB"
   |                          ^^^^^^

f.toml:18:23: error: `keep_alive_interval`: must be from 0ms to 5m
   |
18 | keep_alive_interval = "10m"
   |                       ^^^^^
"#,
    },
    Case {
        name: "a session key from nowhere",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[session]
key = {}
"#,
        rendered: r#"
f.toml:11:7: error: [session.key] has no `file`: write for example `file = "/etc/trunkline/session.key"`
   |
11 | key = {}
   |       ^^
"#,
    },
    Case {
        name: "a key without anything",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
"#,
        rendered: r"
f.toml:10:1: error: [[api_key]] has no `name`: name who calls with it
   |
10 | [[api_key]]
   | ^^^^^^^^^^^

f.toml:10:1: error: [[api_key]] has no `sha256`: `trunkline key NAME` makes a key and its entry
   |
10 | [[api_key]]
   | ^^^^^^^^^^^
",
    },
    Case {
        name: "key name",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "two words"
sha256 = "0000000000000000000000000000000000000000000000000000000000000001"
"#,
        rendered: r#"
f.toml:11:8: error: not a name: use 1 to 64 letters, digits and `.`, `_`, `@`, `-`
   |
11 | name = "two words"
   |        ^^^^^^^^^^^
"#,
    },
    Case {
        name: "key name twice",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "ci"
sha256 = "0000000000000000000000000000000000000000000000000000000000000001"
[[api_key]]
name = "ci"
sha256 = "0000000000000000000000000000000000000000000000000000000000000002"
"#,
        rendered: r#"
f.toml:14:8: error: two keys are named `ci`: choose another name
   |
14 | name = "ci"
   |        ^^^^
"#,
    },
    Case {
        name: "key twice",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "ci"
sha256 = "0000000000000000000000000000000000000000000000000000000000000001"
[[api_key]]
name = "me"
sha256 = "0000000000000000000000000000000000000000000000000000000000000001"
"#,
        rendered: r#"
f.toml:15:10: error: the same key as `ci`: give each its own, made by `trunkline key NAME`
   |
15 | sha256 = "****************************************************************"
   |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "a key in place of its digest",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "ci"
sha256 = "tl_secret"
"#,
        rendered: "
f.toml:12:10: error: not a SHA-256 in 64 hexadecimal digits: `trunkline key NAME` makes a key and its entry
   |
12 | sha256 = ***********
   |          ^^^^^^^^^^^
",
    },
    Case {
        name: "not hexadecimal",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "ci"
sha256 = "gggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg"
"#,
        rendered: "
f.toml:12:10: error: not a SHA-256 in 64 hexadecimal digits: `trunkline key NAME` makes a key and its entry
   |
12 | sha256 = ******************************************************************
   |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
",
    },
    Case {
        name: "the digest of nothing",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[[api_key]]
name = "ci"
sha256 = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"
"#,
        rendered: "
f.toml:12:10: error: the digest of nothing: `trunkline key NAME` makes a key and its entry
   |
12 | sha256 = ******************************************************************
   |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
",
    },
    Case {
        name: "credentials in the URL for traces",
        replace: r#"9102/"
"#,
        by: r#"9102/"
[trace]
endpoint = "https://me:pw@traces.example.com/"
ratio = 1.5
"#,
        rendered: r#"
f.toml:11:12: error: not a URL, or one with credentials: write for example "http://127.0.0.1:4318/v1/traces"
   |
11 | endpoint = ***********************************
   |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

f.toml:12:9: error: `ratio`: must be from 0 to 1
   |
12 | ratio = 1.5
   |         ^^^
"#,
    },
];
