"""Tries what the documents say: `python -m documents --binary PATH --python PATH`, from `tests/`.

Every command of the README, of each chapter of the book and of the examples of trunkline(1) runs, in order and in one
shell for each of them, in a scratch directory and on free ports; what cannot is listed in `instead.py`. Chapters outside of
`docs/start` go on where the quick start ends. What stands below a block of commands is compared with what they print, but
for what differs every time. Every configuration is checked by the program that reads it (`languages.py`), every block says
what it is, and every link leads somewhere. The last line is `N passed, N failed`.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
import unittest

import suite
from ports import free_port

from . import blocks, book, languages
from .instead import AWAIT, OUTPUTS, instead
from .session import Session

ROOT = book.ROOT
README_LINES_MAX = 200
DOCUMENTS_AT_ONCE = 4
#: The ports of the documents, each of which becomes a free one.
PORTS = ("8080", "8443", "9090", "9091", "9101")
#: What differs every time → what it may be.
VARIES = [
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", r"\S+Z"),
    (r"\b[0-9a-f]{64}\b", "[0-9a-f]{64}"),
    (r"tl_[0-9a-f]{64}", "tl_[0-9a-f]{64}"),
    (r'version="[\d.]+"', r'version="[\\d.]+"'),
    (r"workers=\d+", r"workers=\\d+"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--python", type=pathlib.Path, required=True, help="a Python with the SDK")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    Documents.binary, Documents.python = options.binary.resolve(), options.python.absolute()
    return suite.run(Documents)


@dataclasses.dataclass
class Run:
    """One document that is followed: where, and on which ports."""

    directory: pathlib.Path
    ports: dict

    def on_free_ports(self, text):
        free = lambda port: self.ports.get(port[0], port[0])  # noqa: E731
        return re.sub(r"(?:(?<=127\.0\.0\.1[:/])|(?<=\D0\.0\.0\.0:)|(?<=localhost:)|(?<=port=))\d+", free, text)

    def block(self, session, block):
        session.run(self.on_free_ports(instead(block.commands())))

    def follow(self, session, block, before):
        place = re.match(r"# ~/(gateway/\S+)\n", block.text)
        if block.language == "toml" and place:
            (self.directory / place[1]).write_text(self.on_free_ports(instead(block.text)))
        elif block.is_commands:
            session.run(self.on_free_ports(GATEWAY_RUNS))
            self.block(session, block)
        elif is_output(block):
            self.compare(session, block, before)

    def compare(self, session, block, before):
        """Whether the commands before a block, or those that `OUTPUTS` names, print what it shows."""
        commands = next((how for start, how in OUTPUTS.items() if block.text.startswith(start)), None)
        if commands:
            session.run(self.on_free_ports(commands))
        elif not (before and before.is_commands):
            raise AssertionError("what prints this? See OUTPUTS in instead.py")
        for line in block.text.splitlines():
            session.expect(expected(self.on_free_ports(line)))


class Documents(unittest.TestCase):
    binary = python = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)

    def session(self, directory):
        programs = directory / ".programs"
        programs.mkdir()
        (programs / "trunkline").symlink_to(self.binary)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "BINARY": str(self.binary),
            "PYTHON": str(self.python),
            "REPOSITORY": str(ROOT),
            "PACKAGED": str(ROOT / "config" / "packaged.toml"),
        }
        return Session(directory, environment)

    def test_documents_do_what_they_say(self):
        documents = [document for document in book.documents() if has_commands(document) and not book.is_generated(document)]
        self.assertGreater(len(documents), 10)
        # They wait more than they work.
        with concurrent.futures.ThreadPoolExecutor(DOCUMENTS_AT_ONCE) as pool:
            for document, failures in zip(documents, pool.map(self.followed, documents)):
                with self.subTest(book.name(document)):
                    self.assertEqual(failures, [], "\n\n".join(failures))

    def followed(self, document):
        """What is wrong after its commands ran, in a directory and on ports of its own."""
        failures = []
        with tempfile.TemporaryDirectory() as directory:
            run = Run(pathlib.Path(directory), free_ports())
            with self.session(run.directory) as session:
                if book.begins_with_the_quick_start(document):
                    for block in filter(lambda block: block.is_commands, book.quick_start()):
                        run.block(session, block)
                all_blocks = blocks.of_markdown(document.read_text())
                for before, block in zip([None, *all_blocks], all_blocks):
                    try:
                        run.follow(session, block, before)
                    except AssertionError as failure:
                        failures.append(f"{block}: {failure}")
        return failures

    def test_no_exemption_is_left_over(self):
        texts = [block.text for document in book.documents() for block in blocks.of_markdown(document.read_text())]
        for start in OUTPUTS:
            self.assertTrue(any(text.startswith(start) for text in texts), start)
        for start in languages.UNTAGGED:
            self.assertTrue(any(text.strip().startswith(start) for text in texts), start)

    def test_every_block_says_what_it_is(self):
        for document, block in self.blocks():
            with self.subTest(f"{book.name(document)}, {block}"):
                if block.language:
                    self.assertIn(block.language, languages.LANGUAGES)
                else:
                    self.assertTrue(languages.why_untagged(block), "name its language, or say in languages.py why it has none")

    def test_what_is_not_run_is_right(self):
        checks = {
            "json": lambda block: is_output(block) or languages.check_json(block, self.binary),
            "promql": lambda block: languages.check_promql(block, self.scratch),
            "ini": lambda block: languages.check_ini(block, self.scratch, self.binary),
            "haproxy": lambda block: languages.check_haproxy(block, self.scratch),
        }
        for document, block in self.blocks():
            if block.language in checks:
                with self.subTest(f"{book.name(document)}, {block}"):
                    checks[block.language](block)

    def blocks(self):
        written = [document for document in book.documents() if not book.is_generated(document)]
        return [(document, block) for document in written for block in blocks.of_markdown(document.read_text())]

    def test_the_manual_page_does_what_it_says(self):
        subprocess.run([self.binary, "man", self.scratch / "man"], check=True, timeout=30)
        examples = blocks.of_manual_page((self.scratch / "man" / "trunkline.1").read_text())
        self.assertGreater(len(examples), 4)
        run = Run(self.scratch, free_ports())
        minimal = run.on_free_ports((ROOT / "config" / "examples" / "minimal.toml").read_text())
        (self.scratch / "trunkline.toml").write_text(minimal)
        (self.scratch / "state").mkdir()
        with self.session(self.scratch) as session:
            for example in examples:
                with self.subTest(str(example)):
                    run.block(session, example)

    def test_every_configuration_is_valid(self):
        for document in book.documents():
            for block in blocks.of_markdown(document.read_text()):
                if block.language == "toml":
                    with self.subTest(f"{book.name(document)}, {block}"):
                        self.check(completed(block.text))
        for file in sorted((ROOT / "config").rglob("*.toml")):
            with self.subTest(file.name):
                self.check(file.read_text())

    def check(self, text):
        file = self.scratch / "checked.toml"
        file.write_text(text)
        (self.scratch / "keys.toml").touch()  # a file that documents include
        environment = {**os.environ, "WEATHER_HOST": "127.0.0.1"}
        command = [self.binary, "check", "--no-files", "--config", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_link_leads_somewhere(self):
        for document in [*book.documents(), *book.beside()]:
            for link, target, anchor in book.links(document):
                with self.subTest(f"{book.name(document)}, {link}"):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, book.anchors(target))
                    if book.BOOK in document.parents:
                        self.assertIn(book.BOOK, target.parents, "the book is published without the repository")

    def test_every_chapter_is_in_the_summary(self):
        there = {book.name(chapter) for chapter in book.BOOK.rglob("*.md")} - {book.name(book.SUMMARY)}
        self.assertEqual(there, {book.name(chapter) for chapter in book.chapters()})

    def test_every_alert_leads_to_its_section_of_the_runbook(self):
        alerts = (ROOT / "config" / "prometheus" / "trunkline-alerts.yml").read_text()
        names = re.findall(r"- alert: (\w+)", alerts)
        self.assertGreater(len(names), 10)
        runbooks = re.findall(r"runbook_url: (\S+)#(\S+)", alerts)
        self.assertEqual([anchor for _, anchor in runbooks], [name.lower() for name in names])
        repository = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["repository"]
        advice = (ROOT / "src" / "gateway" / "admin" / "page" / "advice.js").read_text()
        self.assertIn(f"'{repository}/blob/main/'", advice, "the page links to the same")
        for place, anchor in runbooks:
            path = place.removeprefix(f"{repository}/blob/main/")
            self.assertIn(anchor, book.anchors(ROOT / path), "the runbook has no such section")

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), README_LINES_MAX)

    def test_the_tables_of_places_are_true(self):
        for document in book.documents():
            table = re.search(r"^\| where \|.*?(?=^$)", document.read_text(), re.M | re.S)
            for row in re.findall(r"^\| (`.*?) \|", table[0] if table else "", re.M):
                for place in re.findall(r"`([^`]+)`", row):
                    with self.subTest(f"{book.name(document)}, {place}"):
                        self.assertTrue((ROOT / place).exists())


#: Later sections are about the gateway of the first ones, which the reader was told to stop.
GATEWAY_RUNS = (
    'if [ -n "$GATEWAY" ] && ! kill -0 "$GATEWAY" 2> /dev/null; then\n'
    f"    trunkline run --config trunkline.toml & GATEWAY=$!; {AWAIT.format(port=8080)}\nfi\n"
)


def has_commands(document):
    return any(block.is_commands or is_output(block) for block in blocks.of_markdown(document.read_text()))


def is_output(block):
    """Whether something prints it, and it is no piece of some client's configuration."""
    return block.language in ("text", "json") and not block.text.startswith('{"mcpServers"')


def free_ports():
    """A free port for each of those that documents name."""
    return {port: str(free_port()) for port in PORTS}


def expected(line):
    """What a line of output must match: as it stands, but for what varies; `…` stands for anything."""
    pattern = re.escape(line.rstrip()).replace("…", ".*")
    pattern = re.sub(r"(\\ )+", r"\\s+", pattern)
    for varying, may_be in VARIES:
        plain = re.compile(varying)
        for found in plain.findall(line):
            pattern = pattern.replace(re.escape(found), may_be.replace("\\\\", "\\"))
    return pattern


def completed(text):
    """A configuration of which a document shows only a part: with what it needs to be one."""
    text = with_sign_in(text)
    written = tomllib.loads(text)
    named = set()
    for section in ("endpoint", "rule", "limit"):
        for entry in written.get(section, []):
            named.update(name for name in entry.get("upstreams", []) if "*" not in name)
    named = (named or {"weather"}) - set(written.get("upstream", {}))
    parts = [text]
    if "listener" not in written:
        parts.append('[listener]\naddress = "127.0.0.1:8080"\n')
    elif "0.0.0.0" in written["listener"].get("address", "") and not {"api_key", "jwt", "client_certificate"} & set(written):
        parts.append('[[api_key]]\nname = "completed"\nsha256 = "' + 64 * 'a' + '"\n')
    if "endpoint" not in written:
        upstreams = sorted(named | set(written.get("upstream", {})))
        parts.append(f'[[endpoint]]\npath = "/mcp"\nupstreams = {upstreams}\n'.replace("'", '"'))
    parts += [f'[upstream.{name}]\nurl = "http://127.0.0.1:9101/mcp"\n' for name in sorted(named)]
    return "\n".join(parts)


#: Keys without which there is no `[sign_in]`.
SIGN_IN = {
    "url": '"https://mcp.example.com"',
    "provider": '"login"',
    "client_id": '"trunkline"',
    "client_secret": '{ file = "/etc/trunkline/provider-secret" }',
}


def with_sign_in(text):
    """With all that sign-in needs, where a document is about it."""
    written = tomllib.loads(text)
    if "sign_in" not in written and not any("sign_in" in endpoint.get("auth", []) for endpoint in written.get("endpoint", [])):
        return text
    missing = "".join(f"{key} = {value}\n" for key, value in SIGN_IN.items() if key not in written.get("sign_in", {}))
    if re.search(r"^\[sign_in\]$", text, re.M):
        text = re.sub(r"^\[sign_in\]$", lambda _: f"[sign_in]\n{missing}", text, count=1, flags=re.M)
    else:
        text += f"[sign_in]\n{missing}"
    if "state_directory" not in written and "shared" not in written:
        text = f'state_directory = "/var/lib/trunkline"\n{text}'
    if "jwt" not in written:
        text += '[[jwt]]\nname = "login"\nissuer = "https://login.example.com"\n'
    if "endpoint" not in written:
        text += '[[endpoint]]\npath = "/mcp"\nupstreams = ["weather"]\npublic_url = "https://mcp.example.com/mcp"\nauth = ["sign_in"]\n'
    return text


if __name__ == "__main__":
    sys.exit(main())
