"""Processes that end: each runs in a group of its own, for a time that is bounded, and leaves nothing behind."""

import os
import signal
import subprocess
import threading

from running.places import ROOT

#: Of the step that this thread runs: where its output goes, and for how long its processes have kept a processor busy.
CURRENT = threading.local()
#: The leaders of the process groups that run.
RUNNING = set()
#: Set when nothing more is to be started.
STOPPING = threading.Event()


def print_now(text):
    print(text, end="", flush=True)


def run_bounded(command, timeout_s, environment, cwd=ROOT, is_shown=True):
    """Runs a command in a process group of its own, shows its output and returns (status, output, complaint).

    Whatever is left of the group afterwards is killed, and complained about: a test must stop what it starts.
    """
    child = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    RUNNING.add(child.pid)
    if STOPPING.is_set():
        kill_group(child.pid)
    show, lines = CURRENT.show, []

    def read():
        for line in child.stdout:
            lines.append(line)
            if is_shown:
                show(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    late = threading.Event()
    clock = threading.Timer(timeout_s, lambda: (late.set(), kill_group(child.pid)))
    clock.daemon = True
    clock.start()
    try:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        CURRENT.busy_seconds += used.ru_utime + used.ru_stime
    finally:
        clock.cancel()
        has_left = kill_group(child.pid)
        RUNNING.discard(child.pid)
        reader.join(10)
        child.stdout.close()
    if late.is_set():
        return child.returncode, "".join(lines), f"stopped after {timeout_s} s"
    return child.returncode, "".join(lines), "left processes behind" if has_left else ""


def kill_group(leader):
    """Returns true if there was anything to kill."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
