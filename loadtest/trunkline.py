"""Trunkline's variants: the same program in the configurations whose costs are compared.

Metrics are on in all of them. Everything else that matters to a call is as shipped.
"""

import hashlib

from peers import TOOLS, WIDE_UPSTREAMS, Missing, Peer, free_address

API_KEY = "tl_" + 64 * "7"


def transparent(site):
    """Trunkline, one upstream, names as they are."""
    return _trunkline(site, "trunkline", ["a"])


def prefixed(site):
    """Trunkline, calls spread over two upstreams, names prefixed."""
    return _trunkline(site, "trunkline-prefixed", ["a", "b"])


def one(site):
    """Trunkline, one upstream, names prefixed."""
    return _trunkline(site, "trunkline-1", ["a"], 'names = "prefixed"')


def wide(site):
    """Trunkline, calls spread over 500 upstreams, names prefixed."""
    return _trunkline(site, "trunkline-500", _wide_names(), tools=["tool_0"])


def wide_one(site):
    """Trunkline, 500 upstreams configured, all calls to one of them."""
    peer = _trunkline(site, "trunkline-500-one", _wide_names())
    peer.tools = [f"u250__{tool}" for tool in TOOLS]
    return peer


def keyed(site):
    """Trunkline, one upstream, names as they are, an API key checked with every call."""
    digest = hashlib.sha256(API_KEY.encode()).hexdigest()
    peer = _trunkline(site, "trunkline-key", ["a"], more=f'[[api_key]]\nname = "load"\nsha256 = "{digest}"')
    peer.headers = [f"Authorization: Bearer {API_KEY}"]
    return peer


def _wide_names():
    return [f"u{number}" for number in range(WIDE_UPSTREAMS)]


def _trunkline(site, name, upstreams, naming="", more="", tools=TOOLS):
    if not site.trunkline.exists():
        raise Missing(f"{site.trunkline} does not exist")
    address = free_address()
    configuration = site.directory / f"{name}.toml"
    sections = [
        f"workers = {site.workers}",
        f'[listener]\naddress = "{address}"',
        f'[admin]\naddress = "{free_address()}"',
        # The default is more than some machines' limit of open files allows.
        "[limits]\nconnections_max = 4096",
        # Nobody is left to wait for when the load has ended.
        '[drain]\nquiet = "10ms"',
        f'[[endpoint]]\npath = "/mcp"\nupstreams = {upstreams}\n{naming}',
        more,
    ]
    for upstream in upstreams:
        stub = site.upstream_second if upstream == "b" else site.upstream
        sections.append(f'[upstream.{upstream}]\nurl = "http://{stub}/mcp"')
    configuration.write_text("\n\n".join(sections) + "\n")
    is_prefixed = bool(naming) or len(upstreams) > 1
    public = [f"{upstream}__{tool}" for tool in tools for upstream in upstreams] if is_prefixed else tools
    return Peer(name, [site.trunkline, "run", "--config", configuration], address, public, verifies=True)
