//! Rules and limits that go by what a tool is called with. That is read from the body, whatever its headers say.

use super::Proxy;
use super::context::RequestContext;
use super::permit::{Admitted, AdmittedByName, subject_of_call};
use crate::access::policy::{NameScope, PolicyVerdict};
use crate::context::audit::AuditedDecision;
use crate::line::message::Message;
use protocol::arguments::CallArguments;
use protocol::error::{Error, GatewayError, PolicyError};
use protocol::route::{Kind, Route};

impl Proxy {
    /// Asks what could not be said before the body was read: whether rules allow the tool with these arguments, and the
    /// limits that count by them.
    pub(super) async fn admit_arguments<'n>(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        by_name: AdmittedByName<'n>,
    ) -> Result<Admitted<'n>, Error> {
        if by_name.is_unjudged || by_name.is_uncounted {
            Box::pin(self.judge_arguments(cx, message, &by_name)).await?;
        }
        Ok(by_name.with_arguments())
    }

    async fn judge_arguments(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &AdmittedByName<'_>,
    ) -> Result<(), Error> {
        let class = &cx.caller()?.class;
        let ruled = route.is_unjudged.then(|| class.arguments());
        let rates = &cx.view.snapshot.rates;
        let counted = route.is_uncounted.then(|| rates.arguments());
        let reader = self.reader(cx.view, cx.served);
        let [by_rules, by_limits] = reader.arguments(message, [ruled, counted]).await?;
        if let Some(paths) = ruled {
            self.check_rules(cx, message, route, &CallArguments::new(paths, by_rules))?;
        }
        let Some(paths) = counted else { return Ok(()) };
        let arguments = CallArguments::new(paths, by_limits);
        let upstream = &cx.view.snapshot.upstreams[cx.endpoint.members[route.member]];
        let subject = subject_of_call(cx, upstream, Some(&*route.inner), Some(&arguments));
        self.admit(|now, common| rates.admit_call(&subject, now, common)).await
    }

    /// Whether the rules allow a tool with the arguments of this call.
    fn check_rules(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
        arguments: &CallArguments<'_>,
    ) -> Result<(), Error> {
        let (endpoint, caller) = (&***cx.endpoint, &**cx.caller()?);
        let directory = endpoint.names.directory();
        let place = NameScope { naming: &endpoint.naming, directory: &directory };
        let verdict = caller.class.judge_call(place, (route.member, &route.inner), arguments);
        let verdict = verdict.map_err(PolicyError::AmbiguousArgument)?;
        let name = message.public_name().unwrap_or_default();
        let (principal, member) = (&caller.principal, route.member);
        let decision = AuditedDecision { principal, endpoint, member, kind: Kind::Tool, name: &name };
        self.worker.audit.write(&decision, &verdict);
        match verdict {
            PolicyVerdict::Allowed(_) => Ok(()),
            PolicyVerdict::NotYetLearned => Err(GatewayError::NamesUnknown.into()),
            PolicyVerdict::Scope { required, .. } => Err(principal
                .step_up_to_one(&required)
                .map_or(PolicyError::Arguments { rule: None }, |required| PolicyError::Scope { required })
                .into()),
            PolicyVerdict::Hidden(rule) => Err(PolicyError::Arguments { rule }.into()),
        }
    }
}
