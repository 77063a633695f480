"""A registry of npm on this machine, with packages whose programs write down how they were started."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import tarfile
import threading
import urllib.parse

#: Its words, its own file and what started it; then it waits for the end of its input.
PROGRAM = """#!/usr/bin/env node
const fs = require("node:fs");
const parent = fs.readFileSync(`/proc/${process.ppid}/cmdline`, "utf8").split("\\0");
const started = { words: process.argv.slice(2), file: fs.realpathSync(process.argv[1]), parent, directory: process.cwd() };
fs.appendFileSync(process.env.STARTED, JSON.stringify(started) + "\\n");
process.stdin.resume();
"""
#: Package → its version and its programs.
PACKAGES = {
    "one-server": ("1.2.3", {"one-server": "main.js"}),
    "@scope/two": ("1.2.3-beta.1", {"two": "two.js", "other": "other.js"}),
}


@contextlib.contextmanager
def serving():
    """The URL of the registry."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Registry(http.server.BaseHTTPRequestHandler):
    archives = {}

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = urllib.parse.unquote(self.path).lstrip("/")
        package = name.removesuffix(".tgz")
        if package not in PACKAGES:
            self.send_error(404)
            return
        archive = self.archives.setdefault(package, archive_of(package))
        is_archive = name != package
        self.send_response(200)
        self.send_header("content-type", "application/octet-stream" if is_archive else "application/json")
        self.end_headers()
        self.wfile.write(archive if is_archive else json.dumps(self.description(package, archive)).encode())

    def description(self, package, archive):
        version, programs = PACKAGES[package]
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        place = {"tarball": f"http://127.0.0.1:{self.server.server_port}/{package}.tgz", "integrity": integrity}
        described = {"name": package, "version": version, "bin": programs, "dist": place}
        return {"name": package, "dist-tags": {"latest": version}, "versions": {version: described}}


def archive_of(package):
    version, programs = PACKAGES[package]
    manifest = json.dumps({"name": package, "version": version, "bin": programs})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in ({"package.json": manifest} | dict.fromkeys(programs.values(), PROGRAM)).items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()
