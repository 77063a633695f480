"""What the tests of sign-in run against: a provider, an MCP server, and a gateway that has people sign in at the one and calls the
other.

The gateway keeps its address and its state directory, so that it can end and start again in the middle of a test.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.request

from interop.process import Process
from interop.topology import gateway, gateway_address
from joserfc.jwk import ECKey
from ports import free_port

CLIENT = "trunkline"
SECRET = "a secret of the gateway at its provider"
OPERATOR = "a-token-of-operators"
#: A client that is known by configuration, and one by a document, which names no port as Claude Code's does.
CONFIGURED, CONFIGURED_SECRET = "desk-1", "a secret of a client~with-signs.of_all_kinds"
DOCUMENT = "https://clients.example.com/oauth/desk"
DOCUMENT_WITH_KEY = "https://clients.example.com/oauth/desk-with-a-key"
DOCUMENT_REDIRECTS = ["http://localhost/callback", "http://127.0.0.1/callback"]
SCOPES = '{ "mcp:read" = ["*"], "mcp:write" = ["ops"] }'
#: `open_tool` is for all who sign in, `guarded_tool` for those with the scope `mcp:write`.
OPEN_TOOL, GUARDED_TOOL = "whoami", "test_simple_text"
TLS = """
[listener.tls]
certificates = [{{ chain = "{directory}/cert.pem", key = {{ file = "{directory}/key.pem" }} }}]
"""
#: Hosts of the gateway with TLS and of an app, which a browser is told to find on this machine.
HOST, APP_HOST = "gateway.example", "apps.example"
SECRET_IN_FILE = 'client_secret = { file = "DIRECTORY/secret" }'
CONFIGURATION = """
state_directory = "{directory}/state"

[listener]
address = "127.0.0.1:{port}"

{tls}

[admin]
address = "127.0.0.1:0"
token = {{ file = "{directory}/operator" }}

[drain]
quiet = "10ms"
max = "2s"

[[jwt]]
name = "login"
issuer = "{issuer}"

[sign_in]
url = "{url}"
provider = "login"
client_id = "{client}"
scopes = {scopes}
client_documents = ["{directory}/document.json", "{directory}/document-with-key.json"]
{keys}

[[sign_in.client]]
id = "{configured}"
name = "Desk"
redirects = ["http://127.0.0.1/callback"]
secret = {{ file = "{directory}/client-secret" }}

[[endpoint]]
path = "/mcp"
upstreams = ["everything"]
public_url = "{url}/mcp"
auth = ["sign_in"]
scopes = ["mcp:read"]

[[endpoint]]
path = "/other"
upstreams = ["everything"]
public_url = "{url}/other"
auth = ["sign_in"]

[upstream.everything]
url = "{everything}"

[[rule]]
name = "all"
effect = "allow"
tools = ["{open_tool}"]

[[rule]]
name = "writers"
effect = "allow"
scopes = ["mcp:write"]
tools = ["{guarded_tool}"]
"""


class Site:
    """A gateway with sign-in; `keys` are further lines of `[sign_in]`, where `DIRECTORY` is the folder of its files. With TLS it is
    at `HOST`, and its certificate is for `APP_HOST`, too."""

    def __init__(self, binary, issuer, everything, port, keys=SECRET_IN_FILE, has_tls=False):
        self.binary = binary
        self.url = origin_of(port, has_tls)
        self.logs = []
        self._folder = tempfile.TemporaryDirectory(prefix="trunkline-signing-")
        self.directory = pathlib.Path(self._folder.name)
        (self.directory / "state").mkdir()
        for name, text in (("secret", SECRET), ("client-secret", CONFIGURED_SECRET), ("operator", OPERATOR)):
            self.keep_secret(name, text)
        document = {"client_name": "Desk", "redirect_uris": DOCUMENT_REDIRECTS}
        document |= {"grant_types": ["authorization_code", "refresh_token"]}
        open_one = {"client_id": DOCUMENT, "token_endpoint_auth_method": "none"}
        shown = {"keys": [document_key().as_dict(private=False) | {"use": "sig", "alg": "ES256"}]}
        with_key = {"client_id": DOCUMENT_WITH_KEY, "token_endpoint_auth_method": "private_key_jwt", "jwks": shown}
        for name, own in (("document", open_one), ("document-with-key", with_key)):
            (self.directory / f"{name}.json").write_text(json.dumps(document | own))
        if has_tls:
            make_certificate(self.directory)
        tls = TLS.format(directory=self.directory) if has_tls else ""
        told = {"directory": self.directory, "tls": tls, "port": port, "issuer": issuer, "url": self.url, "everything": everything}
        told |= {"client": CLIENT, "scopes": SCOPES, "configured": CONFIGURED}
        told |= {"open_tool": OPEN_TOOL, "guarded_tool": GUARDED_TOOL, "keys": keys.replace("DIRECTORY", str(self.directory))}
        self.configuration = self.directory / "trunkline.toml"
        self.configuration.write_text(CONFIGURATION.format(**told))

    def keep_secret(self, name, text):
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)

    def __enter__(self):
        self.process = gateway(self.binary, self.configuration).__enter__()
        return self

    def __exit__(self, *_):
        self.process.stop()
        self.logs.append(self.process.log())
        self._folder.cleanup()

    def restart(self):
        """Ends the gateway in order, and starts it again."""
        self.process.stop()
        self._start_again()

    def kill(self):
        """Ends the gateway without warning, and starts it again."""
        self.process.kill()
        self._start_again()

    def _start_again(self):
        self.logs.append(self.process.log())
        self.process = gateway(self.binary, self.configuration).__enter__()

    def grants(self, *words):
        """Returns what `trunkline grants` prints."""
        admin = gateway_address(self.process, "admin listening")
        command = [str(self.binary), "grants", *words, "--admin", admin]
        environment = {**os.environ, "TRUNKLINE_ADMIN_TOKEN": OPERATOR}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def metric(self, pattern):
        """The value of a series, or 0 where there is none."""
        admin = gateway_address(self.process, "admin listening")
        request = urllib.request.Request(f"http://{admin}/metrics", headers={"Authorization": f"Bearer {OPERATOR}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = re.search(rf"^{pattern} (\S+)$", answer.read().decode(), re.M)
        return float(found[1]) if found else 0

    def log(self):
        return "\n".join([*self.logs, self.process.log()])


class DemoProvider:
    """The provider of the demo, which can be told to fail."""

    def __init__(self, program, origin):
        settings = {"client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [callback(origin)]}
        # It ends with its standard input.
        command = [program, json.dumps(settings)]
        self.process = Process("provider", command, ready=r"^listening (\S+)", stdin=subprocess.PIPE)

    def __enter__(self):
        self.process.__enter__()
        self.issuer = self.process.ready[1]
        return self

    def __exit__(self, *_):
        self.process.stop()

    def faults(self, **faults):
        """Has it lie and fail; without any, no longer. `src/demo/provider/faults.rs` says which there are."""
        urllib.request.urlopen(f"{self.issuer}/faults", json.dumps(faults).encode(), timeout=60).close()


@functools.cache
def document_key():
    """The private key of the client of `DOCUMENT_WITH_KEY`, of this run."""
    return ECKey.generate_key("P-256", auto_kid=True)


def make_certificate(directory):
    names = ",".join(f"DNS:{host}" for host in (HOST, APP_HOST))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName={names}"]
    command += ["-keyout", directory / "key.pem", "-out", directory / "cert.pem"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def origin_of(port, has_tls=False):
    """The address at which browsers and clients find a gateway."""
    return f"https://{HOST}:{port}" if has_tls else f"http://127.0.0.1:{port}"


def callback(origin):
    return f"{origin}/sign-in/callback"


@contextlib.contextmanager
def running(binary, program, everything, keys="", has_tls=False):
    """A gateway with the provider of the demo; yields both."""
    port = free_port()
    with DemoProvider(program, origin_of(port, has_tls)) as provider:
        with Site(binary, provider.issuer, everything, port, f"{SECRET_IN_FILE}\n{keys}", has_tls) as site:
            yield site, provider
