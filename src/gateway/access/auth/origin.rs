//! `Origin` and `Host`: keeps web pages that the user never trusted, and names that an attacker rebound to
//! this machine, away from the endpoint (Streamable HTTP "Security & Endpoint").
//!
//! An absent `Origin` passes: only browsers send one. Without configuration a loopback listener takes
//! loopback origins and hosts, any other listener takes no origin and any host.

use protocol::error::{ClientError, Error, PolicyError};
use protocol::head::HeaderField;

#[derive(Clone, Debug, Default)]
pub(crate) struct OriginPolicy {
    pub origins: Option<Vec<String>>,
    pub hosts: Option<Vec<String>>,
    /// The host of `public_url`, where set.
    pub public_host: Option<String>,
}

/// How well an endpoint fits the host of a request; the greatest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostFit {
    /// It is for whatever host no other is for.
    Any,
    /// Its `public_url` has the host.
    Public,
    /// `*.host`
    Wildcard,
    /// `*.host:port`
    WildcardAndPort,
    /// `host`
    Exact,
    /// `host:port`
    ExactAndPort,
}

impl OriginPolicy {
    pub(crate) fn check_origin(&self, origin: HeaderField<'_>, on_loopback: bool) -> Result<(), PolicyError> {
        let is_allowed = match (origin, origin.as_str()) {
            (HeaderField::Absent, _) => true,
            (_, None) => false,
            (_, Some(origin)) => match &self.origins {
                Some(origins) => origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)),
                None => on_loopback && is_loopback_origin(origin),
            },
        };
        if is_allowed { Ok(()) } else { Err(PolicyError::Origin) }
    }

    /// Checks the host a request names: its `Host` header, and the authority of its target where it has one
    /// (HTTP/2, and HTTP/1.1 in absolute form). The host without its port.
    pub(crate) fn check_host<'h>(
        &self,
        host: HeaderField<'h>,
        authority: Option<&'h str>,
        on_loopback: bool,
    ) -> Result<&'h str, Error> {
        let named = named_host(host, authority)?;
        if self.serves(named, on_loopback) { Ok(without_port(named)) } else { Err(PolicyError::Host.into()) }
    }

    fn serves(&self, named: &str, on_loopback: bool) -> bool {
        let bare = without_port(named);
        if let Some(hosts) = &self.hosts {
            return hosts.iter().any(|host| fit(host, named).is_some());
        }
        let is_public = self.public_host.as_deref().is_some_and(|host| fit(host, named).is_some());
        let is_local = on_loopback && is_loopback_name(bare);
        let takes_any = !on_loopback && self.public_host.is_none();
        is_public || is_local || takes_any
    }

    /// How well it fits a request for this host, as one of several endpoints at a path.
    pub(crate) fn fit(&self, named: &str) -> Option<HostFit> {
        match (&self.hosts, &self.public_host) {
            (Some(hosts), _) => hosts.iter().filter_map(|host| fit(host, named)).max(),
            // Written for clients, not to choose between endpoints.
            (None, Some(public)) if fit(public, named).is_some() => Some(HostFit::Public),
            (None, _) => Some(HostFit::Any),
        }
    }
}

/// The host that a request names, with its port if it has one.
pub(crate) fn named_host<'h>(
    host: HeaderField<'h>,
    authority: Option<&'h str>,
) -> Result<&'h str, ClientError> {
    let named = match (host, host.as_str(), authority) {
        (HeaderField::One(_), Some(host), Some(other)) if !host.eq_ignore_ascii_case(other) => None,
        (HeaderField::One(_), Some(host), _) => Some(host),
        (HeaderField::Absent, _, Some(authority)) => Some(authority),
        _ => None,
    };
    named.filter(|named| is_authority(named)).ok_or(ClientError::Host)
}

/// How well `host` of a configuration fits the host that a request names.
fn fit(host: &str, named: &str) -> Option<HostFit> {
    // A port that is not configured may be any.
    let has_port = without_port(host) != host;
    let named = if has_port { named } else { without_port(named) };
    match host.strip_prefix("*.") {
        None => {
            let fit = if has_port { HostFit::ExactAndPort } else { HostFit::Exact };
            host.eq_ignore_ascii_case(named).then_some(fit)
        }
        Some(parent) => {
            let (label, rest) = named.split_once('.')?;
            let fit = if has_port { HostFit::WildcardAndPort } else { HostFit::Wildcard };
            (!label.is_empty() && rest.eq_ignore_ascii_case(parent)).then_some(fit)
        }
    }
}

fn is_authority(text: &str) -> bool {
    // Nearly every host is a plain name with a port.
    let (name, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if is_port && !name.is_empty() && name.bytes().all(is_plain) {
        return true;
    }
    !text.is_empty() && text.parse::<http::uri::Authority>().is_ok() && !text.contains('@')
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.is_empty() => {
            if host.starts_with('[') == host.ends_with(']') { host } else { authority }
        }
        _ => authority,
    }
}

fn is_loopback_name(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_loopback_origin(origin: &str) -> bool {
    origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"))
        .is_some_and(|authority| is_authority(authority) && is_loopback_name(without_port(authority)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_more_exactly_fits_better() {
        let hosts =
            |host: &str| OriginPolicy { hosts: Some(vec![host.to_owned()]), ..OriginPolicy::default() };
        let public = OriginPolicy { public_host: Some("a.test:8443".into()), ..OriginPolicy::default() };
        // From worst to best.
        let all = [
            OriginPolicy::default(),
            public,
            hosts("*.test"),
            hosts("*.test:8443"),
            hosts("a.test"),
            hosts("a.test:8443"),
        ];
        let fits = |named| all.iter().map(|doors| doors.fit(named)).collect::<Vec<_>>();
        let at_port = fits("A.test:8443");
        assert!(at_port.is_sorted_by(|worse, better| worse < better), "{at_port:?}");
        let at_another = fits("a.test:9");
        assert_eq!(at_another[0], at_another[1]);
        assert_eq!((at_another[3], at_another[5]), (None, None));
        assert!(at_another[2].is_some() && at_another[2] < at_another[4], "{at_another:?}");
    }

    #[test]
    fn origins() {
        let open = OriginPolicy::default();
        let named =
            OriginPolicy { origins: Some(vec!["https://app.example".into()]), ..OriginPolicy::default() };
        for (doors, origin, on_loopback, passes) in [
            (&open, HeaderField::Absent, false, true),
            (&open, HeaderField::One("http://localhost:3000"), true, true),
            (&open, HeaderField::One("http://127.0.0.1"), true, true),
            (&open, HeaderField::One("http://[::1]:80"), true, true),
            (&open, HeaderField::One("http://localhost:3000"), false, false),
            (&open, HeaderField::One("http://localhost.evil.example"), true, false),
            (&open, HeaderField::One("http://evil.example:80@localhost"), true, false),
            (&open, HeaderField::One("null"), true, false),
            (&open, HeaderField::Many, true, false),
            (&named, HeaderField::One("https://app.example"), false, true),
            (&named, HeaderField::One("http://localhost"), true, false),
        ] {
            assert_eq!(doors.check_origin(origin, on_loopback).is_ok(), passes, "{origin:?}");
        }
    }

    #[test]
    fn hosts() {
        let open = OriginPolicy::default();
        let public = OriginPolicy { public_host: Some("mcp.example".into()), ..OriginPolicy::default() };
        let named = OriginPolicy {
            hosts: Some(vec!["a.example".into(), "b.example:8443".into(), "*.w.example".into()]),
            ..OriginPolicy::default()
        };
        for (doors, host, on_loopback, passes) in [
            (&open, "localhost:8080", true, true),
            (&open, "127.0.0.1", true, true),
            (&open, "[::1]:8080", true, true),
            (&open, "evil.example", true, false),
            (&open, "anything.example", false, true),
            (&public, "mcp.example:443", false, true),
            (&public, "mcp.example", true, true),
            (&public, "localhost", true, true),
            (&public, "localhost", false, false),
            (&named, "A.example:1", false, true),
            (&named, "b.example:8443", false, true),
            (&named, "b.example", false, false),
            (&named, "one.w.example:8443", false, true),
            (&named, "w.example", false, false),
            (&named, ".w.example", false, false),
            (&named, "two.one.w.example", false, false),
            (&named, "localhost", true, false),
            (&open, "", true, false),
            (&open, "a b", false, false),
        ] {
            let field = HeaderField::One(host);
            assert_eq!(doors.check_host(field, None, on_loopback).is_ok(), passes, "{host}");
        }
        let absolute = Some("localhost");
        assert!(open.check_host(HeaderField::Absent, absolute, true).is_ok());
        assert!(open.check_host(HeaderField::One("localhost"), absolute, true).is_ok());
        assert!(open.check_host(HeaderField::One("127.0.0.1"), absolute, true).is_err());
        assert!(open.check_host(HeaderField::Absent, None, true).is_err());
        assert!(open.check_host(HeaderField::Many, None, true).is_err());
    }
}
