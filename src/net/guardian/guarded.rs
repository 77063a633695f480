//! The side of who starts the program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{ALLOCATOR, WORD};

/// Where the C library looks for programs if there is no `PATH`.
const PATH_UNSET: &str = "/bin:/usr/bin";

/// The command that starts a program under a guardian: it takes the program's arguments, environment and directory.
pub fn command(program: &OsStr) -> io::Result<Command> {
    let file = find(program)?;
    // After an upgrade there is another program at this path, or none.
    let own = std::env::current_exe().ok().filter(|own| own.exists());
    let mut command = Command::new(own.as_deref().unwrap_or(Path::new("/proc/self/exe")));
    command.arg0(WORD).arg(WORD).arg(std::process::id().to_string()).arg(file);
    Ok(command)
}

/// The file of a program, so that one that is not there is told of at once.
fn find(program: &OsStr) -> io::Result<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.has_root() {
        return check(path).map(|()| path.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| PATH_UNSET.into());
    let mut found = Err(io::ErrorKind::NotFound.into());
    for file in std::env::split_paths(&folders).map(|folder| folder.join(path)) {
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

fn check(file: &Path) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// A program under its guardian. Dropped, it is killed with all that it has started.
#[derive(Debug)]
pub struct Guarded(Child);

impl Guarded {
    /// Starts what [`command`] made.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command.env(ALLOCATOR, "background_thread:false");
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        streams.process_group(0).spawn().map(Self)
    }

    /// Starts a program with these arguments, and takes its standard streams.
    pub fn start(
        program: &OsStr,
        arguments: &[OsString],
    ) -> io::Result<(Self, ChildStdin, ChildStdout, ChildStderr)> {
        let mut child = Self::spawn(command(program)?.args(arguments))?;
        let (stdin, stdout, stderr) = child.streams().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, stdin, stdout, stderr))
    }

    /// Its standard streams, once.
    pub fn streams(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        Some((self.0.stdin.take()?, self.0.stdout.take()?, self.0.stderr.take()?))
    }

    /// Waits until it has ended, and with it all that it has started.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait().await
    }

    /// Asks its process group to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills it, and all that it has started.
    pub fn kill(&self) {
        self.signal(Signal::USR1);
    }

    /// Waits for its end, whose input is closed: it has so long to end by itself, and as long again when it was asked to.
    /// Then it is killed.
    pub async fn stop(&mut self, patience: Duration) -> Option<ExitStatus> {
        for signal in [Self::terminate, Self::kill] {
            if let Ok(ended) = timeout(patience, self.wait()).await {
                return ended.ok();
            }
            signal(self);
        }
        self.wait().await.ok()
    }

    /// What was waited for is signalled no more: its number may be another's.
    fn signal(&self, signal: Signal) {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}
