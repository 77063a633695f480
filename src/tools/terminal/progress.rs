//! That something is still going on: a line on standard error for whatever takes more than a second, gone when it is
//! over. Nothing where standard error is no terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use protocol::text::shown;

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a whole bar is counted in.
const PARTS: u64 = 1000;
const TICK: Duration = Duration::from_millis(120);

/// A line that says what is going on, until it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins to say it in a second. Must be called on a runtime.
    pub fn start(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(shown(what));
        if std::io::stderr().is_terminal() {
            let late = bar.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(PATIENCE).await;
                if !late.is_finished() {
                    late.set_draw_target(ProgressDrawTarget::stderr());
                    late.enable_steady_tick(TICK);
                }
            });
        }
        Self { bar }
    }

    /// Says something else from now on.
    pub fn say(&self, what: &str) {
        self.bar.set_message(shown(what));
    }

    /// Says how far it has come: of `total`, where that is known.
    pub fn at(&self, done: f64, total: Option<f64>, what: &str) {
        let share = total
            .filter(|total| *total > 0.0 && done.is_finite())
            .map(|total| (done / total).clamp(0.0, 1.0));
        let Some(share) = share else { return self.say(what) };
        if self.bar.length().is_none() {
            let with_bar = "{spinner} {bar:24} {percent:>3} % {wide_msg} {elapsed}";
            if let Ok(style) = ProgressStyle::with_template(with_bar) {
                self.bar.set_style(style.progress_chars("━╸─"));
            }
            self.bar.set_length(PARTS);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "from 0 to PARTS"
        )]
        self.bar.set_position((share * PARTS as f64) as u64);
        self.say(what);
    }

    /// Takes the line away while `write` writes, so that the two do not mix.
    pub fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
