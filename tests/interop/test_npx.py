"""Programs that the gateway starts in the place of the real npx and npm: the same file, words and working directory, and no
launcher beside them."""

import asyncio
import json
import os
import pathlib
import shlex
import subprocess
import tempfile

from interop import npm_registry
from interop.cases import BoundedCase
from interop.test_launchers import until
from interop.topology import gateway

#: Command lines that the gateway resolves once npm has fetched the package.
RESOLVED = """
npx -y one-server@1.2.3 a --b
npx --yes -q one-server@1.2.3 -- --b
npx -y -- one-server@1.2.3 -- --b
npx -y @scope/two@1.2.3-beta.1 'a b' -- '$HOME'
npx -y -p one-server@1.2.3 one-server --b
npx -y --package=@scope/two@1.2.3-beta.1 other -- --b
npx --package @scope/two@1.2.3-beta.1 -y -- other --b
npm exec -y one-server@1.2.3 a b
npm exec -y one-server@1.2.3 -- --b
npm x --yes -- one-server@1.2.3 -- --b
npm exec --package=@scope/two@1.2.3-beta.1 -y -- other --b
""".strip().splitlines()
#: Others, which npm itself runs.
LEFT = """
npx -y one-server a
npm exec -y one-server@1.2.3 a -- --b
""".strip().splitlines()
KEYS = """
[listener]
address = "127.0.0.1:0"

[limits]
children_starting_max = 20

[[endpoint]]
path = "/mcp"
auth = []
"""


class Npx(BoundedCase):
    timeout_s = 120

    def __init__(self, method, binary):
        super().__init__(method, "launchers")
        self.binary = binary

    async def test_what_npm_has_fetched_is_started_as_npm_starts_it(self):
        with npm_registry.serving() as registry, tempfile.TemporaryDirectory(prefix="trunkline-interop-") as directory:
            home, elsewhere = pathlib.Path(directory, "home"), pathlib.Path(directory, "elsewhere")
            home.mkdir()
            elsewhere.mkdir()
            self.directory = elsewhere
            self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "npm_config_registry": registry}
            lines = [*RESOLVED, *LEFT]
            by_hand = [await asyncio.to_thread(self.by_hand, line) for line in lines]
            configuration = pathlib.Path(directory, "trunkline.toml")
            configuration.write_text(self.configuration(lines))
            with gateway(self.binary, configuration):
                await until(lambda: all(started(self.note(f"u{each}")) for each in range(len(lines))))
            for each, (line, expected) in enumerate(zip(lines, by_hand, strict=True)):
                found = started(self.note(f"u{each}"))[0]
                for same in ("words", "file", "directory"):
                    self.assertEqual(found[same], expected[same], line)
                is_by_npm = found["parent"][0] == "sh"
                self.assertEqual(is_by_npm, line in LEFT, f"{line}: {found['parent']}")

    def note(self, name):
        return self.directory / f"{name}.jsonl"

    def by_hand(self, line):
        note = self.note("by-hand")
        environment = self.environment | {"STARTED": str(note)}
        run = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60, "check": True}
        subprocess.run(shlex.split(line), env=environment, cwd=self.directory, **run)
        return started(note)[-1]

    def configuration(self, lines):
        names = [f"u{each}" for each in range(len(lines))]
        text = KEYS + f"upstreams = {json.dumps(names)}\n"
        for name, line in zip(names, lines, strict=True):
            variables = self.environment | {"STARTED": str(self.note(name))}
            environment = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
            text += f"\n[upstream.{name}]\ncommand = {json.dumps(shlex.split(line))}\nenv = {{ {environment} }}\n"
            text += f'directory = {json.dumps(str(self.directory))}\neras = ["legacy"]\n'
        return text


def started(note):
    """The starts that programs wrote down there."""
    return [json.loads(line) for line in note.read_text().splitlines()] if note.exists() else []
