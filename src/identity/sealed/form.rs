//! The request of a client, judged, on its way through the browser: within the form of the consent page, and then in the cookie.

use tokens::fields::{FieldReader, FieldWriter};

use super::{Kind, Sealable};
use crate::pkce::CodeChallenge;

/// The time that a person has to answer a page.
pub const FORM_LIFE_S: u64 = 10 * 60;

/// A request that was judged and may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedRequest {
    /// The client's id.
    pub client_id: String,
    /// As the client calls itself.
    pub client_name: String,
    /// The URI to which the answer goes.
    pub redirect_uri: String,
    /// The public URL of the endpoint.
    pub endpoint: String,
    /// The scopes that are asked for; which of them are granted is settled when the principal is known.
    pub scopes: Vec<String>,
    /// The client's own, given back as it came.
    pub state: Option<String>,
    /// The digest of the verifier.
    pub challenge: CodeChallenge,
}

/// A request within a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The request.
    pub request: JudgedRequest,
    /// Until then.
    pub expires_s: u64,
}

impl JudgedRequest {
    pub(super) fn write(&self, to: &mut FieldWriter) {
        to.text(&self.client_id);
        to.text(&self.client_name);
        to.text(&self.redirect_uri);
        to.text(&self.endpoint);
        to.texts(&self.scopes);
        to.optional_text(self.state.as_deref());
        to.fixed(&self.challenge.0);
    }

    pub(super) fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            client_id: from.text()?,
            client_name: from.text()?,
            redirect_uri: from.text()?,
            endpoint: from.text()?,
            scopes: from.texts()?,
            state: from.optional_text()?,
            challenge: CodeChallenge(from.array()?),
        })
    }
}

impl Sealable for Form {
    const KIND: Kind = Kind::Form;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        self.request.write(to);
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { request: JudgedRequest::read(from)?, expires_s: from.number()? })
    }
}

/// The forms on the page of one's own sign-ins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageForm {
    /// The principal whose page it is.
    pub principal: String,
    /// Until then.
    pub expires_s: u64,
}

impl Sealable for PageForm {
    const KIND: Kind = Kind::PageForm;

    fn expires_s(&self) -> Option<u64> {
        Some(self.expires_s)
    }

    fn write(&self, to: &mut FieldWriter) {
        to.text(&self.principal);
        to.number(self.expires_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { principal: from.text()?, expires_s: from.number()? })
    }
}

/// The owner of a form: the issuer, and the browser that was shown it, by the value of the page's cookie.
pub fn place(issuer: &str, page_cookie: &str) -> String {
    format!("{issuer}\n{page_cookie}")
}
