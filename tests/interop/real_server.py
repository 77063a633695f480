#!/usr/bin/env python3
"""A server from PyPI that is made for stdio, over Streamable HTTP: `real_server.py time` or `real_server.py fetch`.

Prints `listening URL` once it accepts connections.
"""

import sys

from serving import serve


def time_server():
    from mcp_server_time.server import create_server

    return create_server("UTC")


def fetch_server():
    from mcp_server_fetch.server import create_server

    return create_server(ignore_robots_txt=True, allow_private_ips=True)


if __name__ == "__main__":
    serve({"time": time_server, "fetch": fetch_server}[sys.argv[1]]().streamable_http_app())
