"""A client of the Python SDK that signs in: `client_python.py 1|2 SETTINGS`, with the version of the SDK and JSON.

Settings: `url` of the endpoint, `redirect` URI, `store` (a file), and perhaps `document`, the URL that describes the client.
Reads steps from standard input, a JSON object a line, and prints the outcome of each: `text` or `error`. Where it wants a
browser, it prints `visit` with the address first, and reads `back`, the address at which the browser came back.
"""

import asyncio
import contextlib
import json
import pathlib
import sys
import time
import urllib.parse

from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

AN_HOUR_S = 3600
ANSWER_TIMEOUT_S = 90
real_time = time.time


def main():
    version, settings = int(sys.argv[1]), json.loads(sys.argv[2])
    client = Client(version, settings)
    for line in sys.stdin:
        try:
            print_line(text=asyncio.run(client.take(json.loads(line))))
        except BaseException as error:  # noqa: BLE001 - all there is is told
            print_line(error="; ".join(causes(error)))


def causes(error):
    """The faults of a group, each by itself."""
    parts = getattr(error, "exceptions", None)
    return [cause for part in parts for cause in causes(part)] if parts else [f"{type(error).__name__}: {error}"]


def print_line(**said):
    print(json.dumps(said), flush=True)


class Store:
    """The memory of the client, in a file."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def read(self, name, model):
        known = json.loads(self.path.read_text()) if self.path.exists() else {}
        return model.model_validate(known[name]) if name in known else None

    def write(self, name, value):
        known = json.loads(self.path.read_text()) if self.path.exists() else {}
        known[name] = value.model_dump(mode="json", exclude_none=True)
        self.path.write_text(json.dumps(known))

    async def get_tokens(self):
        return self.read("tokens", OAuthToken)

    async def set_tokens(self, tokens):
        self.write("tokens", tokens)

    async def get_client_info(self):
        return self.read("client", OAuthClientInformationFull)

    async def set_client_info(self, client):
        self.write("client", client)


class Client:
    def __init__(self, version, settings):
        self.version, self.url = version, settings["url"]
        metadata = OAuthClientMetadata(
            client_name="Desk",
            redirect_uris=[settings["redirect"]],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        self.auth = OAuthClientProvider(
            server_url=self.url,
            client_metadata=metadata,
            storage=Store(settings["store"]),
            redirect_handler=self.visit,
            callback_handler=self.came_back,
            client_metadata_url=settings.get("document"),
        )

    async def visit(self, url):
        print_line(visit=url)

    async def came_back(self):
        back = json.loads(await asyncio.to_thread(sys.stdin.readline))["back"]
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(back).query))
        if "error" in parameters:
            raise RuntimeError(f"sent back with {parameters}")
        if self.version == 1:
            return parameters["code"], parameters["state"]
        from mcp.shared.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(**parameters)

    async def take(self, step):
        if step["do"] == "later":
            time.time = lambda: real_time() + AN_HOUR_S
            return ""
        # A process that runs for long has a loop, and so a lock, for each step here.
        self.auth.context.lock = type(self.auth.context.lock)()
        async with asyncio.timeout(ANSWER_TIMEOUT_S), self.connected() as client:
            result = await client.call_tool(step["tool"], {})
            return result.content[0].text

    @contextlib.asynccontextmanager
    async def connected(self):
        if self.version == 1:
            import httpx
            from mcp import ClientSession

            async with (
                httpx.AsyncClient(auth=self.auth, timeout=ANSWER_TIMEOUT_S) as web,
                streamable_http_client(self.url, http_client=web) as (read, write, _),
                ClientSession(read, write) as client,
            ):
                await client.initialize()
                yield client
        else:
            from mcp import Client as NewClient
            from mcp.shared._httpx_utils import create_mcp_http_client

            async with create_mcp_http_client(auth=self.auth) as web:
                async with NewClient(streamable_http_client(self.url, http_client=web), mode="auto") as client:
                    yield client


if __name__ == "__main__":
    main()
