"""Providers of npm `oidc-provider`, each as demanding as some real one, and a gateway for each."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess

from interop.process import Process
from joserfc.jwk import ECKey
from ports import free_port
from signing.site import CLIENT, SECRET, SECRET_IN_FILE, Site, callback, origin_of

PROGRAM = pathlib.Path(__file__).with_name("oidc_provider.mjs")
KEY_FILE = "provider-key.pem"


@dataclasses.dataclass(frozen=True)
class Profile:
    """The demands of a provider. Each refuses `resource`, and scopes that it does not know."""

    name: str
    method: str
    algorithm: str
    #: Lines of `[sign_in]`.
    keys: str = ""
    scopes: tuple = ("openid", "profile", "offline_access")
    groups_in: str = "id_token"
    rotates: bool = False

    def client(self, port, key):
        """The registration of the gateway at the provider."""
        known = {
            "client_id": CLIENT,
            "redirect_uris": [callback(origin_of(port))],
            "grant_types": ["authorization_code", *(["refresh_token"] if "offline_access" in self.scopes else [])],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.method,
            "id_token_signed_response_alg": self.algorithm,
        }
        if self.method == "private_key_jwt":
            return known | {"jwks": {"keys": [key.as_dict(private=False) | {"kid": "2026-11", "use": "sig"}]}}
        return known | {"client_secret": SECRET}


#: It gives refresh tokens to those alone who ask for consent.
PROMPT = 'parameters = { prompt = "consent" }'
BY_KEY = f'client_key = {{ file = "DIRECTORY/{KEY_FILE}" }}\nclient_key_id = "2026-11"'
PROFILES = (
    Profile("no refresh tokens", "client_secret_basic", "RS256", SECRET_IN_FILE, scopes=("openid", "profile")),
    Profile(
        "rotation, groups from userinfo",
        "client_secret_post",
        "ES256",
        f'{SECRET_IN_FILE}\nclient_authentication = "post"\n{PROMPT}\nrecheck_interval = "1m"',
        groups_in="userinfo",
        rotates=True,
    ),
    Profile("key of the client", "private_key_jwt", "PS256", f"{BY_KEY}\n{PROMPT}"),
    Profile("keys of Edwards", "client_secret_basic", "EdDSA", f"{SECRET_IN_FILE}\n{PROMPT}"),
)
REQUIRE = 'require = { groups = ["staff"] }'


@contextlib.contextmanager
def running(binary, npm, everything):
    """A provider for each profile, and a gateway before each; yields pairs of profile and gateway."""
    key = ECKey.generate_key("P-256")
    ports = [free_port() for _ in PROFILES]
    described = [
        {
            "client": profile.client(port, key),
            "scopes": profile.scopes,
            "refuses": ["resource"],
            "groups_in": profile.groups_in,
            "rotates": profile.rotates,
        }
        for profile, port in zip(PROFILES, ports, strict=True)
    ]
    command = ["node", PROGRAM, npm.resolve(), json.dumps(described)]
    with contextlib.ExitStack() as stack:
        process = Process("oidc-provider", command, ready=r"^listening (.+)", stdin=subprocess.PIPE)
        stack.enter_context(process)
        sites = []
        for profile, port, issuer in zip(PROFILES, ports, process.ready[1].split(), strict=True):
            site = Site(binary, issuer, everything, port, f"{profile.keys}\n{REQUIRE}")
            site.keep_secret(KEY_FILE, key.as_pem(private=True).decode())
            sites.append((profile, stack.enter_context(site)))
        yield sites
