//! What a request is counted by.

use std::net::{IpAddr, Ipv4Addr};

use super::table::CellKey;
use crate::access::limit::digest::{Digest, Digester, PartialDigest};
use crate::access::limit::per_address::client_network;
use crate::identity::Principal;
use config::{CountedBy, RateLimit};
use protocol::arguments::{ArgumentPath, ArgumentValue, CallArguments};

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
    /// What the tool is called with, as far as limits count by it, once that is known.
    pub arguments: Option<&'a CallArguments<'a>>,
}

impl LimitSubject<'_> {
    /// Shows `visit` what tells this request apart by `limit`, part by part; `None` for what it does not have.
    pub(crate) fn each_part(&self, limit: &RateLimit, mut visit: impl FnMut(Option<&[u8]>)) {
        let mut has_argument = false;
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
                CountedBy::Argument(path) => {
                    has_argument = true;
                    match self.argument(path) {
                        Some(value) => value.each_part(|part| visit(Some(part))),
                        None => [None, None].into_iter().for_each(&mut visit),
                    }
                }
            }
        }
        // What a client chooses must not be what another one's calls are counted by.
        if has_argument && !limit.by.contains(&CountedBy::Principal) {
            self.principal(&mut visit);
        }
    }

    pub(crate) fn key(&self, limit: &RateLimit, digester: &Digester) -> CellKey {
        let mut open = digester.start();
        self.each_part(limit, |part| open.part(part));
        let has_choice = limit.by.iter().any(|by| matches!(by, CountedBy::Tool | CountedBy::Argument(_)));
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

    /// The value of an argument that the tool is called with.
    pub(super) fn argument(&self, path: &ArgumentPath) -> Option<&ArgumentValue> {
        self.target?.arguments?.at(path)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use config::{Fallback, MissingArgument};
    use protocol::json::Scratch;

    fn limit(by: &[CountedBy]) -> RateLimit {
        RateLimit {
            name: "l".into(),
            by: by.to_vec(),
            rate: None,
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
            missing_arguments: MissingArgument::Refuse,
        }
    }

    #[test]
    fn who_is_counted_together() {
        let path = ArgumentPath::read("region").unwrap();
        let region = || CountedBy::Argument(path.clone());
        let (ci, dev) = (Principal::api_key("ci"), Principal::api_key("dev"));
        let nobody = &Principal::Anonymous;
        let digester = Digester::default();
        let cases: [(&[CountedBy], _, _, bool); 15] = [
            (&[CountedBy::Principal], (&ci, "192.0.2.1", "1"), (&ci, "192.0.2.9", "2"), true),
            (&[CountedBy::Principal], (&ci, "192.0.2.1", "1"), (&dev, "192.0.2.1", "1"), false),
            (&[CountedBy::Principal], (nobody, "2001:db8::1", "1"), (nobody, "2001:db8::9", "1"), true),
            (&[CountedBy::Principal], (nobody, "192.0.2.1", "1"), (nobody, "192.0.2.9", "1"), false),
            (&[CountedBy::Address], (&ci, "192.0.2.1", "1"), (&dev, "::ffff:192.0.2.1", "1"), true),
            (&[CountedBy::Address], (&ci, "2001:db8::1", "1"), (&ci, "2001:db8:0:1::1", "1"), false),
            (&[CountedBy::Endpoint], (&ci, "192.0.2.1", "1"), (&dev, "192.0.2.2", "2"), true),
            (&[region()], (&ci, "192.0.2.1", r#""a""#), (&ci, "192.0.2.2", r#""\u0061""#), true),
            (&[region()], (&ci, "192.0.2.1", "true"), (&ci, "192.0.2.1", "false"), false),
            (&[region()], (&ci, "192.0.2.1", r#""1""#), (&ci, "192.0.2.1", "1"), false),
            (&[region()], (&ci, "192.0.2.1", "1"), (&ci, "192.0.2.1", "1.00000000000000000001"), true),
            (&[region()], (&ci, "192.0.2.1", "2"), (&dev, "192.0.2.1", "2"), false),
            (&[CountedBy::Principal, region()], (&ci, "192.0.2.1", "1"), (&ci, "192.0.2.2", "1.0"), true),
            (&[CountedBy::Tool], (&ci, "192.0.2.1", "1"), (&dev, "192.0.2.2", "2"), true),
            (&[CountedBy::Upstream], (&ci, "192.0.2.1", "1"), (&dev, "192.0.2.2", "2"), true),
        ];
        for (by, one, other, is_same) in cases {
            let limit = limit(by);
            let key = |(principal, address, region): (&Principal, &str, &str)| {
                let mut scratch = Scratch::default();
                let json = format!(r#"{{"region":{region}}}"#);
                let root = scratch.index(json.as_bytes(), 8).unwrap().root();
                let paths = [path.clone()];
                let arguments = CallArguments::new(&paths, CallArguments::values(&paths, Some(root)));
                let target = LimitTarget { upstream: "u", tool: Some("t"), arguments: Some(&arguments) };
                let address = address.parse().unwrap();
                let subject = LimitSubject { principal, address, endpoint: "/mcp", target: Some(target) };
                subject.key(&limit, &digester)
            };
            assert_eq!(key(one).digest == key(other).digest, is_same, "{by:?}: {one:?} {other:?}");
            assert_eq!(
                key(one).owner.is_some(),
                matches!(by, [.., CountedBy::Tool | CountedBy::Argument(_)])
            );
        }
    }
}
