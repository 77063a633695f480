"""One program under test as a child process: started, awaited by a line it prints, stopped for certain.

Its output is kept, bounded, to be shown when a test fails. Children stay in the process group of the tests,
so that whoever ends the tests as a group ends them too.
"""

import collections
import re
import subprocess
import threading
import time

READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
LINES_KEPT_MAX = 400


class Process:
    """`with Process(name, command, ready=pattern) as process:` – `process.ready` is the match of the pattern,
    `process.announced` what the program had printed by then."""

    def __init__(self, name, command, ready, environment=None, stdin=subprocess.DEVNULL):
        self.name = name
        self.command = [str(part) for part in command]
        self.environment = environment
        self.stdin = stdin
        self.ready_pattern = re.compile(ready)
        self.ready = None
        self.announced = ""
        self.lines = collections.deque(maxlen=LINES_KEPT_MAX)
        self._changed = threading.Condition()
        self._output_ended = False

    def __enter__(self):
        self._child = subprocess.Popen(
            self.command,
            stdin=self.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self.environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, timeout_s=STOP_TIMEOUT_S):
        """Asks the child to end, insists after this time, and returns its exit status."""
        if self._child.poll() is None:
            self._child.terminate()
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            self.lines.append(f"[killed: did not stop within {timeout_s} s]")
        if self._child.stdin:
            self._child.stdin.close()
        self._reader.join(STOP_TIMEOUT_S)
        return self._child.returncode

    def kill(self):
        """Ends the child without warning."""
        self._child.kill()
        self._child.wait()
        self._reader.join(STOP_TIMEOUT_S)

    @property
    def pid(self):
        return self._child.pid

    def log(self):
        """What the child has printed, newest last."""
        with self._changed:
            return f"--- {self.name}\n" + "\n".join(self.lines)

    def wait_for(self, pattern):
        """Waits until it has printed a line like this."""
        with self._changed:
            self._await(lambda: any(re.search(pattern, line) for line in self.lines), pattern)

    def _read(self):
        for line in self._child.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self.ready = self.ready or self.ready_pattern.search(line)
                self._changed.notify_all()
        self._child.stdout.close()
        with self._changed:
            self._output_ended = True
            self._changed.notify_all()

    def _await_ready(self):
        with self._changed:
            self._await(lambda: self.ready, "ready")
            self.announced = self.log()

    def _await(self, holds, what):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not holds():
            left = deadline - time.monotonic()
            if self._output_ended or not self._changed.wait(max(left, 0)):
                how = "ended" if self._output_ended else f"did not come to this within {READY_TIMEOUT_S} s: {what}"
                raise RuntimeError(f"{self.name} {how}\n{self.log()}")
