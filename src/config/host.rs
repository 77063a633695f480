//! `hosts` of `[[endpoint]]`: which hosts an endpoint is for, and what endpoints that share a path are called.
//!
//! Invariant: no two endpoints have the same path for the same host, and no two the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use super::EndpointConfig;
use super::findings::Findings;
use super::table::Table;
use super::text::{Fault, texts};

/// What stands for any first label.
const WILDCARD: &str = "*.";

texts! {
    /// A host that requests name, in lower case.
    pub Host -> String, "", host;
}

fn host(text: &str) -> Result<String, Fault> {
    let name = text.strip_prefix(WILDCARD).filter(|rest| !rest.starts_with('[')).unwrap_or(text);
    if is_host_and_port(name) {
        return Ok(text.to_ascii_lowercase());
    }
    let message =
        format!("`{text}` is not a host: write `host`, `host:port` or `*.host`, without scheme and path");
    Err(message.into())
}

/// `host` or `host:port`, where host is a name, an IPv4 address or an IPv6 address in brackets.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rfind(']') {
        Some(bracket) => text.split_at(bracket + 1),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port_is_valid = match port.strip_prefix(':') {
        Some(digits) => digits.parse::<u16>().is_ok_and(|number| number != 0 && number.to_string() == digits),
        None => port.is_empty(),
    };
    let host_is_valid = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    port_is_valid && host_is_valid
}

/// Which endpoint a request is for must be certain.
pub(super) fn check(endpoints: &[EndpointConfig], root: Table<'_>, findings: &mut Findings) {
    let mut taken: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (endpoint, table) in endpoints.iter().zip(root.tables("endpoint")) {
        if findings.span(table, "path").is_none() {
            continue;
        }
        let path = endpoint.path.as_str();
        let Some(hosts) = &endpoint.hosts else {
            // One that could not be read may be right.
            if !table.has("hosts") && !taken.insert((path, "")) {
                let message = "two endpoints have this path: choose another, or say with `hosts` which hosts each is for";
                findings.error_at(table, "path", message);
            }
            continue;
        };
        for (host, (_, span)) in hosts.iter().zip(table.texts("hosts")) {
            if taken.contains(&(path, host.as_str())) {
                let message = format!(
                    "another endpoint has the path `{path}` for `{host}`: choose another host or path"
                );
                findings.error(span, message);
            }
        }
        taken.extend(hosts.iter().map(|host| (path, host.as_str())));
    }
}

/// An endpoint is called by its path alone where nobody else has it, so that a name says no more than it must. One that
/// is not enabled counts, too: rules and limits go by names, and must mean the same while it is off.
pub(super) fn name_endpoints(endpoints: &mut [EndpointConfig]) {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in &*endpoints {
        *uses.entry(endpoint.path.clone()).or_default() += 1;
    }
    for endpoint in endpoints {
        let is_shared = uses.get(&endpoint.path).is_some_and(|count| *count > 1);
        let host = endpoint.hosts.iter().flatten().next().filter(|_| is_shared);
        endpoint.name = host.cloned().unwrap_or_default() + &endpoint.path;
    }
}
