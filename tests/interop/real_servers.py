"""Servers that people use, from PyPI and npm, started as upstreams of a gateway.

`time` and `fetch` speak every revision; `everything`, and `memory` and `files` behind a proxy from PyPI that
brings stdio servers to HTTP, speak the older ones only. What they work on is made here.
"""

import contextlib
import dataclasses
import functools
import http.server
import os
import pathlib
import sys
import tempfile
import threading

from interop.process import Process
from interop.topology import gateway, gateway_address

HERE = pathlib.Path(__file__).parent
CONFIGURATION = """
[listener]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
max = "2s"

[[endpoint]]
path = "/every-revision"
upstreams = ["time", "fetch"]
auth = []

[[endpoint]]
path = "/older-revisions"
upstreams = ["time", "fetch", "everything", "memory", "files"]
auth = []
"""
#: What the servers that read files and pages find.
TEXT = "Trunkline was here."
PAGE = f"<html><head><title>A page</title></head><body><h1>A page</h1><p>{TEXT}</p></body></html>"


@dataclasses.dataclass(frozen=True)
class RealServers:
    urls: dict
    """Where each server is, by its name, which is also its prefix."""
    directory: str
    page_url: str
    processes: tuple
    gateway_url: str = ""

    def logs(self):
        return "\n".join(process.log() for process in self.processes)


@contextlib.contextmanager
def running(binary, npm, python1):
    """Starts everything, yields the `RealServers`, stops everything. Without a binary there is no gateway."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-interop-"))
        pathlib.Path(directory, "note.txt").write_text(TEXT)
        pathlib.Path(directory, "page.html").write_text(PAGE)
        modules = npm.resolve() / "node_modules" / "@modelcontextprotocol"
        time, fetch = (stack.enter_context(from_pypi(name)) for name in ("time", "fetch"))
        everything = stack.enter_context(everything_over_http(modules))
        proxy = stack.enter_context(behind_proxy(modules, python1, directory))
        urls = {server.name: server.ready[1] for server in (time, fetch, everything)}
        urls |= {name: f"{proxy.ready[1]}/servers/{name}/mcp" for name in ("memory", "files")}
        known = {"directory": directory, "page_url": stack.enter_context(page_server(directory))}
        processes = (time, fetch, everything, proxy)
        if binary is None:
            yield RealServers(urls, processes=processes, **known)
            return
        configuration = pathlib.Path(directory, "trunkline.toml")
        upstreams = "".join(f'\n[upstream.{name}]\nurl = "{url}"\n' for name, url in urls.items())
        configuration.write_text(CONFIGURATION + upstreams)
        process = stack.enter_context(gateway(binary, configuration))
        url = f"http://{gateway_address(process)}"
        yield RealServers(urls, processes=(*processes, process), gateway_url=url, **known)


def from_pypi(name):
    return Process(name, [sys.executable, "-B", HERE / "real_server.py", name], ready=r"^listening (\S+)")


def everything_over_http(modules):
    command = ["node", "--import", HERE / "loopback_only.mjs", modules / "server-everything/dist/index.js"]
    return Process("everything", [*command, "streamableHttp"], ready=r"^listening (\S+)")


def behind_proxy(modules, python1, directory):
    """The proxy ends its servers itself."""
    commands = {
        "memory": f"node {modules}/server-memory/dist/index.js",
        "files": f"node {modules}/server-filesystem/dist/index.js {directory}",
    }
    named = [part for name, command in commands.items() for part in ("--named-server", name, command)]
    command = [pathlib.Path(python1).with_name("mcp-proxy"), "--port", "0", "--pass-environment", *named]
    environment = {**os.environ, "MEMORY_FILE_PATH": f"{directory}/memory.jsonl"}
    return Process("proxy", command, ready=r"Uvicorn running on (\S+)", environment=environment)


@contextlib.contextmanager
def page_server(directory):
    """The URL of a page that can be fetched."""
    handler = functools.partial(QuietHandler, directory=directory)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/page.html"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
