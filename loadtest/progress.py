"""The progress bar on standard error: a line that is redrawn on a terminal, a line for each step elsewhere."""

import sys
import time

WIDTH = 30


class Progress:
    """Counts steps of similar length, so that the time left can be told."""

    def __init__(self, steps):
        self.steps = steps
        self.done = 0
        self.begin = time.monotonic()

    def step(self, what):
        """Says what comes next."""
        left = "" if self.done == 0 else f", {_clock(self._seconds_left())} left"
        self._draw(f"{self.done}/{self.steps}{left}  {what}")

    def finish(self):
        """Counts the step."""
        self.done += 1
        if self.done == self.steps:
            self._draw(f"{self.done}/{self.steps}, {_clock(time.monotonic() - self.begin)}")
            self._end_line()

    def drop(self, steps):
        """Takes steps that will not happen out of the count."""
        self.steps -= steps

    def note(self, line):
        """Prints a line above the bar."""
        self._end_line()
        print(line, file=sys.stderr, flush=True)

    def _seconds_left(self):
        return (time.monotonic() - self.begin) / self.done * (self.steps - self.done)

    def _draw(self, text):
        filled = round(WIDTH * self.done / max(self.steps, 1))
        line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {text}"
        print(f"\r\033[K{line}" if sys.stderr.isatty() else line + "\n", end="", file=sys.stderr, flush=True)

    def _end_line(self):
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
