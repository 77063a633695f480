"""Serves an ASGI application on the loopback interface, and says where once it accepts connections."""

import socket

import uvicorn


def serve(app, port=0, path="/mcp"):
    """Prints `listening URL` on standard output and returns when the process is asked to end."""
    # Only where the protocol is named does asyncio turn off Nagle's algorithm, which costs 40 ms an answer.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        Announced(config, f"listening {url}").run(sockets=[listener])


class Announced(uvicorn.Server):
    """Says on standard output when connections are accepted."""

    def __init__(self, config, line):
        super().__init__(config)
        self.line = line

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.line, flush=True)
