//! The pages that tell errors to a person. The whole cause goes to the audit log.

use identity::authorize::AuthorizeFault;
use identity::client::ClientFault;
use identity::oauth_error::{Answer, ErrorCode};
use identity::pages::Trouble;
use identity::parameters::ParameterFault;
use identity::redirect_uri::RedirectFault;

use super::desk::{SignInDesk, SignInRequest};
use super::reply::page_of;
use crate::access::auth::sign_in::faults::ProviderFault;
use crate::clock::now_s;
use crate::grants::GrantsError;
use crate::telemetry::logs::beginning;

/// As much of a cause is logged.
pub(super) const WHY_CHARS_MAX: usize = 400;

/// A request as far as pages name it. Strangers have written it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedFor<'a> {
    pub client_id: &'a str,
    pub client_name: &'a str,
    pub redirect_uri: &'a str,
    pub resource: &'a str,
}

/// The page for a request of `/authorize` that is refused.
pub(super) fn authorize_page(fault: &AuthorizeFault, asked: AskedFor<'_>, id: &str) -> Answer {
    let AskedFor { client_id, client_name: client, redirect_uri: redirect, resource } = asked;
    match fault {
        AuthorizeFault::Parameters(fault) => parameters_page(fault, id),
        AuthorizeFault::Client(ClientFault::Missing) => {
            page_of(&Trouble::ParameterMissing { name: "client_id" }, id)
        }
        AuthorizeFault::Client(ClientFault::Denied) => page_of(&Trouble::ClientDenied { client_id }, id),
        AuthorizeFault::Client(ClientFault::Unknown) => page_of(&Trouble::ClientUnknown { client_id }, id),
        AuthorizeFault::Client(ClientFault::Url(fault)) => {
            page_of(&Trouble::ClientDocument { client_id, why: &fault.to_string() }, id)
        }
        AuthorizeFault::Redirect(RedirectFault::Missing) => {
            page_of(&Trouble::ParameterMissing { name: "redirect_uri" }, id)
        }
        AuthorizeFault::Redirect(RedirectFault::NotRegistered) => {
            page_of(&Trouble::RedirectUnregistered { client, redirect }, id)
        }
        AuthorizeFault::Redirect(RedirectFault::NotAllowed { line }) => {
            page_of(&Trouble::RedirectRefused { client, redirect, entry: Some(line) }, id)
        }
        AuthorizeFault::Redirect(_) => {
            page_of(&Trouble::RedirectRefused { client, redirect, entry: None }, id)
        }
        AuthorizeFault::Request(error) if error.code == ErrorCode::InvalidTarget && !resource.is_empty() => {
            page_of(&Trouble::ResourceUnknown { resource }, id)
        }
        AuthorizeFault::Request(error) => {
            let name = match error.code {
                ErrorCode::InvalidScope => "scope",
                ErrorCode::InvalidTarget => "resource",
                ErrorCode::UnsupportedResponseType => "response_type",
                _ => "request",
            };
            page_of(&Trouble::ParameterInvalid { name, why: &error.description }, id)
        }
    }
}

/// The page for parameters that cannot be read.
pub(super) fn parameters_page(fault: &ParameterFault, id: &str) -> Answer {
    match fault {
        ParameterFault::Twice(name) => page_of(&Trouble::ParameterTwice { name }, id),
        fault => page_of(&Trouble::ParameterInvalid { name: "request", why: &fault.to_string() }, id),
    }
}

impl SignInDesk {
    /// The page for a fault of the provider.
    pub(super) fn provider_page(&self, fault: &ProviderFault, request: &SignInRequest) -> Answer {
        let (provider, id) = (&*self.provider_host(), &request.id);
        self.refused(request, "provider", &fault.to_string());
        self.note_provider_fault(fault);
        match fault {
            ProviderFault::Slow { waited_s } => {
                page_of(&Trouble::ProviderSlow { provider, waited_s: *waited_s }, id)
            }
            ProviderFault::Down(_) => page_of(&Trouble::ProviderDown { provider }, id),
            ProviderFault::Refused(said) | ProviderFault::Ended(said) => {
                page_of(&Trouble::ProviderRefused { provider, error: said, description: "" }, id)
            }
            ProviderFault::Untrusted(_) => page_of(&Trouble::ProviderUntrusted { provider }, id),
        }
    }

    /// Remembers for operators that the provider does not do its part. One that ends somebody's sign-in does.
    pub(super) fn note_provider_fault(&self, fault: &ProviderFault) {
        if !matches!(fault, ProviderFault::Ended(_)) {
            self.grants.note_provider_fault(fault.to_string());
        }
    }

    /// The page for a fault of the store.
    pub(super) fn store_page(&self, fault: &GrantsError, request: &SignInRequest) -> Answer {
        self.refused(request, "store", &fault.to_string());
        self.series.store_failures.inc();
        tracing::warn!(error = %fault, "a sign-in cannot be kept");
        page_of(&Trouble::StoreAway, &request.id)
    }

    /// The host of the provider, for people.
    pub(super) fn provider_host(&self) -> String {
        let issuer = &self.settings.issuer.config.issuer;
        let host = identity::uri::Uri::read(issuer).ok().and_then(|uri| uri.host.map(str::to_owned));
        host.unwrap_or_else(|| issuer.clone())
    }

    /// Tells operators why somebody is not signed in.
    pub(super) fn refused(&self, request: &SignInRequest, kind: &'static str, why: &str) {
        self.series.refused.with_label_values(&[kind]).inc();
        if self.admits_line() {
            let (client, why) = (request.client, beginning(why, WHY_CHARS_MAX));
            tracing::info!(target: "audit", %client, kind, why, request_id = request.id, "sign-in refused");
        }
    }

    /// True if a line may be written that strangers cause; says before it how many were left out.
    pub(super) fn admits_line(&self) -> bool {
        let admitted = self.settings.memory.admit_line(self.settings.refusal_lines_max, now_s());
        if let Some(left_out @ 1..) = admitted {
            tracing::warn!(target: "audit", left_out, "lines about refused sign-ins were left out");
        }
        admitted.is_some()
    }
}
