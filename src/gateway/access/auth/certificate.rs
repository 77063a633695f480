//! The certificate that a client's connection showed: whom it names.

use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::identity::principal::{Principal, VerifiedIdentity};
use crate::identity::refusal::CredentialFault;
use config::{self, SubjectName};
use protocol::text::is_seen;

const NAME_BYTES_MAX: usize = 512;

/// What is known of a client by its certificate, which was checked when the connection began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// URIs of its subject alternative name, in order.
    pub uris: Vec<Box<str>>,
    /// DNS names of its subject alternative name, in order.
    pub dns_names: Vec<Box<str>>,
    /// E-mail addresses of its subject alternative name, in order.
    pub emails: Vec<Box<str>>,
    /// When it ends, in seconds since 1970.
    pub expires_s: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct CertificateRules {
    config: config::CertificateNames,
    groups: Vec<(Box<str>, GlobSet)>,
    scopes: Vec<(Box<str>, GlobSet)>,
}

impl CertificateRules {
    pub(crate) fn new(config: &config::CertificateNames) -> Result<Self, globset::Error> {
        let (groups, scopes) = (compiled(&config.groups)?, compiled(&config.scopes)?);
        Ok(Self { config: config.clone(), groups, scopes })
    }

    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// Whom `certificate` names, if it is one alone.
    pub(crate) fn identify(
        &self,
        certificate: &ClientCertificate,
        now_s: u64,
    ) -> Result<Principal, CredentialFault> {
        let names = match self.config.name {
            SubjectName::Uri => &certificate.uris,
            SubjectName::Dns => &certificate.dns_names,
            SubjectName::Email => &certificate.emails,
        };
        let [name] = names.as_slice() else { return Err(CredentialFault::Certificate) };
        if !is_plain(name) {
            return Err(CredentialFault::Certificate);
        }
        // It was valid when the connection began, but connections last.
        if certificate.expires_s <= now_s {
            return Err(CredentialFault::Expired);
        }
        let matching = |rules: &[(Box<str>, GlobSet)]| {
            rules.iter().filter(|(_, globs)| globs.is_match(&**name)).map(|(word, _)| word.clone()).collect()
        };
        Ok(Principal::Known(Arc::new(VerifiedIdentity {
            id: format!("cert:{name}").into(),
            name: name.clone(),
            groups: matching(&self.groups),
            scopes: matching(&self.scopes),
            claims: Vec::new(),
            obtainable: None,
            expires_s: Some(certificate.expires_s),
        })))
    }
}

/// True if globs and other programs cannot take a name for another one: dot segments and `%` are resolved by some and
/// not by others, and nobody sees a blank at the end.
fn is_plain(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.contains('%')
        && name.chars().all(|c| is_seen(c) && !c.is_whitespace())
        && name.split(['/', '\\']).all(|part| !matches!(part, "." | ".."))
}

fn compiled(words: &[(String, Vec<String>)]) -> Result<Vec<(Box<str>, GlobSet)>, globset::Error> {
    let compile = |(word, globs): &(String, Vec<String>)| {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(Glob::new(glob)?);
        }
        Ok((word.as_str().into(), set.build()?))
    };
    words.iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(uris: &[&str]) -> ClientCertificate {
        ClientCertificate {
            uris: uris.iter().map(|uri| Box::from(*uri)).collect(),
            dns_names: vec!["a.example".into()],
            emails: Vec::new(),
            expires_s: 100,
        }
    }

    fn rules(name: SubjectName) -> CertificateRules {
        let ops = ("ops".to_owned(), vec!["spiffe://example/ops/*".to_owned()]);
        let all = ("read".to_owned(), vec!["*".to_owned()]);
        let config = config::CertificateNames { name, groups: vec![ops], scopes: vec![all] };
        CertificateRules::new(&config).expect("globs")
    }

    #[test]
    fn a_certificate_names_one_principal_or_nobody() {
        let ops = "spiffe://example/ops/ann";
        for (name, uris, now_s, expected) in [
            (SubjectName::Uri, &[ops][..], 99, Ok("cert:spiffe://example/ops/ann")),
            (SubjectName::Dns, &[ops, ops], 99, Ok("cert:a.example")),
            (SubjectName::Uri, &[], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &[ops, "spiffe://example/b"], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &[""], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &["spiffe://example/dev/../ops/ann"], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &["spiffe://example/ops/."], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &["spiffe://example/ops/a%2fb"], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &["spiffe://example/ops/ann "], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &["spiffe://example/ops/a\u{200b}nn"], 99, Err(CredentialFault::Certificate)),
            (
                SubjectName::Uri,
                &["spiffe://example/ops/a..b/.c"],
                99,
                Ok("cert:spiffe://example/ops/a..b/.c"),
            ),
            (SubjectName::Email, &[ops], 99, Err(CredentialFault::Certificate)),
            (SubjectName::Uri, &[ops], 100, Err(CredentialFault::Expired)),
        ] {
            let found = rules(name).identify(&certificate(uris), now_s);
            assert_eq!(found.as_ref().map(Principal::id).map_err(|refusal| *refusal), expected, "{uris:?}");
        }
    }

    #[test]
    fn groups_and_scopes_by_name() {
        for (uri, groups, scopes) in [("spiffe://example/ops/ann", 1, 1), ("spiffe://example/dev/ann", 0, 1)]
        {
            let found = rules(SubjectName::Uri).identify(&certificate(&[uri]), 0);
            let Ok(Principal::Known(identity)) = found else { panic!("{found:?}") };
            assert_eq!((identity.groups.len(), identity.scopes.len()), (groups, scopes), "{uri}");
        }
    }
}
