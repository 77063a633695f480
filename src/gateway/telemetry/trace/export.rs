//! The queue of finished spans, and the way out of it, on the control thread.
//!
//! Workers never wait for it. A batch goes out when it is full or its time has come, one at a time; one that the
//! receiver cannot take now is tried again until its time is up. Whatever is lost on the way is counted, and told in one
//! line a minute at most. At the end of the process what waits is sent once more, for a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::otlp::{self, Receiver};
use super::sampler::Sampler;
use super::settings::{TraceSettings, TraceSettingsError};
use crate::clock;
use crate::telemetry::metrics::families::SpanResults;
use net::fetch::Fetcher;
use net::jitter::jittered;
use net::tls::Connector;

/// How long the end of the process waits for spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// The first pause before a batch is sent again; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// How often lost spans are told.
const REMARK_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Traces {
    settings: TraceSettings,
    tls: Option<Arc<Connector>>,
    queue: SpanQueue,
    waiting: Mutex<Option<mpsc::Receiver<SpanData>>>,
    closing: CancellationToken,
    closed: CancellationToken,
}

#[derive(Clone, Debug)]
pub(crate) struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    due: Arc<Notify>,
    batch_max: usize,
    series: SpanResults,
}

/// When losses were last told, and what was not told since.
#[derive(Debug, Default)]
struct Remarks {
    told: Option<Instant>,
    failed: u64,
    dropped_before: u64,
}

impl Traces {
    /// Where traces go by the configuration and the environment, if anywhere.
    pub(crate) fn open(
        config: Option<&config::Trace>,
        series: &SpanResults,
    ) -> Result<Option<Arc<Self>>, TraceSettingsError> {
        let (settings, warnings) =
            TraceSettings::resolve(&config.cloned().unwrap_or_default(), &|name| std::env::var(name).ok());
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let Some(settings) = settings else { return Ok(None) };
        let is_tls = settings.endpoint.scheme_str() == Some("https");
        let tls = is_tls.then(|| Connector::trusting(settings.ca.as_deref())).transpose()?;
        let (spans, waiting) = mpsc::channel(settings.queue_max);
        let due = Arc::new(Notify::new());
        let queue = SpanQueue { spans, due, batch_max: settings.batch_max, series: series.clone() };
        let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
        let waiting = Mutex::new(Some(waiting));
        Ok(Some(Arc::new(Self { settings, tls, queue, waiting, closing, closed })))
    }

    pub(super) fn queue(&self) -> SpanQueue {
        self.queue.clone()
    }

    pub(super) fn sampler(&self) -> Sampler {
        self.settings.sampler
    }

    /// Sends spans of this version of the program until the end of the process.
    pub(crate) async fn run(self: Arc<Self>, version: &'static str, fetcher: Fetcher) {
        let waiting = self.waiting.lock().take();
        let Some(mut waiting) = waiting else { return };
        let resource = otlp::resource(&self.settings, version);
        let receiver = Receiver { settings: &self.settings, tls: self.tls.as_ref(), fetcher, resource };
        let mut remarks = Remarks::default();
        loop {
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = self.queue.due.notified() => {}
                () = sleep(self.settings.delay) => {}
            }
            // Those that come after the end began are nobody's: all workers have ended.
            let is_last = self.closing.is_cancelled();
            while let Some(batch) = self.next_batch(&mut waiting) {
                self.export(&receiver, batch, &mut remarks).await;
            }
            remarks.tell(self.queue.series.dropped.get());
            if is_last {
                return self.closed.cancel();
            }
        }
    }

    pub(crate) async fn finish(&self) {
        self.closing.cancel();
        if timeout(FLUSH_MAX, self.closed.cancelled()).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }

    fn next_batch(&self, waiting: &mut mpsc::Receiver<SpanData>) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        while batch.len() < self.settings.batch_max
            && let Ok(span) = waiting.try_recv()
        {
            batch.push(span);
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }

    /// Sends a batch, again and again if it has to be.
    async fn export(&self, receiver: &Receiver<'_>, batch: Vec<SpanData>, remarks: &mut Remarks) {
        let series = &self.queue.series;
        let count = batch.len() as u64;
        let batch = receiver.encode(batch);
        let end = clock::now() + self.settings.batch_timeout;
        let mut pause = PAUSE_MIN;
        loop {
            let is_last = self.closing.is_cancelled();
            let deadline = end.min(clock::now() + self.settings.timeout);
            let refusal = match receiver.post(batch.clone(), deadline).await {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    series.rejected.inc_by(rejected);
                    return series.exported.inc_by(count - rejected);
                }
                Err(refusal) => refusal,
            };
            let wait = refusal.again.map(|wanted| jittered(pause, 0.8..1.2).max(wanted));
            let Some(wait) = wait.filter(|wait| !is_last && clock::now() + *wait < end) else {
                series.failed.inc_by(count);
                return remarks.note(count, &refusal.why, series.dropped.get());
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.closing.cancelled() => {}
            }
            pause *= 2;
        }
    }
}

impl SpanQueue {
    /// Hands a span over, or drops it.
    pub(crate) fn push(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.series.dropped.inc();
        }
        if self.spans.max_capacity() - self.spans.capacity() >= self.batch_max {
            self.due.notify_one();
        }
    }
}

impl Remarks {
    fn note(&mut self, failed: u64, why: &str, dropped: u64) {
        self.failed += failed;
        if self.may_tell() {
            let dropped = dropped - std::mem::replace(&mut self.dropped_before, dropped);
            let failed = std::mem::take(&mut self.failed);
            tracing::warn!(failed, dropped, why, "spans are lost: they cannot be sent");
        }
    }

    /// Spans found no room, whether or not others were sent.
    fn tell(&mut self, dropped: u64) {
        if dropped > self.dropped_before && self.may_tell() {
            let dropped = dropped - std::mem::replace(&mut self.dropped_before, dropped);
            tracing::warn!(dropped, "spans are lost: there are more than can be sent");
        }
    }

    fn may_tell(&mut self) -> bool {
        let now = clock::now();
        let may_tell = self.told.is_none_or(|told| now.duration_since(told) >= REMARK_INTERVAL);
        if may_tell {
            self.told = Some(now);
        }
        may_tell
    }
}
