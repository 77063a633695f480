"""Programs that take their time to start, a gateway over them, and clients that ask meanwhile."""

import itertools
import json
import pathlib
import sys
import threading
import time

from laptop.gateway import LEGACY, MODERN, Client

CHILD = pathlib.Path(__file__).resolve().parents[1] / "harness" / "child.py"
#: Sets of capabilities that clients declare.
CAPABILITIES = (
    {},
    {"elicitation": {}},
    {"sampling": {}, "roots": {"listChanged": True}},
    {"roots": {"listChanged": True}, "elicitation": {}, "sampling": {}},
)
START = """
state_directory = "{state}"

[drain]
quiet = "10ms"
max = "2s"

[listener]
address = "127.0.0.1:0"
"""


class Program:
    """A scripted server; `words` say what is special about it."""

    def __init__(self, directory, name, *words, keys=""):
        self.name, self.keys = name, keys
        self.log = pathlib.Path(directory, f"{name}.log")
        self.arguments = [str(CHILD), str(self.log), *words]

    def entry(self):
        """As the file of a client has it."""
        return {"command": sys.executable, "args": self.arguments, "env": {}}

    def table(self):
        command = json.dumps([sys.executable, *self.arguments])
        return f'\n[upstream.{self.name}]\ncommand = {command}\nisolation = "shared"\n{self.keys}\n'

    def events(self, kind):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [event for event in map(json.loads, lines) if event.get("event") == kind]

    def starts(self):
        return len(self.events("started"))

    def up(self):
        """When it was up, in seconds of `time.time`; None before that."""
        return next((event["at"] for event in self.events("up")), None)


def configure(directory, endpoints, keys=""):
    """The file of a gateway whose endpoints, path → programs, offer these."""
    state = pathlib.Path(directory, "state")
    state.mkdir(mode=0o700)
    programs = {program.name: program for program in itertools.chain(*endpoints.values())}
    text = START.format(state=state) + keys + "".join(program.table() for program in programs.values())
    for path, offered in endpoints.items():
        text += f'\n[[endpoint]]\npath = "{path}"\nupstreams = {json.dumps([program.name for program in offered])}\n'
    configuration = pathlib.Path(directory, "trunkline.toml")
    configuration.write_text(text)
    return configuration


def clients(url, count):
    """Of both eras and all capabilities in turn."""
    return [Client(url, (MODERN, LEGACY)[each % 2], CAPABILITIES[each // 2 % len(CAPABILITIES)]) for each in range(count)]


class Asking:
    """`with Asking(ask, interval) as asking`: a thread that asks at this interval; `seen` has what came, with its seconds."""

    def __init__(self, ask, interval_s):
        self.ask, self.interval_s, self.seen = ask, interval_s, []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.is_set():
            began = time.monotonic()
            try:
                answer = self.ask()
            except (OSError, ValueError) as fault:
                answer = fault
            took = time.monotonic() - began
            self.seen.append((took, answer))
            self._ends.wait(max(0, self.interval_s - took))

    def answers(self):
        return [answer for _, answer in list(self.seen)]
