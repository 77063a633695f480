"""Sign-ins at a site: the provider, the way of a person's browser, and a client that renews its token."""

import base64
import contextlib
import hashlib
import html
import http.client
import json
import re
import secrets
import subprocess
import urllib.parse

from fleet.client import META, MODERN_VERSION, TIMEOUT_S

REDIRECT = "http://127.0.0.1:3118/cb"
PATH = "/people"
SECRET = "a secret of the client"

SECTION = """
[[jwt]]
name = "login"
issuer = "{issuer}"

[sign_in]
url = "{url}"
provider = "login"
client_id = "trunkline"
client_secret = {{ file = "{directory}/provider-secret" }}
key = {{ file = "{directory}/sign-in.key" }}
refresh_reuse = "{reuse}"

[[endpoint]]
path = "{path}"
upstreams = ["modern"]
public_url = "{url}{path}"
auth = ["sign_in"]
"""


@contextlib.contextmanager
def section(program, directory, port, reuse):
    """The settings that a gateway needs for sign-ins, while the provider runs. Clients know the gateways by this port."""
    url = f"http://localhost:{port}"
    for name, text in (("provider-secret", SECRET), ("sign-in.key", "7" * 64)):
        (directory / name).touch(mode=0o600)
        (directory / name).write_text(text)
    settings = {"client_id": "trunkline", "client_secret": SECRET, "redirect_uris": [f"{url}/sign-in/callback"]}
    child = subprocess.Popen([program, json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        try:
            issuer = child.stdout.readline().removeprefix("listening ").strip()
            yield SECTION.format(issuer=issuer, url=url, directory=directory, path=PATH, reuse=reuse)
        finally:
            child.kill()


def ask(url, method="GET", body=None, **headers):
    """An answer as it comes, with its body as text: no redirect is followed."""
    parts = urllib.parse.urlsplit(url)
    # "localhost" could be another address first.
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=TIMEOUT_S)
    try:
        target = urllib.parse.urlunsplit(("", "", parts.path, parts.query, ""))
        connection.request(method, target, body, {"Host": parts.netloc} | headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def ask_form(url, fields, **headers):
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    return ask(url, "POST", urllib.parse.urlencode(fields), **kind, **headers)


class Refused(Exception):
    """An answer of `/token` that is none."""

    def __init__(self, status, error):
        super().__init__(status, error)
        self.status, self.error = status, error


class Person:
    """A client of one person, at the port of the gateways' proxy: each step may be at another gateway."""

    def __init__(self, port, user="alice"):
        self._url = f"http://localhost:{port}"
        self._user = user
        self._client = self._register()
        self.tokens = None

    def sign_in(self):
        """Goes to the provider and back. Until `exchange` the client has nothing but a code, which this returns."""
        verifier = secrets.token_urlsafe(32)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "client_id": self._client,
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self._url + PATH,
        }
        status, headers, page = ask(f"{self._url}/authorize?{urllib.parse.urlencode(asked)}", Accept="text/html")
        assert status == 200, page
        cookies = cookies_of(headers)
        answer = {"form": found(r'name="form" value="([^"]+)"', page), "answer": "allow"}
        status, headers, page = ask_form(f"{self._url}/sign-in/consent", answer, Origin=self._url, Cookie=cookies)
        assert status == 200, page
        cookies = f"{cookies}; {cookies_of(headers)}"
        visit = found(r'url=([^"]+)"', page)
        status, headers, page = ask_form(visit, {"user": self._user})
        assert status == 303, page
        status, headers, page = ask(headers["Location"], Cookie=cookies)
        assert status == 303, page
        (code,) = urllib.parse.parse_qs(urllib.parse.urlsplit(headers["Location"]).query)["code"]
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": verifier,
            "client_id": self._client,
        }

    def exchange(self, code):
        self._ask_for_tokens(code)

    def refresh(self):
        shown = {"grant_type": "refresh_token", "refresh_token": self.tokens["refresh_token"], "client_id": self._client}
        self._ask_for_tokens(shown)

    def revoke(self):
        status, _, text = ask_form(f"{self._url}/revoke", {"token": self.tokens["refresh_token"], "client_id": self._client})
        assert status == 200, text

    def call(self, port=None):
        """The status of a call, at the gateway of this port."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        headers = {
            "Authorization": f"Bearer {self.tokens['access_token']}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN_VERSION,
            "Mcp-Method": "tools/list",
        }
        url = f"http://localhost:{port}{PATH}" if port else self._url + PATH
        status, *_ = ask(url, "POST", json.dumps(message), **headers)
        return status

    def _register(self):
        asked = {"redirect_uris": [REDIRECT], "client_name": "Fleet", "token_endpoint_auth_method": "none"}
        status, _, text = ask(f"{self._url}/register", "POST", json.dumps(asked), **{"Content-Type": "application/json"})
        assert status == 201, text
        return json.loads(text)["client_id"]

    def _ask_for_tokens(self, shown):
        status, _, text = ask_form(f"{self._url}/token", shown)
        try:
            answer = json.loads(text)
        except json.JSONDecodeError:
            raise Refused(status, "of the proxy") from None
        if status != 200:
            raise Refused(status, answer["error"])
        self.tokens = answer


def cookies_of(headers):
    return "; ".join(cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie", []))


def found(pattern, page):
    return html.unescape(re.search(pattern, page)[1])
