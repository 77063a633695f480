"""Which file imports which: every `use` tree, path and alias is followed to the file that defines the name.

A name that a `mod.rs` only hands on (`pub use`) belongs to the file that defines it; one that a `mod.rs` defines is imported
from there. A module that is only named on the way to something in it is not imported. Methods are not followed: whoever
calls one has the value from somewhere, and its type has a name there.
"""

import dataclasses

from bounds import sources

#: Keywords that stand before the name of what they define.
DEFINING = {"struct", "enum", "trait", "type", "fn", "const", "static", "union"}


@dataclasses.dataclass(frozen=True)
class Path:
    """`a::b`; as a part of a `use` tree with the name that it gets here, which is `*` for all names."""

    parts: tuple
    line: int
    name: str | None = None


@dataclasses.dataclass
class Module:
    place: tuple
    file: object
    #: Name in this file → the path that it stands for.
    names: dict = dataclasses.field(default_factory=dict)
    globs: list = dataclasses.field(default_factory=list)
    paths: list = dataclasses.field(default_factory=list)
    defined: set = dataclasses.field(default_factory=set)


def of_crate(files, folder):
    """The arrows between the files of the crate in `folder`: file → imported file → the line that does so first."""
    crate = Crate({place(file, folder): module(place(file, folder), file) for file in files if file.crate == folder})
    return {each.file.path: crate.imports(each) for each in crate.modules.values()}


def place(file, folder):
    """The path of the module that a file is, from the root of its crate."""
    within = file.path.relative_to(folder)
    names = (*within.parent.parts, within.stem)
    return names[:-1] if within.name in sources.FOLDER_FILES else names


class Crate:
    def __init__(self, modules):
        self.modules = modules

    def imports(self, module):
        found = {}
        for path in module.paths:
            target = self.definer(module.place, path.parts, frozenset())
            if target is not None and target != module.place:
                found.setdefault(self.modules[target].file.path, path.line)
        return found

    def definer(self, here, parts, followed):
        """The module that defines what a path names; `None` for other crates and for modules as such."""
        step = (here, parts)
        if step in followed or not parts:
            return None
        followed |= {step}
        module = self.modules[here]
        first, rest = parts[0], parts[1:]
        if first == "crate":
            return self.within((), rest, followed)
        if first == "self":
            return self.within(here, rest, followed)
        if first == "super":
            return self.within(here[:-1], rest, followed) if here else None
        if first in module.names:
            return self.definer(here, (*module.names[first].parts, *rest), followed)
        if (*here, first) in self.modules:
            return self.within((*here, first), rest, followed)
        return self.by_glob(module, parts, followed)

    def within(self, here, parts, followed):
        """Likewise for a path that begins in the module `here`."""
        if here not in self.modules:
            return None
        if parts[:1] == ("super",):
            return self.within(here[:-1], parts[1:], followed)
        if not parts or parts == ("*",):
            return None
        if (*here, parts[0]) in self.modules:
            return self.within((*here, parts[0]), parts[1:], followed)
        module = self.modules[here]
        if parts[0] in module.names and parts[0] not in module.defined:
            return self.definer(here, parts, followed)
        return self.by_glob(module, parts, followed) or here

    def by_glob(self, module, parts, followed):
        if parts[0] in module.defined:
            return None
        for path in module.globs:
            target = self.definer(module.place, (*path.parts, parts[0]), followed)
            if target is not None and parts[0] in self.modules[target].defined:
                return target
        return None


def module(place, file):
    """The names, paths and definitions in the tokens of a file."""
    tokens = file.tokens
    found = Module(place, file)
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != "word":
            index += 1
        elif token.text == "use" and is_word(tokens, index + 1):
            index, parts = use_tree(tokens, index + 1, ())
            found.paths += parts
            for path in parts:
                note(found, path)
        else:
            if token.text in DEFINING and is_word(tokens, index + 1):
                found.defined.add(tokens[index + 1].text)
            elif token.text == "macro_rules" and index + 2 < len(tokens):
                found.defined.add(tokens[index + 2].text)
            index, parts = path_at(tokens, index)
            if len(parts) > 1:
                found.paths.append(Path(parts, token.line))
    return found


def note(module, path):
    if path.name == "*":
        module.globs.append(Path(path.parts[:-1], path.line))
    elif path.name and path.parts[0] != path.name:  # `use a::a` is of another crate, or a module's own child
        module.names.setdefault(path.name, path)


def use_tree(tokens, index, before):
    """The paths of a `use` tree from `index` on, and where it ends."""
    found = []
    index, parts = use_path(tokens, index)
    parts = (*before, *parts)
    if text(tokens, index) == "{":
        index += 1
        while index < len(tokens) and text(tokens, index) != "}":
            index, more = use_tree(tokens, index, parts)
            found += more
            if text(tokens, index) == ",":
                index += 1
        return index + 1, found
    if not parts:
        return index + 1, found
    line = tokens[min(index, len(tokens)) - 1].line
    name = parts[-1]
    if name == "self":
        parts = parts[:-1]
        name = parts[-1] if parts else None
    if text(tokens, index) == "as":
        name = tokens[index + 1].text
        index += 2
    return index, [*found, Path(parts, line, name)]


def use_path(tokens, index):
    """`a::b::`, `a::b` or `a::*`, and the index after it."""
    parts = []
    while index < len(tokens):
        token = tokens[index]
        if (token.kind == "word" and token.text != "as") or token.text == "*":
            parts.append(token.text)
        elif token.text != ":":
            break
        index += 1
    return index, tuple(parts)


def path_at(tokens, index):
    """The path that begins at a word, and the index after it; none where the word goes on with a path of types."""
    parts = [tokens[index].text]
    goes_on = index > 1 and tokens[index - 1].text == tokens[index - 2].text == ":"
    end = index + 1
    while text(tokens, end) == ":" and text(tokens, end + 1) == ":" and is_word(tokens, end + 2):
        parts.append(tokens[end + 2].text)
        end += 3
    return end, () if goes_on else tuple(parts)


def is_word(tokens, index):
    return index < len(tokens) and tokens[index].kind == "word"


def text(tokens, index):
    return tokens[index].text if index < len(tokens) else ""


def circles(arrows):
    """The circles among things and what each leads to, as sorted lists, the largest first: two things are in one circle where
    each can be reached from the other."""
    reached = {thing: reachable(arrows, thing) for thing in arrows}
    found, seen = [], set()
    for thing in sorted(arrows):
        if thing in reached[thing] and thing not in seen:
            circle = sorted(other for other in reached[thing] if thing in reached.get(other, ()))
            seen.update(circle)
            found.append(circle)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def reachable(arrows, thing):
    """All that can be reached from a thing by one arrow or more."""
    found, new = set(), [thing]
    while new:
        for target in arrows.get(new.pop(), ()):
            if target not in found:
                found.add(target)
                new.append(target)
    return found
