"""Trunkline, nginx and HAProxy, each in front of a server of its own."""

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess

from fleet.site import listens, wait_for
from gate.daemon import NGINX_PLACES, SYSTEM_PATH
from interop.process import Process
from ports import free_port
from proxies.recorder import Recorder

#: How long a proxy waits for the rest of a request, and a client for a proxy.
PATIENCE_MS = 400
DEADLINE_S = 10

TRUNKLINE = """
workers = 1
[listener]
address = "127.0.0.1:0"
[limits]
header_timeout = "{patience}ms"
body_timeout = "{patience}ms"
idle_timeout = "{patience}ms"
[[endpoint]]
path = "/mcp"
upstreams = ["recorder"]
[upstream.recorder]
url = "http://127.0.0.1:{upstream}/mcp"
eras = ["modern"]
health = {{ interval = "0s" }}
breaker = {{ failures_max = 0 }}
"""

NGINX = """
{user}
daemon off;
master_process off;
pid {folder}/pid;
events {{ worker_connections 256; }}
http {{
  {places}
  client_header_timeout {patience}ms;
  client_body_timeout {patience}ms;
  keepalive_timeout {patience}ms;
  upstream recorder {{ server 127.0.0.1:{upstream} max_fails=0; keepalive 4; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://recorder;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout {patience}ms;
    }}
  }}
}}
"""

HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client {patience}ms
  timeout server {patience}ms
  timeout http-request {patience}ms
  timeout http-keep-alive {patience}ms
  retries 0
frontend clients
  bind 127.0.0.1:{port}
  default_backend recorder
backend recorder
  server recorder 127.0.0.1:{upstream}
"""


class Proxy:
    """One of them."""

    def __init__(self, name, port, recorder):
        self.name, self.port, self.recorder = name, port, recorder

    def send(self, data):
        """All that is answered until the connection is closed, and what has reached the server."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as connection:
            answer = b""
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
                while piece := connection.recv(65536):
                    answer += piece
        return answer, self.recorder.take()


def statuses(answer):
    """The statuses of all answers but interim ones; none of the bodies looks like a head."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] ([2-5]\d\d)", answer)]


def reply(answer):
    """Status and body of the one answer; 0 and what came where it breaks off."""
    while True:
        head, end, rest = answer.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.[01] (\d\d\d)", head)
        if not end or not status:
            return 0, answer
        if not 100 <= int(status[1]) < 200:
            break
        answer = rest
    body = rest
    if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
        body = b""
        while (size := re.match(rb"([0-9A-Fa-f]+)\r\n", rest)) and int(size[1], 16):
            data, rest = rest[size.end() :][: int(size[1], 16)], rest[size.end() + int(size[1], 16) + 2 :]
            body += data
        if not rest.startswith(b"0"):
            return 0, body
    elif length := re.search(rb"(?i)\r\ncontent-length: *(\d+)", head):
        if len(rest) < int(length[1]):
            return 0, rest
        body = rest[: int(length[1])]
    return int(status[1]), body


@contextlib.contextmanager
def trunkline(binary, folder):
    with Recorder() as recorder:
        file = folder / "trunkline.toml"
        file.write_text(TRUNKLINE.format(patience=PATIENCE_MS, upstream=recorder.port))
        with Process("trunkline", [binary, "run", "--config", file], ready=r" ready ") as process:
            port = re.search(r"listening address=127\.0\.0\.1:(\d+)", process.announced)[1]
            yield Proxy("Trunkline", int(port), recorder)


@contextlib.contextmanager
def nginx(folder):
    user = f"user {getpass.getuser()};" if os.getuid() == 0 else ""
    places = NGINX_PLACES.format(folder=folder)
    with configured("nginx", folder, NGINX, user=user, places=places) as (program, file, proxy):
        with running([program, "-p", folder, "-e", folder / "nginx.log", "-c", file], folder, proxy):
            yield proxy


@contextlib.contextmanager
def haproxy(folder):
    with configured("haproxy", folder, HAPROXY) as (program, file, proxy):
        with running([program, "-db", "-f", file], folder, proxy):
            yield proxy


@contextlib.contextmanager
def configured(name, folder, text, **values):
    with Recorder() as recorder:
        proxy = Proxy(name, free_port(), recorder)
        file = folder / f"{name}.conf"
        values |= {"folder": folder, "port": proxy.port, "upstream": recorder.port, "patience": PATIENCE_MS}
        file.write_text(text.format(**values))
        yield program(name), file, proxy


def program(name):
    found = shutil.which(name, path=SYSTEM_PATH)
    assert found, f"{name} is not installed"
    return found


@contextlib.contextmanager
def running(command, folder, proxy):
    log = folder / f"{proxy.name}.output"
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(f"{proxy.name} serves or ends", lambda: listens(proxy.port) or child.poll() is not None)
        assert child.poll() is None, log.read_text()
        yield
    finally:
        child.kill()
        child.wait()
