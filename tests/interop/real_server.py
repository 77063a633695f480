#!/usr/bin/env python3
"""A server from PyPI that is made for stdio, over Streamable HTTP: `real_server.py time`, `fetch` or `git REPOSITORY`.

Prints `listening URL` once it accepts connections.
"""

import pathlib
import sys

from serving import serve


def time_server():
    from mcp_server_time.server import create_server

    return create_server("UTC")


def fetch_server():
    from mcp_server_fetch.server import create_server

    return create_server(ignore_robots_txt=True, allow_private_ips=True)


def git_server(repository):
    from mcp_server_git.server import create_server

    return create_server(pathlib.Path(repository))


if __name__ == "__main__":
    made = {"time": time_server, "fetch": fetch_server, "git": git_server}[sys.argv[1]](*sys.argv[2:])
    serve(made.streamable_http_app())
