//! `trunkline top`: the state of a gateway on a terminal, live.
//!
//! | file | what it is |
//! |---|---|
//! | `feed.rs` | asks the admin listener, again and again |
//! | `screen.rs` | the terminal: taken over, drawn on, given back |
//! | `key.rs` | keys |
//! | `app.rs` | what is looked at: keys and answers in, what to draw and to ask for out |
//! | `tab.rs` | the tabs, and how the table of each is looked at |
//! | `table.rs`, `listing.rs` | tables that fit into any width; what is in them |
//! | `calls.rs` | which calls failed lately, and who calls |
//! | `detail.rs`, `text.rs` | one thing in full; lines that fit into any width |
//! | `view.rs` | the whole screen |
//! | `palette.rs`, `spark.rs` | colours and small curves |
//!
//! Everything but the first three is pure. Invariants: the terminal is given back on every way out, panics among them; what
//! strangers named is drawn by `terminal::text`; no size of terminal and no answer is an error; where the gateway is gone,
//! what was last known stays, and is said to be old.

mod app;
mod calls;
mod detail;
mod feed;
mod key;
mod listing;
mod palette;
mod screen;
mod spark;
mod tab;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use self::app::{App, SideEffect};
use self::feed::{News, StatusFeed, WantedTools};
use self::key::KeyInput;
use self::palette::Palette;
use self::screen::Screen;
use crate::admin_client::client::{AdminClient, AdminError};

/// Answers that wait to be shown.
const NEWS_MAX: usize = 4;
/// Keys that wait; who types faster waits.
const INPUTS_MAX: usize = 64;
/// How often what is shown grows older.
const TICK: Duration = Duration::from_secs(1);

/// How a gateway is watched.
#[derive(Debug)]
pub struct TopSettings {
    /// What asks its admin listener.
    pub admin: AdminClient,
    /// How long after an answer it is asked again.
    pub interval: Duration,
    /// Whether there are colours.
    pub is_colored: bool,
}

/// Why nothing is shown, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The gateway could not be asked the first time.
    #[error(transparent)]
    Gateway(#[from] AdminError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows the state of a gateway until it is told to stop, by key or signal.
pub fn run(settings: TopSettings) -> Result<(), TopError> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(watch_gateway(settings))
}

async fn watch_gateway(settings: TopSettings) -> Result<(), TopError> {
    let TopSettings { admin, interval, is_colored } = settings;
    let mut app = App::new(&admin.place().to_string(), now_s());
    let mut feed = StatusFeed::new(admin, interval);
    // Whoever asks at the wrong place is better told so on a screen of their own.
    app.hear(feed.first().await?);

    let mut signals = TerminalSignals::new()?;
    let mut screen = Screen::open(Palette::new(is_colored))?;
    let (asks, asked) = watch::channel(None);
    let (sender, mut news) = mpsc::channel(NEWS_MAX);
    let feed = tokio::task::spawn_local(async move { feed.run(asked, sender).await });
    let mut inputs = screen::inputs(INPUTS_MAX)?;
    app.resize(screen.size()?);
    let ended = attend(&mut app, &mut screen, &asks, &mut news, &mut inputs, &mut signals).await;
    feed.abort();
    ended
}

async fn attend(
    app: &mut App,
    screen: &mut Screen,
    asks: &watch::Sender<Option<WantedTools>>,
    news: &mut mpsc::Receiver<News>,
    inputs: &mut mpsc::Receiver<KeyInput>,
    signals: &mut TerminalSignals,
) -> Result<(), TopError> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wanted = app.wanted();
        asks.send_if_modified(|asked| {
            let is_new = *asked != wanted;
            *asked = wanted;
            is_new
        });
        screen.draw(app)?;
        let mut effect = tokio::select! {
            told = signals.next() => match told {
                SignalEffect::Stop => return Ok(()),
                SignalEffect::Pause => SideEffect::Suspend,
                SignalEffect::Continue => SideEffect::Redraw,
            },
            input = inputs.recv() => match input {
                Some(input) => app.input(input),
                // The terminal is gone.
                None => return Ok(()),
            },
            Some(heard) = news.recv() => {
                app.hear(heard);
                SideEffect::None
            }
            _ = ticks.tick() => SideEffect::None,
        };
        // Keys that were typed meanwhile need no picture each.
        while effect == SideEffect::None
            && let Ok(input) = inputs.try_recv()
        {
            effect = app.input(input);
        }
        app.tick(now_s());
        match effect {
            SideEffect::None => {}
            SideEffect::Quit => return Ok(()),
            SideEffect::Redraw => {
                screen.take_again()?;
                app.resize(screen.size()?);
            }
            SideEffect::Suspend => screen.suspend()?,
        }
    }
}

/// What a signal means.
enum SignalEffect {
    Stop,
    /// Somebody else wants the terminal for a while.
    Pause,
    /// After a pause, in which somebody else had the terminal.
    Continue,
}

/// The signals that matter.
struct TerminalSignals {
    stop: [Signal; 3],
    paused: Signal,
    continued: Signal,
}

impl TerminalSignals {
    fn new() -> io::Result<Self> {
        let [term, hup, int] =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
        let [paused, continued] = [rustix::process::Signal::TSTP, rustix::process::Signal::CONT]
            .map(|kind| signal(SignalKind::from_raw(kind.as_raw())));
        Ok(Self { stop: [term?, hup?, int?], paused: paused?, continued: continued? })
    }

    async fn next(&mut self) -> SignalEffect {
        let [term, hup, int] = &mut self.stop;
        tokio::select! {
            _ = term.recv() => SignalEffect::Stop,
            _ = hup.recv() => SignalEffect::Stop,
            _ = int.recv() => SignalEffect::Stop,
            _ = self.paused.recv() => SignalEffect::Pause,
            _ = self.continued.recv() => SignalEffect::Continue,
        }
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
