"""What stands between clients and calls, switched on: credentials, rules, limits, TLS."""

import hashlib

import openssl
from measure import ask_redis
from peers import find_program, nginx
from trunkline import API_KEY, LIMITS, gateway

# More than the load makes, so that nothing is refused; a lease is asked for about ten times a second.
LIMIT = '[[limit]]\nname = "own"\nby = ["principal"]\ncalls = 200000\nperiod = "1s"'
# Half of them allow; the last of these is the one that counts.
ALLOWED = ["get_*", "list_*", "search*", "read_*", "*_info", "describe_*", "find_*", "count_*", "show_*", "tool_*"]
DENIED = ["delete_*", "drop_*", "*_admin", "exec*", "write_*", "update_*", "reset_*", "grant_*", "*_secret", "wipe*"]
# One address makes all connections, and all of them at once.
HANDSHAKE_LIMITS = f"{LIMITS}\nhandshakes_max = 1024\nhandshakes_per_address_max = 1024"


def plain(site):
    """What `transparent` is, measured beside the next three."""
    return gateway(site, "trunkline-edge", ["a"])


def keyed(site):
    """An API key, twenty rules and a limit of each principal's own."""
    digest = hashlib.sha256(API_KEY.encode()).hexdigest()
    key = f'[[api_key]]\nname = "load"\nsha256 = "{digest}"\ngroups = ["load"]'
    peer = gateway(site, "trunkline-edge-key", ["a"], more="\n\n".join([key, _rules(), LIMIT]))
    peer.headers = [f"Authorization: Bearer {API_KEY}"]
    return peer


def by_token(site):
    """A token (JWT), the same with every call."""
    token, keys = openssl.token(site.directory)
    issuer = f'[[jwt]]\nname = "issuer"\nissuer = "{openssl.ISSUER}"\njwks_file = "{keys}"'
    more = f'{issuer}\nalgorithms = ["ES256"]\naudiences = ["{openssl.AUDIENCE}"]'
    endpoint = 'public_url = "http://localhost/mcp"\nhosts = ["localhost", "127.0.0.1"]'
    peer = gateway(site, "trunkline-edge-jwt", ["a"], more=more, endpoint=endpoint)
    peer.headers = [f"Authorization: Bearer {token}"]
    return peer


def shared(site):
    """A limit that is counted in Redis, by leases."""
    redis = site.stubs.redis(find_program("redis-server"))
    more = f'[shared]\nredis = "redis://{redis}/0"\nreplicas = 2\n\n{LIMIT}\nshared = true'
    peer = gateway(site, "trunkline-edge-shared", ["a"], more=more)
    ask_redis(redis, "FLUSHALL")
    peer.redis = redis
    return peer


def nginx_blind(site):
    """nginx, blind pass-through: what the edge costs beside the cheapest thing that can stand there."""
    return nginx(site, "nginx-edge")


def nginx_clear(site):
    """nginx, blind pass-through."""
    return nginx(site, "nginx-clear")


def nginx_tls(site):
    """The same over TLS."""
    return _over_tls(site, nginx(site, "nginx-tls", nginx_tls_lines(site)))


def trunkline_clear(site):
    """Trunkline, one upstream, transparent."""
    return gateway(site, "trunkline-clear", ["a"])


def trunkline_tls(site):
    """The same over TLS."""
    peer = gateway(site, "trunkline-tls", ["a"], listener=trunkline_tls_lines(site), limits=HANDSHAKE_LIMITS)
    return _over_tls(site, peer)


def nginx_handshakes(site):
    """nginx, a connection and a handshake in place of a call."""
    return _handshaking(_over_tls(site, nginx(site, "nginx-handshakes", nginx_tls_lines(site))))


def trunkline_handshakes(site):
    """Trunkline, a connection and a handshake in place of a call."""
    peer = gateway(site, "trunkline-handshakes", ["a"], listener=trunkline_tls_lines(site), limits=HANDSHAKE_LIMITS)
    return _handshaking(_over_tls(site, peer))


def _over_tls(site, peer):
    peer.ca = openssl.certificate(site.directory)[0]
    return peer


def _handshaking(peer):
    peer.load = ["--handshakes"]
    return peer


def nginx_tls_lines(site):
    """What makes a server of nginx speak TLS 1.3 as the load wants it."""
    chain, key = openssl.certificate(site.directory)
    files = f"ssl_certificate {chain}; ssl_certificate_key {key};"
    # Of the client's one suite and group; tickets are given out by both servers, as they do by default.
    return f"{files} ssl_protocols TLSv1.3; ssl_ecdh_curve X25519;"


def trunkline_tls_lines(site):
    """What makes a listener of Trunkline do so."""
    chain, key = openssl.certificate(site.directory)
    files = f'{{ chain = "{chain}", key = {{ file = "{key}" }} }}'
    return f'[listener.tls]\ncertificates = [{files}]\nversion_min = "1.3"'


def _rules():
    def rule(effect, pattern):
        name = f"{effect} {pattern}".replace("*", "x").replace(" ", "-")
        return f'[[rule]]\nname = "{name}"\neffect = "{effect}"\ngroups = ["load"]\ntools = ["{pattern}"]'

    rules = [rule("allow", pattern) for pattern in ALLOWED] + [rule("deny", pattern) for pattern in DENIED]
    return "\n\n".join(rules)
