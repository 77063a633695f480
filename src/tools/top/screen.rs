//! The terminal: taken over, drawn on, given back.

use std::io;
use std::iter::successors;

use ratatui::DefaultTerminal;
use ratatui::backend::Backend as _;
use ratatui::crossterm::event;
use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_process};
use tokio::sync::mpsc;

use super::app::App;
use super::key::{KeyInput, input};
use super::palette::Palette;
use super::view;

/// How far up a shell is looked for.
const ANCESTORS_MAX: usize = 64;

/// The terminal. Dropping it gives the terminal back as it was; so does a panic.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    palette: Palette,
}

impl Screen {
    /// Takes the terminal over.
    pub(super) fn open(palette: Palette) -> io::Result<Self> {
        let terminal = ratatui::try_init();
        if terminal.is_err() {
            ratatui::restore();
        }
        Ok(Self { terminal: terminal?, palette })
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Shows what is looked at.
    pub(super) fn draw(&mut self, app: &App) -> io::Result<()> {
        self.terminal.draw(|frame| view::draw(frame, app, self.palette))?;
        Ok(())
    }

    /// Takes the terminal over again after something else has used it.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        ratatui::restore();
        self.terminal = ratatui::try_init()?;
        // `Terminal::clear` would ask for the place of the cursor, and wait for the keys' thread, which has the answer.
        self.terminal.backend_mut().clear()
    }

    /// Gives the terminal back and stops the process until it is continued, if there is a shell that would do that.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        ratatui::restore();
        // SIGTSTP comes to us, as the terminal has to be given back first. What it would do, we do.
        if has_job_control() {
            kill_process(getpid(), Signal::STOP)?;
        }
        self.take_again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Whether a shell controls this process as a job and so would continue it: one of its ancestors is in the same session and
/// in another group. Without one, the system does not stop a process for SIGTSTP either.
fn has_job_control() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let parents = successors(getppid(), |process| parent(*process));
    let mut parents = parents.take(ANCESTORS_MAX).take_while(|parent| getsid(Some(*parent)).ok() == session);
    parents.any(|parent| getpgid(Some(parent)).is_ok_and(|other| other != group))
}

fn parent(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // Behind the name, which may hold anything: the state and the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

/// What a person does, read on a thread of its own, which ends with the process; `None` once the terminal is gone.
pub(super) fn inputs(most: usize) -> io::Result<mpsc::Receiver<KeyInput>> {
    let (sender, receiver) = mpsc::channel(most);
    std::thread::Builder::new().name("keys".into()).spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(input) = input(&event)
                && sender.blocking_send(input).is_err()
            {
                return;
            }
        }
    })?;
    Ok(receiver)
}
