"""A client of our authorization server that is built on PyPI `authlib`, which knows nothing of MCP.

It finds everything by the metadata (RFC 9728, RFC 8414), registers (RFC 7591), signs in with a code and PKCE, refreshes and revokes.
"""

import json
import os
import secrets
import urllib.parse
import urllib.request

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata

#: The tests go over loopback, without TLS.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
REDIRECT = "http://127.0.0.1:3118/callback"
SCOPE = "mcp:read mcp:write"
OAuthError = AuthlibBaseError


class SecondOpinion:
    """A client at one endpoint. Without `known`, a client id with its secret or key, it registers for `method`."""

    def __init__(self, endpoint, method="none", known=None):
        self.endpoint = endpoint
        self.resource, self.server = discovered(endpoint)
        client_id, secret = known or self.register(method)
        self.session = OAuth2Session(
            client_id,
            secret,
            token_endpoint_auth_method=method,
            revocation_endpoint_auth_method=method,
            redirect_uri=REDIRECT,
            scope=SCOPE,
            code_challenge_method="S256",
        )
        self.session.trust_env = False
        self.session.register_client_auth_method(PrivateKeyJWT(self.server["issuer"], alg="ES256"))

    def register(self, method):
        answer = json_of(self.server["registration_endpoint"], registration(method, REDIRECT))
        return answer["client_id"], answer.get("client_secret")

    def sign_in(self, person, verifier=None):
        """The whole way with a person. Returns the tokens."""
        own = secrets.token_urlsafe(48)
        address, state = self.session.create_authorization_url(
            self.server["authorization_endpoint"], code_verifier=own, resource=self.endpoint
        )
        back = person.visit(address, REDIRECT)
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(back).query))
        assert parameters["iss"] == self.server["issuer"], parameters
        return self.session.fetch_token(
            self.server["token_endpoint"],
            authorization_response=back,
            state=state,
            code_verifier=verifier or own,
            resource=self.endpoint,
        )

    def refresh(self):
        return self.session.refresh_token(self.server["token_endpoint"])

    def revoke(self):
        return self.session.revoke_token(
            self.server["revocation_endpoint"], self.session.token["refresh_token"], token_type_hint="refresh_token"
        ).status_code


def registration(method, redirect):
    """The registration of a client."""
    metadata = {"redirect_uris": [redirect], "token_endpoint_auth_method": method, "client_name": "Second opinion"}
    return json.dumps(metadata).encode()


def discovered(endpoint):
    """What the endpoint and its authorization server say of themselves; fails where a document is not as it has to be."""
    parts = urllib.parse.urlsplit(endpoint)
    base = f"{parts.scheme}://{parts.netloc}"
    resource = json_of(f"{base}/.well-known/oauth-protected-resource{parts.path}")
    assert resource["resource"] == endpoint, resource
    issuer = resource["authorization_servers"][0]
    server = AuthorizationServerMetadata(json_of(f"{issuer}/.well-known/oauth-authorization-server"))
    assert server["issuer"] == issuer, server
    server.validate()
    return resource, server


def json_of(url, body=None):
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
