//! What a request is counted by.

use std::net::{IpAddr, Ipv4Addr};

use super::table::CellKey;
use crate::access::limit::digest::{Digest, Digester, PartialDigest};
use crate::access::limit::per_address::client_network;
use crate::identity::Principal;
use config::{CountedBy, RateLimit};
use protocol::fields::Fields;
use protocol::header::decode_value;

/// What is known of a request that limits may tell apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitSubject<'a> {
    pub principal: &'a Principal,
    pub address: IpAddr,
    pub endpoint: &'a str,
    /// Where it goes, once that is known.
    pub target: Option<LimitTarget<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitTarget<'a> {
    pub upstream: &'a str,
    /// What is called there, if it is a tool.
    pub tool: Option<&'a str>,
    pub fields: &'a Fields,
}

impl LimitSubject<'_> {
    /// Shows `visit` what tells this request apart by `limit`, part by part; `None` for what it does not have.
    pub(crate) fn each_part(&self, limit: &RateLimit, mut visit: impl FnMut(Option<&[u8]>)) {
        let mut has_param = false;
        for by in &limit.by {
            match by {
                CountedBy::Principal => self.principal(&mut visit),
                CountedBy::Address => self.address(&mut visit),
                CountedBy::Endpoint => visit(Some(self.endpoint.as_bytes())),
                CountedBy::Upstream => visit(self.target.map(|target| target.upstream.as_bytes())),
                CountedBy::Tool => {
                    visit(self.target.map(|target| target.upstream.as_bytes()));
                    visit(self.target.and_then(|target| target.tool).map(str::as_bytes));
                }
                CountedBy::Param(header) => {
                    has_param = true;
                    self.param(header, &mut visit);
                }
            }
        }
        // What a client chooses must not be what another one's calls are counted by.
        if has_param && !limit.by.contains(&CountedBy::Principal) {
            self.principal(&mut visit);
        }
    }

    pub(crate) fn key(&self, limit: &RateLimit, digester: &Digester) -> CellKey {
        let mut open = digester.start();
        self.each_part(limit, |part| open.part(part));
        let has_choice = limit.by.iter().any(|by| matches!(by, CountedBy::Tool | CountedBy::Param(_)));
        CellKey { digest: open.finish(), owner: has_choice.then(|| self.owner(digester)) }
    }

    fn owner(&self, digester: &Digester) -> Digest {
        let mut open: PartialDigest = digester.start();
        self.principal(&mut |part| open.part(part));
        // No key ends like this.
        open.part(None);
        open.part(Some(b"rest"));
        open.finish()
    }

    pub(super) fn principal(&self, visit: &mut impl FnMut(Option<&[u8]>)) {
        match self.principal {
            Principal::Known(identity) => visit(Some(identity.id.as_bytes())),
            Principal::Anonymous => {
                visit(None);
                self.address(visit);
            }
        }
    }

    fn address(&self, visit: &mut impl FnMut(Option<&[u8]>)) {
        match client_network(self.address) {
            IpAddr::V4(address) => visit(Some(&Ipv4Addr::octets(&address))),
            IpAddr::V6(address) => visit(Some(&address.octets())),
        }
    }

    /// Every spelling of a value is the same value.
    fn param(&self, header: &str, visit: &mut impl FnMut(Option<&[u8]>)) {
        let values = self.target.map(|target| target.fields.named(header));
        let mut values = values.into_iter().flatten();
        match (values.next(), values.next()) {
            (Some(value), None) => match decode_value(value) {
                Some(decoded) => visit(Some(decoded.as_bytes())),
                None => visit(Some(value)),
            },
            // Such a call fails anyway, where the parameter is the tool's.
            _ => visit(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;

    use super::*;
    use config::Fallback;

    fn limit(by: &[CountedBy]) -> RateLimit {
        RateLimit {
            name: "l".into(),
            by: by.to_vec(),
            calls: 1,
            period: Duration::from_secs(1),
            burst: 1,
            weights: Vec::new(),
            endpoints: Vec::new(),
            upstreams: Vec::new(),
            tools: Vec::new(),
            principals: Vec::new(),
            groups: Vec::new(),
            shared: false,
            exact: false,
            fallback: Fallback::Local,
        }
    }

    #[test]
    fn who_is_counted_together() {
        let region = || CountedBy::Param("mcp-param-region".into());
        let (ci, dev) = (Principal::api_key("ci"), Principal::api_key("dev"));
        let nobody = &Principal::Anonymous;
        let digester = Digester::default();
        let cases: [(&[CountedBy], _, _, bool); 13] = [
            (&[CountedBy::Principal], (&ci, "192.0.2.1", "a"), (&ci, "192.0.2.9", "b"), true),
            (&[CountedBy::Principal], (&ci, "192.0.2.1", "a"), (&dev, "192.0.2.1", "a"), false),
            (&[CountedBy::Principal], (nobody, "2001:db8::1", "a"), (nobody, "2001:db8::9", "a"), true),
            (&[CountedBy::Principal], (nobody, "192.0.2.1", "a"), (nobody, "192.0.2.9", "a"), false),
            (&[CountedBy::Address], (&ci, "192.0.2.1", "a"), (&dev, "::ffff:192.0.2.1", "a"), true),
            (&[CountedBy::Address], (&ci, "2001:db8::1", "a"), (&ci, "2001:db8:0:1::1", "a"), false),
            (&[CountedBy::Endpoint], (&ci, "192.0.2.1", "a"), (&dev, "192.0.2.2", "b"), true),
            (&[region()], (&ci, "192.0.2.1", "a"), (&ci, "192.0.2.2", "=?base64?YQ==?="), true),
            (&[region()], (&ci, "192.0.2.1", "a"), (&ci, "192.0.2.1", "b"), false),
            (&[region()], (&ci, "192.0.2.1", "a"), (&dev, "192.0.2.1", "a"), false),
            (&[CountedBy::Principal, region()], (&ci, "192.0.2.1", "a"), (&ci, "192.0.2.2", "a"), true),
            (&[CountedBy::Tool], (&ci, "192.0.2.1", "a"), (&dev, "192.0.2.2", "b"), true),
            (&[CountedBy::Upstream], (&ci, "192.0.2.1", "a"), (&dev, "192.0.2.2", "b"), true),
        ];
        for (by, one, other, is_same) in cases {
            let limit = limit(by);
            let key = |(principal, address, region): (&Principal, &str, &str)| {
                let mut headers = HeaderMap::new();
                headers.insert("mcp-param-region", region.parse().unwrap());
                let fields = Fields::from(&headers);
                let target = LimitTarget { upstream: "u", tool: Some("t"), fields: &fields };
                let address = address.parse().unwrap();
                let subject = LimitSubject { principal, address, endpoint: "/mcp", target: Some(target) };
                subject.key(&limit, &digester)
            };
            assert_eq!(key(one).digest == key(other).digest, is_same, "{by:?}: {one:?} {other:?}");
            assert_eq!(key(one).owner.is_some(), matches!(by, [.., CountedBy::Tool | CountedBy::Param(_)]));
        }
    }
}
