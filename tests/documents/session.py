"""A shell in a scratch directory, which runs one block of commands after another and says what they print.

Everything that a block starts in the background stays in the process group of the shell, and ends with it.
"""

import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time

BLOCK_TIMEOUT_S = 90
OUTPUT_TIMEOUT_S = 20
#: What the shell prints after a block, and at the first command of one that fails.
DONE, FAILED = "@@done", "@@failed"


class Session:
    def __init__(self, directory, environment):
        self.directory = directory
        self.output = ""
        self._lines = queue.Queue()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self._tell(f"trap 'echo \"{FAILED} $BASH_COMMAND\"' ERR")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._shell.wait()

    def run(self, commands):
        """Runs them to the end; raises `AssertionError` when one of them fails."""
        self.output = ""
        script = pathlib.Path(self.directory) / ".block"
        script.write_text(commands)
        self._tell(f"source '{script}' < /dev/null; echo; echo '{DONE}'")
        self._until(lambda: f"{DONE}\n" in self.output, BLOCK_TIMEOUT_S, "did not end")
        failed = re.findall(f"^{FAILED} (.*)$", self.output, re.M)
        if failed:
            raise AssertionError(f"`{failed[0]}` failed:\n{self.output}")

    def expect(self, pattern):
        """Waits until what has been printed since the last block began matches `pattern`."""
        expected = re.compile(pattern, re.M)
        self._until(lambda: expected.search(self.output), OUTPUT_TIMEOUT_S, f"did not print {pattern}")

    def _until(self, holds, timeout_s, complaint):
        deadline = time.monotonic() + timeout_s
        while not holds():
            try:
                self.output += self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise AssertionError(f"the block {complaint}:\n{self.output}") from None

    def _tell(self, line):
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _read(self):
        for line in self._shell.stdout:
            self._lines.put(line)
