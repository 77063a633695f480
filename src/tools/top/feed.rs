//! Asks the admin listener: for the state every few seconds, for its history when there is more of it, and for tools as
//! soon as others are looked at.

use std::borrow::Cow;
use std::time::Duration;

use status::{History, Status, ToolsPage, ToolsQuery};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::admin_client::client::{AdminClient, AdminError};

/// How soon a gateway that is gone is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Tools in the view of an upstream.
const NOTABLE_TOOLS: usize = 20;

/// The tools that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WantedTools {
    /// Those of the table.
    Page(ToolsQuery),
    /// Some of the upstream that is shown in full.
    OfUpstream(String),
}

impl WantedTools {
    /// The question as the gateway understands it.
    pub(super) fn query(&self) -> Cow<'_, ToolsQuery> {
        match self {
            Self::Page(query) => Cow::Borrowed(query),
            Self::OfUpstream(name) => Cow::Owned(ToolsQuery {
                upstream: Some(name.clone()),
                count: NOTABLE_TOOLS,
                ..ToolsQuery::default()
            }),
        }
    }
}

/// What was found out.
#[derive(Debug)]
pub(super) enum News {
    /// The state, and its history if there is more of it.
    State(Box<Status>, Option<Box<History>>),
    /// Tools.
    Tools(WantedTools, Result<ToolsPage, String>),
    /// The gateway did not answer.
    Gone(String),
}

/// Asks again and again.
pub(super) struct StatusFeed {
    admin: AdminClient,
    interval: Duration,
    /// Start of the gateway and number of the sample that the history goes up to.
    known: Option<(u64, Option<u64>)>,
    has_history: bool,
}

impl StatusFeed {
    pub(super) fn new(admin: AdminClient, interval: Duration) -> Self {
        Self { admin, interval, known: None, has_history: true }
    }

    /// The state for the first time.
    pub(super) async fn first(&mut self) -> Result<News, AdminError> {
        self.state().await
    }

    /// Until nobody hears it any more.
    pub(super) async fn run(self, asked: watch::Receiver<Option<WantedTools>>, news: mpsc::Sender<News>) {
        let (admin, interval) = (self.admin.clone(), self.interval);
        tokio::select! {
            () = self.tell_states(&news) => {}
            () = tell_tools(&admin, interval, asked, &news) => {}
        }
    }

    async fn tell_states(mut self, news: &mpsc::Sender<News>) {
        let mut pause = self.interval;
        loop {
            sleep(pause).await;
            let state = self.state().await;
            pause = if state.is_ok() { self.interval } else { RETRY_INTERVAL };
            let told = news.send(state.unwrap_or_else(|fault| News::Gone(fault.to_string()))).await;
            if told.is_err() {
                return;
            }
        }
    }

    async fn state(&mut self) -> Result<News, AdminError> {
        let status: Status = self.admin.read("/status").await?;
        let known = Some((status.started_s, status.sample.number));
        let mut history = None;
        if known != self.known && (self.has_history || self.is_another(&status)) {
            match self.admin.read("/status/history").await {
                Ok(answer) => history = Some(Box::new(answer)),
                Err(fault) => self.has_history = !fault.is_unknown_path(),
            }
        }
        self.known = known;
        Ok(News::State(Box::new(status), history))
    }

    /// Whether the gateway was started again, perhaps as a newer one.
    fn is_another(&self, status: &Status) -> bool {
        self.known.is_none_or(|(started_s, _)| started_s != status.started_s)
    }
}

/// Tells the tools that are asked for, at once where others are than before.
async fn tell_tools(
    admin: &AdminClient,
    interval: Duration,
    mut asked: watch::Receiver<Option<WantedTools>>,
    news: &mpsc::Sender<News>,
) {
    loop {
        let wanted = asked.borrow_and_update().clone();
        if let Some(wanted) = wanted {
            let page = match admin.read(&wanted.query().target()).await {
                Ok(page) => Ok(page),
                Err(fault) if fault.is_unknown_path() => {
                    Err("this gateway does not list its tools".to_owned())
                }
                Err(fault) => Err(fault.to_string()),
            };
            if news.send(News::Tools(wanted, page)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = sleep(interval) => {}
            changed = asked.changed() => if changed.is_err() { return },
        }
    }
}
