"""A call with a token, as a client makes it that has one."""

import http.client
import json
import urllib.parse

from signing.site import OPEN_TOOL

VERSION = "2026-07-28"


def status_of_call(url, token):
    """The status with which a call of a tool for everybody is answered."""
    parts = urllib.parse.urlsplit(url)
    meta = {"protocolVersion": VERSION, "clientInfo": {"name": "try", "version": "1"}, "clientCapabilities": {}}
    params = {"name": OPEN_TOOL, "arguments": {}}
    params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": OPEN_TOOL,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.request("POST", parts.path, json.dumps(message), headers)
        return connection.getresponse().status
    finally:
        connection.close()
