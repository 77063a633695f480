"""The requests of `tests/edge/requests.toml` and the replies of `tests/upstreams/replies.toml` as bytes."""

import dataclasses
import pathlib
import tomllib

TESTS = pathlib.Path(__file__).resolve().parents[1]
LONG = "x" * 300


@dataclasses.dataclass
class Fixture:
    """What is sent, and what becomes of it with Trunkline, as it is written down."""

    name: str
    bytes: bytes
    #: The statuses that the client sees.
    answers: list
    #: The server ends the connection behind it.
    ends: bool = False


def requests():
    file = tomllib.loads((TESTS / "edge" / "requests.toml").read_text())

    def start(line):
        return f"{line}\r\nHost: localhost\r\n{file['fields']}"

    def call(name):
        return file["call"].replace("<id>", name)

    def last(name):
        body = call(name)
        return f"{start('POST /mcp HTTP/1.1')}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"

    values = {
        "<start>": start("POST /mcp HTTP/1.1"),
        "<start10>": start("POST /mcp HTTP/1.0"),
        "<startabs>": start("POST http://localhost/mcp HTTP/1.1"),
        "<startother>": start("POST /other HTTP/1.1"),
        "<fields>": file["fields"],
        **body_values(call("first")),
        "<innerlen>": str(len(last("inner"))),
        "<inner>": last("inner"),
        "<next>": last("next"),
        "<fill>": LONG,
        "<trailers>": f"X-A: {LONG}\r\n" * 30,
    }
    return [Fixture(one["name"], expanded(one["bytes"], values), one["answers"]) for one in file["request"]]


def replies():
    """The answers to the call `first`."""
    file = tomllib.loads((TESTS / "upstreams" / "replies.toml").read_text())
    stray = file["result"].replace("<id>", "first").replace("[]", '["stray"]')
    head = f"HTTP/1.1 200 OK\r\n{file['json']}"
    values = {
        "<ok>": head,
        "<json>": file["json"],
        **body_values(file["result"].replace("<id>", "first")),
        "<stray>": f"{head}Content-Length: {len(stray)}\r\n\r\n{stray}",
        "<fill>": LONG,
    }
    return [
        Fixture(one["name"], expanded(one["bytes"], values), one["answers"], one.get("ends", False))
        for one in file["reply"]
    ]


def call():
    """The call `first` as a request, behind which the client closes."""
    one = next(fixture for fixture in requests() if fixture.name == "a length")
    return one.bytes[: one.bytes.index(b"POST", 1)].replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


def body_values(body):
    """The ways to name the first body, and its length."""
    size = len(body)
    chunked = f"{size:x}\r\n{body}\r\n0\r\n\r\n"
    return {"<chunked>": chunked, "<len>": str(size), "<hex>": f"{size:x}", "<HEX>": f"{size:X}", "<body>": body}


def expanded(text, values):
    for name, value in values.items():
        text = text.replace(name, value)
    return text.encode()
