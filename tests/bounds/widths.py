"""The width of the doors of the code: public fields of structs, and functions that take tuples.

As `rust.py`, it reads tokens and knows no more of Rust than where brackets begin and end.
"""

OPEN, CLOSED = "([{", ")]}"


def fields(tokens):
    """Name, line and number of public fields of each struct; `pub(super)` and `pub(self)` are not public."""
    for index, name in named(tokens, "struct"):
        start = after_generics(tokens, index + 2)
        if text(tokens, start) == "where":
            start = next((each for each in range(start, len(tokens)) if tokens[each].text in "{;"), len(tokens))
        if text(tokens, start) in ("(", "{"):
            within = at_top(tokens, range(start + 1, closing(tokens, start)))
            yield name, tokens[index].line, sum(is_public(tokens, each) for each in within)


def tuple_functions(tokens):
    """Name and line of each function that takes a tuple, or a reference to one."""
    for index, name in named(tokens, "fn"):
        start = after_generics(tokens, index + 2)
        if any(is_tuple(tokens, each) for each in parameter_types(tokens, start)):
            yield name, tokens[index].line


def named(tokens, keyword):
    """The places at which a name follows a keyword; a variable of a macro has none."""
    for index in range(len(tokens) - 1):
        token, after = tokens[index], tokens[index + 1]
        if token.text == keyword and token.kind == after.kind == "word" and text(tokens, index - 1) != "$":
            yield index, after.text


def after_generics(tokens, index):
    """The index after `<…>`, or the same where there is none."""
    depth = 0
    while index < len(tokens):
        depth += angle(tokens, index)
        if depth == 0:
            return index + 1 if tokens[index].text == ">" else index
        index += 1
    return index


def angle(tokens, index):
    """1 where generics begin, -1 where they end; the `>` of an arrow does neither."""
    if tokens[index].text == "<":
        return 1
    return -1 if tokens[index].text == ">" and text(tokens, index - 1) not in ("-", "=") else 0


def parameter_types(tokens, start):
    """The position of the type of each parameter of the list that `start` opens, after `&`, a lifetime and `mut`."""
    angles = 0
    for index in at_top(tokens, range(start + 1, closing(tokens, start))):
        angles += angle(tokens, index)
        if angles == 0 and tokens[index].text == ":" and ":" not in (text(tokens, index - 1), text(tokens, index + 1)):
            index += 1
            while text(tokens, index) in ("&", "mut") or tokens[index].kind == "lifetime":
                index += 1
            yield index


def is_tuple(tokens, start):
    within = range(start + 1, closing(tokens, start))
    return text(tokens, start) == "(" and any(tokens[each].text == "," for each in at_top(tokens, within))


def at_top(tokens, indices):
    """Those of the indices that are in no bracket of their own."""
    depth = 0
    for index in indices:
        depth -= tokens[index].text in CLOSED
        if depth == 0:
            yield index
        depth += tokens[index].text in OPEN


def closing(tokens, start):
    """The bracket that closes the one at `start`, or the end of the tokens."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index].text in OPEN) - (tokens[index].text in CLOSED)
        if depth == 0:
            return index
    return len(tokens)


def is_public(tokens, index):
    is_restricted = text(tokens, index + 1) == "(" and text(tokens, index + 2) in ("super", "self")
    return text(tokens, index) == "pub" and not is_restricted


def text(tokens, index):
    return tokens[index].text if 0 <= index < len(tokens) else ""
