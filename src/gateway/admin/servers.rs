//! Endpoints and upstreams as `/status` and `/readyz` tell them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounter, IntGauge};
use status::{
    BridgeStatus, CallSlots, ChildrenStatus, EndpointStatus, FaultStatus, LongNames, PinStatus, Recent,
    ReplicaStatus, Seen, SeenCalls, StartStatus, UpstreamState, UpstreamStatus, VaryingTool,
};

use super::list_cuts::ListCuts;
use super::samples::{Samples, Subject};
use super::status::{count, unix_s};
use crate::clock;
use crate::context::state::State;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::lists::cache::Scope;
use crate::tables::lists::part::ListPart;
use crate::tables::lists::{CatalogQuery, List};
use crate::telemetry::metrics::declare::LabelValues as _;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::telemetry::totals::{Counts, Total, Totals};
use crate::upstream::fault::{Fault, NotedFault};
use crate::upstream::pins::Pins;
use crate::upstream::start_state::StartState;
use crate::upstream::stdio::Children;
use crate::upstream::{Replica, Transport, Upstream, UpstreamId};
use config::{AuthMethod, Names};
use protocol::route::Kind;
use protocol::version::Eras;

/// Tools whose definitions wait for approval that are named.
const WAITING_MAX: usize = 20;
/// The time for which the end of a process is the reason why there is no list, where nobody asks again.
const ENDS_BELIEVED_S: u64 = 60;

/// What was found out beforehand.
pub(super) struct StatusSources<'s> {
    /// Lists of tools.
    pub(super) tools: &'s Tools,
    /// Lists that were cut off.
    pub(super) cuts: &'s ListCuts,
    /// What was counted; `None`: nothing is measured.
    pub(super) figures: Option<&'s Counts>,
    /// What went on lately.
    pub(super) history: &'s Samples,
    /// Counts of a minute ago.
    pub(super) before: Option<&'s Seen>,
}

impl StatusSources<'_> {
    /// What was counted of one subject; nothing where nothing is measured.
    fn figures(
        &self,
        totals: impl Fn(&Counts) -> &Totals,
        name: &str,
        subject: Subject<'_>,
    ) -> status::Figures {
        let Some(all) = self.figures else { return status::Figures::default() };
        let none = Total::default();
        figures(totals(all).get(name).unwrap_or(&none), self.history.recent(subject))
    }
}

/// Endpoints without a healthy upstream, a line each, with what is wrong with these.
pub(super) fn unhealthy(state: &State) -> Vec<String> {
    let snapshot = state.snapshot.load_full();
    let upstreams = states(&snapshot);
    let line = |endpoint: &Arc<Endpoint>| {
        let members: Vec<_> = members(endpoint, &upstreams).collect();
        let is_lost = !members.is_empty() && members.iter().all(|one| one.healthy == Some(false));
        let why = |one: &&UpstreamStatus| {
            let why = one.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{} {}{why}", one.name, one.state.as_deref().unwrap_or_default())
        };
        let whys: Vec<String> = members.iter().map(why).collect();
        is_lost.then(|| format!("{}: no healthy upstream ({})", endpoint.config.name, whys.join("; ")))
    };
    snapshot.endpoints.iter().filter_map(line).collect()
}

/// Brings the metrics up to date that tell how upstreams are: calls get through to them, their programs end again and again.
pub(crate) fn show_states(state: &State) {
    let snapshot = state.snapshot.load();
    for children in snapshot.upstreams.iter().filter_map(|upstream| upstream.children()) {
        children.series().crash_loop.set(children.crash_loop_since_s().is_some().into());
    }
    let upstreams = states(&snapshot);
    let now_s = clock::now_s();
    let found: Vec<_> = upstreams.iter().map(|one| (one, status::standing(one, None, now_s))).collect();
    let series = found
        .iter()
        .filter(|(_, at)| at.state != UpstreamState::Off)
        .map(|(one, at)| ([&*one.name, at.state.word(), &*at.cause], i64::from(at.is_usable)));
    state.metrics.replicas.usable.replace(series);
}

/// The upstreams of an endpoint that are on.
fn members<'s>(
    endpoint: &'s Endpoint,
    upstreams: &'s [UpstreamStatus],
) -> impl Iterator<Item = &'s UpstreamStatus> {
    endpoint.members.iter().filter_map(|at| upstreams.get(*at))
}

/// Upstreams that the gateway has to list before it is ready.
pub(super) fn unlisted(state: &State) -> Vec<String> {
    let snapshot = state.snapshot.load_full();
    let unlisted = snapshot.unlisted().map(|upstream| upstream.config.name.clone());
    unlisted.collect()
}

/// All endpoints, in configured order.
pub(super) fn endpoints(
    state: &State,
    snapshot: &Snapshot,
    seen: &StatusSources<'_>,
    upstreams: &[UpstreamStatus],
) -> Vec<EndpointStatus> {
    let mut lists: HashMap<u64, usize> = HashMap::new();
    for (key, merged) in &state.catalog.merged {
        if key.kind == CatalogQuery::List(List::Tools) {
            let longest = lists.entry(key.endpoint).or_default();
            *longest = merged.bytes().max(*longest);
        }
    }
    let one = |endpoint: &Arc<Endpoint>| {
        let members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
        let known: Vec<_> = members.filter_map(|upstream| seen.tools.get(&upstream.id)).collect();
        // What crosses untouched is kept as its upstream's.
        let untouched = || known.iter().map(|known| known.bytes).sum::<usize>();
        let path = &endpoint.config.name;
        let names = match endpoint.config.names {
            Names::Transparent => "transparent",
            Names::Prefixed => "prefixed",
            Names::Bare => "bare",
        };
        EndpointStatus {
            path: path.clone(),
            eras: eras(Some(endpoint.eras())),
            upstreams: [&endpoint.config.upstreams[..], &endpoint.config.off[..]].concat(),
            names: Some(names.to_owned()),
            auth: Some(endpoint.config.auth.iter().copied().map(auth_method).collect()),
            healthy: is_healthy(endpoint, upstreams),
            down_since_s: endpoint_down_since_s(endpoint, upstreams),
            long_names: long_names(endpoint, snapshot, seen.tools),
            tools: Some(count(known.iter().map(|known| known.count).sum::<usize>())),
            list_bytes: Some(count(lists.get(&endpoint.id).copied().unwrap_or_else(untouched))),
            figures: seen.figures(|figures| &figures.endpoints, path, Subject::Endpoint(path)),
        }
    };
    snapshot.endpoints.iter().map(one).collect()
}

/// An upstream that is told nothing.
fn off(name: &str) -> UpstreamStatus {
    let mut upstream =
        UpstreamStatus { name: name.to_owned(), enabled: Some(false), ..UpstreamStatus::default() };
    say_state(&mut upstream, None);
    upstream
}

/// The states of all upstreams, without their figures.
fn states(snapshot: &Snapshot) -> Vec<UpstreamStatus> {
    let one = |upstream: &Arc<Upstream>| {
        let mut told = known(upstream);
        say_state(&mut told, None);
        told
    };
    snapshot.upstreams.iter().map(one).collect()
}

/// All that is known of an upstream by which its state is told.
fn known(upstream: &Upstream) -> UpstreamStatus {
    let (transport, children) = match &upstream.transport {
        Transport::Http(_) => ("http", None),
        Transport::Stdio(children) => ("stdio", Some(child_counts(children))),
    };
    UpstreamStatus {
        name: upstream.config.name.clone(),
        transport: transport.to_owned(),
        eras: eras(upstream.eras()),
        enabled: Some(true),
        asked: Some(upstream.facts.known().was_tried),
        forwards_credentials: Some(forwards_credentials(upstream)),
        start: start(upstream),
        fault: upstream.own_fault().map(|(stands, noted)| fault(&noted, stands)),
        list_fault: list_fault(upstream, clock::now_s()),
        lists_kept_s: upstream.listing.kept_s().filter(|_| !upstream.rests()),
        last_lines: last_lines(upstream),
        down_since_s: down_since_s(upstream),
        replicas: upstream.replicas.load().iter().map(|one| replica(one, upstream)).collect(),
        children,
        ..UpstreamStatus::default()
    }
}

fn child_counts(children: &Children) -> ChildrenStatus {
    let series = children.series();
    ChildrenStatus {
        running: count(series.running.get()),
        serving: count(children.serving()),
        starts: series.starts.ok.get(),
        crashes: series.crashes.get(),
        ended_last_hour: children.ended_last_hour(),
        crash_loop: children.crash_loop_since_s().is_some(),
        ends_at: children.ends_at().map(|question| question.label().to_owned()),
    }
}

/// All upstreams, in configured order.
pub(super) fn upstreams(state: &State, snapshot: &Snapshot, seen: &StatusSources<'_>) -> Vec<UpstreamStatus> {
    let one = |upstream: &Arc<Upstream>| {
        let (name, series) = (&upstream.config.name, &upstream.series);
        let tools = seen.tools.get(&upstream.id);
        UpstreamStatus {
            tools: tools.map(|known| count(known.count)),
            list_bytes: tools.map(|known| count(known.bytes)),
            lists_cut: seen.cuts.get(&upstream.id).cloned().unwrap_or_default(),
            connections: count(series.connections.get()),
            connects_failed: series.connects.error.get(),
            retries: series.retries.get(),
            breaker_openings: series.breaker_openings.get(),
            sessions_opened: series.sessions_opened.get(),
            sessions_lost: series.sessions_lost.get(),
            subscription_streams: count(series.subscription_streams.get()),
            concurrency: call_slots(upstream),
            bridge: upstream.is_bridged().then(|| bridge(&state.metrics.bridge.of(name))),
            pins: upstream.pins.as_ref().map(|pins| {
                let series = state.metrics.pins.of(name).states;
                PinStatus {
                    pinned: count(series.pinned.get()),
                    changed: count(series.changed.get()),
                    new: count(series.new.get()),
                    unreadable: series.unreadable.get() == 1,
                    unwritable: series.unwritable.get() == 1,
                    unasked: series.unasked.get() == 1,
                    unshared: series.unshared.get() == 1,
                    waiting: pins.waiting(WAITING_MAX),
                    varying: varying(pins),
                }
            }),
            figures: seen.figures(|figures| &figures.upstreams, name, Subject::Upstream(name)),
            ..known(upstream)
        }
    };
    let mut all: Vec<UpstreamStatus> = snapshot.upstreams.iter().map(one).collect();
    for upstream in &mut all {
        let before = seen.before.and_then(|before| before.upstreams.get(&upstream.name));
        say_state(upstream, before);
    }
    // One that is off has no place among the others: endpoints find their upstreams by number.
    all.extend(snapshot.off.iter().map(|name| off(name)));
    all
}

fn varying(pins: &Pins) -> Vec<VaryingTool> {
    let varying = pins.varying(WAITING_MAX).into_iter();
    varying.map(|(name, member)| VaryingTool { name, member }).collect()
}

fn call_slots(upstream: &Upstream) -> Option<CallSlots> {
    let (gate, bounds) = (upstream.gate.as_ref()?, upstream.config.concurrency.as_ref()?);
    let counts = gate.counts();
    Some(CallSlots {
        max: count(bounds.calls_max),
        in_use: count(counts.in_use),
        waiting: count(counts.waiting),
        refused: gate.series.refused.get(),
    })
}

fn bridge(series: &BridgeSeries) -> BridgeStatus {
    BridgeStatus {
        requests: series.requests.each().map(IntCounter::get).sum(),
        input_requests: series.input_requests.each().map(IntCounter::get).sum(),
        sessions: count(series.sessions.each().map(IntGauge::get).sum::<i64>()),
        suspended: count(series.suspended.get()),
    }
}

/// Says how an upstream is by what is known of it, and by its calls of a minute ago.
fn say_state(upstream: &mut UpstreamStatus, before: Option<&SeenCalls>) {
    let found = status::standing(upstream, before, clock::now_s());
    let is_starting = found.state == UpstreamState::Starting;
    let is_reached = found.is_usable || is_starting || found.state == UpstreamState::NotListed;
    upstream.healthy = (found.state != UpstreamState::Off).then_some(is_reached);
    upstream.state = Some(found.state.word().to_owned());
    upstream.state_since_s = found.since_s;
    upstream.usable = Some(found.is_usable);
    upstream.why = found.why;
    // One that is not usable is down since its fault began, unless a breaker opened later.
    let is_lost = upstream.healthy == Some(false);
    upstream.down_since_s = upstream.down_since_s.or(found.since_s).filter(|_| is_lost);
}

/// True if callers' own credentials go to it.
fn forwards_credentials(upstream: &Upstream) -> bool {
    !upstream.access.forward.is_empty()
}

/// The progress of a program that starts.
fn start(upstream: &Upstream) -> Option<StartStatus> {
    let state = &upstream.starts()?.state();
    let timeout_s = upstream.config.command.as_ref().map(|command| command.start_timeout.as_secs());
    let is_tried = upstream.facts.known().was_tried;
    let (phase, since) = match state {
        StartState::Queued { since } => ("queued", since),
        StartState::Running { since } => ("running", since),
        // It has refused one era, and has not answered in the other yet.
        StartState::Up { since } if !is_tried => ("running", since),
        StartState::NotStarted | StartState::Up { .. } | StartState::Ended { .. } | StartState::Failed(_) => {
            let phase = status::FIRST_CALL.to_owned();
            let rests = StartStatus { phase, ..StartStatus::default() };
            return upstream.rests().then_some(rests);
        }
    };
    Some(StartStatus { phase: phase.to_owned(), since_s: ago_s(clock::since(*since)), timeout_s })
}

/// Why one of its lists cannot be had: that of its tools before others. One that is believed no more hides none that stands.
fn list_fault(upstream: &Upstream, now_s: u64) -> Option<FaultStatus> {
    let faults = upstream.listing.faults();
    faults.iter().find_map(|(list, noted)| {
        let list = List::ALL.get(usize::from(*list)).map(|list| list.method().label().to_owned());
        told_of_list(upstream, list, noted, now_s)
    })
}

/// The fault of one list as it is told now; `None`: it is no longer.
fn told_of_list(
    upstream: &Upstream,
    list: Option<String>,
    noted: &NotedFault,
    now_s: u64,
) -> Option<FaultStatus> {
    let told = FaultStatus { list, ..fault(noted, true) };
    let Some(children) = upstream.children().filter(|_| noted.fault == Fault::Closed) else {
        return Some(told);
    };
    // One that does not start by now ends at no list.
    if children.does_not_start() {
        return None;
    }
    // A list during which a process ended, and that nobody asks for again, is believed for a while.
    let is_recent = now_s.saturating_sub(noted.at_s) < ENDS_BELIEVED_S;
    let ended = children.fault().latest().map(|noted| fault(&noted, true));
    let ended = ended.filter(|_| is_recent || children.crash_loop_since_s().is_some())?;
    Some(FaultStatus { why: ended.why, cause: ended.cause, ..told })
}

/// The last words of a program that ended unasked.
fn last_lines(upstream: &Upstream) -> Vec<String> {
    let Some(children) = upstream.children() else { return Vec::new() };
    let ended = children.fault().latest();
    ended.map(|_| children.last_lines()).unwrap_or_default()
}

fn fault(noted: &NotedFault, stands: bool) -> FaultStatus {
    let NotedFault { fault, at_s, first_s, .. } = noted;
    FaultStatus {
        why: fault.to_string(),
        kind: fault.kind().to_owned(),
        cause: fault.cause(),
        http_status: fault.status().map(|status| status.as_u16().into()),
        at_s: *at_s,
        since_s: *first_s,
        stands,
        list: None,
    }
}

fn replica(replica: &Replica, upstream: &Upstream) -> ReplicaStatus {
    ReplicaStatus {
        fault: upstream.fault_at(replica).map(|(stands, noted)| fault(&noted, stands)),
        address: replica.label.to_string(),
        url: replica.url(),
        breaker: replica.breaker.0.state().label().to_owned(),
        down_since_s: replica.down_for(clock::now()).and_then(ago_s),
        in_flight: replica.load.in_flight(),
        answered: replica.load.answered(),
        resolved: Some(replica.address.is_some()),
    }
}

/// What an upstream's list of tools has come to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) count: usize,
    pub(super) bytes: usize,
    pub(super) part: Arc<ListPart>,
}

/// Lists of tools by upstream.
pub(super) type Tools = HashMap<UpstreamId, Known>;

/// The longest lists of tools that are kept, by upstream. Those that one client alone is shown are for it alone.
pub(super) fn tools(state: &State) -> Tools {
    let mut known = Tools::new();
    for (key, part) in &state.catalog.parts {
        if key.kind == CatalogQuery::List(List::Tools) && key.scope == Scope::Gateway {
            let pages = &part.content.pages;
            let found = Known {
                count: pages.iter().map(|page| page.items.len()).sum(),
                bytes: pages.iter().map(|page| page.body.len()).sum(),
                part: Arc::clone(&part),
            };
            let longest = known.entry(key.upstream).or_insert_with(|| found.clone());
            if found.bytes > longest.bytes {
                *longest = found;
            }
        }
    }
    known
}

/// `None`: none of its upstreams is on.
fn is_healthy(endpoint: &Endpoint, upstreams: &[UpstreamStatus]) -> Option<bool> {
    let mut members = members(endpoint, upstreams).peekable();
    members.peek()?;
    Some(members.any(|upstream| upstream.healthy != Some(false)))
}

/// Since when an upstream is not healthy, in seconds since 1970.
fn down_since_s(upstream: &Upstream) -> Option<u64> {
    let crashing = match &upstream.transport {
        Transport::Stdio(children) => children.crash_loop_since_s(),
        Transport::Http(_) => None,
    };
    let replicas = upstream.replicas.load();
    let (now, is_out) = (clock::now(), upstream.is_out_of_order());
    // Since the last of them went.
    let last = is_out.then(|| replicas.iter().filter_map(|replica| replica.down_for(now)).min()).flatten();
    crashing.into_iter().chain(last.and_then(ago_s)).min()
}

/// Since when none of its upstreams is healthy.
fn endpoint_down_since_s(endpoint: &Endpoint, upstreams: &[UpstreamStatus]) -> Option<u64> {
    let since: Option<Vec<u64>> =
        members(endpoint, upstreams).map(|upstream| upstream.down_since_s).collect();
    since?.into_iter().max()
}

/// Names that the interfaces of models refuse; `None`: there is none.
fn long_names(endpoint: &Endpoint, snapshot: &Snapshot, tools: &Tools) -> Option<LongNames> {
    let mut found = LongNames::default();
    for (member, at) in endpoint.members.iter().enumerate() {
        let known = snapshot.upstreams.get(*at).and_then(|upstream| tools.get(&upstream.id));
        let names = known.iter().flat_map(|known| known.part.content.named(List::Tools));
        for (name, _) in names {
            let Some(public) = endpoint.naming.public(Kind::Tool, member, &name) else { continue };
            found.add(&public);
        }
    }
    (found.with_host > 0).then_some(found)
}

/// So long ago, in seconds since 1970.
fn ago_s(span: Duration) -> Option<u64> {
    clock::calendar().checked_sub(span).map(unix_s)
}

fn eras(eras: Option<Eras>) -> Vec<String> {
    let named = |eras: Eras| [(eras.modern, "modern"), (eras.legacy, "legacy")];
    let spoken = eras.map(named).into_iter().flatten().filter(|(is_spoken, _)| *is_spoken);
    spoken.map(|(_, era)| era.to_owned()).collect()
}

fn auth_method(method: AuthMethod) -> String {
    method.label().to_owned()
}

/// What was counted; `recent` is what went on lately.
pub(super) fn figures(total: &Total, recent: Recent) -> status::Figures {
    status::Figures {
        calls: Some(total.calls),
        errors: Some(total.errors),
        seconds: total.seconds,
        p50_s: total.quantile(50),
        p90_s: total.quantile(90),
        p99_s: total.quantile(99),
        reasons: total.reasons.clone(),
        recent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn the_end_of_a_process_that_is_believed_no_more_hides_no_other_list() {
        let text = "[listener]\naddress = \"127.0.0.1:1\"\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"u\"]\n\
                    [upstream.u]\ncommand = [\"cat\"]\n";
        let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("f", text)));
        let snapshot =
            Snapshot::build(&config, &Metrics::new(10).expect("metrics"), None).expect("a snapshot");
        let upstream = &snapshot.upstreams[0];
        let told = |now_s: u64| list_fault(upstream, now_s).map(|told| (told.list, told.why));
        let now_s = clock::now_s();
        assert_eq!(told(now_s), None);
        let refused = Fault::Other("no".into());
        upstream.listing.note_fault(0, 1, Fault::Closed);
        upstream.listing.note_fault(1, 2, refused.clone());
        upstream.children().expect("a program").fault().note(Fault::Closed, 0, true);
        let of =
            |list: List, fault: &Fault| Some((Some(list.method().label().to_owned()), fault.to_string()));
        assert_eq!(told(now_s), of(List::ALL[0], &Fault::Closed));
        assert_eq!(told(now_s + ENDS_BELIEVED_S + 30), of(List::ALL[1], &refused));
        upstream.listing.note_listed(1, 2);
        assert_eq!(told(now_s + ENDS_BELIEVED_S + 30), None);
    }
}
