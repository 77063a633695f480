//! Who makes a call at an endpoint, and what follows from it there. Made once for a credential on a connection.

use std::sync::Arc;
use std::time::Instant;

use crate::access::limit::payer::Payer;
use crate::access::policy::Class;
use crate::grants::news::GrantInForce;
use crate::identity::Principal;
use crate::telemetry::callers::CallerCounts;

#[derive(Debug)]
pub(crate) struct Caller {
    pub principal: Principal,
    /// Who is charged for what it holds; `None`: that depends on where it calls from.
    pub payer: Option<Payer>,
    pub class: Arc<Class>,
    /// When its credentials end: what it holds open ends with them.
    pub ends: Option<Instant>,
    /// The sign-in that let it in: what it holds open ends with that, too.
    pub grant: Option<GrantInForce>,
    /// Where its calls are counted.
    pub counts: Arc<CallerCounts>,
}

impl Caller {
    pub(crate) fn new(
        principal: Principal,
        class: Arc<Class>,
        ends: Option<Instant>,
        counts: Arc<CallerCounts>,
    ) -> Self {
        let payer = match &principal {
            Principal::Anonymous => None,
            Principal::Known(identity) => Some(Payer::principal(&identity.id)),
        };
        Self { principal, payer, class, ends, grant: None, counts }
    }
}
