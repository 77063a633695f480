"""What operators watch, switched on: metrics, an access log, traces; and a scrape of as much as there may be."""

import contextlib
import http.client
import http.server
import statistics
import threading
import time

from trunkline import LIMITS, gateway

# The cap of what is told apart in metrics.
TOOLS_TOLD_APART = 1000
UPSTREAMS = [f"u{number}" for number in range(500)]
TOOLS_OF_EACH = TOOLS_TOLD_APART // len(UPSTREAMS)
SCRAPE_INTERVAL_S = 0.5
ANSWER_TIMEOUT_S = 10


def unobserved(site):
    """Nothing is measured, logged or traced."""
    return gateway(site, "trunkline-unobserved", ["a"], more="[metrics]\ndurations = false")


def metered(site):
    """As shipped: metrics."""
    return gateway(site, "trunkline-metered", ["a"])


def observed(site):
    """Metrics, one answered call in a hundred in the access log, one in a thousand traced."""
    collector = _Collector()
    log = f'[log.access]\nfile = "{site.directory / "access.log"}"\nformat = "json"\nsuccess_ratio = 0.01'
    trace = f'[trace]\nendpoint = "http://{collector.address}/v1/traces"\nratio = 0.001'
    peer = gateway(site, "trunkline-observed", ["a"], more=f"{log}\n\n{trace}")
    peer.meanwhile = collector.running
    return peer


def unscraped(site):
    """500 upstreams and 1000 tools, all called."""
    return _wide(site, "trunkline-unscraped")


def scraped(site):
    """The same while its metrics and its status are read."""
    peer = _wide(site, "trunkline-scraped")
    peer.meanwhile = _Reader(peer.admin).running
    return peer


def _wide(site, name):
    tools = [f"tool_{number}" for number in range(TOOLS_OF_EACH)]
    stub = site.stubs.address(TOOLS_OF_EACH)
    peer = gateway(site, name, UPSTREAMS, tools=tools, stubs=dict.fromkeys(UPSTREAMS, stub), limits=LIMITS)
    peer.tools_listed = TOOLS_TOLD_APART
    return peer


class _Collector:
    """Takes spans and forgets them."""

    def __init__(self):
        self.bodies = 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                collector.bodies += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_address[1]

    @contextlib.contextmanager
    def running(self, found):
        """Takes them until the end of the block."""
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()
            found["exports"] = self.bodies


class _Reader:
    """Reads `/metrics` and `/status` again and again."""

    def __init__(self, address):
        self.address = address
        self.ms = {"/metrics": [], "/status": []}
        self.bytes = {}

    @contextlib.contextmanager
    def running(self, found):
        """Reads until the end of the block."""
        ended = threading.Event()
        thread = threading.Thread(target=self._read_until, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            # The first ones come before every series has been made.
            for path, name in (("/metrics", "scrape"), ("/status", "status")):
                if len(self.ms[path]) > 1:
                    found[f"{name}_ms"] = round(statistics.median(self.ms[path][1:]), 2)
                    found[f"{name}_max_ms"] = round(max(self.ms[path][1:]), 2)
                    found[f"{name}_kib"] = round(self.bytes[path] / 1024)

    def _read_until(self, ended):
        while not ended.wait(SCRAPE_INTERVAL_S):
            for path, times in self.ms.items():
                begin = time.monotonic()
                body = self._get(path)
                if body:
                    times.append((time.monotonic() - begin) * 1000)
                    self.bytes[path] = len(body)

    def _get(self, path):
        host, port = self.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            return body if response.status == 200 else b""
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            connection.close()
