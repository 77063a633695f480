"""A container of the image, run without a container engine's daemon: by buildah, or by its file system where that does not work."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONTAINER = ROOT / "deploy" / "container"
USER = 65532
CONFIGURATION = "etc/trunkline/trunkline.toml"
BUILD_TIMEOUT_S = 1200


class Unbuilt(Exception):
    """Why an image cannot be built or run on this machine."""


def built(test, binary, tag):
    """Builds an image with buildah, and makes a container of it; both go with the test. Returns how a command in it begins."""
    missing = [program for program in ("buildah", *(["mmdebstrap"] if tag == "node" else [])) if not shutil.which(program)]
    if missing or os.geteuid() != 0:
        raise Unbuilt(f"{' and '.join(missing)} is not here" if missing else "this is not root")
    command = [sys.executable, CONTAINER / "build.py", "--binary", binary, *(["--node"] if tag == "node" else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    if done.returncode != 0:
        raise Unbuilt((done.stderr.strip().splitlines() or ["it does not build"])[-1])
    for name in (line for line in done.stdout.split() if line.startswith("trunkline:")):
        remove = ["buildah", "rmi", f"localhost/{name}"]
        test.addCleanup(subprocess.run, remove, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    name = output_of("buildah", "from", f"localhost/trunkline:{tag}").strip()
    test.addCleanup(subprocess.run, ["buildah", "rm", name], stdout=subprocess.DEVNULL, timeout=60)
    tried = subprocess.run([*run_in(name), "trunkline", "--version"], capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        raise Unbuilt((tried.stderr.strip().splitlines() or ["it does not run"])[-1])
    return name


def run_in(name):
    return ["buildah", "run", "--isolation", "chroot", name, "--"]


def settings(name):
    return json.loads(output_of("buildah", "inspect", name))["OCIv1"]["config"]


def put_configuration(name, file):
    output_of("buildah", "copy", "--chmod", "644", name, file, f"/{CONFIGURATION}")


def file_system_with_node(rootfs, binary):
    """Makes the file system of the image with Node. Returns how a command in it begins."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        raise Unbuilt("that takes root and mmdebstrap")
    make_file_system(rootfs, binary, "--node")
    # uvx finds uv by what the kernel tells of itself.
    with_proc = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={rootfs}/proc"]
    return [*with_proc, "chroot", f"--userspec={USER}:{USER}", rootfs, "env", "HOME=/var/cache/trunkline"]


def make_file_system(rootfs, binary, *options):
    command = [sys.executable, CONTAINER / "build.py", "--binary", binary, "--rootfs", rootfs, *options]
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)
    if os.geteuid() == 0:
        for name in ("var/lib/trunkline", "var/cache/trunkline"):
            os.chown(rootfs / name, USER, USER)


def program_of_file_system(rootfs, binary, configuration):
    """The command that runs the gateway of the image's file system: as its user where that can be, else by its linker."""
    make_file_system(rootfs, binary)
    shutil.copy(configuration, rootfs / CONFIGURATION)
    if os.geteuid() == 0:
        return ["chroot", f"--userspec={USER}:{USER}", rootfs, "/usr/bin/trunkline"]
    (linker,) = rootfs.glob("lib*/ld-linux*")
    libraries = ":".join(str(path) for path in sorted({path.parent for path in rootfs.rglob("lib*.so*")}))
    return [linker, "--library-path", libraries, rootfs / "usr/bin/trunkline"]


def gateway_below(process):
    """The gateway that a process has started through others, each of which has one child; or the process itself."""
    last = process
    while children := [child for file in pathlib.Path(f"/proc/{last}/task").glob("*/children") for child in file.read_text().split()]:
        (last,) = map(int, children)
    return last


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
