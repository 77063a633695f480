//! The way of the gateway's own requests.

use super::Case;

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "outbound, nothing to be an exception of",
        replace: "[[endpoint]]",
        by: "[outbound]\nno_proxy = [\"a\"]\n[[endpoint]]",
        rendered: "
f.toml:4:12: error: `no_proxy` says nothing without `proxy`
  |
4 | no_proxy = [\"a\"]
  |            ^^^^^
",
    },
    Case {
        name: "outbound, a password in the address",
        replace: "[[endpoint]]",
        by: "[outbound]\nproxy = \"http://me:hunter2@proxy:3128\"\n[[endpoint]]",
        rendered: r#"
f.toml:4:9: error: user and password do not belong into the address: write `basic = { user = "gateway", password = { file = "/etc/trunkline/proxy-password" } }`
  |
4 | proxy = ******************************
  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    },
    Case {
        name: "outbound, a password in the text",
        replace: "[[endpoint]]",
        by: "[outbound]\nproxy = \"https://proxy:3128\"\nbasic = { user = \"me\", password = \"hunter2\" }\n[[endpoint]]",
        rendered: r#"
f.toml:5:35: error: a secret cannot stand here: write where it is read from, as in `{ file = "/etc/trunkline/secret" }`, `{ env = "NAME" }` or `{ credential = "NAME" }`
  |
5 | basic = { user = "**", password = ********* }
  |                                   ^^^^^^^^^
"#,
    },
    Case {
        name: "outbound, no host",
        replace: "[[endpoint]]",
        by: "[outbound]\nproxy = \"http://proxy:3128\"\nno_proxy = [\"a/b\", \"*\"]\n[[endpoint]]",
        rendered: r#"
f.toml:5:13: error: not a host: write for example "issuer.corp", "*.corp", "10.0.0.0/8" or "issuer.corp:8443"
  |
5 | no_proxy = ["a/b", "*"]
  |             ^^^^^

f.toml:5:20: error: everything would go without the proxy: leave out `proxy` instead
  |
5 | no_proxy = ["a/b", "*"]
  |                    ^^^
"#,
    },
    Case {
        name: "outbound, trust without TLS",
        replace: "[[endpoint]]",
        by: "[outbound]\nproxy = \"http://proxy:3128\"\nca = \"/a\"\n[[endpoint]]",
        rendered: r#"
f.toml:5:6: error: `ca` is of no use without TLS: write `https://` in `proxy`
  |
5 | ca = "/a"
  |      ^^^^
"#,
    },
];
