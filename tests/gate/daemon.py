"""The daemon under callgrind, and the stub server that it asks, which runs as fast as it can."""

import contextlib
import pathlib
import re
import subprocess
import textwrap
import time

from gate import dump

#: Valgrind starts it some thirty times slower than it starts by itself.
READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
CONTROL_TIMEOUT_S = 60
#: Where it listens for clients, as it logs: it takes a free port itself, so that nobody else can have it meanwhile.
LISTENING = re.compile(r"(?<!admin) listening address=127\.0\.0\.1:(\d+)")
READY = " ready "
#: One worker, so that all calls take the same way.
LISTENER = """
workers = 1

[listener]
address = "127.0.0.1:0"

[admin]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
"""


class Failure(Exception):
    """Why nothing could be counted."""


@contextlib.contextmanager
def stub(program, options):
    """The URL of a stub server."""
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1:]
            if not address:
                raise Failure(f"{program} did not start")
            yield f"http://{address[0]}/mcp"
        finally:
            process.kill()


@contextlib.contextmanager
def counted(binary, config, folder):
    """The daemon with this configuration, as soon as it listens."""
    daemon = Daemon(binary, config, pathlib.Path(folder))
    try:
        daemon.wait_until_ready()
        yield daemon
    except OSError as error:
        raise Failure(f"{error}; the daemon's log:\n{daemon.log.read_text()}") from error
    finally:
        daemon.stop()


class Daemon:
    def __init__(self, binary, config, folder):
        self.counts, self.log = folder / "counts", folder / "log"
        self.dumped = 0
        file = folder / "trunkline.toml"
        file.write_text(LISTENER + textwrap.dedent(config))
        options = ["--quiet", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={self.counts}"]
        command = ["valgrind", *options, binary, "run", "--config", file]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while READY not in (log := self.log.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"the daemon did not start:\n{log}")
            time.sleep(0.02)
        if not (listening := LISTENING.search(log)):
            raise Failure(f"the daemon did not log where it listens:\n{log}")
        self.port = int(listening[1])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def zero(self):
        """What was counted so far is forgotten."""
        self.control("zero")

    def dump(self):
        """What was counted since."""
        self.control("dump")
        self.dumped += 1
        return dump.busy([
            dump.read(path.read_text().splitlines())
            for path in self.counts.parent.glob(f"{self.counts.name}.{self.dumped}-*")
        ])

    def control(self, command):
        told = ["vgdb", f"--pid={self.process.pid}", command]
        done = subprocess.run(told, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S)
        if done.returncode != 0:
            raise Failure(f"callgrind could not {command}: {done.stderr}\n{self.log.read_text()}")

