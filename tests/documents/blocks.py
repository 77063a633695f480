"""What stands in a document to be tried: fenced blocks of Markdown, and the examples of a manual page."""

import dataclasses
import re
import textwrap

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


@dataclasses.dataclass
class Block:
    language: str
    text: str
    line: int
    heading: str

    def __str__(self):
        return f"line {self.line}, {self.heading}: {self.text.splitlines()[0] if self.text else ''}"

    @property
    def is_commands(self):
        return self.language in ("sh", "console")

    def commands(self):
        """The commands, without the prompts and the output of a console."""
        if self.language == "sh":
            return self.text
        return "".join(line[2:] + "\n" for line in self.text.splitlines() if line.startswith("$ "))


def of_markdown(text):
    """All fenced blocks, in order."""
    return [block(text, found) for found in FENCE.finditer(text)]


def block(text, found):
    line = text.count("\n", 0, found.start()) + 1
    return Block(found[2], textwrap.dedent(found[3]), line, heading_before(text, found.start()))


def without_blocks(text):
    return FENCE.sub("", text)


def headings(text):
    return re.findall(r"^#+ (.+)$", without_blocks(text), re.M)


def anchor(heading):
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def heading_before(text, position):
    found = headings(text[:position])
    return found[-1] if found else ""


def of_manual_page(roff):
    """The examples of the section EXAMPLES."""
    section = re.search(r"^\.SH EXAMPLES\n(.*?)^\.SH ", roff, re.M | re.S)[1]
    plain = {r"\-": "-", r"\*(Aq": "'", r"\&": "", r"\\": "\\"}
    return [
        Block("sh", re.sub(r"\\(-|\*\(Aq|&|\\)", lambda escape: plain[escape[0]], text), 0, "EXAMPLES")
        for text in re.findall(r"^\.EX\n(.*?)^\.EE$", section, re.M | re.S)
    ]
