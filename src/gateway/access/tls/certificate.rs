//! What a certificate says of itself: names and end. Nothing is verified here.

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::access::auth::certificate::ClientCertificate;

/// Names of one certificate that are kept: more than any honest one has.
const NAMES_MAX: usize = 256;

/// What the certificate `der` says, or `None` if it cannot be read.
pub(crate) fn read(der: &[u8]) -> Option<ClientCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let ends_s = certificate.validity().not_after.timestamp();
    let mut read = ClientCertificate { expires_s: u64::try_from(ends_s).unwrap_or(0), ..Default::default() };
    let names = certificate.subject_alternative_name().ok()?;
    for name in names.iter().flat_map(|names| &names.value.general_names).take(NAMES_MAX) {
        match name {
            GeneralName::URI(uri) => read.uris.push((*uri).into()),
            GeneralName::DNSName(name) => read.dns_names.push((*name).into()),
            GeneralName::RFC822Name(email) => read.emails.push((*email).into()),
            _ => {}
        }
    }
    Some(read)
}
