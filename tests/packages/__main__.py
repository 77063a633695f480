"""Tests of the Debian package: `python -m packages --binary PATH --cargo-deb PATH`, from `tests/`.

The package is built from the binary of that build, and installed, run, upgraded and purged below a directory of its own:
neither root nor systemd is needed, and the machine stays as it is. The last line is `N passed, N failed`.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import unittest

import suite
from interop.process import Process

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy" / "debian"))

from build import build  # noqa: E402

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "forecast",
        "arguments": {"city": "Oslo", "days": 1},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
HEADERS = {
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "forecast",
    "Mcp-Param-City": "Oslo",
}
#: What must be in the package, beside what the units bring along.
FILES = {
    "etc/trunkline/trunkline.toml",
    "usr/bin/trunkline",
    "usr/lib/systemd/system/trunkline.service",
    "usr/lib/systemd/system/trunkline.socket",
    "usr/share/bash-completion/completions/trunkline",
    "usr/share/doc/trunkline/README.md",
    "usr/share/doc/trunkline/changelog.Debian.gz",
    "usr/share/doc/trunkline/changelog.gz",
    "usr/share/doc/trunkline/copyright",
    "usr/share/doc/trunkline/examples/team.toml",
    "usr/share/doc/trunkline/third-party-licenses.txt",
    "usr/share/doc/trunkline/trunkline.cdx.json",
    "usr/share/doc/trunkline/trunkline.schema.json",
    "usr/share/doc/trunkline/trunkline.toml",
    "usr/share/fish/vendor_completions.d/trunkline.fish",
    "usr/share/man/man1/trunkline.1.gz",
    "usr/share/man/man5/trunkline.toml.5.gz",
    "usr/share/zsh/vendor-completions/_trunkline",
}
CONFIGURATION = "etc/trunkline/trunkline.toml"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="a binary where cargo put it")
    parser.add_argument("--cargo-deb", type=pathlib.Path, required=True)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder where the two packages stay, for those who install them")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    with tempfile.TemporaryDirectory() as directory:
        Package.directory = pathlib.Path(directory)
        Package.binary = options.binary
        Package.cargo_deb = options.cargo_deb
        Package.first = build(options.binary, options.cargo_deb, "0.1.0", Package.directory / "first.deb")
        changed = (ROOT / "config" / "packaged.toml").read_text() + "\n[drain]\nquiet = \"3s\"\n"
        second = Package.directory / "second.deb"
        Package.second = build(options.binary, options.cargo_deb, "0.1.1", second, changed)
        if options.keep:
            shutil.rmtree(options.keep, ignore_errors=True)
            options.keep.mkdir(parents=True)
            for package in (Package.first, Package.second):
                shutil.copy(package, options.keep)
        return suite.run(Package)


def output_of(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def crates_in(binary):
    """The crates whose source files a binary names in its debug information, as `name-version`."""
    crate = rb"/registry/src/[^/\0]+/([A-Za-z0-9_-]+-[0-9]+\.[0-9]+\.[0-9][A-Za-z0-9.+-]*)/"
    found = set(re.findall(crate, binary.read_bytes()))
    return {crate.decode() for crate in found}


class Root:
    """A system of which nothing is there but dpkg's own files."""

    def __init__(self, directory):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=directory))
        (self.path / "var/lib/dpkg/updates").mkdir(parents=True)
        (self.path / "var/lib/dpkg/info").mkdir()
        (self.path / "var/lib/dpkg/status").touch()

    def dpkg(self, *arguments):
        # Only what stands in the package is looked at: what it depends on is not installed here.
        force = ("not-root", "script-chrootless", "depends", "confdef", "confold")
        forced = [f"--force-{one}" for one in force]
        log = f"--log={self.path}/var/lib/dpkg/log"
        return output_of("dpkg", f"--root={self.path}", *forced, log, *arguments)

    def files(self):
        """All that is there but dpkg's own."""
        found = (path.relative_to(self.path) for path in self.path.rglob("*") if not path.is_dir())
        return {str(path) for path in found if not str(path).startswith("var/lib/dpkg/")}


class Package(unittest.TestCase):
    directory = binary = cargo_deb = first = second = None

    def setUp(self):
        self.root = Root(self.directory)

    def install(self, package=None):
        self.root.dpkg("--install", package or self.first)
        return self.root.path

    def test_it_holds_what_it_should(self):
        listed = output_of("dpkg-deb", "--contents", self.first).splitlines()
        files = {line.split(maxsplit=5)[5].removeprefix("./") for line in listed if not line.startswith("d")}
        self.assertLessEqual(FILES, files)
        for line in listed:
            self.assertRegex(line, r"^(drwxr-xr-x|-rw-r--r--|-rwxr-xr-x) (root/root|0/0) ", "modes and owners")
        for source, place in (("config/prometheus", "examples/prometheus"), ("config/grafana", "examples/grafana")):
            for file in (path for path in (ROOT / source).glob("*") if path.is_file()):
                self.assertIn(f"usr/share/doc/trunkline/{place}/{file.name}", files)

    def test_it_depends_on_libc_alone(self):
        depends = output_of("dpkg-deb", "--field", self.first, "Depends")
        names = {one.split()[0] for one in depends.split(",")}
        self.assertIn("libc6", names)
        self.assertLessEqual(names, {"libc6", "libgcc-s1"}, depends)

    def test_the_configuration_is_the_one_conffile(self):
        control = self.directory / "control"
        output_of("dpkg-deb", "--control", self.first, control)
        self.assertEqual((control / "conffiles").read_text().split(), [f"/{CONFIGURATION}"])
        for script in ("postinst", "prerm", "postrm"):
            output_of("sh", "-n", control / script)
        restarted = re.findall(r"deb-systemd-invoke \S*(?:start|restart)\S* (.*?) *>", (control / "postinst").read_text())
        self.assertEqual(restarted, ["trunkline.service"], "a socket that systemd holds goes on")

    def test_it_is_installed_but_not_enabled(self):
        root = self.install()
        self.assertRegex(output_of(root / "usr/bin/trunkline", "--version"), r"\Atrunkline 0\.1\.0(\+[\w.]+)?\n\Z")
        self.assertEqual([file for file in self.root.files() if ".wants/" in file], [])
        unit = (root / "usr/lib/systemd/system/trunkline.service").read_text()
        for program, configuration in re.findall(r"^Exec\w+=(\S+trunkline) \w+ --config (\S+)$", unit, re.M):
            self.assertTrue(os.access(f"{root}{program}", os.X_OK), program)
            self.assertTrue(pathlib.Path(f"{root}{configuration}").is_file(), configuration)
        self.assertRegex(unit, r"(?m)^ExecStart=/usr/bin/trunkline run ")

    def test_the_installed_gateway_serves_by_the_installed_configuration(self):
        root = self.install()
        binary, configuration = root / "usr/bin/trunkline", root / CONFIGURATION
        self.assertIn("is valid", output_of(binary, "check", "--config", configuration))
        demo = [binary, "demo", "--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with Process("demo", demo, ready=r"runs at (http://127\.0\.0\.1:\d+/mcp)") as servers:
            text = configuration.read_text()
            text = re.sub(r"127\.0\.0\.1:(8080|9090)", "127.0.0.1:0", text)
            configuration.write_text(text.replace("http://127.0.0.1:9101/mcp", f"{servers.ready[1]}/weather"))
            command = [binary, "run", "--config", configuration]
            with Process("gateway", command, ready=r"runtime: listening address=127\.0\.0\.1:(\d+)") as gateway:
                connection = http.client.HTTPConnection("127.0.0.1", int(gateway.ready[1]), timeout=30)
                connection.request("POST", "/mcp", json.dumps(CALL), HEADERS)
                reply = connection.getresponse()
                self.assertEqual(reply.status, 200)
                self.assertIn("Oslo", json.loads(reply.read())["result"]["content"][0]["text"])
                connection.close()

    def test_an_upgrade_keeps_what_was_edited(self):
        configuration = self.install() / CONFIGURATION
        edited = configuration.read_text().replace("8080", "8081")
        configuration.write_text(edited)
        self.install(self.second)
        self.assertEqual(configuration.read_text(), edited)
        offered = configuration.with_name("trunkline.toml.dpkg-dist").read_text()
        self.assertIn("quiet", offered, "the new one lies beside it")
        self.assertIn("0.1.1-1", self.root.dpkg("--status", "trunkline"))

    def test_a_package_of_a_later_commit_is_an_upgrade(self):
        versions = ("0.1.0-1", "0.1.0+20260203040506.ffffffff-1", "0.1.0+20260203040507.00000000-1", "0.1.1-1")
        for earlier, later in zip(versions, versions[1:]):
            output_of("dpkg", "--compare-versions", earlier, "lt", later)
        package = self.directory / "commit.deb"
        build(self.binary, self.cargo_deb, "0.1.0+20260203040506.0a1b2c3d", package)
        self.install()
        self.install(package)
        self.assertIn("Version: 0.1.0+20260203040506.0a1b2c3d-1", self.root.dpkg("--status", "trunkline"))
        changelog = self.root.path / "usr/share/doc/trunkline/changelog.Debian.gz"
        text = output_of("gzip", "--decompress", "--stdout", changelog)
        self.assertIn("trunkline (0.1.0+20260203040506.0a1b2c3d-1)", text)

    def test_an_upgrade_replaces_what_was_not_edited(self):
        configuration = self.install() / CONFIGURATION
        self.install(self.second)
        self.assertIn("quiet", configuration.read_text())

    def test_removal_keeps_the_configuration_and_purging_keeps_nothing(self):
        root = self.install()
        for folder in ("var/lib", "var/cache", "var/log"):
            own = root / folder / "private/trunkline"
            own.mkdir(parents=True)
            (own / "session.key").touch()
            (root / folder / "trunkline").symlink_to("private/trunkline")
        self.root.dpkg("--remove", "trunkline")
        kept = self.root.files()
        self.assertIn(CONFIGURATION, kept)
        for folder in ("var/lib", "var/log"):
            self.assertIn(f"{folder}/private/trunkline/session.key", kept)
        self.assertNotIn("usr/bin/trunkline", kept)
        self.root.dpkg("--purge", "trunkline")
        self.assertEqual(self.root.files(), set())

    def test_size_and_start_are_measured(self):
        measured = output_of(sys.executable, ROOT / "deploy/debian/measure.py", self.binary, self.first)
        self.assertRegex(measured, r"\Atrunkline: [\d.]+ MiB\nfirst\.deb: [\d.]+ MiB\nstart: [\d.]+ ms \(")

    def test_manual_pages_are_without_faults(self):
        root = self.install()
        for page, says in (("man1/trunkline.1", "EXIT STATUS"), ("man5/trunkline.toml.5", "[upstream.NAME]")):
            text = output_of("gzip", "--decompress", "--stdout", root / f"usr/share/man/{page}.gz")
            done = subprocess.run(
                ["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=text, capture_output=True, text=True, timeout=60
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            self.assertIn(says, done.stdout)

    def test_bash_completes(self):
        root = self.install()
        script = root / "usr/share/bash-completion/completions/trunkline"
        line = 'source "$0"; COMP_WORDS=(trunkline ch) COMP_CWORD=1; _trunkline trunkline ch trunkline; '
        line += 'echo "${COMPREPLY[@]}"'
        self.assertEqual(output_of("bash", "-c", line, script).split(), ["check"])

    def test_the_licence_texts_name_every_crate_of_the_bill_of_materials(self):
        documents = self.install() / "usr/share/doc/trunkline"
        texts = (documents / "third-party-licenses.txt").read_text()
        components = json.loads((documents / "trunkline.cdx.json").read_text())["components"]
        foreign = [one for one in components if not one["name"].startswith("trunkline")]
        self.assertGreater(len(foreign), 100)
        for one in foreign:
            self.assertIn(f"\n{one['name']} {one['version']} (", texts)
        for words in ("Permission is hereby granted, free of charge", "Apache License", "OpenSSL"):
            self.assertIn(words, texts)

    def test_the_bill_of_materials_lists_what_is_linked_in(self):
        root = self.install()
        bill = json.loads((root / "usr/share/doc/trunkline/trunkline.cdx.json").read_text())
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        self.assertRegex(bill["serialNumber"], r"^urn:uuid:[0-9a-f-]{36}$")
        listed = {(one["name"], one["version"]) for one in bill["components"]}
        self.assertEqual({name for name, _ in listed} & {"proptest", "criterion", "serde_derive"}, set())
        linked = crates_in(self.binary)
        self.assertGreater(len(linked), 80, "the binary says where its code comes from")
        self.assertLessEqual(linked, {f"{name}-{version}" for name, version in listed})
        locked = {(one["name"], one["version"]) for one in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
        self.assertLessEqual(listed, locked)
        references = {one["bom-ref"] for one in [*bill["components"], bill["metadata"]["component"]]}
        for dependency in bill["dependencies"]:
            self.assertLessEqual({dependency["ref"], *dependency["dependsOn"]}, references)
        for one in bill["components"]:
            self.assertTrue(one.get("licenses"), one["name"])
            # Those of this repository come from no registry, which would have hashed them.
            self.assertEqual(bool(one.get("hashes")), not one["name"].startswith("trunkline-"), one["name"])


if __name__ == "__main__":
    sys.exit(main())
