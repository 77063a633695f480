//! The audit log: what rules decided, and what operators did. One line each, with the target `audit`.
//!
//! Lines about refusals are bounded per second and worker, as those about failed calls are; what is left out is counted
//! and told in one line. No line holds a key, a body or a URI's query.

use std::cell::Cell;
use std::net::SocketAddr;

use prometheus::IntCounter;

use crate::access::policy::PolicyVerdict;
use crate::clock;
use crate::identity::Principal;
use crate::identity::refusal::CredentialFault;
use crate::snapshot::Endpoint;
use crate::telemetry::logs::{LineBudget, shorten};
use config::{Audit, Log};
use protocol::route::Kind;

#[derive(Debug)]
pub(crate) struct AuditLog {
    extent: Cell<Audit>,
    refusals: LineBudget,
    /// Of its own: who has no credentials does not silence what is said of those who have.
    credentials: LineBudget,
}

#[derive(Debug)]
pub(crate) struct AuditedDecision<'d> {
    pub principal: &'d Principal,
    pub endpoint: &'d Endpoint,
    /// The upstream's place there.
    pub member: usize,
    pub kind: Kind,
    /// What the client calls it.
    pub name: &'d str,
}

impl AuditLog {
    /// A log that writes at most `refusals_per_second_max` lines about refusals.
    pub(crate) fn new(extent: Audit, refusals_per_second_max: usize, dropped_total: IntCounter) -> Self {
        let budget = |dropped_total| LineBudget::new(refusals_per_second_max, dropped_total);
        let (refusals, credentials) = (budget(dropped_total.clone()), budget(dropped_total));
        Self { extent: Cell::new(extent), refusals, credentials }
    }

    /// Goes on as another configuration has it.
    pub(crate) fn refresh(&self, log: &Log) {
        self.extent.set(log.audit);
        self.refusals.set_max(log.refusals_per_second_max);
        self.credentials.set_max(log.refusals_per_second_max);
    }

    /// Tells why credentials were refused, which no client is told.
    #[cold]
    pub(crate) fn refused_credentials(
        &self,
        endpoint: &Endpoint,
        client: SocketAddr,
        fault: CredentialFault,
    ) {
        let Some(dropped) = self.credentials.admit(clock::now()) else { return };
        if dropped > 0 {
            tracing::warn!(dropped, "lines about refused credentials were left out");
        }
        let (endpoint, why, reason) = (&endpoint.config.name, fault.label(), fault.reason());
        tracing::info!(endpoint, %client, why, reason, "credentials refused");
    }

    /// True if what is allowed is logged too.
    pub(crate) fn wants_all(&self) -> bool {
        self.extent.get() == Audit::All
    }

    pub(crate) fn write(&self, decision: &AuditedDecision<'_>, verdict: &PolicyVerdict) {
        let (rule, outcome) = match verdict {
            // Nothing was decided.
            PolicyVerdict::NotYetLearned => return,
            PolicyVerdict::Allowed(rule) => (rule.as_deref(), "allowed"),
            PolicyVerdict::Hidden(rule) => (rule.as_deref(), "refused"),
            PolicyVerdict::Scope { rule, .. } => (Some(&**rule), "scope missing"),
        };
        let is_wanted = match self.extent.get() {
            Audit::None => false,
            Audit::Refusals => !matches!(verdict, PolicyVerdict::Allowed(_)),
            Audit::All => true,
        };
        if !is_wanted {
            return;
        }
        if !matches!(verdict, PolicyVerdict::Allowed(_)) {
            let Some(dropped) = self.refusals.admit(clock::now()) else { return };
            if dropped > 0 {
                tracing::warn!(target: "audit", dropped, "lines about refusals were left out");
            }
        }
        let AuditedDecision { principal, endpoint, member, kind, name } = decision;
        let upstream = endpoint.config.upstreams.get(*member).map_or("-", String::as_str);
        let (endpoint, kind, name) = (&endpoint.config.name, kind.word(), shorten(name));
        let (id, principal, rule) = (shorten(principal.id()), shorten(principal.name()), rule.unwrap_or("-"));
        tracing::info!(target: "audit", outcome, rule, principal, id, endpoint, upstream, kind, name, "decision");
    }
}

/// Tells what an operator did to the running gateway, and what came of it.
pub(crate) fn act(act: &str, outcome: &str) {
    tracing::info!(target: "audit", act, outcome, "act");
}
