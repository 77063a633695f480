//! What replicas share.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "shared, no address",
        replace: "[[endpoint]]",
        by: "[shared]\n[[endpoint]]",
        rendered: r#"
f.toml:3:1: error: [shared] has no `redis`: write for example `redis = "rediss://redis.example.com:6380/0"`
  |
3 | [shared]
  | ^^^^^^^^
"#,
    },
    Case {
        name: "shared, a password in the address",
        replace: "[[endpoint]]",
        by: "[shared]\nredis = \"redis://:hunter2@localhost\"\n[[endpoint]]",
        rendered: "
f.toml:4:9: error: user and password do not belong into the address: write `username` and `password`
  |
4 | redis = ****************************
  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
",
    },
    Case {
        name: "shared, a user alone",
        replace: "[[endpoint]]",
        by: "[shared]\nredis = \"redis://localhost\"\nusername = \"a\"\n[[endpoint]]",
        rendered: "
f.toml:5:12: error: `username` without `password`: Redis asks for both, or for none
  |
5 | username = \"*\"
  |            ^^^
",
    },
    Case {
        name: "shared, a prefix that is none",
        replace: "[[endpoint]]",
        by: "[shared]\nredis = \"redis://localhost\"\nprefix = \"a b\"\n[[endpoint]]",
        rendered: "
f.toml:5:10: error: not a prefix: use up to 64 visible ASCII characters
  |
5 | prefix = \"a b\"
  |          ^^^^^
",
    },
    Case {
        name: "shared, trust without TLS",
        replace: "[[endpoint]]",
        by: "[shared]\nredis = \"redis://localhost\"\nca = \"/a\"\n[[endpoint]]",
        rendered: "
f.toml:5:6: error: `ca` is of no use without TLS: write `rediss://` in `redis`
  |
5 | ca = \"/a\"
  |      ^^^^
",
    },
];
