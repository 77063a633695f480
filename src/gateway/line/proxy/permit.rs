//! What a caller may call, and whether it may now: the route that its name leads to, and what the limits grant.

use std::sync::Arc;
use std::time::Instant;

use super::Proxy;
use super::context::RequestContext;
use crate::access::caller::Caller;
use crate::access::limit::concurrency::Admission;
use crate::access::limit::concurrency::place::{CallPlace, EndSeen, UsualTime};
use crate::access::limit::rate::shared::{RateError, SharedLimits};
use crate::access::limit::rate::{LimitSubject, LimitTarget};
use crate::access::policy::{NameScope, PolicyVerdict};
use crate::catalog::lists;
use crate::clock;
use crate::context::audit::AuditedDecision;
use crate::context::call::Call;
use crate::line::intake::Intake;
use crate::line::message::Message;
use crate::redis::Redis;
use crate::redis::lease::RateLease;
use crate::snapshot::Endpoint;
use crate::upstream::{Upstream, pins};
use protocol::agreement;
use protocol::arguments::CallArguments;
use protocol::error::{ClientError, Error, GatewayError, PolicyError};
use protocol::head::Head;
use protocol::method::{Method, NameSource};
use protocol::route::{Kind, NoRoute, Route};
use protocol::version::Era;

/// A route that a call may take now. Only [`Proxy::admit_call`] and [`Proxy::admit_arguments`] make one, so that no call
/// goes out that was not admitted.
pub(super) struct Admitted<'n>(Route<'n>);

/// A route that a call may take, as far as that can be said without its arguments.
pub(super) struct AdmittedByName<'n> {
    route: Route<'n>,
    /// Rules look at its arguments.
    pub(super) is_unjudged: bool,
    /// It is counted once its arguments were read.
    pub(super) is_uncounted: bool,
}

impl<'n> AdmittedByName<'n> {
    /// For [`Proxy::admit_arguments`] alone.
    pub(super) fn with_arguments(self) -> Admitted<'n> {
        Admitted(self.route)
    }
}

impl<'n> std::ops::Deref for AdmittedByName<'n> {
    type Target = Route<'n>;

    fn deref(&self) -> &Route<'n> {
        &self.route
    }
}

impl<'n> std::ops::Deref for Admitted<'n> {
    type Target = Route<'n>;

    fn deref(&self) -> &Route<'n> {
        &self.0
    }
}

/// A name, as the lists have it that are a caller's own.
pub(super) enum OwnName<'n> {
    Found(Route<'n>),
    /// All upstreams were listed, for this caller where it has lists of its own, and none has it.
    Absent,
    Unknown,
}

impl Proxy {
    /// Asks the limits of rate for what was posted by a caller whose credentials were checked.
    pub(super) async fn admit_posted(
        &self,
        cx: &mut RequestContext<'_>,
        intake: &mut Intake,
    ) -> Result<(), Error> {
        let admitted = self.admit_message(cx).await;
        // How a refusal is shown depends on the era, which the body may be needed for.
        if admitted.is_err()
            && cx.head.era().is_none()
            && let Some(body) = Box::pin(intake.collect_refused()).await
        {
            let mut message = Message::unread(body);
            let reader = self.reader(cx.view, cx.served);
            let _ = Box::pin(reader.read(cx.head, &mut message, &mut cx.call.seen)).await;
        }
        admitted
    }

    /// Asks the limits of rate for one message, whatever it holds.
    pub(super) async fn admit_message(&self, cx: &RequestContext<'_>) -> Result<(), Error> {
        let rates = &cx.view.snapshot.rates;
        if !rates.count_requests() {
            return Ok(());
        }
        let subject = subject(cx, None);
        self.admit(|now, common| rates.admit_request(&subject, now, common)).await
    }

    /// The one way to an upstream: [`admit_by_name`](Self::admit_by_name), then
    /// [`admit_arguments`](Self::admit_arguments).
    pub(super) async fn admit_call<'n>(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: Route<'n>,
    ) -> Result<Admitted<'n>, Error> {
        let by_name = self.admit_by_name(cx, message.method, route).await?;
        self.admit_arguments(cx, message, by_name).await
    }

    /// Asks whether the tool may be called, the limits of rate, and whether there is room to wait for the upstream, should
    /// that have as many calls as it may.
    pub(super) async fn admit_by_name<'n>(
        &self,
        cx: &RequestContext<'_>,
        method: Method,
        route: Route<'n>,
    ) -> Result<AdmittedByName<'n>, Error> {
        let upstream = &cx.view.snapshot.upstreams[cx.endpoint.members[route.member]];
        if method == Method::ToolsCall && upstream.pins.is_some() {
            // A tool whose definition changed may not be called until that is approved.
            Box::pin(pins::check(upstream, &route.inner, &self.worker.state.pins_due)).await?;
        }
        if method == Method::ToolsCall && upstream.listing.left_out.are_any() {
            Box::pin(self.refuse_left_out(cx, upstream, &route)).await?;
        }
        let rates = &cx.view.snapshot.rates;
        let tool = (method == Method::ToolsCall).then_some(&*route.inner);
        let is_unjudged = match tool {
            Some(tool) => judges_arguments(cx, route.member, tool)?,
            None => false,
        };
        let mut is_uncounted = false;
        if rates.count_calls() {
            let subject = subject_of_call(cx, upstream, tool, None);
            // What rules refuse takes nothing from any limit of calls.
            is_uncounted = is_unjudged || rates.read_arguments(&subject);
            if !is_uncounted {
                self.admit(|now, common| rates.admit_call(&subject, now, common)).await?;
            }
        }
        match &upstream.gate {
            Some(gate) if gate.would_refuse(cx.call.payer(), clock::now()) => {
                gate.series.refused.inc();
                Err(PolicyError::Concurrency.into())
            }
            _ => Ok(AdmittedByName { route, is_unjudged, is_uncounted }),
        }
    }

    /// A tool that is left out of every list is none. The server may have mended it since it was listed.
    #[cold]
    async fn refuse_left_out(
        &self,
        cx: &RequestContext<'_>,
        upstream: &Arc<Upstream>,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let left_out = &upstream.listing.left_out;
        if !left_out.has(&route.inner) {
            return Ok(());
        }
        lists::refetch_tools(&self.worker, cx.view, upstream).await;
        if left_out.has(&route.inner) {
            let name = cx.endpoint.naming.spell(Kind::Tool, route.member, &route.inner).into_owned();
            return Err(ClientError::UnknownName { kind: Kind::Tool.word(), name }.into());
        }
        // As it is now nobody has looked at it before.
        if upstream.pins.is_some() {
            pins::check(upstream, &route.inner, &self.worker.state.pins_due).await?;
        }
        Ok(())
    }

    /// Asks limits, and waits where a shared one must be asked for elsewhere; then, no longer than that may take.
    pub(super) async fn admit(
        &self,
        ask: impl Fn(Instant, Option<SharedLimits<'_>>) -> Result<(), RateError>,
    ) -> Result<(), Error> {
        let shared = self.worker.state.shared.as_deref();
        let asked = ask(clock::now(), shared.map(|shared| SharedLimits { shared, is_late: false }));
        match (asked, shared) {
            (Ok(()), _) => Ok(()),
            (Err(RateError::Wait(lease)), Some(shared)) => Box::pin(wait(lease, shared, ask)).await,
            (Err(stop), _) => Err(stopped(stop)),
        }
    }

    /// One of the calls that an upstream may have at once; waits for it where it has as many as it may. After the body
    /// was read: who sends slowly keeps nobody from calling, and who leaves is noticed.
    pub(super) async fn acquire_slot(
        upstream: &Upstream,
        call: &Call,
    ) -> Result<Option<Arc<CallPlace>>, Error> {
        let Some(gate) = &upstream.gate else { return Ok(None) };
        let now = clock::now();
        let permit = match gate.enter(call.payer(), now) {
            Ok(Admission::Passed(permit)) => Ok(permit),
            Ok(Admission::Waits(waiting)) => {
                let permit = waiting.turn().await;
                gate.series.waited.observe(clock::since(now).as_secs_f64());
                permit
            }
            Err(refused) => Err(refused),
        };
        let permit = permit.map_err(|_| {
            gate.series.refused.inc();
            PolicyError::Concurrency
        })?;
        let Some(endpoint) = &call.endpoint else { return Err(ClientError::NoEndpoint.into()) };
        let (series, max) = (Arc::clone(&endpoint.series), upstream.config.response_timeout);
        let usual = UsualTime { series, tool: call.tool, max };
        let end_seen = match () {
            () if upstream.is_child() => EndSeen::ByAnswer,
            () if upstream.lacks(call.seen.era) => EndSeen::Bridged,
            () => EndSeen::Never,
        };
        Ok(Some(CallPlace::new(permit, usual, end_seen)))
    }

    /// Where headers alone lead, and that the call may go there. `Ok(None)`: they do not say.
    pub(super) async fn route_by_headers<'r>(
        &self,
        cx: &mut RequestContext<'r>,
        intake: &mut Intake,
    ) -> Result<Option<AdmittedByName<'r>>, Error> {
        let (head, method) = (cx.head, cx.call.seen.method);
        let found = async {
            agreement::check_headers(head, method)?;
            let Some((kind, name)) = name_in_headers(head) else { return Ok(None) };
            let route = self.resolve(cx, kind, name).await?;
            self.admit_by_name(cx, method, route).await.map(Some)
        };
        let found = found.await;
        // Errors that come earlier in the order win, as far as the body is at hand.
        if found.is_err()
            && let Some(body) = Box::pin(intake.collect_refused()).await
        {
            let mut message = Message::unread(body);
            let reader = self.reader(cx.view, cx.served);
            Box::pin(reader.read(head, &mut message, &mut cx.call.seen)).await?;
        }
        found
    }

    /// [`find_route`](Self::find_route), once what is not known here yet had a moment to become known.
    pub(super) async fn resolve<'n>(
        &self,
        cx: &RequestContext<'_>,
        kind: Kind,
        public: &'n str,
    ) -> Result<Route<'n>, Error> {
        if kind == Kind::Task {
            Box::pin(self.learn_tasks(cx, std::iter::once(public))).await;
        }
        match self.find_route(cx, kind, public) {
            Err(Error::Gateway(GatewayError::NamesUnknown)) => {
                self.settle_names(cx.endpoint).await;
                let found = self.find_route(cx, kind, public);
                if found.is_ok() { found } else { Box::pin(self.or_own(cx, kind, public, found)).await }
            }
            found @ Err(Error::Client(ClientError::UnknownName { .. })) => {
                Box::pin(self.or_own(cx, kind, public, found)).await
            }
            found => found,
        }
    }

    /// A name that not everybody is shown may be shown to this caller alone.
    #[cold]
    async fn or_own<'n>(
        &self,
        cx: &RequestContext<'_>,
        kind: Kind,
        public: &'n str,
        found: Result<Route<'n>, Error>,
    ) -> Result<Route<'n>, Error> {
        let own = match self.find_own(cx, kind, public).await? {
            OwnName::Found(own) => own,
            OwnName::Absent => {
                return Err(ClientError::UnknownName { kind: kind.word(), name: public.to_owned() }.into());
            }
            OwnName::Unknown => return found,
        };
        if self.worker.audit.wants_all() {
            let (endpoint, caller) = (&***cx.endpoint, &**cx.caller()?);
            let directory = endpoint.names.directory();
            let place = NameScope { naming: &endpoint.naming, directory: &directory };
            let principal = &caller.principal;
            let decision = AuditedDecision { principal, endpoint, member: own.member, kind, name: public };
            self.note_allowed(caller, place, &decision, &own.inner);
        }
        Ok(own)
    }

    /// Where a public name leads this caller. What it may not use does not exist for it, unless a scope would help; nor
    /// does a task of another.
    pub(super) fn find_route<'n>(
        &self,
        cx: &RequestContext<'_>,
        kind: Kind,
        public: &'n str,
    ) -> Result<Route<'n>, Error> {
        let (endpoint, caller) = (&***cx.endpoint, &**cx.caller()?);
        let route = self.find_usable(endpoint, caller, kind, public)?;
        if kind == Kind::Task && endpoint.binds_tasks {
            return self.find_task(endpoint, caller, &route, public);
        }
        Ok(route)
    }

    /// Writes down that a caller may use something, unless its arguments decide as well: then it is not decided yet.
    fn note_allowed(
        &self,
        caller: &Caller,
        place: NameScope<'_>,
        decision: &AuditedDecision<'_>,
        inner: &str,
    ) {
        let AuditedDecision { kind, member, .. } = *decision;
        if kind != Kind::Tool || !caller.class.reads_arguments(place, member, inner) {
            self.worker.audit.write(decision, &caller.class.judge(place, kind, member, inner));
        }
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
                self.note_allowed(caller, place, &decision, &route.inner);
            }
            return Ok(route);
        }
        let verdict = class.judge(place, kind, route.member, &route.inner);
        audit.write(&decision, &verdict);
        match verdict {
            PolicyVerdict::NotYetLearned => Err(GatewayError::NamesUnknown.into()),
            PolicyVerdict::Scope { required, .. } => match principal.step_up_to_one(&required) {
                Some(required) => Err(PolicyError::Scope { required }.into()),
                None => Err(unknown().into()),
            },
            PolicyVerdict::Allowed(_) | PolicyVerdict::Hidden(_) => Err(unknown().into()),
        }
    }
}

/// Whether the rules for this caller look at what a tool is called with.
fn judges_arguments(cx: &RequestContext<'_>, member: usize, tool: &str) -> Result<bool, Error> {
    let class = &cx.caller()?.class;
    if class.arguments().is_empty() {
        return Ok(false);
    }
    let directory = cx.endpoint.names.directory();
    let place = NameScope { naming: &cx.endpoint.naming, directory: &directory };
    Ok(class.reads_arguments(place, member, tool))
}

async fn wait(
    mut lease: Arc<RateLease>,
    shared: &Redis,
    ask: impl Fn(Instant, Option<SharedLimits<'_>>) -> Result<(), RateError>,
) -> Result<(), Error> {
    let deadline = clock::now() + shared.timeout();
    loop {
        let is_late = tokio::time::timeout_at(deadline.into(), lease.answered()).await.is_err();
        let now = clock::now();
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

fn subject<'a>(cx: &'a RequestContext<'_>, target: Option<LimitTarget<'a>>) -> LimitSubject<'a> {
    let (principal, address) = (cx.call.principal(), cx.call.client_address());
    LimitSubject { principal, address, endpoint: &cx.endpoint.config.name, target }
}

/// What limits may tell a call by on its way to an upstream.
pub(super) fn subject_of_call<'a>(
    cx: &'a RequestContext<'_>,
    upstream: &'a Upstream,
    tool: Option<&'a str>,
    arguments: Option<&'a CallArguments<'a>>,
) -> LimitSubject<'a> {
    subject(cx, Some(LimitTarget { upstream: &upstream.config.name, tool, arguments }))
}

/// What headers name, in the era that has it there.
fn name_in_headers<'h>(head: &'h Head<'_>) -> Option<(Kind, &'h str)> {
    head.version.as_str().filter(|version| Era::of_version(version) == Some(Era::Modern))?;
    let method = Method::of(head.method.as_str()?);
    let kind = match (method, method.name_source()?) {
        (Method::PromptsGet, _) => Kind::Prompt,
        (_, NameSource::Name) => Kind::Tool,
        (_, NameSource::Uri) => Kind::Resource,
        (_, NameSource::TaskId) => Kind::Task,
    };
    Some((kind, head.decoded_name.as_deref()?))
}
