//! What a caller may call, and whether it may now: the route that its name leads to, and what the limits grant.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;

use super::Proxy;
use crate::access::caller::Caller;
use crate::access::limit::concurrency::{Admission, Permit};
use crate::access::limit::rate::shared::{RateError, SharedLimits};
use crate::access::limit::rate::{CallTarget, LimitSubject};
use crate::access::policy::{NameScope, PolicyVerdict};
use crate::context::audit::AuditedDecision;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::line::intake::Intake;
use crate::redis::Redis;
use crate::redis::lease::RateLease;
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use crate::upstream::pins;
use protocol::error::{ClientError, Error, GatewayError, PolicyError};
use protocol::head::Head;
use protocol::method::{Method, NameSource};
use protocol::route::{Kind, NoRoute, Route};
use protocol::version::Era;

impl Proxy {
    /// Asks the limits of rate for what was posted by a caller whose credentials were checked.
    pub(super) async fn admit_posted(
        &self,
        view: &View,
        endpoint: &Endpoint,
        (head, intake): (&Head<'_>, &mut Intake),
        call: &mut Call,
    ) -> Result<(), Error> {
        let admitted = self.admit_message(view, endpoint, call).await;
        // How a refusal is shown depends on the era, which the body may be needed for.
        if admitted.is_err()
            && head.era().is_none()
            && let Some(body) = Box::pin(intake.collect_refused()).await
        {
            let _ = self.reader(view, endpoint.eras()).read(head, body, &mut call.seen).await;
        }
        admitted
    }

    /// Asks the limits of rate for one message, whatever it holds.
    pub(super) async fn admit_message(
        &self,
        view: &View,
        endpoint: &Endpoint,
        call: &Call,
    ) -> Result<(), Error> {
        let rates = &view.snapshot.rates;
        if !rates.count_requests() {
            return Ok(());
        }
        let subject = subject(endpoint, call, None);
        self.admit(|now, common| rates.admit_request(&subject, now, common)).await
    }

    /// Asks the limits of rate for one request of `method` on its way along `route`; and whether there is room to wait for
    /// its upstream, should that have as many calls as it may.
    pub(super) async fn admit_call(
        &self,
        view: &View,
        endpoint: &Endpoint,
        call: &Call,
        (method, headers): (Method, &HeaderMap),
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let upstream = &view.snapshot.upstreams[endpoint.members[route.member]];
        if method == Method::ToolsCall && upstream.pins.is_some() {
            // A tool whose definition changed may not be called until that is approved.
            Box::pin(pins::check(upstream, &route.inner, &self.worker.state.pins_due)).await?;
        }
        let rates = &view.snapshot.rates;
        if rates.count_calls() {
            let tool = (method == Method::ToolsCall).then_some(&*route.inner);
            let target = CallTarget { upstream: &upstream.config.name, tool, headers };
            let subject = subject(endpoint, call, Some(target));
            self.admit(|now, common| rates.admit_call(&subject, now, common)).await?;
        }
        match &upstream.gate {
            Some(gate) if gate.would_refuse(call.client().as_bytes()) => {
                gate.series.refused.inc();
                Err(PolicyError::Concurrency.into())
            }
            _ => Ok(()),
        }
    }

    /// Asks limits, and waits where a shared one must be asked for elsewhere; then, no longer than that may take.
    async fn admit(
        &self,
        ask: impl Fn(Instant, Option<SharedLimits<'_>>) -> Result<(), RateError>,
    ) -> Result<(), Error> {
        let shared = self.worker.state.shared.as_deref();
        let asked = ask(Instant::now(), shared.map(|shared| SharedLimits { shared, is_late: false }));
        match (asked, shared) {
            (Ok(()), _) => Ok(()),
            (Err(RateError::Wait(lease)), Some(shared)) => Box::pin(wait(lease, shared, ask)).await,
            (Err(stop), _) => Err(stopped(stop)),
        }
    }

    /// One of the calls that an upstream may have at once; waits for it where it has as many as it may. After the body
    /// was read: who sends slowly keeps nobody from calling, and who leaves is noticed.
    pub(super) async fn acquire_slot(upstream: &Upstream, call: &Call) -> Result<Option<Rc<Permit>>, Error> {
        let Some(gate) = &upstream.gate else { return Ok(None) };
        let now = Instant::now();
        let permit = match gate.enter(call.client().as_bytes(), now) {
            Ok(Admission::Passed(permit)) => Ok(permit),
            Ok(Admission::Waits(waiting)) => {
                let permit = waiting.turn().await;
                gate.series.waited.observe(now.elapsed().as_secs_f64());
                permit
            }
            Err(refused) => Err(refused),
        };
        permit.map(|permit| Some(Rc::new(permit))).map_err(|_| {
            gate.series.refused.inc();
            PolicyError::Concurrency.into()
        })
    }

    /// The route, as far as headers give one. `Ok(None)`: they do not.
    pub(super) fn route_by_headers<'n>(
        &self,
        endpoint: &Endpoint,
        caller: &Caller,
        head: &'n Head<'_>,
    ) -> Result<Option<Route<'n>>, Error> {
        let is_modern =
            head.version.as_str().is_some_and(|version| Era::of_version(version) == Some(Era::Modern));
        let method = head.method.as_str().filter(|_| is_modern).map(Method::of);
        let Some(method) = method else { return Ok(None) };
        let kind = match (method, method.name_source()) {
            (Method::PromptsGet, _) => Kind::Prompt,
            (_, Some(NameSource::Name)) => Kind::Tool,
            (_, Some(NameSource::Uri)) => Kind::Resource,
            (_, Some(NameSource::TaskId)) => Kind::Task,
            (_, None) => return Ok(None),
        };
        let Some(name) = head.decoded_name.as_deref() else { return Ok(None) };
        self.find_route(endpoint, caller, kind, name).map(Some)
    }

    /// Where a public name leads this caller. What it may not use does not exist for it, unless a scope would help; nor
    /// does a task of another.
    pub(super) fn find_route<'n>(
        &self,
        endpoint: &Endpoint,
        caller: &Caller,
        kind: Kind,
        public: &'n str,
    ) -> Result<Route<'n>, Error> {
        let route = self.find_usable(endpoint, caller, kind, public)?;
        if kind == Kind::Task && endpoint.binds_tasks {
            return self.find_task(endpoint, caller, &route, public);
        }
        Ok(route)
    }

    /// Where a public name leads this caller, by rules alone.
    fn find_usable<'n>(
        &self,
        endpoint: &Endpoint,
        caller: &Caller,
        kind: Kind,
        public: &'n str,
    ) -> Result<Route<'n>, Error> {
        let unknown = || ClientError::UnknownName { kind: kind.word(), name: public.to_owned() };
        let directory = endpoint.names.directory();
        let route = endpoint.naming.route(kind, public, &directory).map_err(|no_route| match no_route {
            NoRoute::Unknown => Error::from(unknown()),
            NoRoute::NotYetLearned => GatewayError::NamesUnknown.into(),
        })?;
        let Caller { principal, class, .. } = caller;
        let place = NameScope { naming: &endpoint.naming, directory: &directory };
        let decision = AuditedDecision { principal, endpoint, member: route.member, kind, name: public };
        let audit = &self.worker.audit;
        if class.is_unrestricted() || class.allows(place, kind, route.member, &route.inner) {
            if audit.wants_all() {
                audit.write(&decision, &class.judge(place, kind, route.member, &route.inner));
            }
            return Ok(route);
        }
        let verdict = class.judge(place, kind, route.member, &route.inner);
        audit.write(&decision, &verdict);
        match verdict {
            PolicyVerdict::NotYetLearned => Err(GatewayError::NamesUnknown.into()),
            PolicyVerdict::Scope { required, .. } if principal.may_get_scopes() => {
                Err(PolicyError::Scope { required }.into())
            }
            PolicyVerdict::Scope { .. } | PolicyVerdict::Allowed(_) | PolicyVerdict::Hidden(_) => {
                Err(unknown().into())
            }
        }
    }
}

async fn wait(
    mut lease: Arc<RateLease>,
    shared: &Redis,
    ask: impl Fn(Instant, Option<SharedLimits<'_>>) -> Result<(), RateError>,
) -> Result<(), Error> {
    let deadline = Instant::now() + shared.timeout();
    loop {
        let is_late = tokio::time::timeout_at(deadline.into(), lease.answered()).await.is_err();
        let now = Instant::now();
        let is_late = is_late || now >= deadline;
        match ask(now, Some(SharedLimits { shared, is_late })) {
            Err(RateError::Wait(other)) if !is_late => lease = other,
            asked => return asked.map_err(stopped),
        }
    }
}

fn stopped(stop: RateError) -> Error {
    match stop {
        RateError::Refused(error) => error.into(),
        RateError::Unknown | RateError::Wait(_) => GatewayError::SharedLimits.into(),
    }
}

fn subject<'a>(endpoint: &'a Endpoint, call: &'a Call, target: Option<CallTarget<'a>>) -> LimitSubject<'a> {
    let address = call.client_address();
    LimitSubject { principal: call.principal(), address, endpoint: &endpoint.config.path, target }
}
