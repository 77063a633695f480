"""Every pair of a client and a server, whichever era each speaks: upstreams that know one era only, on each transport.

What clients of the other era see is not allowed to differ from what they see of a server of their own, except where
a `Route` says which revision an upstream speaks; the cases know what that changes.
"""

import contextlib
import json

from interop.topology import Route, Topology, everything_command, everything_server, gateway_address, gateway_with

#: So that what is kept for a while is soon given back.
BRIDGE = 'bridge = { session_idle_timeout = "3s", suspended_call_timeout = "10s" }\n'
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
#: Upstream → how it speaks, and in which era.
UPSTREAMS = {
    "legacy-a": ("http", "legacy"),
    "legacy-b": ("http", "legacy"),
    "modern-a": ("http", "modern"),
    "modern-b": ("http", "modern"),
    "sse-a": ("sse", "legacy"),
    "sse-b": ("sse", "legacy"),
    "child-legacy-a": ("stdio", "legacy"),
    "child-legacy-b": ("stdio", "legacy"),
    "child-modern-a": ("stdio", "modern"),
    "child-modern-b": ("stdio", "modern"),
}
#: Endpoint → its upstreams, of which the first is alpha and the second beta.
ENDPOINTS = {
    "legacy": ("legacy-a",),
    "modern": ("modern-a",),
    "both": ("legacy-a", "modern-b"),
    "both-as-children": ("child-modern-a", "child-legacy-b"),
    "sse-beside-modern": ("sse-a", "modern-b"),
}
FURTHER_ENDPOINTS = {
    "legacy-prefixed": ("legacy-a", "legacy-b"),
    "modern-prefixed": ("modern-a", "modern-b"),
    "sse": ("sse-a",),
    "sse-prefixed": ("sse-a", "sse-b"),
    "legacy-child": ("child-legacy-a",),
    "modern-child": ("child-modern-a",),
    "legacy-children": ("child-legacy-a", "child-legacy-b"),
    "modern-children": ("child-modern-a", "child-modern-b"),
    "children-swapped": ("child-legacy-a", "child-modern-b"),
    "both-swapped": ("modern-a", "legacy-b"),
}
FULL_NAME = {"a": "alpha", "b": "beta"}


@contextlib.contextmanager
def running(binary, every_pair=False):
    """Starts everything, yields a `Topology`, stops everything."""
    endpoints = ENDPOINTS | (FURTHER_ENDPOINTS if every_pair else {})
    used = {name for upstreams in endpoints.values() for name in upstreams}
    with contextlib.ExitStack() as stack:
        processes, described = [], []
        for name, (transport, era) in UPSTREAMS.items():
            if name not in used:
                continue
            public = FULL_NAME[name[-1]]
            if transport == "stdio":
                command = everything_command(public, "--only", era)
                described.append(f'[upstream.{name}]\ncommand = {command}\neras = ["{era}"]\nlist_timeout = "20s"\n{BRIDGE}')
            else:
                options = ["--sse"] if transport == "sse" else []
                server = stack.enter_context(everything_server(public, "--only", era, *options))
                processes.append(server)
                described.append(f'[upstream.{name}]\nurl = "{server.ready[1]}"\n{BRIDGE}')
        for path, upstreams in endpoints.items():
            described.append(f'[[endpoint]]\npath = "/{path}"\nupstreams = {json.dumps(upstreams)}\nauth = []\n')
        process = stack.enter_context(gateway_with(binary, "\n" + "\n".join(described)))
        routes = tuple(gateway_routes(f"http://{gateway_address(process)}", endpoints))
        yield Topology(routes, (*processes, process), str(binary.resolve()))


def gateway_routes(base, endpoints):
    for path, upstreams in endpoints.items():
        names = {}
        if len(upstreams) > 1:
            for public, name in zip(FULL_NAME.values(), upstreams, strict=True):
                names |= {f"{public}_name": f"{name}__{{}}", f"{public}_uri": f"{name}+{{}}"}
        for public, name in zip(FULL_NAME.values(), upstreams):
            transport, era = UPSTREAMS[name]
            names[f"{public}_revision"] = REVISIONS[era]
            if transport == "stdio":
                names["has_children"] = True
        yield Route(path, f"{base}/{path}", **names, for_sessions=True)


def eras_of_clients(route):
    """The eras of the clients that cannot speak to every upstream of a route without help."""
    spoken = {route.alpha_revision, route.beta_revision or route.alpha_revision}
    return {era for era, revision in REVISIONS.items() if spoken != {revision}}
