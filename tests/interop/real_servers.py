"""Servers that people use, from PyPI and npm, started as upstreams of a gateway.

`time`, `fetch` and `git` speak every revision; `everything`, and `memory` and `files` behind a proxy from PyPI that
brings stdio servers to HTTP, speak the older ones only. At two endpoints more the gateway starts each of them as a
child of its own. What they work on is made here.
"""

import contextlib
import dataclasses
import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
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
upstreams = ["time", "fetch", "git"]
auth = []

[[endpoint]]
path = "/older-revisions"
upstreams = ["time", "fetch", "git", "everything", "memory", "files"]
auth = []

[[endpoint]]
path = "/children-of-every-revision"
upstreams = ["c-time", "c-fetch", "c-git"]
auth = []

[[endpoint]]
path = "/children-of-older-revisions"
upstreams = ["c-time", "c-fetch", "c-git", "c-everything", "c-memory", "c-files"]
auth = []
"""
CHILD_ERAS = dict.fromkeys(("time", "fetch", "git"), '"modern", "legacy"') | dict.fromkeys(
    ("everything", "memory", "files"), '"legacy"'
)
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
        make_repository(repository(directory))
        servers = (from_pypi("time"), from_pypi("fetch"), from_pypi("git", repository(directory)))
        time, fetch, git = (stack.enter_context(server) for server in servers)
        everything = stack.enter_context(everything_over_http(modules))
        proxy = stack.enter_context(behind_proxy(modules, python1, directory))
        urls = {server.name: server.ready[1] for server in (time, fetch, git, everything)}
        urls |= {name: f"{proxy.ready[1]}/servers/{name}/mcp" for name in ("memory", "files")}
        known = {"directory": directory, "page_url": stack.enter_context(page_server(directory))}
        processes = (time, fetch, git, everything, proxy)
        if binary is None:
            yield RealServers(urls, processes=processes, **known)
            return
        configuration = pathlib.Path(directory, "trunkline.toml")
        upstreams = "".join(f'\n[upstream.{name}]\nurl = "{url}"\n' for name, url in urls.items())
        configuration.write_text(CONFIGURATION + upstreams + children(modules, directory))
        process = stack.enter_context(gateway(binary, configuration))
        url = f"http://{gateway_address(process)}"
        yield RealServers(urls, processes=(*processes, process), gateway_url=url, **known)


def children(modules, directory):
    """The servers as they are started by hosts, as upstreams of the gateway."""
    installed = pathlib.Path(sys.executable).parent
    node = shutil.which("node")
    commands = {
        "time": [installed / "mcp-server-time", "--local-timezone", "UTC"],
        "fetch": [installed / "mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"],
        "git": [installed / "mcp-server-git", "--repository", repository(directory)],
        "everything": [node, modules / "server-everything/dist/index.js", "stdio"],
        "memory": [node, modules / "server-memory/dist/index.js"],
        "files": [node, modules / "server-filesystem/dist/index.js", directory],
    }
    environment = json.dumps(f"{directory}/memory-of-children.jsonl")
    return "".join(
        f"\n[upstream.c-{name}]\ncommand = {json.dumps([str(part) for part in command])}\n"
        f"env = {{ MEMORY_FILE_PATH = {environment} }}\n"
        # All start at once, and may take longer than they are given to say what they speak.
        f'list_timeout = "60s"\neras = [{CHILD_ERAS[name]}]\n'
        for name, command in commands.items()
    )


def repository(directory):
    return pathlib.Path(directory, "repository")


def make_repository(path):
    """One commit, whose message is `TEXT`."""
    author = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    author |= {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (["init", "-q", path], ["-C", path, "commit", "-q", "--allow-empty", "-m", TEXT]):
        subprocess.run(["git", *command], check=True, timeout=10, env={**os.environ, **author})


def from_pypi(name, *arguments):
    command = [sys.executable, "-B", HERE / "real_server.py", name, *arguments]
    return Process(name, command, ready=r"^listening (\S+)")


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
