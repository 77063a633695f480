"""The cache that a run leaves for the next one, of any clone: packages of Python and npm, programs, objects of the registry's
crates, and the inputs that fuzzing found.

It lies in `$XDG_CACHE_HOME/trunkline`. Nothing in it is of this repository's own code: an object of another clone would be a
test of old code. An entry that no run used for 14 days goes, and the oldest ones while all take more than 10 GiB; the inputs
stay, since no command brings them back.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
import time

AGE_MAX_S = 14 * 24 * 3600
BYTES_MAX = 10 * 2**30
#: Folders of entries; the others are entries themselves.
FOLDERS = ("node", "objects", "python", "tools")
ENTRIES = ("npm", "pip")


def usual_directory():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "trunkline"


@dataclasses.dataclass(frozen=True)
class Cache:
    #: `None`: nothing is kept, and nothing is taken from what was.
    directory: pathlib.Path | None

    def entry(self, *names):
        """The place of something, which this run uses; `None` without a cache. It need not be there."""
        if self.directory is None:
            return None
        place = self.directory.joinpath(*names)
        if place.exists():
            os.utime(place)
        return place

    @contextlib.contextmanager
    def used(self):
        """For as long as a run goes on, nothing that it may use is removed. Before that goes what is too old or too much,
        unless another run goes on."""
        if self.directory is None:
            yield
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "in use", "w") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.trim(time.time())
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def changing(self):
        """One run at a time changes what is kept; another one waits."""
        if self.directory is None:
            yield
            return
        with open(self.directory / "changing", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def trim(self, now):
        """Removes what is too old, and then the oldest while there is too much."""
        entries = [self.directory / name for name in ENTRIES]
        for folder in FOLDERS:
            entries += (self.directory / folder).glob("*")
        used = sorted((entry.stat().st_mtime, entry) for entry in entries if entry.exists())
        sizes = {entry: size(entry) for _, entry in used}
        total = sum(sizes.values())
        for at, entry in used:
            if now - at > AGE_MAX_S or total > BYTES_MAX:
                total -= sizes[entry]
                shutil.rmtree(entry)


def size(directory):
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sum(os.lstat(path).st_size for path in paths)
