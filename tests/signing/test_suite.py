"""Findings of the official conformance suite about our authorization server, and of what its clients do there."""

import os
import pathlib
import subprocess
import tempfile
import threading
import unittest
import urllib.request

from conformance.suite import HOOK, statuses
from ports import free_port
from signing.person import Person
from signing.second_opinion import discovered, json_of, registration

ENTRY = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
TIMEOUT_S = 180
IN_ALL = ("authorization-server-metadata", "authorization-code-grant")
#: Revision → its checks. Those between have the checks of one of these.
CHECKS = {"2025-03-26": IN_ALL, "2026-07-28": (*IN_ALL, "authorization-server-metadata-cimd")}


class Suite(unittest.TestCase):
    """The scenarios for authorization servers; a person answers where the suite wants a browser."""

    def __init__(self, method, place, npm):
        super().__init__(method)
        self.place, self.npm = place, npm

    def __str__(self):
        return f"conformance suite: {self._testMethodName}"

    id = __str__

    def test_finds_nothing_wrong(self):
        for revision in CHECKS:
            with self.subTest(revision=revision), tempfile.TemporaryDirectory(prefix="trunkline-signing-") as folder:
                printed = self.judge(revision, folder)
                found = pathlib.Path(folder).rglob("checks.json")
                ended = {check: status for path in found for check, status in statuses(path).items()}
                self.assertEqual(ended, dict.fromkeys(CHECKS[revision], ["SUCCESS"]), printed)

    def judge(self, revision, folder):
        """Runs the suite, and signs in where it says. Returns what it prints."""
        port = free_port()
        callback = f"http://127.0.0.1:{port}/callback"
        endpoint = f"{self.place.url}/mcp"
        _, server = discovered(endpoint)
        client = json_of(server["registration_endpoint"], registration("none", callback))["client_id"]
        command = ["node", "--import", HOOK, self.npm.resolve() / ENTRY, "authorization", "--url", self.place.url]
        command += ["--client-id", client, "--resource", endpoint, "--port", str(port)]
        command += ["--spec-version", revision, "--output-dir", folder]
        printed = []
        with subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            watchdog = threading.Timer(TIMEOUT_S, child.kill)
            watchdog.start()
            try:
                for line in child.stdout:
                    printed.append(line)
                    if line.startswith(f"{self.place.url}/authorize"):
                        back = Person("alice").visit(line.strip(), callback)
                        urllib.request.urlopen(back, timeout=60).close()
            finally:
                watchdog.cancel()
                child.kill()
        return "".join(printed)
