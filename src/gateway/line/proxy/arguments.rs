//! Rules and limits that go by what a tool is called with. That is read from the body, whatever its headers say.

use std::sync::Arc;

use super::Proxy;
use super::context::RequestContext;
use super::permit::subject_of_call;
use crate::access::policy::{NameScope, PolicyVerdict};
use crate::context::audit::AuditedDecision;
use crate::line::message::Message;
use protocol::arguments::{ArgumentPath, Arguments};
use protocol::error::{Error, GatewayError, PolicyError};
use protocol::route::{Kind, Route};

impl Proxy {
    /// Whether the rules allow a tool with the arguments of this call.
    pub(super) async fn check_rules(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        paths: &Arc<[ArgumentPath]>,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let (endpoint, caller) = (&***cx.endpoint, &**cx.caller()?);
        let values = self.reader(cx.view, cx.served).arguments(message, paths).await?;
        let arguments = Arguments::new(paths, values);
        let directory = endpoint.names.directory();
        let place = NameScope { naming: &endpoint.naming, directory: &directory };
        let verdict = caller.class.judge_call(place, (route.member, &route.inner), &arguments);
        let name = message.public_name().unwrap_or_default();
        let member = route.member;
        let decision =
            AuditedDecision { principal: &caller.principal, endpoint, member, kind: Kind::Tool, name: &name };
        self.worker.audit.write(&decision, &verdict);
        match verdict {
            PolicyVerdict::Allowed(_) => Ok(()),
            PolicyVerdict::NotYetLearned => Err(GatewayError::NamesUnknown.into()),
            PolicyVerdict::Scope { required, .. } if caller.principal.may_get_scopes() => {
                Err(PolicyError::Scope { required }.into())
            }
            PolicyVerdict::Scope { .. } => Err(PolicyError::Arguments { rule: None }.into()),
            PolicyVerdict::Hidden(rule) => Err(PolicyError::Arguments { rule }.into()),
        }
    }

    /// Asks the limits of rate for a call that some of them count by its arguments.
    pub(super) async fn count_by_arguments(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let upstream = &cx.view.snapshot.upstreams[cx.endpoint.members[route.member]];
        let rates = &cx.view.snapshot.rates;
        let paths = rates.arguments();
        let values = self.reader(cx.view, cx.served).arguments(message, paths).await?;
        let arguments = Arguments::new(paths, values);
        let subject = subject_of_call(cx, upstream, Some(&*route.inner), Some(&arguments));
        self.admit(|now, common| rates.admit_call(&subject, now, common)).await
    }
}
