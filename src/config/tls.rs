//! `[listener.tls]`, and who stands between clients and listeners: `trusted_proxies`.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::Warning;
use super::resolve::{Findings, absolute};
use super::secret::{SecretSource, WrittenSecret};
use super::value::{At, Key};

/// `[listener.tls]`: what a listener needs to speak TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// What it shows, chosen by the name a client asks for; at least one, the first where none fits.
    pub certificates: Vec<CertificateFiles>,
    /// Whether clients show certificates.
    pub client_certificates: CertificateDemand,
    /// PEM file of the authorities that sign them, an absolute path; there unless clients show none.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub version_min: TlsVersion,
}

/// A certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM file of the certificate and those between it and its authority, an absolute path.
    pub chain: PathBuf,
    /// Where its private key is, in PEM form.
    pub key: SecretSource,
}

/// Whether clients of a listener show certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateDemand {
    /// They are not asked.
    #[default]
    None,
    /// They may; one that is shown must be valid.
    Optional,
    /// They must.
    Required,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246, with forward secrecy and authenticated encryption only.
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

/// Networks of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Whether `address` is in one of them; an IPv4 address is the same however it is written.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// TLS towards clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ListenerTls", extend("required" = ["certificates"]))]
pub(super) struct WrittenListenerTls {
    /// Certificates with their keys. A client gets the first that has the name it asks for, or else the first of all.
    #[schemars(extend("minItems" = 1))]
    certificates: Vec<At<WrittenCertificate>>,
    /// Whether clients show certificates: "none" does not ask, "optional" takes valid ones, "required" insists.
    #[schemars(extend("default" = "none"))]
    client_certificates: Key<CertificateDemand>,
    /// PEM file of the authorities that sign clients' certificates. An absolute path.
    #[schemars(example = "/etc/trunkline/client-ca.pem")]
    client_ca: Key<String>,
    /// The oldest version of TLS that is spoken, "1.2" or "1.3".
    #[schemars(extend("default" = "1.2"))]
    version_min: Key<TlsVersion>,
}

/// A certificate with its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Certificate", extend("required" = ["chain", "key"]))]
struct WrittenCertificate {
    /// PEM file of the certificate, followed by those between it and its authority. An absolute path.
    #[schemars(example = "/etc/trunkline/cert.pem")]
    chain: Key<String>,
    /// Its private key in PEM form.
    key: Key<WrittenSecret>,
}

/// The TLS of a listener, where it has any.
pub(super) fn listener_tls(
    written: &Key<WrittenListenerTls>,
    findings: &mut Findings,
) -> Option<ListenerTls> {
    let At { value: tls, span } = written.0.as_ref()?;
    if tls.certificates.is_empty() {
        let message = "TLS has no `certificates`: write `certificates = [{ chain = \"/etc/trunkline/cert.pem\", \
             key = { file = \"/etc/trunkline/key.pem\" } }]`";
        findings.error(span.clone(), message);
    }
    let certificates = tls.certificates.iter().filter_map(|written| certificate(written, findings)).collect();
    let client_certificates = tls.client_certificates.value().copied().unwrap_or_default();
    let client_ca = absolute(&tls.client_ca, "/etc/trunkline/client-ca.pem", findings);
    match (client_certificates, &tls.client_ca.0) {
        (CertificateDemand::None, Some(At { span, .. })) => {
            let message = "`client_ca` says nothing while clients are not asked for certificates: write \
                 `client_certificates = \"required\"` or `\"optional\"`";
            findings.error(span.clone(), message);
        }
        (CertificateDemand::Optional | CertificateDemand::Required, None) => {
            let span = tls.client_certificates.span().unwrap_or_else(|| span.clone());
            findings.error(span, "`client_ca` is missing: name the authorities that sign the certificates");
        }
        _ => {}
    }
    Some(ListenerTls {
        certificates,
        client_certificates,
        client_ca,
        version_min: tls.version_min.value().copied().unwrap_or_default(),
    })
}

fn certificate(written: &At<WrittenCertificate>, findings: &mut Findings) -> Option<CertificateFiles> {
    let At { value, span } = written;
    let chain = findings.required(&value.chain, span, "the certificate has no `chain`").is_some();
    let key = findings.required(&value.key, span, "the certificate has no `key`")?;
    let key = WrittenSecret::resolve(key, findings)?;
    let chain = absolute(&value.chain, "/etc/trunkline/cert.pem", findings).filter(|_| chain)?;
    Some(CertificateFiles { chain, key })
}

/// The networks of `trusted_proxies`.
pub(super) fn trusted_proxies(written: &Key<Vec<At<String>>>, findings: &mut Findings) -> Networks {
    let mut networks = Vec::new();
    for At { value, span } in written.value().into_iter().flatten() {
        match network(value) {
            Some(network) if network.prefix_len() == 0 => {
                let message = "everybody is believed to be a proxy, and may claim any address: name your proxies' networks";
                findings.warnings.push(Warning::new(span.clone(), message));
                networks.push(network);
            }
            Some(network) => networks.push(network),
            None => findings.error(
                span.clone(),
                "not a network: write for example \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\"",
            ),
        }
    }
    Networks(networks)
}

fn network(text: &str) -> Option<IpNet> {
    let whole = text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    text.parse::<IpNet>().ok().or(whole).map(|network| network.trunc())
}

/// A listener that insists on what nobody may send.
pub(super) fn check_proxy_protocol(
    is_on: bool,
    span: Option<Range<usize>>,
    proxies: &Networks,
    findings: &mut Findings,
) {
    if is_on && proxies.is_empty() {
        let message =
            "nobody could connect: name those who send PROXY headers in the top-level `trusted_proxies`";
        findings.error(span.unwrap_or_default(), message);
    }
}
