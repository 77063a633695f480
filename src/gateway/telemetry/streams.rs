//! Metrics of the streams that clients hold open within sessions.

use prometheus::{IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::IntCounterVec;

/// What is counted about streams.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Those that are open; set when scraped.
    pub open: IntGauge,
    /// Those for which there was no room.
    pub refused: IntCounter,
    /// What became of them.
    pub series: StreamSeries,
}

/// What is counted of streams.
#[derive(Clone, Debug)]
pub struct StreamSeries {
    /// Ended because their client opened another.
    pub taken_over: IntCounter,
    /// Ended because their client did not read.
    pub unread: IntCounter,
    /// Messages that no stream had room for.
    pub dropped: IntCounter,
}

impl Streams {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let open = IntGauge::new("trunkline_session_streams", "Streams that clients hold open in sessions.")?;
        registry.register(Box::new(open.clone()))?;
        let ended = Opts::new(
            "trunkline_session_streams_ended_total",
            "Streams of sessions ended before their client or its session did: taken_over by a newer one, unread.",
        );
        let ended = IntCounterVec::new(ended, &["reason"])?;
        registry.register(Box::new(ended.clone()))?;
        Ok(Self {
            open,
            refused: counter(
                "trunkline_session_streams_refused_total",
                "Streams of sessions refused because a bound was met.",
            )?,
            series: StreamSeries {
                taken_over: ended.with_label_values(&["taken_over"]),
                unread: ended.with_label_values(&["unread"]),
                dropped: counter(
                    "trunkline_session_messages_dropped_total",
                    "Messages for streams of sessions that there was no room for.",
                )?,
            },
        })
    }
}
