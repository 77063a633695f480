"""Calls that take three times as long as HAProxy lets a connection be quiet, in both eras, from every kind of server."""

import concurrent.futures
import http.client
import json
import pathlib
import re
import sys

from interop.process import Process
from ports import free_port
from proxies import site, slow

#: The duration of a call, and the patience of HAProxy.
CALL_S = 3.0
IDLE_MS = 1000
VERSION, LEGACY = "2026-07-28", "2025-11-25"

#: Name of the endpoint → keys of its upstream.
UPSTREAMS = {
    "json": 'url = "http://127.0.0.1:{port}/json"\neras = ["modern", "legacy"]',
    "events": 'url = "http://127.0.0.1:{port}/events"\neras = ["modern", "legacy"]',
    "bridged": 'url = "http://127.0.0.1:{port}/json"\neras = ["legacy"]',
    "sse": 'url = "http://127.0.0.1:{port}/sse"\ntransport = "sse"\neras = ["legacy"]',
    "child": 'command = [{python}, {slow}, "{call}"]\neras = ["modern", "legacy"]',
}

TRUNKLINE = """
[listener]
address = "127.0.0.1:0"
[session]
keep_alive_interval = "300ms"
"""

HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client {idle}ms
  timeout server {idle}ms
  retries 0
frontend clients
  bind 127.0.0.1:{port}
  default_backend gateway
backend gateway
  server gateway 127.0.0.1:{gateway}
"""


def verdicts(binary, folder):
    """Each call, and its fault, if there was one."""
    with slow.serving(CALL_S) as port:
        values = {"port": port, "python": json.dumps(sys.executable), "slow": json.dumps(slow.__file__), "call": CALL_S}
        config = TRUNKLINE
        for name, keys in UPSTREAMS.items():
            config += f'\n[[endpoint]]\npath = "/{name}"\nupstreams = ["{name}"]\n'
            config += f"[upstream.{name}]\n{keys.format(**values)}\n"
        file = pathlib.Path(folder) / "quiet.toml"
        file.write_text(config)
        with Process("trunkline", [binary, "run", "--config", file], ready=r" ready ") as process:
            gateway = int(re.search(r"listening address=127\.0\.0\.1:(\d+)", process.announced)[1])
            proxy = site.Proxy("HAProxy", free_port(), None)
            settings = pathlib.Path(folder) / "quiet.cfg"
            settings.write_text(HAPROXY.format(idle=IDLE_MS, port=proxy.port, gateway=gateway))
            with site.running([site.program("haproxy"), "-db", "-f", settings], pathlib.Path(folder), proxy):
                yield from called(proxy.port)


def called(port):
    """All at once, as they spend their time waiting."""
    eras = {"modern": call_modern, "legacy": call_legacy}
    cases = [(name, era, progress) for name in UPSTREAMS for era in eras for progress in (False, True)]

    def verdict(case):
        name, era, progress = case
        what = f"{name}, {era}{', with progress' if progress else ''}"
        try:
            told = eras[era](port, f"/{name}", progress)
            return what, None if "late" in told else told
        except (OSError, http.client.HTTPException) as fault:
            return what, repr(fault)

    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        yield from pool.map(verdict, cases)


def call_modern(port, path, progress):
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": "wait"}
    return post(port, path, request("tools/call", call_of(meta, progress)), headers)[1]


def call_legacy(port, path, progress):
    client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "quiet", "version": "1"}}
    answered, _ = post(port, path, request("initialize", client), {})
    headers = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": answered.getheader("Mcp-Session-Id")}
    return post(port, path, request("tools/call", call_of({}, progress)), headers)[1]


def call_of(meta, progress):
    meta = {**meta, **({"progressToken": "t"} if progress else {})}
    return {"name": "wait", "arguments": {}, **({"_meta": meta} if meta else {})}


def request(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def post(port, path, message, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", path, json.dumps(message), {**accept, **headers})
    answered = connection.getresponse()
    return answered, answered.read().decode()
