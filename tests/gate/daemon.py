"""The daemon or nginx under callgrind, and the stub server that it asks, which runs as fast as it can."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import textwrap
import time

from gate import dump
from ports import free_port

#: Valgrind starts it some thirty times slower than it starts by itself.
READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
CONTROL_TIMEOUT_S = 60
#: Where it listens for clients, as it logs: it takes a free port itself, so that nobody else can have it meanwhile.
LISTENING = re.compile(r"(?<!admin) listening address=127\.0\.0\.1:(\d+)")
READY = " ready "
#: One worker, so that all calls take the same way.
LISTENER = """
workers = 1

[listener]
address = "127.0.0.1:0"

[admin]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
"""


#: Debian keeps some servers where not everybody looks.
SYSTEM_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
#: The same for everybody: arguments and environment lie above the stack, so their length says where it begins.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
#: The place of the folders of the counted processes, so that their names have one length.
FOLDERS = "/tmp"
#: In `http`, for an nginx that writes to its own folder alone.
NGINX_PLACES = """
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
"""
NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
events {{ worker_connections 64; }}
http {{
    {places}
    keepalive_requests 1000000;
    upstream stub {{ server {upstream}; keepalive 16; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://stub;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


class Failure(Exception):
    """Why nothing could be counted."""


@contextlib.contextmanager
def folder():
    """An empty folder for one process, whose name is as long as that of any other."""
    with tempfile.TemporaryDirectory(prefix="gate", dir=FOLDERS) as name:
        yield pathlib.Path(name)


def linked(folder, name, program):
    """The program, by a name in the folder that is as long on every machine."""
    link = folder / name
    link.symlink_to(pathlib.Path(program).resolve())
    return link


@contextlib.contextmanager
def stub(program, options):
    """The address of a stub server."""
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1:]
            if not address:
                raise Failure(f"{program} did not start")
            yield address[0]
        finally:
            process.kill()


@contextlib.contextmanager
def trunkline(binary, settings, config, folder):
    """The daemon with these keys and this configuration, as soon as it listens."""
    file = folder / "trunkline.toml"
    file.write_text(settings + LISTENER + textwrap.dedent(config))
    with counted([linked(folder, "trunkline", binary), "run", "--config", file], folder) as process:
        log = process.wait_until(lambda: READY in (log := process.log.read_text()) and log)
        if not (listening := LISTENING.search(log)):
            raise Failure(f"the daemon did not log where it listens:\n{log}")
        process.port = int(listening[1])
        yield process


@contextlib.contextmanager
def nginx(upstream, folder):
    """nginx, one worker, blind pass-through to an address, as soon as it listens."""
    if not (program := shutil.which("nginx", path=SYSTEM_PATH)):
        raise Failure("nginx is not installed")
    port = free_port()
    file = folder / "nginx.conf"
    places = NGINX_PLACES.format(folder=folder)
    file.write_text(NGINX.format(folder=folder, places=places, port=port, upstream=upstream))
    with counted([program, "-p", folder, "-e", folder / "log", "-c", file], folder) as process:
        process.port = port
        process.wait_until(lambda: is_open(port))
        yield process


@contextlib.contextmanager
def counted(command, folder):
    process = Counted(command, folder)
    try:
        yield process
    except OSError as error:
        raise Failure(f"{error}; the log:\n{process.log.read_text()}") from error
    finally:
        process.stop()


def is_open(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


class Counted:
    """A process under callgrind."""

    def __init__(self, command, folder):
        self.counts, self.log = folder / "counts", folder / "log"
        self.dumped = 0
        self.port = None
        options = ["--quiet", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={self.counts}"]
        with self.log.open("wb") as log:
            command = [shutil.which("valgrind", path=SYSTEM_PATH) or "valgrind", *options, *command]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, **quiet)

    def wait_until(self, condition):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (found := condition()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{self.process.args} did not start:\n{self.log.read_text()}")
            time.sleep(0.02)
        return found

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def count(self, work):
        """Counts all threads while something is done."""
        self.control("zero")
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        self.control("dump")
        self.dumped += 1
        files = self.counts.parent.glob(f"{self.counts.name}.{self.dumped}-*")
        threads = {path.name.rpartition("-")[2]: dump.read(path.read_text().splitlines()) for path in files}
        return dump.Counts(threads, seconds)

    def control(self, command):
        told = ["vgdb", f"--pid={self.process.pid}", command]
        done = subprocess.run(told, env=ENVIRONMENT, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S)
        if done.returncode != 0:
            raise Failure(f"callgrind could not {command}: {done.stderr}\n{self.log.read_text()}")
