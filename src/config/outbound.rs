//! `[outbound]`: the way of the gateway's own requests.
//!
//! Invariant: a host on this machine never has a proxy. Keys may be fetched in clear text from there alone, since there is
//! no network between.

use std::net::IpAddr;

use ipnet::IpNet;

use super::array::Array;
use super::credentials::Basic;
use super::findings::Findings;
use super::listener::ip_network;
use super::section::section;
use super::table::Table;
use super::text::{AbsolutePath, Fault, texts};
use super::url::{Url, server_url};

section! {
    /// The way of the gateway's own requests: for the keys of `[[jwt]]`, for tokens of `[upstream.NAME.oauth]` and for
    /// traces. Calls to upstreams and the connection to Redis do not take it.
    pub struct Outbound {
        /// The proxy, `http://HOST:PORT`, or `https://HOST:PORT` where it speaks TLS itself; without user and password.
        /// Default: none. `HTTPS_PROXY` and the like in the environment are not read.
        #[example("https://proxy.example.com:3128")]
        proxy: Option<ProxyUrl>,
        /// User and password for the proxy. Default: none are shown.
        #[example({ user = "gateway", password = { file = "/etc/trunkline/proxy-password" } })]
        basic: Option<Basic>,
        /// For a proxy with `https://`: a file of the certificates that are believed of it, in PEM; an absolute path.
        /// Default: those that the system believes.
        #[example("/etc/trunkline/proxy-ca.pem")]
        ca: Option<AbsolutePath>,
        /// Hosts that are reached without the proxy: `name`, `.name` or `*.name` for all names below it, an address or a
        /// network, each with `:PORT` behind it for that port alone. This machine is always among them. Names are not
        /// looked up: a network stands for hosts that are written as addresses.
        #[example(["*.corp.example.com", "10.0.0.0/8", "issuer.example.com:8443"])]
        no_proxy: Array<DirectHost, 0, NoProxy> => NoProxy::default(),
    }
    check check;
}

texts! {
    /// The URL of a proxy.
    pub ProxyUrl -> Url, "^[Hh][Tt][Tt][Pp][Ss]?://[^@#?]+$", proxy;
    /// Hosts that are reached without the proxy.
    pub DirectHost -> DirectHosts, "", |text: &str| direct_hosts(text).ok_or_else(|| match text {
        "*" => "everything would go without the proxy: leave out `proxy` instead".into(),
        _ => "not a host: write for example \"issuer.corp\", \"*.corp\", \"10.0.0.0/8\" or \"issuer.corp:8443\"".into(),
    });
}

/// Hosts, at one port or at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectHosts {
    hosts: Hosts,
    port: Option<u16>,
}

/// Names are in lower case, and end without a dot.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Named(String),
    Below(String),
    Within(IpNet),
}

/// The hosts that are reached without the proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<DirectHosts>);

impl NoProxy {
    /// True if `host` is reached without the proxy at `port`: a name, or an address without brackets.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let name = host.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let address = name.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let is_here = match address {
            Some(address) => address.is_loopback(),
            None => name == "localhost" || name.ends_with(".localhost"),
        };
        let fits = |direct: &DirectHosts| {
            direct.port.is_none_or(|only| only == port)
                && match (&direct.hosts, address) {
                    (Hosts::Named(own), None) => own == name,
                    (Hosts::Below(parent), None) => name
                        .strip_suffix(parent.as_str())
                        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                    (Hosts::Within(network), Some(address)) => network.contains(&address),
                    _ => false,
                }
        };
        is_here || self.0.iter().any(fits)
    }
}

impl FromIterator<DirectHosts> for NoProxy {
    fn from_iter<I: IntoIterator<Item = DirectHosts>>(hosts: I) -> Self {
        Self(hosts.into_iter().collect())
    }
}

fn proxy(text: &str) -> Result<Url, Fault> {
    if text.contains('@') {
        let message = "user and password do not belong into the address: write \
             `basic = { user = \"gateway\", password = { file = \"/etc/trunkline/proxy-password\" } }`";
        return Err(message.into());
    }
    let url = server_url(text).ok().filter(|url| url.path_and_query == "/");
    url.ok_or_else(|| "not a proxy: write `http://HOST:PORT` or `https://HOST:PORT`, without a path".into())
}

fn direct_hosts(text: &str) -> Option<DirectHosts> {
    // An IPv6 address has colons, too.
    if let Some(network) = ip_network(text) {
        return Some(DirectHosts { hosts: Hosts::Within(network), port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) => (host, Some(digits.parse().ok().filter(|port| *port != 0)?)),
        None => (text, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let hosts = match ip_network(bracketed.unwrap_or(host)) {
        Some(network) => Hosts::Within(network),
        None => match host.strip_prefix("*.").or_else(|| host.strip_prefix('.')) {
            Some(parent) => Hosts::Below(name(parent)?),
            None => Hosts::Named(name(host)?),
        },
    };
    Some(DirectHosts { hosts, port })
}

fn name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.split('.').all(is_label).then(|| name.to_ascii_lowercase())
}

fn check(outbound: Outbound, table: Table<'_>, findings: &mut Findings) -> Outbound {
    if !table.has("proxy") && !findings.is_misspelt(table) {
        for key in ["basic", "ca", "no_proxy"] {
            findings.error_at(table, key, format!("`{key}` says nothing without `proxy`"));
        }
    }
    let Some(proxy) = outbound.proxy.as_ref().filter(|proxy| !proxy.is_tls) else { return outbound };
    findings.error_at(table, "ca", "`ca` is of no use without TLS: write `https://` in `proxy`");
    if let Some(span) = findings.span(table, "basic").filter(|_| !proxy.is_loopback()) {
        findings.secret_warning(
            span,
            "user and password are sent to the proxy in clear text: write `https://` in `proxy` if it speaks TLS",
        );
    }
    outbound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_proxy(entries: &[&str]) -> NoProxy {
        entries.iter().map(|entry| direct_hosts(entry).expect(entry)).collect()
    }

    #[test]
    fn hosts_are_told_apart_by_name_network_and_port() {
        for (entry, inside, outside) in [
            (
                "issuer.corp",
                &["issuer.corp:443", "ISSUER.Corp:80", "issuer.corp.:443"][..],
                &["a.issuer.corp:443", "corp:443", "xissuer.corp:443", "issuer.corp.example:443"][..],
            ),
            (
                ".corp",
                &["a.corp:443", "a.b.CORP:1", "a.corp.:443"],
                &["corp:443", "acorp:443", ".corp:443", "a.corp.b:443"],
            ),
            ("*.Corp.", &["a.corp:443", "a.b.corp:1"], &["corp:443", "acorp:443"]),
            ("*.corp:8443", &["a.corp:8443"], &["a.corp:443", "corp:8443"]),
            ("issuer:80", &["issuer:80"], &["issuer:443", "issuer:8080"]),
            (
                "10.0.0.0/8",
                &["10.1.2.3:443", "10.255.0.1:1", "::ffff:10.0.0.1:443"],
                &["11.0.0.1:443", "10.corp:443"],
            ),
            ("10.1.2.3/8", &["10.9.9.9:443"], &["11.0.0.1:443"]),
            ("192.0.2.7", &["192.0.2.7:1"], &["192.0.2.8:1", "x192.0.2.7:1"]),
            ("10.0.0.0/8:443", &["10.1.2.3:443"], &["10.1.2.3:444"]),
            ("2001:db8::/32", &["2001:db8::1:443"], &["2001:db9::1:443"]),
            ("2001:db8::7", &["2001:db8::7:443"], &["2001:db8::8:443"]),
            ("[2001:db8::7]:443", &["2001:db8::7:443"], &["2001:db8::7:80"]),
            ("[2001:db8::/32]:80", &["2001:db8::9:80"], &["2001:db8::9:443"]),
        ] {
            let direct = no_proxy(&["unrelated.example", entry]);
            let covers = |place: &&str| {
                let (host, port) = place.rsplit_once(':').expect("a port");
                direct.covers(host, port.parse().expect("a port"))
            };
            assert!(inside.iter().all(covers), "{entry}: {inside:?}");
            assert!(!outside.iter().any(covers), "{entry}: {outside:?}");
        }
    }

    #[test]
    fn this_machine_never_has_a_proxy() {
        let direct = NoProxy::default();
        for host in
            ["localhost", "LocalHost.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]
        {
            assert!(direct.covers(host, 443), "{host}");
        }
        for host in ["localhost.example", "xlocalhost", "128.0.0.1", "::2", "example", ""] {
            assert!(!direct.covers(host, 443), "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for entry in [
            "",
            "*",
            ".",
            "*.",
            "a.*",
            "*corp",
            "a..b",
            "a b",
            "http://a",
            "a/b",
            "a:0",
            "a:65536",
            "a:",
            ":443",
            "a:b:1",
            "10.0.0.0/33",
            "[::1",
            "[a]:443",
            "10.0.0.0/8:x",
            "é.corp",
        ] {
            assert!(direct_hosts(entry).is_none(), "{entry}");
        }
    }

    #[test]
    fn a_proxy_is_a_place_and_nothing_else() {
        let url = proxy("http://proxy.corp:3128").expect("a proxy");
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("proxy.corp", 3128, false));
        let url = proxy("https://[::1]/").expect("a proxy");
        assert_eq!((url.host.as_str(), url.port, url.is_tls), ("::1", 443, true));
        for text in
            ["proxy.corp:3128", "socks5://proxy:1080", "http://", "http://a/b", "http://a?b", "http://a:0"]
        {
            assert!(proxy(text).is_err(), "{text}");
        }
        assert!(
            proxy("http://me:hunter2@a")
                .is_err_and(|fault| fault.contains("basic") && !fault.contains("hunter2"))
        );
    }
}
