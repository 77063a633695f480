"""The official conformance suite as a function: which checks ended how, against a server or against a client.

An outcome is `{scenario: {check id: [status, …]}}`, statuses sorted; a scenario that wrote no result maps to
nothing. What the statuses should be is not decided here.
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile

SCENARIO_TIMEOUT_S = 20
SERVER_RUN_TIMEOUT_S = 180
HOOK = pathlib.Path(__file__).with_name("suite_hook.mjs")


@dataclasses.dataclass(frozen=True)
class Suite:
    npm: pathlib.Path
    """Directory with `node_modules`."""
    revision: str

    def server_scenarios(self):
        return self._scenarios("--server")

    def client_scenarios(self):
        """Without those about authorization towards an upstream, which the gateway does not do."""
        return [name for name in self._scenarios("--client") if not name.startswith("auth/")]

    def judge_server(self, url, name_prefix="", uri_prefix=""):
        """All server scenarios, one after the other: they share the server's state."""
        arguments = ["server", "--url", url, "--suite", "all", "--spec-version", self.revision]
        names = {"NAME_PREFIX": name_prefix, "URI_PREFIX": uri_prefix}
        with tempfile.TemporaryDirectory(prefix="trunkline-conformance-") as output:
            limit = ["--timeout", str(SCENARIO_TIMEOUT_S * 1000), "-o", output]
            self._run(arguments + limit, SERVER_RUN_TIMEOUT_S, names)
            results = {}
            for path in pathlib.Path(output).glob("server-*/checks.json"):
                scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", path.parent.name)[1]
                results[scenario] = statuses(path)
        return {name: results.get(name, {}) for name in self.server_scenarios()}

    def judge_client(self, scenario, command, environment):
        """One client scenario. The suite appends its URL to the command, which a shell runs."""
        arguments = ["client", "--command", command, "--scenario", scenario, "--spec-version", self.revision]
        with tempfile.TemporaryDirectory(prefix="trunkline-conformance-") as output:
            limit = ["--timeout", str(SCENARIO_TIMEOUT_S * 1000), "-o", output]
            printed = self._run(arguments + limit, 2 * SCENARIO_TIMEOUT_S, environment)
            written = list(pathlib.Path(output).rglob("checks.json"))
            return (statuses(written[0]) if written else {}), printed

    def _scenarios(self, kind):
        printed = self._run(["list", kind, "--spec-version", self.revision], SCENARIO_TIMEOUT_S, {})
        found = re.findall(r"^\s*- (\S+) \[(.*)\]$", printed, re.M)
        names = [name for name, revisions in found if self.revision in revisions.split(",")]
        if not names:
            raise RuntimeError(f"the suite lists no scenarios:\n{printed}")
        return names

    def _run(self, arguments, timeout_s, environment):
        """What the suite prints. Its exit status only says what the results say in detail."""
        entry = self.npm / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
        command = ["node", "--import", str(HOOK), str(entry), *arguments]
        environment = {**os.environ, "NO_COLOR": "1", **environment}
        try:
            ended = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            return f"{expired}\n{(expired.output or b'').decode(errors='replace')}"
        return ended.stdout


def statuses(path):
    """The statuses of each check in one result file, less those that only inform."""
    found = collections.defaultdict(list)
    for check in json.loads(path.read_text()):
        if check["status"] != "INFO":
            found[check["id"]].append(check["status"])
    return {check: sorted(ended) for check, ended in found.items()}
