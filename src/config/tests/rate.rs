//! Limits of rate and of calls at once.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "a limit of nothing",
        replace: "[[endpoint]]",
        by: "[[limit]]\n[[endpoint]]",
        rendered: r#"
f.toml:3:1: error: [[limit]] has no `name`: refused clients are told it
  |
3 | [[limit]]
  | ^^^^^^^^^

f.toml:3:1: error: [[limit]] has no `by`: write for example `by = ["principal", "tool"]`
  |
3 | [[limit]]
  | ^^^^^^^^^

f.toml:3:1: error: [[limit]] has no `rate`: write for example `rate = "600/m"`
  |
3 | [[limit]]
  | ^^^^^^^^^
"#,
    },
    Case {
        name: "two limits of one name",
        replace: "[[endpoint]]",
        by: r#"[[limit]]
name = "a b"
by = []
calls = 1
period = "1s"
[[limit]]
name = "own"
by = ["principal"]
calls = 1
period = "1s"
[[limit]]
name = "own"
by = ["client", "tool", "tool"]
calls = 1
period = "1s"
[[endpoint]]"#,
        rendered: r#"
f.toml:4:8: error: not a name: use 1 to 64 letters, digits and `.`, `_`, `-`
  |
4 | name = "a b"
  |        ^^^^^

f.toml:5:6: error: `by` is empty: name at least one
  |
5 | by = []
  |      ^^

f.toml:14:8: error: two limits are named `own`: choose another name
   |
14 | name = "own"
   |        ^^^^^

f.toml:15:7: error: use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `argument:NAME` for an argument of the called tool
   |
15 | by = ["client", "tool", "tool"]
   |       ^^^^^^^^ did you mean `principal`?

f.toml:15:25: error: `tool` is named twice
   |
15 | by = ["client", "tool", "tool"]
   |                         ^^^^^^
"#,
    },
    Case {
        name: "words of others for what is counted",
        replace: "[[endpoint]]",
        by: r#"[[limit]]
name = "own"
rate = "60/m"
by = ["ip", "principle", "colour"]
[[endpoint]]"#,
        rendered: r#"
f.toml:6:7: error: use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `argument:NAME` for an argument of the called tool
  |
6 | by = ["ip", "principle", "colour"]
  |       ^^^^ did you mean `address`?

f.toml:6:13: error: use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `argument:NAME` for an argument of the called tool
  |
6 | by = ["ip", "principle", "colour"]
  |             ^^^^^^^^^^^ did you mean `principal`?

f.toml:6:26: error: use `principal`, `address`, `endpoint`, `upstream`, `tool`, or `argument:NAME` for an argument of the called tool
  |
6 | by = ["ip", "principle", "colour"]
  |                          ^^^^^^^^
"#,
    },
    Case {
        name: "a limit of what clients choose, alone",
        replace: "[[endpoint]]",
        by: r#"[[limit]]
name = "region"
by = ["argument:region"]
calls = 1
period = "1s"
[[limit]]
name = "own"
by = ["principal"]
endpoints = ["/mcp"]
calls = 1
period = "1s"
[[endpoint]]"#,
        rendered: r#"
f.toml:5:6: error: clients choose what stands in `argument:`: add a [[limit]] with `by = ["principal"]` alone and no filter
  |
5 | by = ["argument:region"]
  |      ^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "limits that cannot be kept",
        replace: "[[endpoint]]",
        by: r#"[[limit]]
name = "own"
by = ["principal"]
calls = 1
period = "720h"
burst = 100
weights = { "a*" = 101, "a[" = 1 }
endpoints = ["/other"]
upstreams = ["c"]
shared = true
[[limit]]
name = "other"
by = ["principal"]
calls = 1
period = "1s"
exact = true
fallback = "deny"
[[endpoint]]"#,
        rendered: r#"
f.toml:8:9: error: a burst takes more than a year to come back: make it smaller
  |
8 | burst = 100
  |         ^^^

f.toml:9:20: error: heavier than the burst (100), so that no such call could ever pass
  |
9 | weights = { "a*" = 101, "a[" = 1 }
  |                    ^^^

f.toml:9:25: error: not a glob: unclosed character class; missing ']'
  |
9 | weights = { "a*" = 101, "a[" = 1 }
  |                         ^^^^

f.toml:10:14: error: there is no endpoint `/other`
   |
10 | endpoints = ["/other"]
   |              ^^^^^^^^

f.toml:11:14: error: there is no upstream `c`
   |
11 | upstreams = ["c"]
   |              ^^^

f.toml:12:10: error: there is nothing to share it through: add [shared]
   |
12 | shared = true
   |          ^^^^

f.toml:18:9: error: `exact` is for limits with `shared = true`
   |
18 | exact = true
   |         ^^^^

f.toml:19:12: error: `fallback` is for limits with `shared = true`
   |
19 | fallback = "deny"
   |            ^^^^^^
"#,
    },
    Case {
        name: "waiting without a maximum",
        replace: "[upstream.b]",
        by: "[upstream.b]\ncalls_waiting_max = 5\ncalls_wait_max = \"1s\"",
        rendered: r#"
f.toml:9:21: error: `calls_waiting_max` is for upstreams with `calls_max`
  |
9 | calls_waiting_max = 5
  |                     ^

f.toml:10:18: error: `calls_wait_max` is for upstreams with `calls_max`
   |
10 | calls_wait_max = "1s"
   |                  ^^^^
"#,
    },
];
