"""A small source tree for tests, as `sources.read` finds it."""

import pathlib
import tempfile

from bounds import sources


def tree(**texts):
    """The files; `__` in a name stands for a slash."""
    with tempfile.TemporaryDirectory() as folder:
        return written(pathlib.Path(folder), texts)


def written(folder, texts):
    """Likewise, in a folder that stays."""
    for name, text in texts.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".rs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sources.read(folder)
