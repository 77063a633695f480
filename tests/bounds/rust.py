"""What a Rust file defines: functions, types and test modules, with their lines.

It reads tokens, so that nothing within a string or a comment counts. It deliberately is no parser: it knows where a
block begins and ends and which keyword opened it, which is all that counting takes. Macros are read as if their input
were Rust, so a type that is declared in one counts; what a macro generates does not.
"""

import dataclasses
import re
import typing

TOKEN = re.compile(
    r"""
      (?P<gap>(?:\s+|//[^\n]*)+)
    | (?P<comment>/\*)
    | (?P<raw>[bc]?r(?P<hashes>\#*)")
    | (?P<string>[bc]?"(?:[^"\\]|\\.)*")
    | (?P<character>b?'(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))')
    | (?P<lifetime>'\w+)
    | (?P<word>(?:r\#)?\w+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
#: Only these can go over several lines.
LINES_WITHIN = {"gap", "comment", "string"}
COMMENT_EDGE = re.compile(r"/\*|\*/")
#: The keywords that say what the next block belongs to.
OPENERS = {"fn", "impl", "trait", "mod", "struct", "enum"}
NAMED_TYPES = {"struct", "enum", "trait"}
#: A `type` in one of these belongs to a trait or an implementation and is no name of the module.
ASSOCIATED = {"impl", "trait"}


class Token(typing.NamedTuple):
    kind: str
    text: str
    line: int


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    first: int
    last: int

    @property
    def lines(self):
        """From the line with `fn` to the one with its closing brace."""
        return self.last - self.first + 1


@dataclasses.dataclass(frozen=True)
class Type:
    name: str
    line: int
    #: The inline modules around it, outermost first.
    modules: tuple


@dataclasses.dataclass(frozen=True)
class TestModule:
    """A `#[cfg(test)] mod …`, from its attribute on; one that is a file of its own has no block here."""

    name: str
    first: int
    last: int


@dataclasses.dataclass
class Items:
    functions: list = dataclasses.field(default_factory=list)
    types: list = dataclasses.field(default_factory=list)
    test_modules: list = dataclasses.field(default_factory=list)

    def is_test(self, line):
        return any(module.first <= line <= module.last for module in self.test_modules)


@dataclasses.dataclass
class Block:
    """What stands between two braces; the file itself is the outermost."""

    opener: str = "mod"
    name: str = ""
    first: int = 1
    #: The line of `#[cfg(test)]` above it.
    test_from: int | None = None
    #: Round and square brackets that are open here.
    brackets: int = 0


def tokens(text):
    """Words and marks with their lines; strings, characters and lifetimes as one token each, comments not at all."""
    position, line = 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            end = end_of_comment(text, end)
        elif match["raw"]:
            kind, end = "string", end_of_raw_string(text, end, match["hashes"])
        if kind not in ("gap", "comment"):
            yield Token(kind, text[position:end], line)
        if kind in LINES_WITHIN:
            line += text.count("\n", position, end)
        position = end


def end_of_comment(text, position):
    depth = 1
    while depth:
        edge = COMMENT_EDGE.search(text, position)
        if not edge:
            return len(text)
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


def end_of_raw_string(text, position, hashes):
    closing = '"' + hashes
    end = text.find(closing, position)
    return len(text) if end < 0 else end + len(closing)


def items(tokens):
    """The functions, types and test modules that these tokens define."""
    return Reader().read(tokens)


class Reader:
    """Walks over the tokens with the blocks that are open."""

    def __init__(self):
        self.found = Items()
        self.open = [Block()]
        #: The item whose head is being read: its keyword, name and line.
        self.head = None
        self.test_from = None

    def read(self, listed):
        self.listed = listed
        for index, token in enumerate(listed):
            if token.kind == "word":
                self.word(index, token)
            elif token.kind == "mark":
                self.mark(index, token)
        return self.found

    def word(self, index, token):
        if index and self.listed[index - 1].text == "$":
            return  # A variable of a macro, whatever it is called.
        name = self.name_after(index)
        if token.text in NAMED_TYPES and name and not self.head:
            self.define(name, token.line)
        elif token.text == "type" and name and not self.head and self.open[-1].opener not in ASSOCIATED:
            self.define(name, token.line)
        if token.text in OPENERS and not self.head and (name or token.text != "fn"):
            self.head = (token.text, name or "", token.line)

    def mark(self, index, token):
        block = self.open[-1]
        if token.text in "([":
            block.brackets += 1
        elif token.text in ")]":
            block.brackets -= 1
        elif token.text == "{":
            self.enter(block)
        elif token.text == "}":
            self.leave(token.line)
        elif token.text == ";" and block.brackets == 0:
            self.end_without_block(token.line)
        elif token.text == "#" and self.begins_cfg_test(index):
            self.test_from = token.line

    def enter(self, around):
        if around.brackets or not self.head:
            self.open.append(Block("", ""))
            return
        opener, name, first = self.head
        self.open.append(Block(opener, name, first, self.test_from))
        self.head = self.test_from = None

    def leave(self, line):
        if len(self.open) == 1:
            return
        block = self.open.pop()
        if block.opener == "fn":
            self.found.functions.append(Function(block.name, block.first, line))
        elif block.opener == "mod" and block.test_from:
            self.found.test_modules.append(TestModule(block.name, block.test_from, line))
        if self.open[-1].brackets == 0:
            self.head = self.test_from = None

    def end_without_block(self, line):
        if self.head and self.head[0] == "mod" and self.test_from:
            self.found.test_modules.append(TestModule(self.head[1], self.test_from, line))
        self.head = self.test_from = None

    def define(self, name, line):
        modules = tuple(block.name for block in self.open[1:] if block.opener == "mod")
        self.found.types.append(Type(name, line, modules))

    def name_after(self, index):
        after = self.listed[index + 1] if index + 1 < len(self.listed) else None
        return after.text if after and after.kind == "word" and not after.text[0].isdigit() else None

    def begins_cfg_test(self, index):
        """Whether it is `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[cfg(any(test, fuzzing))]`, which hold for tests only."""
        spelled = "".join(token.text for token in self.listed[index : index + 12])
        return spelled.startswith(("#[cfg(test)]", "#[cfg(all(test", "#[cfg(any(test,fuzzing))]"))
