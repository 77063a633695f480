"""Ports on the loopback address for programs that are to be told where they listen.

They lie below those that systems give to connections going out, one of which could take a port between here and the
start of its program. Until this process ends, no other asks for the same: a socket that does not listen holds each, and
lets only those in its place that say `SO_REUSEADDR`, as servers do.
"""

import random
import socket

PORTS = range(20_000, 32_000)

_holders = []


def free_port():
    """A port that nobody listens on now, and that nobody else is given."""
    while True:
        holder = socket.socket()
        try:
            port = random.choice(PORTS)
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        # Only now: with it, the port of another holder could be had.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _holders.append(holder)
        return port
