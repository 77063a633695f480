"""A token of the gateway's own, got as clients get it: the provider of the demo, a user, a code.

The client is one of the configuration for which the operator has consented, so that no page stands in between.
"""

import contextlib
import http.client
import json
import subprocess
import urllib.parse

from gate.caller import Request
from gate.daemon import Failure

URL = "http://localhost"
CLIENT = "gate"
SECRET = "a secret of the client"
REDIRECT = "https://client.example/cb"
USER = "alice"
#: RFC 7636, appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
#: Valgrind is slow, and the first sign-in asks the provider for everything.
TIMEOUT_S = 60


@contextlib.contextmanager
def provider(program):
    """The issuer of a provider that is told to trust the gateway."""
    settings = {"client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [f"{URL}/sign-in/callback"]}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([program, json.dumps(settings)], **piped) as process:
        try:
            issuer = process.stdout.readline().split()[-1:]
            if not issuer:
                raise Failure(f"{program} did not start")
            yield issuer[0]
        finally:
            process.kill()


def with_token(connection, request):
    """The request, with the token of a user who signs in for it."""
    gateway = urllib.parse.urlsplit(f"http://{connection.host}")
    asked = {
        "client_id": CLIENT,
        "redirect_uri": REDIRECT,
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": f"{URL}/mcp",
    }
    visit = ask(gateway, "GET", f"/authorize?{urllib.parse.urlencode(asked)}")
    cookies = "; ".join(cookie.split(";")[0] for cookie in visit.headers.get_all("Set-Cookie", []))
    at_provider = urllib.parse.urlsplit(location(visit))
    back = ask(at_provider, "POST", f"{at_provider.path}?{at_provider.query}", {"user": USER})
    callback = urllib.parse.urlsplit(location(back))
    done = ask(gateway, "GET", f"{callback.path}?{callback.query}", cookies=cookies)
    code = urllib.parse.parse_qs(urllib.parse.urlsplit(location(done)).query)["code"][0]
    shown = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
        "client_id": CLIENT,
    }
    tokens = json.loads(ask(gateway, "POST", "/token", shown).body)
    return Request(request.headers | {"Authorization": f"Bearer {tokens['access_token']}"}, request.body)


def ask(place, method, target, form=None, cookies=None):
    """The response of the server at a place; the gateway answers as the host of its URL."""
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=TIMEOUT_S)
    headers = FORM if form else {"Cookie": cookies} if cookies else {}
    try:
        connection.request(method, target, form and urllib.parse.urlencode(form), {"Host": "localhost", **headers})
        response = connection.getresponse()
        response.body = response.read()
        if response.status >= 400:
            raise Failure(f"{method} {target} was answered with {response.status}: {response.body}")
        return response
    finally:
        connection.close()


def location(response):
    if not (found := response.headers["Location"]):
        raise Failure(f"nobody was sent on, but shown {response.body}")
    return found
