//! Metrics of what is translated between the eras.

use prometheus::{IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::{IntCounterVec, IntGaugeVec};
use protocol::version::Era;

/// What is counted about bridges.
#[derive(Clone, Debug)]
pub struct Bridges {
    calls: IntCounterVec,
    rounds: IntCounterVec,
    sessions: IntGaugeVec,
    parked: IntGaugeVec,
    parks: IntCounterVec,
}

/// What is counted about the bridge to one upstream.
#[derive(Clone, Debug)]
pub struct BridgeSeries {
    /// Requests of legacy and of modern clients that crossed.
    pub calls: [IntCounter; 2],
    /// Times that the server asked during calls of legacy and of modern clients.
    pub rounds: [IntCounter; 2],
    /// Sessions of legacy clients with a modern server, and with a legacy server for modern clients.
    pub sessions: [IntGauge; 2],
    /// Calls that wait for answers to a legacy server's questions.
    pub parked: IntGauge,
    /// Calls that waited, by what became of them.
    pub parks: Parks,
}

/// Calls that waited, by what became of them.
#[derive(Clone, Debug)]
pub struct Parks {
    /// The client answered.
    pub resumed: IntCounter,
    /// It did not in time.
    pub expired: IntCounter,
    /// The server ended the call, or its session.
    pub lost: IntCounter,
    /// There were too many already.
    pub refused: IntCounter,
    /// A retry that fits no call that waits.
    pub rejected: IntCounter,
}

impl Bridges {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name, help, labels: &[&str]| {
            let vec = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(vec.clone())).map(|()| vec)
        };
        let gauges = |name, help, labels: &[&str]| {
            let vec = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(vec.clone())).map(|()| vec)
        };
        let by_era = ["upstream", "client_era"];
        Ok(Self {
            calls: counters(
                "trunkline_bridge_requests_total",
                "Requests of clients that speak the other era than the upstream, by the era of the client.",
                &by_era,
            )?,
            rounds: counters(
                "trunkline_bridge_rounds_total",
                "Times that an upstream asked for input during a bridged call, by the era of the client.",
                &by_era,
            )?,
            sessions: gauges(
                "trunkline_bridge_sessions",
                "Sessions kept for bridged calls, by the era of the client.",
                &by_era,
            )?,
            parked: gauges(
                "trunkline_bridge_parked_calls",
                "Calls of modern clients that wait for answers to questions of a legacy upstream.",
                &["upstream"],
            )?,
            parks: counters(
                "trunkline_bridge_parks_total",
                "Calls of modern clients that waited, by result: resumed, expired, lost, refused, rejected.",
                &["upstream", "result"],
            )?,
        })
    }

    /// The series of the upstream `name`.
    pub fn of(&self, name: &str) -> BridgeSeries {
        let eras = [Era::Legacy, Era::Modern].map(Era::label);
        let parks = |result| self.parks.with_label_values(&[name, result]);
        BridgeSeries {
            calls: eras.map(|era| self.calls.with_label_values(&[name, era])),
            rounds: eras.map(|era| self.rounds.with_label_values(&[name, era])),
            sessions: eras.map(|era| self.sessions.with_label_values(&[name, era])),
            parked: self.parked.with_label_values(&[name]),
            parks: Parks {
                resumed: parks("resumed"),
                expired: parks("expired"),
                lost: parks("lost"),
                refused: parks("refused"),
                rejected: parks("rejected"),
            },
        }
    }

    /// The upstream of this name is no more.
    pub fn forget(&self, name: &str) {
        // One that was never set is none.
        let _ = self.parked.remove_label_values(&[name]);
        for era in Era::ALL {
            let _ = self.sessions.remove_label_values(&[name, era.label()]);
        }
    }
}
