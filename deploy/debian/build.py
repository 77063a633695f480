"""Builds the Debian package: `python3 deploy/debian/build.py`, from the root of the repository.

It builds the release binary first, unless `--binary` names one that is built. Manual pages, completions, the bill of
materials and the licence texts of all crates are made with it, and put where `[package.metadata.deb]` of Cargo.toml
expects them. Needs cargo-deb. The last line is the path of the package.
"""

import argparse
import email.utils
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from licenses import third_party_licenses  # noqa: E402
from sbom import ROOT, bill_of_materials  # noqa: E402

#: Where Cargo.toml expects what is made. Not where cargo builds, which may be anywhere.
STAGE = ROOT / "target" / "package"
#: Where shells look for the completions of `trunkline`.
COMPLETIONS = {"bash": "trunkline", "zsh": "_trunkline", "fish": "trunkline.fish"}
#: What of the repository goes to /usr/share/doc/trunkline, if it is there.
DOCUMENTS = ("README.md", "config/trunkline.toml", "config/trunkline.schema.json")
EXAMPLES = (
    *sorted(str(file.relative_to(ROOT)) for file in (ROOT / "config" / "examples").iterdir()),
    "config/prometheus",
    "config/grafana",
    "systemd/trunkline.service.d",
    "systemd/trunkline-admin.socket",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="a binary that cargo built, in its target directory")
    parser.add_argument("--cargo-deb", type=pathlib.Path, default=pathlib.Path("cargo-deb"))
    options = parser.parse_args()
    binary = options.binary or release_binary()
    print(build(binary, options.cargo_deb, version(binary), binary.parent / "package.deb"))


def release_binary():
    command = ["cargo", "build", "--release", "--locked"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    return ROOT / target / "release" / "trunkline"


def version(binary):
    return subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


def build(binary, cargo_deb, package_version, output, configuration=None):
    """Builds the package from a binary that lies where cargo put it, and returns its path."""
    stage(binary, package_version, configuration or (ROOT / "config" / "packaged.toml").read_text())
    profile = "dev" if binary.parent.name == "debug" else binary.parent.name
    command = [cargo_deb, "--no-build", "--profile", profile, "--deb-version", f"{package_version}-1"]
    command += ["--fast", "--strip"] if profile == "dev" else []
    environment = {**os.environ, "CARGO_TARGET_DIR": str(binary.parent.parent)}
    subprocess.run([*command, "--output", output], cwd=ROOT, check=True, env=environment)
    return output


def stage(binary, package_version, configuration):
    """Everything of the package that is made, or whose place is not that in the repository."""
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    subprocess.run([binary, "man", STAGE / "man"], check=True)
    for shell, file in COMPLETIONS.items():
        folder = STAGE / "completions" / shell
        folder.mkdir(parents=True)
        written = subprocess.run([binary, "completions", shell], check=True, capture_output=True).stdout
        (folder / file).write_bytes(written)
    documents = STAGE / "doc"
    for source in (*DOCUMENTS, *EXAMPLES):
        copy(ROOT / source, documents / "examples" if source in EXAMPLES else documents)
    host = platform_of_rustc()
    (documents / "trunkline.cdx.json").write_text(json.dumps(bill_of_materials(host), indent=1) + "\n")
    (documents / "third-party-licenses.txt").write_text(third_party_licenses(host))
    (STAGE / "trunkline.toml").write_text(configuration)
    (STAGE / "changelog").write_text(changelog(package_version))


def platform_of_rustc():
    said = subprocess.run(["rustc", "--version", "--verbose"], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in said.splitlines() if line.startswith("host:"))


def copy(source, folder):
    folder.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, folder / source.name)
    elif source.is_file():
        shutil.copy(source, folder)


def changelog(package_version):
    """In Debian's form, which wants a date: SOURCE_DATE_EPOCH, for packages that are built twice alike, or now."""
    date = email.utils.formatdate(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    maintainer = manifest["package"]["metadata"]["deb"]["maintainer"]
    return (
        f"trunkline ({package_version}-1) unstable; urgency=medium\n\n"
        f"  * What changed is in /usr/share/doc/trunkline/changelog.gz.\n\n -- {maintainer}  {date}\n"
    )


if __name__ == "__main__":
    main()
