"""Child processes of the load test: started, watched and stopped here and nowhere else.

Every child is in a process group of its own and dies with the runner, whatever ends it. CPU time and memory are
those of the child and all its descendants, because nginx works in children of its master.
"""

import atexit
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess

STOP_TIMEOUT_S = 5
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)
_running = []


class Child:
    """One process and its descendants."""

    def __init__(self, command, log, takes_input=False):
        """Starts `command`; what it says on standard error goes to the file `log`, standard output to a pipe, and
        standard input comes from one where it `takes_input`."""
        self.log = pathlib.Path(log)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        _running.append(self)

    @property
    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """Ends the whole group: politely, then not."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if _signal_group(self.process.pid, signal_number):
                try:
                    self.process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    continue
            self.process.wait()
            # What the leader left behind.
            _signal_group(self.process.pid, signal.SIGKILL)
            break
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            # What was not written to a process that had ended is nobody's loss.
            with contextlib.suppress(OSError):
                pipe.close()
        if self in _running:
            _running.remove(self)

    def last_words(self):
        """The end of its standard error, for a message on one line."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def cpu_s(self):
        """CPU time so far in seconds, to the nanosecond: the sum of all threads' own clocks."""
        nanoseconds = 0
        for pid in self._tree():
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9

    def resident_mib(self):
        """Resident memory of all processes, shared pages counted in each."""
        kibibytes = 0
        for pid in self._tree():
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    kibibytes += int(line.split()[1])
        return kibibytes / 1024

    def _tree(self):
        pids, unvisited = [], [self.process.pid]
        while unvisited:
            pid = unvisited.pop()
            pids.append(pid)
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
                unvisited += map(int, (thread / "children").read_text().split())
        return pids


def machine_busy_s():
    """CPU time that all processes of the machine have used so far, in seconds, time stolen by the host included."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def stop_all():
    """Ends everything that still runs."""
    for child in list(_running):
        child.stop()


atexit.register(stop_all)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(group, signal_number):
    try:
        os.killpg(group, signal_number)
    except ProcessLookupError:
        return False
    return True
