"""Keys, certificates and tokens of a run, made with the `openssl` program into its directory.

All keys are of the curve P-256: the kind that both sides of a comparison sign fastest with.
"""

import base64
import json
import subprocess
import time

from peers import Missing, find_program

CURVE = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
# Not an authority, so that it can be believed and shown as it is.
CERTIFICATE = """[req]
prompt = no
distinguished_name = subject
x509_extensions = extensions
[subject]
CN = localhost
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1, DNS:localhost
"""
ISSUER, AUDIENCE = "https://issuer.example", "loadtest"
TOKEN_LIFETIME_S = 12 * 3600


def certificate(directory):
    """A certificate for 127.0.0.1 that is signed by itself, and its key; two paths."""
    chain, key, wanted = (directory / name for name in ("server.pem", "server.key", "server.cnf"))
    if not chain.exists():
        _make_key(key)
        wanted.write_text(CERTIFICATE)
        _openssl("req", "-x509", "-new", "-key", key, "-config", wanted, "-days", 7, "-sha256", "-out", chain)
    return chain, key


def token(directory):
    """A token (ES256) of the group `load`, and the file with the key it can be checked with (JWKS)."""
    written, keys, key = (directory / name for name in ("token", "jwks.json", "issuer.key"))
    if not written.exists():
        _make_key(key)
        # The last 64 bytes of a public key are its two coordinates.
        point = _openssl("pkey", "-in", key, "-pubout", "-outform", "DER")[-64:]
        public = {"kty": "EC", "crv": "P-256", "kid": "k", "use": "sig", "alg": "ES256"}
        keys.write_text(json.dumps({"keys": [{**public, "x": _base64(point[:32]), "y": _base64(point[32:])}]}))
        now = int(time.time())
        times = {"iat": now, "nbf": now, "exp": now + TOKEN_LIFETIME_S}
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "load", "groups": ["load"], "scope": "mcp:call", **times}
        header = {"alg": "ES256", "kid": "k", "typ": "JWT"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        signature = _raw_signature(_openssl("dgst", "-sha256", "-sign", key, content=signed.encode()))
        written.write_text(f"{signed}.{_base64(signature)}")
    return written.read_text(), keys


def _make_key(path):
    _openssl("genpkey", *CURVE, "-out", path)


def _raw_signature(der):
    """The two numbers of a signature, 32 bytes each, out of their DER."""
    numbers, at = b"", 2
    for _ in range(2):
        length = der[at + 1]
        numbers += der[at + 2:at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return numbers


def _base64(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _openssl(*arguments, content=b""):
    command = [find_program("openssl"), *map(str, arguments)]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    if done.returncode != 0:
        raise Missing(f"openssl {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
