//! The terminal: taken over, drawn on, given back.

use std::io;

use ratatui::DefaultTerminal;
use ratatui::backend::Backend as _;
use ratatui::crossterm::event;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

use super::app::App;
use super::key::{Input, input};
use super::palette::Palette;
use super::view;

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

    /// Gives the terminal back and stops the process until it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        ratatui::restore();
        kill_process(getpid(), Signal::TSTP)?;
        self.take_again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What a person does, read on a thread of its own, which ends with the process; `None` once the terminal is gone.
pub(super) fn inputs(most: usize) -> io::Result<mpsc::Receiver<Input>> {
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
