//! Whom a request comes from, as the proxies before it say: `Forwarded` (RFC 7239) and `X-Forwarded-For`.
//!
//! Every proxy adds the address it was reached from at the end. Read from there, the first address that is no trusted
//! proxy's is the client's: what stands before it the client may have written itself. What cannot be read is
//! believed by nobody, and ends the reading.
//!
//! A proxy maintains one of the two headers and may pass the other as the client wrote it. Where both came and do not
//! agree, neither is believed.

use std::net::{IpAddr, SocketAddr};

use super::fields::{FieldName, Fields, visible};
use super::header::is_token;

/// The client's address; `peer` is the address that the connection comes from.
pub fn client_address(fields: &Fields, peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let has_forwarded = fields.first(FieldName::Forwarded).is_some();
    let has_x_forwarded_for = fields.first(FieldName::XForwardedFor).is_some();
    if !(has_forwarded || has_x_forwarded_for) || !is_trusted(peer) {
        return peer;
    }
    let by_forwarded = || match forwarded(fields) {
        Some(hops) => client_of(hops.into_iter(), peer, &is_trusted),
        None => peer,
    };
    let by_x_forwarded_for = || client_of(x_forwarded_for(fields), peer, &is_trusted);
    match (has_forwarded, has_x_forwarded_for) {
        (true, false) => by_forwarded(),
        (false, _) => by_x_forwarded_for(),
        (true, true) => {
            let client = by_forwarded();
            if client == by_x_forwarded_for() { client } else { peer }
        }
    }
}

/// Reads hops from the last to the first; `None` is one that cannot be read.
fn client_of(
    hops: impl DoubleEndedIterator<Item = Option<IpAddr>>,
    peer: IpAddr,
    is_trusted: &impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer;
    for hop in hops.rev() {
        let Some(hop) = hop else { break };
        client = hop;
        if !is_trusted(hop) {
            break;
        }
    }
    client
}

fn x_forwarded_for(fields: &Fields) -> impl DoubleEndedIterator<Item = Option<IpAddr>> {
    let lines = fields.all(FieldName::XForwardedFor).map(|line| visible(line).unwrap_or_default());
    lines.flat_map(|line| line.split(',').map(|hop| address(hop.trim_matches([' ', '\t']))))
}

/// The `for` of every element; `None` if a line is not as the grammar has it, for then nobody can tell what the last
/// proxy added.
fn forwarded(fields: &Fields) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = Vec::new();
    for line in fields.all(FieldName::Forwarded) {
        let mut rest = visible(line)?;
        loop {
            let (hop, after) = element(rest)?;
            hops.push(hop);
            match after {
                Some(after) => rest = after,
                None => break,
            }
        }
    }
    Some(hops)
}

/// One element of a `Forwarded` line: its `for`, and what follows its comma.
fn element(text: &str) -> Option<(Option<IpAddr>, Option<&str>)> {
    let mut hop = None;
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let name_end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (name, mut after) = rest.split_at(name_end);
        if name_end > 0 {
            let value;
            (value, after) = read_value(after.strip_prefix('=')?)?;
            if name.eq_ignore_ascii_case("for") {
                // Twice in one element is not what a proxy writes.
                if hop.is_some() {
                    return None;
                }
                hop = Some(address(value));
            }
        }
        rest = after;
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.as_bytes().first() {
            None => return Some((hop.flatten(), None)),
            Some(b',') => return Some((hop.flatten(), Some(&rest[1..]))),
            Some(b';') => rest = &rest[1..],
            Some(_) => return None,
        }
    }
}

/// A token or a quoted string without escapes, which no address needs, and what follows it.
fn read_value(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| !is_token(c)).unwrap_or(text.len());
        return (end > 0).then(|| text.split_at(end));
    };
    let (value, after) = quoted.split_once('"')?;
    (!value.contains('\\')).then_some((value, after))
}

/// An address with or without brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    // An obfuscated port (`_x`) says nothing, but it is allowed.
    let with_name = || {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        port.starts_with('_').then(|| host.parse::<IpAddr>().ok()).flatten()
    };
    let found = text.parse::<IpAddr>().ok().or_else(bracketed).or_else(with_port).or_else(with_name)?;
    Some(found.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn client(peer: &str, lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
        client_address(&Fields::from(&headers), peer.parse().expect("an address"), is_trusted).to_string()
    }

    #[test]
    fn the_last_that_is_no_proxy_is_the_client() {
        let x = "x-forwarded-for";
        for (lines, expected) in [
            (&[][..], PROXY),
            (&[(x, "192.0.2.7")], "192.0.2.7"),
            (&[(x, "192.0.2.7:4711")], "192.0.2.7"),
            (&[(x, "203.0.113.9, 192.0.2.7")], "192.0.2.7"),
            (&[(x, "203.0.113.9,192.0.2.7 , 10.1.1.1,10.2.2.2")], "192.0.2.7"),
            (&[(x, "203.0.113.9"), (x, "192.0.2.7")], "192.0.2.7"),
            (&[(x, "10.9.9.9, 10.2.2.2")], "10.9.9.9"),
            (&[(x, "2001:db8::1")], "2001:db8::1"),
            (&[(x, "[2001:db8::1]:443")], "2001:db8::1"),
            (&[(x, "::ffff:192.0.2.7")], "192.0.2.7"),
            (&[(x, "192.0.2.7, unknown")], PROXY),
            (&[(x, "192.0.2.7, unknown, 10.2.2.2")], "10.2.2.2"),
            (&[(x, "192.0.2.7,")], PROXY),
            (&[(x, "")], PROXY),
        ] {
            assert_eq!(client(PROXY, lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_read_by_its_grammar() {
        for (line, expected) in [
            ("for=192.0.2.7", "192.0.2.7"),
            ("For=\"192.0.2.7:4711\";proto=https;by=10.0.0.1", "192.0.2.7"),
            ("proto=http;for=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("for=\"[2001:db8::1]\"", "2001:db8::1"),
            ("for=\"192.0.2.7:_x\"", "192.0.2.7"),
            ("for=203.0.113.9, for=192.0.2.7, for=10.4.4.4", "192.0.2.7"),
            ("for=192.0.2.7;host=\"a, for=203.0.113.9\"", "192.0.2.7"),
            ("for=192.0.2.7, for=_hidden", PROXY),
            ("for=192.0.2.7, proto=https", PROXY),
            ("for=192.0.2.7;for=203.0.113.9", PROXY),
            // Whatever a client begins, it cannot take in what the proxy adds after it.
            ("for=\"evil, for=192.0.2.7", PROXY),
            ("for=\"x, for=\"[2001:db8::1]\"", PROXY),
            ("for=\"a\\\"b\", for=192.0.2.7", PROXY),
            ("for 192.0.2.7", PROXY),
            ("for=", PROXY),
        ] {
            assert_eq!(client(PROXY, &[("forwarded", line)]), expected, "{line}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_one_story() {
        let (x, f) = ("x-forwarded-for", "forwarded");
        assert_eq!(client("192.0.2.1", &[(x, "203.0.113.9")]), "192.0.2.1");
        assert_eq!(client("192.0.2.1", &[(f, "for=203.0.113.9")]), "192.0.2.1");
        assert_eq!(client(PROXY, &[(x, "192.0.2.7"), (f, "for=203.0.113.9")]), PROXY);
        assert_eq!(client(PROXY, &[(x, "192.0.2.7"), (f, "for=192.0.2.7")]), "192.0.2.7");
    }
}
