"""One server by itself, spoken to over its pipes: the measure for the gateway."""

import json
import os
import pathlib
import subprocess
import time

REVISION = "2025-11-25"
CLIENT = {"name": "by-hand", "version": "1"}


class ByHand:
    """`with ByHand(entry) as server`: it is started and listed; `tools`, `seconds` and `resident_bytes` tell of it."""

    def __init__(self, entry):
        self.command = [entry["command"], *entry["args"]]
        self.environment = {**os.environ, **entry["env"]}

    def __enter__(self):
        begun = time.monotonic()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.child = subprocess.Popen(self.command, **pipes, text=True, env=self.environment)
        self.ask("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT})
        self.say({"method": "notifications/initialized"})
        self.tools = self.ask("tools/list", {})["tools"]
        self.seconds = time.monotonic() - begun
        self.resident_bytes = resident_bytes(self.child.pid)
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def say(self, message):
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        self.child.stdin.flush()

    def ask(self, method, params):
        self.say({"id": method, "method": method, "params": params})
        for line in self.child.stdout:
            if line.startswith("{") and json.loads(line).get("id") == method:
                return json.loads(line)["result"]
        raise RuntimeError(f"{self.command}: it ended before it answered {method}")


def resident_bytes(pid):
    """Memory of a process that no other one shares with it, and its part of the rest."""
    for line in pathlib.Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
