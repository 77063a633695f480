//! Calls that wait for their client's answers.
//!
//! A call that waits is in a table that all threads share, by a number that only the gateway can read out of the
//! `requestState` its client holds. Whoever comes with it takes the call out of the table, so that it goes on once; the
//! session it runs on is told by its channel ([`super::exclusive_session`]), on whichever thread that is.
//!
//! Invariant: a call is taken out by its own principal alone, with the same request, before it expires.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::answers;
use super::call::ModernCall;
use super::call_reply::{self, CallReplySink, HeadPatience};
use super::exclusive_session::SessionCommand;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares};
use crate::bridge::{Bridge, BridgedServer};
use crate::clock::now_s;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::exchange::{Reply, UpstreamClient};
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch};
use protocol::level::Level;
use tokens::request_state::{self, Binding, RequestState};
use tokens::sealing::{NONCE_BYTES, SealingKeys};

/// What the client of a call that does not wait is told.
const WHY_REJECTED: &str = "no call waits for this requestState any more: call again without requestState";

/// Log lines that wait; of more, the oldest are dropped.
const LATER_MAX: usize = 16;
const LATER_BYTES_MAX: usize = 4 * 1024;

/// The calls of one upstream that wait.
#[derive(Debug)]
pub(crate) struct SuspendedCalls {
    seal: StateSeal,
    places: Arc<Shares>,
    table: Mutex<SuspendedTable>,
}

/// The key that seals `requestState`: this process's own, which ends with it as the calls do.
#[derive(Debug, Default)]
struct StateSeal(OnceLock<Option<SealingKeys>>);

#[derive(Debug, Default)]
struct SuspendedTable {
    next: u64,
    calls: HashMap<u64, SuspendedEntry>,
}

#[derive(Debug)]
struct SuspendedEntry {
    binding: Binding,
    /// Its place among all of them.
    _place: Share,
    commands: mpsc::Sender<SessionCommand>,
}

/// There are as many as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A call that waits. Dropped, it does so no longer.
pub(crate) struct Suspension {
    pub(crate) bridge: Arc<Bridge>,
    number: u64,
    pub(crate) until: Instant,
    _counted: GaugeGuard,
}

impl Suspension {
    pub(crate) fn new(bridge: &Arc<Bridge>, number: u64, until: Instant) -> Self {
        let counted = GaugeGuard::new(&bridge.series.suspended);
        Self { bridge: Arc::clone(bridge), number, until, _counted: counted }
    }

    /// Nobody can go on with it from now on. False: somebody does already.
    pub(crate) fn leave(&self) -> bool {
        self.bridge.as_modern.suspended.leave(self.number)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        self.leave();
    }
}

impl StateSeal {
    /// Seals a state. `None` only if the system has no randomness.
    fn seal(&self, stated: RequestState) -> Option<String> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        request_state::seal(self.keys()?, nonce, stated)
    }

    /// Opens a state. `None`: it was not made here, or was changed.
    fn open(&self, state: &str) -> Option<RequestState> {
        request_state::open(self.keys()?, state)
    }

    fn keys(&self) -> Option<&SealingKeys> {
        self.0.get_or_init(|| SealingKeys::ephemeral().ok()).as_ref()
    }
}

/// Log lines for a client that is about to come back.
#[derive(Default)]
pub(crate) struct LaterLines(pub(crate) VecDeque<(Option<Level>, Bytes)>);

impl LaterLines {
    pub(crate) fn push(&mut self, level: Option<Level>, line: &Bytes) {
        // Kept alive by nothing but what it says itself.
        self.0.push_back((level, Bytes::copy_from_slice(line)));
        let bytes = |lines: &VecDeque<(_, Bytes)>| lines.iter().map(|(_, line)| line.len()).sum::<usize>();
        while self.0.len() > LATER_MAX || bytes(&self.0) > LATER_BYTES_MAX {
            self.0.pop_front();
        }
    }
}

impl Default for SuspendedCalls {
    /// None waits. How many may, they say who come.
    fn default() -> Self {
        Self { seal: StateSeal::default(), places: Shares::new(0), table: Mutex::default() }
    }
}

impl SuspendedCalls {
    /// From now on this call waits. Returns its number, and the state for its client.
    pub(crate) fn enter(
        &self,
        bounds: &config::BridgeConfig,
        (payer, binding): (Payer, Binding),
        commands: mpsc::Sender<SessionCommand>,
    ) -> Result<(u64, String), TooMany> {
        self.places.set_max(bounds.suspended_calls_max);
        self.places.set_of_payer_max(bounds.suspended_calls_per_principal_max);
        let place = self.places.take(payer).map_err(|_| TooMany)?;
        let mut table = self.table.lock();
        table.next += 1;
        let parked = table.next;
        let expires_s = now_s().saturating_add(bounds.suspended_call_timeout.as_secs() + 1);
        let state = self.seal.seal(RequestState { parked, expires_s, binding }).ok_or(TooMany)?;
        table.calls.insert(parked, SuspendedEntry { binding, _place: place, commands });
        Ok((parked, state))
    }

    /// The call waits no longer. False: somebody has taken it already, and what goes on is on its way.
    pub(crate) fn leave(&self, parked: u64) -> bool {
        self.table.lock().calls.remove(&parked).is_some()
    }

    /// Takes out the call that `state` names. `None`: there is none that this client may go on with.
    fn take(&self, state: &str, binding: Binding) -> Option<mpsc::Sender<SessionCommand>> {
        let stated = self.seal.open(state)?;
        if stated.expires_s < now_s() || stated.binding != binding {
            return None;
        }
        let mut table = self.table.lock();
        table.calls.get(&stated.parked).filter(|entry| entry.binding == binding)?;
        table.calls.remove(&stated.parked).map(|entry| entry.commands)
    }
}

/// Goes on with the call that the `requestState` of `call` names.
pub(crate) async fn resume(
    client: &UpstreamClient,
    upstream: &BridgedServer,
    call: Arc<ModernCall>,
) -> Result<Reply, UpstreamError> {
    let parked = &upstream.bridge.as_modern.suspended;
    let (taken, answers) = client.read_json(|(scratch, depth_max)| {
        let whose = (&*upstream.session_key, &*call.caller.principal);
        let binding = Binding::of(whose, &call.message, (&mut *scratch, depth_max));
        let state = call.request_state.as_deref().unwrap_or_default();
        let taken = binding.and_then(|binding| parked.take(state, binding));
        (taken, answers(call.input_responses.as_ref(), scratch, depth_max))
    });
    let Some(commands) = taken else {
        upstream.bridge.series.suspensions.rejected.inc();
        return Ok(rejected(&call).into_reply());
    };
    let patience = HeadPatience::new(call.deadline);
    let (reply, waiting) = CallReplySink::new(client, call);
    match commands.try_send(SessionCommand::Resume(Box::new(reply), answers)) {
        Ok(()) => waiting.reply(patience).await,
        // Its thread is gone, and the call with it.
        Err(error) => {
            upstream.bridge.series.suspensions.lost.inc();
            match error.into_inner() {
                SessionCommand::Resume(reply, _) => Ok(rejected(&reply.call).into_reply()),
                _ => Err(UpstreamError::Reset),
            }
        }
    }
}

/// What the client is told that retries what does not wait.
pub(crate) fn rejected(call: &ModernCall) -> answers::CallAnswer {
    answers::refusal(call, StatusCode::BAD_REQUEST, -32602, WHY_REJECTED)
}

/// The client's answers, by the keys of their questions. What is no object answers nothing.
fn answers(given: Option<&Bytes>, scratch: &mut Scratch, depth_max: usize) -> call_reply::ClientAnswers {
    let Some(given) = given else { return Vec::new() };
    let Ok(root) = scratch.index(given, depth_max).map(Document::root) else { return Vec::new() };
    let entries = root.entries().filter(|(_, value)| value.is_object());
    let answers = entries.filter_map(|(key, value)| {
        // It outlives the message it came in.
        Some((key.decode(given)?.into(), Bytes::copy_from_slice(value.raw())))
    });
    answers.take(super::open_questions::QUESTIONS_MAX * 2).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;

    fn binding(principal: &str) -> Binding {
        let whose = ("u", principal);
        Binding::of(whose, &Bytes::from_static(CALL), (&mut Scratch::default(), 16)).expect("a message")
    }

    fn bounds(suspended_calls_max: usize, suspended_calls_per_principal_max: usize) -> config::BridgeConfig {
        config::BridgeConfig {
            is_on: true,
            input_requests_max: 1,
            state_bytes_max: 1,
            sessions_max: 1,
            session_idle_timeout: Duration::ZERO,
            suspended_calls_max,
            suspended_calls_per_principal_max,
            suspended_call_timeout: Duration::from_mins(1),
        }
    }

    #[test]
    fn a_call_is_taken_once_and_by_its_own_client() {
        let (parked, (commands, _other_end)) = (SuspendedCalls::default(), mpsc::channel(1));
        let payer = Payer::principal("p");
        let bounds = bounds(2, 2);
        let (number, state) = parked.enter(&bounds, (payer, binding("p")), commands).expect("room");
        assert!(parked.take(&state, binding("q")).is_none());
        assert!(parked.take("x", binding("p")).is_none());
        assert!(parked.take(&state, binding("p")).is_some());
        assert!(parked.take(&state, binding("p")).is_none());
        assert!(!parked.leave(number));
    }

    #[test]
    fn a_state_is_of_its_process_and_no_two_are_alike() {
        let (seal, other) = (StateSeal::default(), StateSeal::default());
        let stated = RequestState { parked: 7, expires_s: 9, binding: binding("p") };
        let state = seal.seal(stated).expect("randomness");
        assert_eq!((seal.open(&state), other.open(&state)), (Some(stated), None));
        assert_ne!(seal.seal(stated), Some(state));
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let (parked, (commands, _other_end)) = (SuspendedCalls::default(), mpsc::channel(1));
        let enter = |principal: &str| {
            let bounds = bounds(3, 1);
            parked.enter(&bounds, (Payer::principal(principal), binding(principal)), commands.clone())
        };
        let (first, _) = enter("p").expect("room");
        assert_eq!(enter("p"), Err(TooMany));
        enter("q").expect("room");
        enter("r").expect("room");
        assert_eq!(enter("s"), Err(TooMany));
        assert!(parked.leave(first));
        enter("p").expect("room again");
    }

    #[test]
    fn answers_are_objects_by_key() {
        let given = Bytes::from_static(br#"{"a":{"x":1},"b":null,"c":[],"\u0064":{}}"#);
        let found = answers(Some(&given), &mut Scratch::default(), 16);
        let expected = [("a".into(), Bytes::from(r#"{"x":1}"#)), ("d".into(), Bytes::from("{}"))];
        assert_eq!(found, expected);
    }
}
