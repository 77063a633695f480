"""A systemd of its own, booted beside that of this machine: its units, what it is asked, and who connects to it."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SYSTEMD = pathlib.Path("/usr/lib/systemd/systemd")
BOOT_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10


class CannotBoot(Exception):
    """This machine does not let a systemd boot, and why."""


class Machine:
    def __init__(self, binary):
        self.binary = pathlib.Path(binary).resolve()

    def __enter__(self):
        if os.geteuid() != 0:
            raise CannotBoot("only root may make the namespaces")
        if not SYSTEMD.exists():
            raise CannotBoot(f"there is no {SYSTEMD}")
        missing = [tool for tool in ("unshare", "nsenter", "systemctl") if not shutil.which(tool)]
        if missing:
            raise CannotBoot(f"there is no {missing[0]}")
        self.directory = pathlib.Path(tempfile.mkdtemp())
        self.cgroup = cgroup2() / f"trunkline-booted-{os.getpid()}"
        try:
            self.cgroup.mkdir()
        except OSError as error:
            shutil.rmtree(self.directory)
            raise CannotBoot(f"no control group can be made: {error}") from error
        self.log = open(self.directory / "log", "w+")  # noqa: SIM115, it is closed at the end
        (self.directory / "root").mkdir()
        command = ["sh", HERE / "boot.sh", self.cgroup, self.directory / "root", self.binary]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        try:
            self.await_boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def await_boot(self):
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                self.log.seek(0)
                raise CannotBoot(self.log.read().strip() or f"exit code {self.child.returncode}")
            self.init = child_of(self.child.pid)
            if self.init and self.run("systemctl", "is-active", "booted.target").stdout.strip() == "active":
                return
            time.sleep(0.1)
        raise CannotBoot(f"it has not booted after {BOOT_TIMEOUT_S} s")

    def __exit__(self, *_):
        if self.child.poll() is None:
            # With its init all that runs in a namespace of processes ends.
            os.kill(self.init or self.child.pid, signal.SIGKILL)
            self.child.wait(STOP_TIMEOUT_S)
        self.log.close()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.cgroup.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(self.cgroup, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    time.sleep(0.05)
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, path):
        """A path of the machine, as it is reached from here."""
        return pathlib.Path(f"/proc/{self.init}/root{path}")

    def is_usr_its_own(self):
        """Its /usr may be written to, and that of this machine stays as it is."""
        return self.run("findmnt", "--noheadings", "--output", "FSTYPE", "/usr").stdout.strip() == "overlay"

    def run(self, *command, timeout_s=60):
        enter = ["nsenter", "--target", str(self.init), "--mount", "--pid", "--net", "--ipc", "--uts", "--root", "--wd"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=timeout_s)

    @property
    def in_network(self):
        """This Python, in the machine's network and else where the tests are."""
        return ["nsenter", "--target", str(self.init), "--net", sys.executable]

    def systemctl(self, *arguments):
        return self.run("systemctl", *arguments)

    def is_active(self, unit):
        return self.systemctl("is-active", unit).stdout.strip()


def cgroup2():
    """The folder of the control groups of version 2."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(place)
    raise CannotBoot("there are no control groups of version 2")


def child_of(pid):
    """The one child of a process, which is the init of its namespace."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # The shell that prepares everything becomes systemd in the end.
        return int(children[0]) if children and os.readlink(f"/proc/{children[0]}/exe").endswith("/systemd") else None
    except OSError:
        return None
