//! Cookies of a browser: the sign-in that is under way, the answers that are remembered, the person on their page.

use tokens::fields::{FieldReader, FieldWriter};
use tokens::sealing::{KEY_ID_BYTES, NONCE_BYTES, TAG_BYTES};

use super::fingerprint::Fingerprint;
use super::form::JudgedRequest;
use super::{Kind, Sealable};
use crate::presented::Presented;

/// The time that a person has at the provider.
pub const SIGN_IN_LIFE_S: u64 = 10 * 60;
/// The time for which a person is known on the page of their sign-ins.
pub const PAGE_LIFE_S: u64 = 15 * 60;
/// Answers that a browser remembers; the oldest goes.
pub const CONSENTS_MAX: usize = 30;

/// Bytes of the cookie beside the request: the seal with its version, and the other fields, where all are there.
const BESIDE_REQUEST_BYTES: usize =
    KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES + 1 + 1 + 16 + 16 + (2 + 43) + (1 + 32) + 8;
/// Bytes of the request, written as fields.
const REQUEST_BYTES_MAX: usize = Kind::SignInCookie.size_max() / 4 * 3 - BESIDE_REQUEST_BYTES;

/// A visit to the provider.
#[derive(Clone, Debug)]
pub struct SignInCookie {
    /// The cause of it.
    pub purpose: VisitPurpose,
    /// The `state` for the provider, which names the cookie.
    pub state: [u8; 16],
    /// Ties the provider's ID token to this sign-in.
    pub nonce: [u8; 16],
    /// The verifier for the provider.
    pub verifier: Presented,
    /// The answer was remembered and not given now, and for this principal: another one is asked after all.
    pub remembered_for: Option<Fingerprint>,
    /// Until then.
    pub expires_s: u64,
}

/// The cause of a visit to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisitPurpose {
    /// A client's request. The browser was asked and said yes, now or before.
    Client(JudgedRequest),
    /// A person wants to see their own sign-ins.
    SignIns,
}

/// The answers that are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsentCookie {
    /// The newest first.
    consents: Vec<Consent>,
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Consent {
    principal: Fingerprint,
    to: Fingerprint,
    expires_s: u64,
}

/// A person on the page of their own sign-ins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCookie {
    /// The principal's id.
    pub principal: String,
    /// The person's name.
    pub name: String,
    /// Until then.
    pub expires_s: u64,
}

impl Sealable for SignInCookie {
    const KIND: Kind = Kind::SignInCookie;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        match &self.purpose {
            VisitPurpose::Client(request) => {
                to.small(1);
                request.write(to);
            }
            VisitPurpose::SignIns => to.small(0),
        }
        to.fixed(&self.state);
        to.fixed(&self.nonce);
        to.text(self.verifier.expose());
        to.small(self.remembered_for.is_some().into());
        if let Some(principal) = self.remembered_for {
            to.fixed(&principal.0);
        }
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            purpose: if from.is_so()? {
                VisitPurpose::Client(JudgedRequest::read(from)?)
            } else {
                VisitPurpose::SignIns
            },
            state: from.array()?,
            nonce: from.array()?,
            verifier: Presented::new(&from.text()?),
            remembered_for: if from.is_so()? { Some(Fingerprint(from.array()?)) } else { None },
            expires_s: from.number()?,
        })
    }
}

impl Sealable for ConsentCookie {
    const KIND: Kind = Kind::ConsentCookie;

    /// Each answer has its own end.
    fn expires_s(&self) -> Option<u64> {
        None
    }

    fn write(&self, to: &mut FieldWriter) {
        to.length(self.consents.len());
        for consent in &self.consents {
            to.fixed(&consent.principal.0);
            to.fixed(&consent.to.0);
            to.number(consent.expires_s);
        }
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        let length = from.length().filter(|length| *length <= CONSENTS_MAX)?;
        let read_one = |_| {
            let (principal, to) = (Fingerprint(from.array()?), Fingerprint(from.array()?));
            Some(Consent { principal, to, expires_s: from.number()? })
        };
        (0..length).map(read_one).collect::<Option<_>>().map(|consents| Self { consents })
    }
}

impl SignInCookie {
    /// True where the request fits into a cookie. Nobody is asked about another, since no answer could go on.
    pub fn can_hold(request: &JudgedRequest) -> bool {
        let mut fields = FieldWriter::default();
        request.write(&mut fields);
        fields.finish().is_some_and(|fields| fields.len() <= REQUEST_BYTES_MAX)
    }
}

impl ConsentCookie {
    /// The principal whose answer to this very request is remembered: same client, redirect URI, endpoint and scopes.
    pub fn principal_for(&self, request: &JudgedRequest, now_s: u64) -> Option<Fingerprint> {
        let to = asked(request);
        let consent = self.consents.iter().find(|consent| consent.to == to && consent.expires_s > now_s);
        consent.map(|consent| consent.principal)
    }

    /// Remembers the answer of a principal until `expires_s`. The gateway calls this for https redirects only.
    pub fn remember(&mut self, principal: &str, request: &JudgedRequest, now_s: u64, expires_s: u64) {
        let to = asked(request);
        self.consents.retain(|consent| consent.expires_s > now_s && consent.to != to);
        let principal = Fingerprint::of(&[principal]);
        self.consents.insert(0, Consent { principal, to, expires_s });
        self.consents.truncate(CONSENTS_MAX);
    }
}

fn asked(request: &JudgedRequest) -> Fingerprint {
    let mut scopes: Vec<&str> = request.scopes.iter().map(String::as_str).collect();
    scopes.sort_unstable();
    let texts = [&*request.client_id, &*request.redirect_uri, &*request.endpoint];
    Fingerprint::of(&texts.into_iter().chain(scopes).collect::<Vec<_>>())
}

impl Sealable for PageCookie {
    const KIND: Kind = Kind::PageCookie;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        to.text(&self.principal);
        to.text(&self.name);
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { principal: from.text()?, name: from.text()?, expires_s: from.number()? })
    }
}
