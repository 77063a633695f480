"""Ports on the loopback address for programs that are to be told where they listen.

They lie below those that systems give to connections going out, one of which could take a port between here and the
start of its program.
"""

import random
import socket

PORTS = range(20_000, 32_000)


def free_port():
    """A port that nobody listens on now."""
    while True:
        with socket.socket() as listener:
            try:
                port = random.choice(PORTS)
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
