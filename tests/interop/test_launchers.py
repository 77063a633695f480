"""Servers as most configurations start them: npx forks sh, which forks node; uv forks python. These servers do not look
at their input, so that its end does not end them.

Whatever runs below the gateway is found by the variable that the gateway gives it, which its descendants inherit.
"""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import uuid

from interop.cases import BoundedCase
from interop.topology import gateway

CONFIGURATION = """
[listener]
address = "127.0.0.1:0"

[[endpoint]]
path = "/mcp"
upstreams = ["npx", "uv"]
auth = []
"""
#: The end of the command lines of what runs in the end.
SERVERS = ("setInterval(() => {}, 1000)", "time.sleep(1000)")


class Launchers(BoundedCase):
    timeout_s = 60

    def __init__(self, method, binary, npm):
        super().__init__(method, "launchers")
        self.binary = binary
        self.npm = npm

    async def test_nothing_outlives_a_gateway_that_is_killed(self):
        await self.end_gateway(lambda process: process.kill())

    async def test_nothing_outlives_a_gateway_that_is_stopped(self):
        await self.end_gateway(lambda process: process.stop())

    async def end_gateway(self, end):
        mark = f"LAUNCHERS_TEST={uuid.uuid4()}"
        with tempfile.TemporaryDirectory(prefix="trunkline-interop-") as directory:
            configuration = pathlib.Path(directory, "trunkline.toml")
            configuration.write_text(CONFIGURATION + self.upstreams(directory, mark))
            with gateway(self.binary, configuration) as process:
                await until(lambda: all(any(runs(line, server) for line in running(mark).values()) for server in SERVERS))
                end(process)
            try:
                await until(lambda: not running(mark))
            finally:
                for pid in running(mark):
                    os.kill(pid, signal.SIGKILL)

    def upstreams(self, directory, mark):
        uv = [pathlib.Path(sys.executable).parent / "uv"]
        commands = {
            "npx": [shutil.which("npx"), "--no", "-c", f"node -e '{SERVERS[0]}'; true"],
            "uv": [*uv, "run", "--no-project", "--offline", "python", "-c", f"import time; {SERVERS[1]}"],
        }
        name, value = mark.split("=")
        variables = {name: value, "UV_CACHE_DIR": f"{directory}/uv", "UV_PYTHON": sys.executable}
        environment = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
        return "".join(
            f"\n[upstream.{name}]\ncommand = {json.dumps([str(part) for part in command])}\n"
            f"directory = {json.dumps(str(self.npm.resolve()))}\nenv = {{ {environment} }}\n"
            'list_timeout = "60s"\neras = ["legacy"]\n'
            for name, command in commands.items()
        )


def running(mark):
    """The command lines of all processes with this variable, by number."""
    lines = {}
    for process in pathlib.Path("/proc").iterdir():
        try:
            if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                lines[int(process.name)] = command.decode(errors="replace")
        except OSError:
            continue  # no process, or one that has just ended
    return lines


def runs(command, server):
    """Whether it is the server itself, and not one that starts it."""
    program = pathlib.Path(command.split()[0]).name if command.split() else ""
    return program.startswith(("node", "python")) and server in command and "npx" not in command


async def until(condition):
    """The test's own timeout bounds it."""
    while not condition():
        await asyncio.sleep(0.05)
