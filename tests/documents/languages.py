"""Checks of what a document shows and nobody runs: each language with the program that reads it.

`sh` and `console` are run, `text` and `json` compared with what commands print, and `toml` is checked by the gateway
itself; see `__main__.py`. `yaml` is parsed by `tests/deployment`, which has a parser.
"""

import json
import re
import shutil
import subprocess

from . import book

#: Languages that a block may have.
LANGUAGES = ("sh", "console", "text", "json", "toml", "yaml", "ini", "promql", "haproxy")
#: Blocks without a language: the first words → why they are neither commands nor configuration that could be checked.
UNTAGGED = {
    "clients                            gateway": "a diagram",
    "clients          proxies": "a diagram",
    "2026-11-21T14:03:07.154022Z  INFO": "a log line in its three forms: tests/telemetry",
    "2026-11-21T14:03:07.154022Z request_id=": "a line of the access log in its three forms: tests/telemetry",
    "exports.onExecutePostLogin": "an Action, which runs at Auth0",
    "postrotate": "a part of a file of logrotate, for a gateway under systemd",
}
METRICS = book.BOOK / "reference" / "metrics.md"
RECORDED = book.ROOT / "config" / "prometheus" / "trunkline-recording.yml"


class Wrong(Exception):
    """What is wrong with a block."""


def why_untagged(block):
    return next((why for start, why in UNTAGGED.items() if block.text.strip().startswith(start)), None)


def check_json(block, binary):
    """A piece of a client's configuration: that `trunkline import` takes it."""
    json.loads(block.text)
    accept([binary, "import", "-"], text=block.text)


def check_promql(block, scratch):
    """Expressions, one a line, of metrics that there are."""
    rules = "".join(f"  - record: checked\n    expr: {json.dumps(line)}\n" for line in block.text.splitlines())
    file = scratch / "rules.yml"
    file.write_text(f"groups:\n- name: checked\n  rules:\n{rules}")
    accept(["promtool", "check", "rules", file])
    known = METRICS.read_text() + RECORDED.read_text()
    for name in set(re.findall(r"\b(?:trunkline|mcp|process)_[a-z0-9_]+|\b[a-z]+:\w+:\w+", block.text)):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if not re.search(rf"\b{re.escape(base)}\b", known):
            raise Wrong(f"there is no metric {name}")


def check_ini(block, scratch, binary):
    """A drop-in for one of the units: that systemd finds nothing wrong."""
    unit = {"[Socket]": "trunkline.socket", "[Service]": "trunkline.service"}[block.text.splitlines()[0]]
    units = scratch / "units"
    shutil.copytree(book.ROOT / "systemd", units, dirs_exist_ok=True)
    service = units / "trunkline.service"
    service.write_text(service.read_text().replace("/usr/bin/trunkline", str(binary)))
    drop_in = units / f"{unit}.d" / "checked.conf"
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text(block.text)
    command = ["systemd-analyze", "verify", "--man=no", units / unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # What an old systemd says of the units themselves is for the tests of the units.
    if drop_in.name in done.stderr:
        raise Wrong(done.stderr)


def check_haproxy(block, scratch):
    file = scratch / "haproxy.cfg"
    file.write_text(block.text)
    accept(["haproxy", "-c", "-f", file])


def accept(command, text=None):
    """What a program says of a file that it must take."""
    program = shutil.which(command[0], path=book.SYSTEM_PATH) or command[0]
    done = subprocess.run([program, *command[1:]], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Wrong(done.stdout + done.stderr)
    return done.stdout + done.stderr
