"""The gateway over all the servers, made by `trunkline import` from the file of a client, and clients of it."""

import json
import pathlib
import subprocess
import time
import urllib.error
import urllib.request

from interop.topology import gateway, gateway_address
from laptop.by_hand import resident_bytes

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ANSWER_TIMEOUT_S = 60
#: Its state is its own, and it takes any free port.
REPLACED = {'address = "127.0.0.1:8080"': 'address = "127.0.0.1:0"', 'address = "127.0.0.1:9090"': 'address = "127.0.0.1:0"'}


def import_file(binary, entries, directory):
    """The configuration that `trunkline import` makes of the entries."""
    file, configuration = pathlib.Path(directory, "mcp.json"), pathlib.Path(directory, "trunkline.toml")
    file.write_text(json.dumps({"mcpServers": entries}))
    secrets = pathlib.Path(directory, "secrets")
    command = [binary, "import", file, "--secrets", secrets, "--output", configuration]
    subprocess.run([str(part) for part in command], check=True, timeout=30)
    text = configuration.read_text()
    state = pathlib.Path(directory, "state")
    for before, after in (REPLACED | {"${HOME}/.local/state/trunkline": str(state)}).items():
        if before not in text:
            raise ValueError(f"not in what was imported: {before}")
        text = text.replace(before, after)
    configuration.write_text(text + '\n[drain]\nquiet = "10ms"\nmax = "2s"\n')
    return configuration


class Gateway:
    """`with Gateway(binary, configuration) as gateway`: it accepts clients."""

    def __init__(self, binary, configuration):
        self.process = gateway(binary, configuration)

    def __enter__(self):
        self.process.__enter__()
        self.began = time.monotonic()
        self.url = f"http://{gateway_address(self.process)}/mcp"
        return self

    def __exit__(self, *rest):
        self.process.__exit__(*rest)

    def children(self):
        """The servers that run, as process id → command line; a guardian between is none."""
        found = {}
        for folder in pathlib.Path("/proc").iterdir():
            if folder.name.isdigit() and self.is_below(int(folder.name)):
                words = read(folder / "cmdline").split("\0")
                if "node" in words[0] or "python" in words[0]:
                    found[int(folder.name)] = " ".join(words)
        return found

    def all(self):
        """The gateway and all that runs below it, as process ids."""
        numbers = [int(folder.name) for folder in pathlib.Path("/proc").iterdir() if folder.name.isdigit()]
        return [self.process.pid, *filter(self.is_below, numbers)]

    def is_below(self, pid):
        while pid > 1:
            parent = [line for line in read(f"/proc/{pid}/status").splitlines() if line.startswith("PPid:")]
            pid = int(parent[0].split()[1]) if parent else 0
            if pid == self.process.pid:
                return True
        return False

    def resident_bytes(self):
        return sum(resident_bytes(pid) for pid in self.children())


def read(path):
    """The text of a file of /proc; empty where its process has just ended."""
    try:
        return pathlib.Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Client:
    """A client that speaks one revision, with these capabilities; of an older one, it has a session."""

    def __init__(self, url, revision, capabilities):
        self.url, self.revision, self.capabilities, self.session = url, revision, capabilities, None
        #: Of the last answer.
        self.status, self.headers = None, None
        self.info = {"name": f"client-{len(capabilities)}", "version": "1"}
        if revision == LEGACY:
            self.said = self.post("initialize", self.introduction(), {})
            self.post("notifications/initialized", {}, {}, is_request=False)

    def introduction(self):
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": self.info}

    def list_tools(self):
        """Name → tool; or an error, as a text."""
        answer = self.ask("tools/list", {})
        if "error" in answer:
            return answer["error"]["message"]
        return {tool["name"]: tool for tool in answer["result"]["tools"]}

    def call(self, name, arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments}, {"mcp-name": name})

    def ask(self, method, params, headers=None):
        if self.revision == MODERN:
            prefix = "io.modelcontextprotocol/"
            meta = {"protocolVersion": MODERN, "clientInfo": self.info, "clientCapabilities": self.capabilities}
            params = params | {"_meta": {prefix + name: value for name, value in meta.items()}}
            return self.post(method, params, {"mcp-method": method} | (headers or {}))
        return self.post(method, params, {})

    def post(self, method, params, headers, is_request=True):
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": 1} if is_request else {})
        accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if method != "initialize":
            headers = headers | {"mcp-protocol-version": self.revision}
        if self.session:
            headers = headers | {"mcp-session-id": self.session}
        request = urllib.request.Request(self.url, json.dumps(message).encode(), accepted | headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as response:
                self.status, self.headers = response.status, response.headers
                self.session = response.headers.get("mcp-session-id") or self.session
                return answer_in(response.read(), response.headers.get_content_type())
        except urllib.error.HTTPError as error:
            self.status, self.headers = error.code, error.headers
            return json.loads(error.read())


def answer_in(body, media):
    """The answer in a body, which may be one of several events."""
    if media != "text/event-stream":
        return json.loads(body) if body.strip() else {}
    messages = [json.loads(line.removeprefix("data:")) for line in body.decode().splitlines() if line.startswith("data:")]
    return next(message for message in messages if message.get("id") == 1)
