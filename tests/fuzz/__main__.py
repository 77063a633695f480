"""Looks for inputs that break the parsers, by what each input reaches in them: `python -m fuzz`, from `tests/`.

It builds the targets (`targets/`) with counters and searches each for `--seconds`, two at once, beginning with the inputs
in `seeds/` and those that earlier searches kept in `--corpus`. What it finds is shown with the way to try it again; a search that found something failed. The last line is
`N passed, N failed`.
"""

import argparse
import base64
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: With everything else that is built: the compilers' helpers are the same for all.
BUILD = ROOT / "target"
FINDINGS = BUILD / "fuzz"
COUNTERS = (
    "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares"
)
AT_ONCE = 2
INPUT_BYTES_MAX = 2048
INPUT_TIMEOUT_S = 10
MEMORY_MAX_MIB = 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of each target (10)")
    parser.add_argument("--target", choices=targets(), action="append", help="one of them; all unless given")
    parser.add_argument("--corpus", type=pathlib.Path, default=FINDINGS / "corpus",
                        help="where inputs are kept that reach something new (target/fuzz/corpus)")
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    program = build()
    if options.build_only:
        return 0
    chosen = options.target or targets()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda target: search(program, target, options), chosen))
    failed = found.count(False)
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


def targets():
    """The names in `targets/mod.rs`."""
    return re.findall(r'^    \("(\w+)", ', (HERE / "targets" / "mod.rs").read_text(), re.M)


def build():
    """The program. Its flags are for itself and its crates alone, so that a target triple must be named."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    triple = re.search(r"^host: (\S+)$", version, re.M)[1]
    command = ["cargo", "build", "--quiet", "--locked", "--target", triple, "--target-dir", BUILD]
    subprocess.run(command, check=True, cwd=HERE, env={**os.environ, "RUSTFLAGS": COUNTERS})
    return BUILD / triple / "debug" / "fuzz"


def search(program, target, options):
    """Whether nothing was found."""
    corpus, findings = options.corpus.resolve() / target, FINDINGS / "findings" / target
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [program, corpus, HERE / "seeds" / target, f"-max_total_time={options.seconds}", f"-max_len={INPUT_BYTES_MAX}"]
    command += [f"-timeout={INPUT_TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MAX_MIB}", f"-artifact_prefix={findings}/"]
    command += ["-print_final_stats=1", "-use_value_profile=1"]
    environment = {**os.environ, "FUZZ_TARGET": target, "RUST_BACKTRACE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    tried = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    reached = re.findall(r" cov: (\d+)", done.stderr)
    print(f"{target:15} {int(tried[1]) if tried else 0:>12,} inputs, {reached[-1] if reached else 0:>6} places reached", flush=True)
    if done.returncode == 0:
        return True
    print("\n".join(done.stderr.splitlines()[-40:]))
    for written in re.findall(r"Test unit written to (\S+)", done.stderr):
        shown = base64.b64encode(pathlib.Path(written).read_bytes()).decode()
        print(f"input, as base64: {shown}\nagain: FUZZ_TARGET={target} {program} {written}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
