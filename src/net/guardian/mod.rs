//! A process between this one and a program that it starts, so that nothing of the program outlives this process, however
//! that ends: SIGKILL, too.
//!
//! `trunkline guardian PARENT FILE [ARGUMENT ...]`, which nobody types, starts the file as the leader of a process group
//! of its own with the standard streams, the environment and the working directory that it was given itself, and keeps
//! none of these streams. As a subreaper it becomes the parent of every descendant whose own parent ended, also of one
//! that left the group or the session. When the program has ended it kills what the program left behind, and ends as the
//! program did. When the parent has ended the program's input has, too: who does not end by that is soon asked to end, and
//! then killed with whatever is left.
//!
//! It is the program's parent, not a process beside it that is told of programs: there is no moment at which a program
//! runs that nobody guards. It costs two megabytes, nearly all of which are the binary's relocated tables: it has one thread
//! and no runtime, and reads no configuration. Its name is not that of the binary, so that `pkill -9 trunkline` leaves it alive.
//!
//! The other side is [`Guarded`]: SIGTERM to a guardian goes on to the program's group, SIGUSR1 has it kill everything.

mod guarded;

use std::ffi::OsString;
use std::fs::{File, read_to_string};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{self, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use signal_hook::{flag, low_level::pipe};

pub use self::guarded::{Guarded, command};

/// The first argument.
const WORD: &str = "guardian";
/// Where jemalloc reads what it is to do differently: it starts no thread in a guardian, which has nothing to give back.
const ALLOCATOR: &str = "_RJEM_MALLOC_CONF";
/// When the parent has ended: after how long a program is asked to end, and after how long it is made to.
const ASK_AFTER: Duration = Duration::from_secs(1);
const KILL_AFTER: Duration = Duration::from_secs(3);
/// The exit code where the program cannot be started, as shells have it.
const EXIT_NOT_STARTED: u8 = 127;

/// Is a guardian if the arguments of the process say so.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != WORD {
        return None;
    }
    let parent = Pid::from_raw(arguments.next()?.to_str()?.parse().ok()?)?;
    let file = arguments.next()?;
    let code =
        guard(parent, Command::new(&file).args(arguments).env_remove(ALLOCATOR)).unwrap_or_else(|error| {
            eprintln!("cannot start {}: {error}", file.display());
            EXIT_NOT_STARTED
        });
    Some(ExitCode::from(code))
}

fn guard(parent: Pid, command: &mut Command) -> io::Result<u8> {
    rustix::thread::set_name(c"guardian")?;
    let mut signals = GuardianSignals::new()?;
    process::set_child_subreaper(Some(process::getpid()))?;
    // Comes as well when a thread of the parent ends that is not its last: whether it was the last is seen by `getppid`.
    process::set_parent_process_death_signal(Some(Signal::USR2))?;
    if process::getppid() != Some(parent) {
        return Ok(EXIT_NOT_STARTED);
    }
    let started = command.process_group(0).spawn()?;
    let program = GuardedProgram { pid: Pid::from_child(&started), ended: None };
    // The program's streams end when it closes them.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(program.watch(parent, &mut signals))
}

/// The signals that have come.
struct GuardianSignals {
    /// Readable when one has.
    wake: UnixStream,
    end: Arc<AtomicBool>,
    kill: Arc<AtomicBool>,
}

impl GuardianSignals {
    fn new() -> io::Result<Self> {
        let (wake, woken_by) = UnixStream::pair()?;
        let (end, kill) = (Arc::default(), Arc::default());
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            flag::register(signal.as_raw(), Arc::clone(&end))?;
        }
        flag::register(Signal::USR1.as_raw(), Arc::clone(&kill))?;
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1, Signal::USR2, Signal::CHILD] {
            pipe::register(signal.as_raw(), woken_by.try_clone()?)?;
        }
        Ok(Self { wake, end, kill })
    }

    /// Waits until one comes, at most for so long.
    fn wait(&mut self, patience: Option<Duration>) {
        let _ = self.wake.set_read_timeout(patience);
        let _ = self.wake.read(&mut [0; 64]);
    }
}

struct GuardedProgram {
    pid: Pid,
    ended: Option<WaitStatus>,
}

impl GuardedProgram {
    fn watch(mut self, parent: Pid, signals: &mut GuardianSignals) -> u8 {
        let mut alone_since = None;
        let mut ask_after = ASK_AFTER;
        while self.ended.is_none() && !signals.kill.load(Ordering::SeqCst) {
            if process::getppid() != Some(parent) {
                alone_since.get_or_insert_with(Instant::now);
            }
            let alone = alone_since.map(|since| since.elapsed());
            let is_due = alone.is_some_and(|alone| alone >= ask_after);
            if signals.end.swap(false, Ordering::SeqCst) || is_due {
                let _ = process::kill_process_group(self.pid, Signal::TERM);
            }
            if is_due {
                ask_after = KILL_AFTER;
            }
            let patience = alone.map(|alone| ask_after.saturating_sub(alone));
            if patience == Some(Duration::ZERO) {
                break;
            }
            signals.wait(patience);
            while let Ok(Some(ended)) = process::wait(WaitOptions::NOHANG) {
                self.note(ended);
            }
        }
        self.kill_all();
        self.ended.map_or(0, end_as)
    }

    fn note(&mut self, (pid, status): (Pid, WaitStatus)) {
        if pid == self.pid {
            self.ended = Some(status);
        }
    }

    /// Kills the group, and then whoever is left until nobody is: whose parent ends becomes our child.
    fn kill_all(&mut self) {
        let _ = process::kill_process_group(self.pid, Signal::KILL);
        loop {
            let children = children();
            let killed = children.iter().filter(|pid| process::kill_process(**pid, Signal::KILL).is_ok());
            if killed.count() == 0 {
                return;
            }
            match process::wait(WaitOptions::empty()) {
                Ok(Some(ended)) => self.note(ended),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// The processes whose parent this one is.
fn children() -> Vec<Pid> {
    let id = process::getpid();
    let text = read_to_string(format!("/proc/self/task/{id}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// The exit code of a program that ended so. After a signal this process ends by the same, and does not return.
fn end_as(status: WaitStatus) -> u8 {
    if let Some(code) = status.exit_status() {
        return u8::try_from(code).unwrap_or(u8::MAX);
    }
    let Some(number) = status.terminating_signal() else { return u8::MAX };
    if let Some(signal) = Signal::from_named_raw(number) {
        // One image of the memory is enough, and it is the program's.
        let _ = process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
    }
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}
