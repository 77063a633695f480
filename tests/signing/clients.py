"""The official SDKs as clients that sign in: each is a program of its own, `client_python.py` or `client_typescript.mjs`, that is
told line by line what to do, and says when it wants a browser.

A client keeps what it knows (its registration, its tokens) in a file, so that another process can go on with it.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import subprocess
import threading

from signing import site

HERE = pathlib.Path(__file__).parent
#: The ways in which a client makes itself known.
KINDS = ("registered", "document", "configured")
#: Of busy machines.
STEP_TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class Sdk:
    name: str
    command: tuple
    #: True if it refreshes when a call is answered with 401, and not by its own clock only.
    refreshes_at_401: bool
    is_newest: bool
    #: True if it opens a browser for a scope that a call lacks.
    steps_up: bool = True


def sdks(python, python1, npm):
    """Those that the tests go through."""
    scripted = str(HERE / "client_python.py")
    typescript = ("node", str(HERE / "client_typescript.mjs"), str(npm.resolve()))
    return (
        Sdk("python", (str(python), "-B", scripted, "2"), refreshes_at_401=False, is_newest=True),
        Sdk("python 1", (str(python1), "-B", scripted, "1"), refreshes_at_401=False, is_newest=False),
        Sdk("typescript", (*typescript, "2"), refreshes_at_401=True, is_newest=True),
        # It refreshes first, which gives no further scope (modelcontextprotocol/typescript-sdk#2255).
        Sdk("typescript 1", (*typescript, "1"), refreshes_at_401=True, is_newest=False, steps_up=False),
    )


class Client:
    """A process of an SDK at one endpoint; `person` answers when it opens a browser, and `visits` counts how often."""

    def __init__(self, sdk, kind, endpoint, person, store, port):
        self.sdk, self.person, self.store = sdk, person, store
        self.redirect = f"http://127.0.0.1:{port}/callback"
        self.visits = 0
        settings = {"url": endpoint, "redirect": self.redirect, "store": str(store)}
        if kind == "document":
            settings["document"] = site.DOCUMENT
        elif kind == "configured" and not store.exists():
            known = {"client_id": site.CONFIGURED, "client_secret": site.CONFIGURED_SECRET}
            known |= {"redirect_uris": [self.redirect], "token_endpoint_auth_method": "client_secret_basic"}
            store.write_text(json.dumps({"client": known}))
        self.command = [*sdk.command, json.dumps(settings)]

    def __enter__(self):
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.complaints = []
        self._reader = threading.Thread(target=lambda: self.complaints.extend(self.child.stderr), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self._reader.join(STEP_TIMEOUT_S)
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            with contextlib.suppress(OSError):
                pipe.close()

    def call(self, tool):
        """Connects and calls a tool. Returns what it answers."""
        return self.ask({"do": "call", "tool": tool})

    def later(self):
        """Its clock goes on by an hour, so that it takes its token for ended."""
        return self.ask({"do": "later"})

    def ask(self, step):
        self._tell(step)
        while True:
            said = self._hear()
            if "visit" not in said:
                break
            self.visits += 1
            self._tell({"back": self.person.visit(said["visit"], self.redirect)})
        if "error" in said:
            raise ClientError(f"{self.sdk.name}: {said['error']}\n{''.join(self.complaints[-40:])}")
        return said["text"]

    def _tell(self, step):
        self.child.stdin.write(json.dumps(step) + "\n")
        self.child.stdin.flush()

    def _hear(self):
        watchdog = threading.Timer(STEP_TIMEOUT_S, self.child.kill)
        watchdog.start()
        try:
            line = self.child.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ClientError(f"{self.sdk.name} ended\n{''.join(self.complaints[-40:])}")
        return json.loads(line)

    def known(self):
        return json.loads(self.store.read_text())

    def spoil(self):
        """Its access token is no longer one, as after its end."""
        known = self.known()
        known["tokens"]["access_token"] = "tla_" + "A" * 80
        self.store.write_text(json.dumps(known))

    def copied(self, name):
        """A copy of what it knows, for another process."""
        return pathlib.Path(shutil.copy(self.store, self.store.with_name(name)))


class ClientError(Exception):
    """The words of an SDK instead of an answer."""
