"""The book: its chapters in the order of `docs/SUMMARY.md`, what they show, and where their links lead."""

import os
import pathlib
import re

from . import blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
BOOK = ROOT / "docs"
SUMMARY = BOOK / "SUMMARY.md"
QUICK_START = BOOK / "start" / "quick-start.md"
#: Debian keeps some servers where not everybody looks.
SYSTEM_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
#: In the quick start: where every other chapter goes on, but the one before it.
MARK = "<!-- other chapters go on from here -->"
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^)\s]+)\)")


def chapters():
    """The files of all chapters."""
    return [BOOK / link for _, link in LINK.findall(SUMMARY.read_text())]


def documents():
    """All that people read: the book, and what stands beside it."""
    return [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"] + [SUMMARY] + chapters()


def is_generated(document):
    """Whether the program writes it; a test of the program compares."""
    return document.parent == BOOK / "reference"


def beside():
    """What explains a folder to those who work in it: none of it is part of the book, and no command of it is tried."""
    return sorted(file for folder in ("loadtest", "deploy", "tests") for file in (ROOT / folder).rglob("*.md"))


def name(path):
    return str(path.relative_to(ROOT))


def begins_with_the_quick_start(document):
    """Whether its commands are about the gateway that the quick start leaves running."""
    return BOOK in document.parents and document not in (QUICK_START, BOOK / "start" / "install.md", BOOK / "start" / "sign-in.md")


def quick_start():
    """What other chapters go on from."""
    return blocks.of_markdown(QUICK_START.read_text().split(MARK)[0])


def links(document):
    """Where the links of a document lead: the file, and the anchor or nothing; none of those to other sites."""
    for _, link in LINK.findall(blocks.without_blocks(document.read_text())):
        if not re.match(r"\w+:", link):
            path, _, anchor = link.partition("#")
            yield link, (document.parent / path).resolve() if path else document, anchor


def anchors(document):
    """The anchors of its headings; of those that are the same, the first has the plain one."""
    return {blocks.anchor(heading) for heading in blocks.headings(document.read_text())}
