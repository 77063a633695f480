//! The real binary on a terminal of its own: what it draws, what is typed, and how it leaves the terminal.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

use super::daemon::BINARY;
use super::eventually;

/// A running `trunkline` on a terminal. Dropping it kills the process.
pub(crate) struct Terminal {
    child: Child,
    /// The terminal's other side.
    keyboard: File,
    /// The side that the process has.
    line: File,
    drawn: Arc<Mutex<Drawn>>,
}

/// What the process has written to its terminal, and what stands there now.
#[derive(Default)]
struct Drawn {
    bytes: Vec<u8>,
    screen: Screen,
}

impl Terminal {
    /// Starts it with these arguments on a terminal of so many columns and rows.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)], size: (u16, u16)) -> Self {
        Self::of(&[&[BINARY][..], arguments].concat(), environment, size)
    }

    /// The same as a job of a shell: once it has stopped, the shell says so, and a typed line continues it.
    pub(crate) fn start_as_job(arguments: &[&str], size: (u16, u16)) -> Self {
        let script = "set -m; \"$0\" \"$@\"; echo the shell has it; read -r; fg";
        Self::of(&[&["bash", "-c", script, BINARY][..], arguments].concat(), &[], size)
    }

    fn of(command: &[&str], environment: &[(&str, &str)], size: (u16, u16)) -> Self {
        let other = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&other).expect("the terminal is ours");
        unlockpt(&other).expect("the terminal can be opened");
        let name = ptsname(&other, Vec::new()).expect("the terminal has a name");
        let path = OsStr::from_bytes(name.to_bytes());
        let open = || OpenOptions::new().read(true).write(true).open(path).expect("the terminal opens");
        resize(&other, size);
        // A session of its own, so that this is its terminal and not that of whoever runs the tests.
        let child = Command::new("setsid")
            .arg("--ctty")
            .args(command)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm-256color")
            .envs(environment.iter().copied())
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .expect("setsid is there");
        let drawn = Arc::new(Mutex::new(Drawn::default()));
        let keyboard = File::from(other);
        let (mut reader, sink) = (keyboard.try_clone().expect("a copy"), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                let mut drawn = sink.lock().unwrap();
                drawn.bytes.extend_from_slice(&bytes[..length]);
                drawn.screen.draw(&bytes[..length]);
            }
        });
        Self { child, keyboard, line: open(), drawn }
    }

    /// Types this.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Makes the terminal another size.
    pub(crate) fn resize(&self, size: (u16, u16)) {
        resize(&self.keyboard, size);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it can be signalled");
    }

    /// Signals whoever has the terminal: not the shell, but its job.
    pub(crate) fn signal_job(&self, signal: Signal) {
        let job = tcgetpgrp(&self.keyboard).expect("the terminal is somebody's");
        kill_process_group(job, signal).expect("it can be signalled");
    }

    /// Every byte that was drawn so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.drawn.lock().unwrap().bytes.clone()
    }

    /// What is on the screen.
    pub(crate) fn screen(&self) -> String {
        self.drawn.lock().unwrap().screen.text()
    }

    /// Waits until this is on the screen, and returns all of it.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        eventually(&format!("{text:?} is on the screen"), || {
            Some(self.screen()).filter(|screen| screen.contains(text))
        })
    }

    /// Waits until this is no longer on the screen.
    pub(crate) fn wait_gone(&self, text: &str) {
        eventually(&format!("{text:?} leaves the screen"), || (!self.screen().contains(text)).then_some(()));
    }

    pub(crate) fn wait_exit(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually("it ends", || child.try_wait().expect("the child can be waited for"))
    }

    /// Whether the terminal is as a shell expects it: keys are echoed and make lines.
    pub(crate) fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.line).expect("the terminal tells its modes").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- the screen ----\n{}\n---- its end ----", self.screen());
        }
    }
}

fn resize(terminal: &impl std::os::fd::AsFd, (columns, rows): (u16, u16)) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("the terminal has a size");
}

/// What a terminal shows: text where the cursor is, moves of the cursor, clearing; the rest changes no text.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// The beginning of a character or of an escape sequence.
    unfinished: Vec<u8>,
}

impl Screen {
    fn draw(&mut self, bytes: &[u8]) {
        let mut bytes = [std::mem::take(&mut self.unfinished).as_slice(), bytes].concat();
        let mut at = 0;
        while let Some(length) = self.draw_first(&bytes[at..]) {
            at += length;
        }
        self.unfinished = bytes.split_off(at);
    }

    /// Draws the first character or sequence and returns how long it is; nothing if there is no whole one.
    fn draw_first(&mut self, bytes: &[u8]) -> Option<usize> {
        match bytes {
            [] | [b'\x1b'] => None,
            [b'\x1b', b'[', sequence @ ..] => {
                let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
                self.obey(sequence[end], &String::from_utf8_lossy(&sequence[..end]));
                Some(end + 3)
            }
            [b'\x1b', ..] => Some(2),
            [first, ..] => {
                let length = usize::try_from(first.leading_ones()).expect("at most eight").max(1);
                let character =
                    std::str::from_utf8(bytes.get(..length)?).ok().and_then(|text| text.chars().next());
                self.put(character.unwrap_or(char::REPLACEMENT_CHARACTER));
                Some(length)
            }
        }
    }

    fn obey(&mut self, command: u8, parameters: &str) {
        match command {
            b'H' => {
                let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1));
                self.row = numbers.next().unwrap_or(1) - 1;
                self.column = numbers.next().unwrap_or(1) - 1;
            }
            b'J' => self.rows.clear(),
            _ => {}
        }
    }

    fn put(&mut self, character: char) {
        match character {
            '\r' => self.column = 0,
            '\n' => self.row += 1,
            character => {
                self.rows.resize(self.rows.len().max(self.row + 1), Vec::new());
                let row = &mut self.rows[self.row];
                row.resize(row.len().max(self.column + 1), ' ');
                row[self.column] = character;
                self.column += 1;
            }
        }
    }

    fn text(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| row.iter().collect()).collect();
        rows.join("\n")
    }
}
