//! Which of a listener's certificates belongs to which host name.
//!
//! The names are those of the certificates themselves: DNS names of their subject alternative names, exact or with
//! `*` for the first label.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct CertificatesByHost {
    exact: HashMap<Box<str>, Vec<usize>>,
    /// By what follows `*.`.
    wildcard: HashMap<Box<str>, Vec<usize>>,
    count: usize,
}

impl CertificatesByHost {
    pub(crate) fn add<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            let name = name.to_ascii_lowercase();
            let places = match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.entry(parent.into()).or_default(),
                None => self.exact.entry(name.into()).or_default(),
            };
            places.push(self.count);
        }
        self.count += 1;
    }

    /// The certificates of `host`, which is in lower case; none if no name fits.
    pub(crate) fn of(&self, host: &str) -> &[usize] {
        let host = host.strip_suffix('.').unwrap_or(host);
        let exact = self.exact.get(host);
        let found = exact.or_else(|| self.wildcard.get(host.split_once('.')?.1));
        found.map_or(&[], Vec::as_slice)
    }

    /// The certificates for a client that asks for `name`: the first of all where none fits.
    pub(crate) fn shown(&self, name: Option<&str>) -> &[usize] {
        match name.map_or(&[][..], |name| self.of(name)) {
            [] => &[0],
            found => found,
        }
    }

    /// Whether a request for `host` belongs on a connection whose client asked for `name`: not if only other
    /// certificates than those it was shown have that host.
    pub(crate) fn agree(&self, name: Option<&str>, host: &str) -> bool {
        if self.count < 2 {
            return true;
        }
        let host = host.to_ascii_lowercase();
        let belongs = self.of(&host);
        belongs.is_empty() || belongs.iter().any(|place| self.shown(name).contains(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> CertificatesByHost {
        let mut names = CertificatesByHost::default();
        names.add(["mcp.example"]);
        names.add(["a.example", "*.Tools.example"]);
        names.add(["b.tools.example", "a.example"]);
        names
    }

    #[test]
    fn certificates_are_found_by_name() {
        let names = names();
        let cases: [(&str, &[usize]); 9] = [
            ("mcp.example", &[0]),
            ("a.example", &[1, 2]),
            ("a.example.", &[1, 2]),
            ("x.tools.example", &[1]),
            ("b.tools.example", &[2]),
            ("x.b.tools.example", &[]),
            ("tools.example", &[]),
            ("*.tools.example", &[1]),
            ("", &[]),
        ];
        for (host, expected) in cases {
            assert_eq!(names.of(host), expected, "{host}");
        }
        assert_eq!(names.shown(None), [0]);
        assert_eq!(names.shown(Some("elsewhere.example")), [0]);
    }

    #[test]
    fn a_host_of_another_certificate_does_not_belong() {
        let names = names();
        for (name, host, agrees) in [
            (None, "mcp.example", true),
            (None, "a.example", false),
            (Some("mcp.example"), "A.example", false),
            (Some("mcp.example"), "x.tools.example", false),
            (Some("mcp.example"), "nobodys.example", true),
            (Some("mcp.example"), "127.0.0.1", true),
            (Some("a.example"), "x.tools.example", true),
            (Some("x.tools.example"), "b.tools.example", false),
            (Some("x.tools.example"), "y.tools.example", true),
            (Some("nobodys.example"), "mcp.example", true),
            (Some("nobodys.example"), "a.example", false),
        ] {
            assert_eq!(names.agree(name, host), agrees, "{name:?} {host}");
        }
        let mut one = CertificatesByHost::default();
        one.add(["a.example"]);
        assert!(one.agree(None, "a.example"));
    }
}
