//! The status page: one document with its one style and its one script in it, so that nothing else need be let in.
//!
//! It holds nothing of the gateway: what it shows it asks for like anybody. Invariant: a browser runs no script and
//! applies no style but these two, whatever names it is given to show; they are named to it by their digests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

const DOCUMENT: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// One script in parts, each of which uses only those before it.
const SCRIPT: [&str; 14] = [
    include_str!("page/text.js"),
    include_str!("page/elements.js"),
    include_str!("page/history.js"),
    include_str!("page/charts.js"),
    include_str!("page/advice.js"),
    include_str!("page/findings.js"),
    include_str!("page/source.js"),
    include_str!("page/overview.js"),
    include_str!("page/tables.js"),
    include_str!("page/gateway.js"),
    include_str!("page/calls.js"),
    include_str!("page/tools.js"),
    include_str!("page/details.js"),
    include_str!("page/page.js"),
];
/// What no line of the script or the style ends with that has come to an end without it.
const GOES_ON: [char; 5] = ['{', '[', '(', ',', ';'];
/// Where they go in the document.
const STYLE_PLACE: &str = "/* page.css */";
const SCRIPT_PLACE: &str = "/* page.js */";

/// The page as it is served.
#[derive(Debug)]
pub(super) struct Page {
    /// The document.
    pub(super) text: Bytes,
    /// What browsers may do with it.
    pub(super) policy: HeaderValue,
}

impl Page {
    /// Puts it together.
    pub(super) fn new() -> Self {
        let (style, script) = (lean_style(STYLE), SCRIPT.map(lean).concat());
        let text = lean(DOCUMENT).replacen(STYLE_PLACE, &style, 1).replacen(SCRIPT_PLACE, &script, 1);
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            digest(&style),
            digest(&script),
        );
        let nothing = || HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        Self { text: text.into(), policy: HeaderValue::from_str(&policy).unwrap_or_else(|_| nothing()) }
    }
}

/// `source` without what only its readers need: comments that have lines of their own, what stands before a line, and the
/// end of a line that goes on.
fn lean(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut in_comment = false;
    for line in source.lines().map(str::trim) {
        in_comment |= line.starts_with("/*");
        if !(in_comment || line.is_empty() || line.starts_with("//")) {
            kept.push_str(line);
            if !line.ends_with(GOES_ON) {
                kept.push('\n');
            }
        }
        in_comment &= !line.ends_with("*/");
    }
    kept
}

/// The same of the style, without the blanks that part its declarations.
fn lean_style(source: &str) -> String {
    let pairs = [(": ", ":"), ("; ", ";"), (", ", ","), (" {", "{"), ("{ ", "{"), (" }", "}"), (";}", "}")];
    pairs.iter().fold(lean(source).replace("}\n", "}"), |text, (wide, narrow)| text.replace(wide, narrow))
}

/// As a policy names a text.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 75_000;

    /// What stands in the only element of this name.
    fn inside<'t>(text: &'t str, element: &str) -> &'t str {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        assert_eq!((text.matches(&open).count(), text.matches(&close).count()), (1, 1), "{element}");
        let (_, after) = text.split_once(&open).expect("it opens");
        after.split_once(&close).expect("it closes").0
    }

    #[test]
    fn the_policy_names_what_the_document_holds() {
        let page = Page::new();
        let text = std::str::from_utf8(&page.text).expect("text");
        let policy = page.policy.to_str().expect("a policy");
        for (element, sign) in [("style", "--accent:"), ("script", "'use strict';")] {
            // A browser takes the digest of what it finds between the tags.
            let found = inside(text, element);
            assert!(found.contains(sign), "{element}");
            assert!(policy.contains(&format!("{element}-src '{}'", digest(found))), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn the_document_is_small_and_loads_nothing() {
        let page = Page::new();
        let text = std::str::from_utf8(&page.text).expect("text");
        assert!(text.len() <= BYTES_MAX, "{} bytes", text.len());
        assert!(!inside(text, "script").contains("<!--"), "it would change how the rest is read");
        for sign in [" style=\"", " onclick=\"", "innerHTML", "src=\"http", "href=\"http", "@import", "eval("]
        {
            assert!(!text.contains(sign), "{sign}");
        }
    }

    #[test]
    fn what_is_left_out_is_nothing_that_counts() {
        let cases = [
            ("a\n  b\n\n", "a\nb\n"),
            ("// why\nlet a = 'b';\n", "let a = 'b';"),
            ("f(\n  a,\n  b,\n)\n.c();\n", "f(a,b,)\n.c();"),
            ("/* one */\na\n/** two\n   lines */\nb\n", "a\nb\n"),
        ];
        for (source, kept) in cases {
            assert_eq!(lean(source), kept);
        }
        assert_eq!(lean_style("a,\nb:hover { c: d, e;\n  f: g; }\nh {}\n"), "a,b:hover{c:d,e;f:g}h{}");
        for line in SCRIPT.iter().flat_map(|part| part.lines()) {
            assert_eq!(
                line.matches('`').count() % 2,
                0,
                "a string over several lines would lose its blanks: {line}"
            );
            let code = line.trim_start();
            assert!(
                code.starts_with("//") || !code.contains(" // "),
                "it would take what follows with it: {line}"
            );
        }
    }

    #[test]
    fn digests_are_as_browsers_make_them() {
        let of_nothing = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(digest(""), of_nothing);
    }
}
