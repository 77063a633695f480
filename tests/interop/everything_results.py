"""The everything server's vocabulary: content, results, schemas and errors as they stand on the wire."""

import base64

import mcp_types as types
from mcp.shared.exceptions import MCPError

STRING = {"type": "string"}
PIXEL_PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
SILENT_WAV = base64.b64encode(
    b"RIFF"
    + (36).to_bytes(4, "little")
    + b"WAVEfmt "
    + (16).to_bytes(4, "little")
    + bytes.fromhex("01000100401f0000401f000001000800")
    + b"data"
    + bytes(4)
).decode()
PICTURE = {"type": "image", "data": PIXEL_PNG, "mimeType": "image/png"}
SOUND = {"type": "audio", "data": SILENT_WAV, "mimeType": "audio/wav"}


def object_schema(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


def text(value):
    return {"type": "text", "text": value}


def embedded(uri, mime_type, value):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": value}}


def link(uri, name):
    return {"type": "resource_link", "uri": uri, "name": name, "mimeType": "text/plain"}


def complete(*content, **fields):
    return {"resultType": "complete", "content": list(content), **fields}


def messages(*content):
    return {"resultType": "complete", "messages": [{"role": "user", "content": part} for part in content]}


def invalid(message, **data):
    return MCPError(types.INVALID_PARAMS, message, data or None)
