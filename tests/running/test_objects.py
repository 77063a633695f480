"""One clone leaves objects of the registry's crates for another, and none of its own. And lints are found in a build."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import tomllib
import unittest

from running import building, objects
from running.places import ROOT
from running.process import CURRENT
from running.step import Failure

#: A crate with a build script, which is here because the gateway needs it.
FOREIGN = "libc"
#: Older than anything that is built from it.
LONG_AGO_S = 1_000_000_000


class Clone:
    """A workspace of the same shape as this one, with a package and a crate of the registry."""

    def __init__(self, root, word):
        self.root, self.target = root, root / "target"
        locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
        foreign = next(package for package in locked if package["name"] == FOREIGN)
        source = [f'{key} = "{foreign[key]}"' for key in ("name", "version", "source", "checksum")]
        files = {
            "Cargo.toml": f"""[workspace]
members = ["part"]
[package]
name = "tiny"
version = "0.1.0"
edition = "2024"
[dependencies]
tiny-part = {{ path = "part" }}
{FOREIGN} = "={foreign['version']}"
""",
            "src/main.rs": f'fn main() {{ println!("{{}} {{}}", tiny_part::word(), {FOREIGN}::EINTR); }}\n',
            "part/Cargo.toml": '[package]\nname = "tiny-part"\nversion = "0.1.0"\nedition = "2024"\n',
            "part/src/lib.rs": f'pub fn word() -> &\'static str {{ "{word}" }}\n',
            "Cargo.lock": "\n".join([
                "version = 4",
                "[[package]]", *source,
                "[[package]]", 'name = "tiny"', 'version = "0.1.0"', f'dependencies = ["{FOREIGN}", "tiny-part"]',
                "[[package]]", 'name = "tiny-part"', 'version = "0.1.0"',
            ]),
        }
        for name, text in files.items():
            self.write(name, text)

    def write(self, name, text):
        """As a clone may have it: with any time of change."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))

    def build(self):
        """Returns what cargo says that it does."""
        command = ["cargo", "build", "--locked", "--offline", "--verbose"]
        environment = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
        done = subprocess.run(command, cwd=self.root, env=environment | building.linting(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def said(self):
        return subprocess.run([self.target / "debug" / "tiny"], capture_output=True, text=True, check=True).stdout

    def keep(self, kept):
        return objects.keep(self.target, kept, objects.registry_packages(self.root))


class Objects(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.kept = self.directory / "kept"
        CURRENT.show, CURRENT.busy_seconds = lambda _: None, 0.0

    def test_a_changed_line_is_seen_at_another_place_and_at_the_same_one(self):
        first = Clone(self.directory / "a", "old")
        first.build()
        self.assertIn("old", first.said())
        # The crate itself, its build script, and what that said.
        self.assertEqual(first.keep(self.kept), 3)
        own = [path for path in self.kept.rglob("*") if "tiny" in path.name]
        self.assertEqual(own, [])
        shutil.rmtree(first.root)
        for place in ("b", "a"):
            clone = Clone(self.directory / place, f"new at {place}")
            self.assertEqual(objects.bring_back(self.kept, clone.target), 3)
            done = clone.build()
            self.assertIn(f"Fresh {FOREIGN} ", done)
            self.assertNotIn(f"Compiling {FOREIGN} ", done)
            self.assertIn("Compiling tiny-part ", done)
            self.assertIn(f"new at {place}", clone.said())

    def test_what_is_there_stays_and_what_is_not_wanted_is_not_kept(self):
        clone = Clone(self.directory / "a", "old")
        clone.build()
        self.assertEqual(clone.keep(self.kept), 3)
        self.assertEqual(objects.bring_back(self.kept, clone.target), 0)
        other = {FOREIGN: {"0.0.0"}}
        # Only what a build script said has no version.
        self.assertEqual(objects.keep(clone.target, self.directory / "other", other), 1)
        self.assertEqual(objects.keep(clone.target, self.directory / "none", {}), 0)

    def test_a_unit_that_was_built_anew_takes_the_place_of_the_old_one(self):
        clone = Clone(self.directory / "a", "old")
        clone.build()
        clone.keep(self.kept)
        library = next((self.kept / "debug" / "deps").glob("*.rlib"))
        built = library.read_bytes()
        library.write_bytes(b"old")
        clone.keep(self.kept)
        self.assertEqual(library.read_bytes(), b"old")
        for unit in (self.kept / "debug" / ".fingerprint").iterdir():
            os.utime(unit, (LONG_AGO_S, LONG_AGO_S))
        clone.keep(self.kept)
        self.assertEqual(library.read_bytes(), built)

    def test_a_unit_that_was_copied_in_part_is_none(self):
        clone = Clone(self.directory / "a", "old")
        clone.build()
        clone.keep(self.kept)
        for unit in (self.kept / "debug" / ".fingerprint").iterdir():
            shutil.rmtree(unit)
        other = Clone(self.directory / "b", "old")
        self.assertEqual(objects.bring_back(self.kept, other.target), 0)
        self.assertEqual(clone.keep(self.kept), 3)

    def test_the_key_goes_with_versions_and_profiles(self):
        clone = Clone(self.directory / "a", "old")
        key = objects.key(clone.root)
        self.assertEqual(objects.key(Clone(self.directory / "b", "new").root), key)
        manifest = clone.root / "Cargo.toml"
        manifest.write_text(f"{manifest.read_text()}[profile.dev]\nopt-level = 1\n")
        self.assertNotEqual(objects.key(clone.root), key)

    def test_a_lint_fails_the_step_as_often_as_it_is_asked(self):
        clone = Clone(self.directory / "a", "old")
        building.check_lints(building.linting(), clone.root)
        clone.write("part/src/lib.rs", "pub fn word(of: &Vec<u8>) -> usize { of.len() }\n")
        clone.write("src/main.rs", "fn main() { println!(\"{}\", tiny_part::word(&vec![1])); }\n")
        shutil.rmtree(clone.target)
        for _ in range(2):
            with self.assertRaisesRegex(Failure, "warnings: 1"):
                building.check_lints(building.linting(), clone.root)
        clone.write("part/src/lib.rs", "nonsense\n")
        shutil.rmtree(clone.target)
        with self.assertRaisesRegex(Failure, "does not compile"):
            building.check_lints(building.linting(), clone.root)


if __name__ == "__main__":
    unittest.main()
