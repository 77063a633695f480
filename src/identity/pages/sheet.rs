//! What all pages have in common: the document around them, its style and its headers.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::markup::Markup;
use super::target::PageTarget;

const STYLE: &str = include_str!("page.css");

/// A browser applies this one style, by its digest, and loads and runs nothing.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        STANDARD.encode(Sha256::digest(STYLE.as_bytes()))
    )
});

/// A page as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of the answer that it is.
    pub status: u16,
    /// The document.
    pub html: String,
}

impl Page {
    /// The headers that it is served with, all of them but its length.
    pub fn headers() -> [PageHeader; 8] {
        [
            PageHeader { name: "content-type", value: "text/html; charset=utf-8" },
            PageHeader { name: "cache-control", value: "no-store" },
            PageHeader { name: "content-security-policy", value: &POLICY },
            // With `no-referrer`, the `Origin` of its forms would be `null`.
            PageHeader { name: "referrer-policy", value: "same-origin" },
            PageHeader { name: "x-content-type-options", value: "nosniff" },
            PageHeader { name: "x-frame-options", value: "DENY" },
            PageHeader { name: "cross-origin-opener-policy", value: "same-origin" },
            PageHeader { name: "cross-origin-resource-policy", value: "same-origin" },
        ]
    }
}

/// A header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// In small letters.
    pub name: &'static str,
    /// In visible ASCII.
    pub value: &'static str,
}

/// How a page is laid out.
#[derive(Debug, Default)]
pub(super) struct Sheet<'a> {
    pub(super) status: u16,
    /// Of the window; may hold values of strangers.
    pub(super) title: &'a str,
    /// The page moves on to there by itself.
    pub(super) moves_to: Option<&'a PageTarget>,
    /// There is a table in it.
    pub(super) is_wide: bool,
    pub(super) main: Markup,
    pub(super) footer: Markup,
}

impl Sheet<'_> {
    pub(super) fn page(&self) -> Page {
        let mut page = Markup::of(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n",
        );
        if let Some(target) = self.moves_to {
            page.add("<meta http-equiv=\"refresh\"").attribute(" content=\"0; url=", target.url()).add(">\n");
        }
        page.add("<title>").bare(self.title).add(" – Trunkline</title>\n<style>").add(STYLE);
        page.add("</style>\n</head>\n").add(if self.is_wide {
            "<body class=\"wide\">\n"
        } else {
            "<body>\n"
        });
        page.add(
            "<header>\n<svg viewBox=\"0 0 20 20\" width=\"20\" height=\"20\" aria-hidden=\"true\">\
             <path d=\"M1 4h4c4 0 4 6 8 6h6M1 10h18M1 16h4c4 0 4-6 8-6\"/></svg>\n<span>Trunkline</span>\n</header>\n<main>\n",
        );
        page.part(&self.main)
            .add("</main>\n<footer>\n")
            .part(&self.footer)
            .add("</footer>\n</body>\n</html>\n");
        Page { status: self.status, html: page.into_text() }
    }
}

/// The shapes of states, which the status page has as well.
pub(super) mod shapes {
    pub(in super::super) const OK: &str = "<svg class=\"shape ok\" viewBox=\"0 0 12 12\" width=\"20\" height=\"20\" aria-hidden=\"true\"><circle cx=\"6\" cy=\"6\" r=\"4\"/></svg>";
    pub(in super::super) const WARN: &str = "<svg class=\"shape warn\" viewBox=\"0 0 12 12\" width=\"20\" height=\"20\" aria-hidden=\"true\"><path d=\"M6 1 11.5 11H.5z\"/></svg>";
    pub(in super::super) const BAD: &str = "<svg class=\"shape bad\" viewBox=\"0 0 12 12\" width=\"20\" height=\"20\" aria-hidden=\"true\"><path d=\"M1 1h10v10H1zM3.5 3.5l5 5m0-5-5 5\"/></svg>";
    pub(in super::super) const OFF: &str = "<svg class=\"shape off\" viewBox=\"0 0 12 12\" width=\"20\" height=\"20\" aria-hidden=\"true\"><circle cx=\"6\" cy=\"6\" r=\"3.5\"/></svg>";
}
