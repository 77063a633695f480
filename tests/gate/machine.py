"""What a count depends on besides the source: the compiler, the C library, valgrind, and what the processor can do."""

import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Extensions by which libraries choose their code. AVX-512 is none: valgrind hides it.
EXTENSIONS = ("sse4_2", "avx2", "bmi2", "asimd")


def described():
    return {
        "rustc": version(["rustc", "--version"]),
        "glibc": platform.libc_ver()[1],
        "valgrind": version(["valgrind", "--version"]),
        "processor": " ".join([platform.machine(), *extensions()]),
    }


def version(command):
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return re.search(r"\d+(\.\d+)+", shown)[0]


def extensions():
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return [each for each in EXTENSIONS if each in flags]


def differences(recorded):
    """Where this machine is not like the one that the bounds were recorded on."""
    here = described()
    return [f"{what} {here[what]}, not {value}" for what, value in recorded.items() if here[what] != value]
