"""Runs the tests of sign-in with real clients: `python -m signing --binary PATH --provider PATH --npm DIRECTORY --python1 PATH`,
from `tests/`.

The official SDKs, authlib and a browser sign in at a gateway, before the provider of the demo and several of `oidc-provider`. Words
at the end choose tests by their names, and `pages` those in a browser. The last line is `N passed, N failed`; the log of the
gateway is shown when a test fails.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "interop"))  # the everything server's fixtures, under the names it uses itself

from interop import other_clients  # noqa: E402
from interop.cases import add, run  # noqa: E402
from interop.topology import everything_server  # noqa: E402
from ports import free_port  # noqa: E402
from signing import clients, providers, site, test_authlib, test_providers, test_sdks, test_suite  # noqa: E402

PAGES_TIMEOUT_S = 240
#: SDK → the kind of registration with which it shows what is the same for all kinds, in every run.
SHOWN = {"python": "registered", "python 1": "registered", "typescript": "document", "typescript 1": "configured"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--provider", type=pathlib.Path, required=True, help="the demo's provider, an example of the build")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    parser.add_argument("--python1", type=pathlib.Path, required=True, help="an interpreter with the SDK's version 1")
    parser.add_argument("--part", choices=PARTS, action="append", help="only that part; they run side by side")
    parser.add_argument("--all", action="store_true", help="all tests of every SDK in every kind of registration")
    parser.add_argument("words", nargs="*", help="only tests with one of these in their names")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    if options.part:
        with everything_server("everything") as server:
            counts = [PARTS[part](options, server.ready[1]) for part in options.part]
    else:
        same = [sys.executable, "-B", "-m", "signing", *sys.argv[1:]]
        with everything_server("everything") as server:
            with other_clients.side_by_side([*same, "--part", "pages", "--part", "providers"]) as further:
                counts = [judge_clients(options, server.ready[1]), further()]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def judge_clients(options, everything):
    """With the provider of the demo, and one gateway for all tests."""
    known = clients.sdks(sys.executable, options.python1, options.npm)
    with site.running(options.binary, options.provider, everything) as (place, provider):
        counts = run(chosen(client_tests(place, provider, known, options), options.words))
        if counts[1]:
            print(place.log())
    return counts


def judge_pages(options, everything):
    """In a browser: a gateway on this machine, and one with a certificate and an app with a site of its own."""
    if options.words and "pages" not in options.words:
        return 0, 0
    with site.running(options.binary, options.provider, everything) as (place, provider):
        plain = run_pages(options.npm, place, provider, "pages.test.mjs")
    port = free_port()
    keys = f'redirects = ["https://{site.APP_HOST}:{port}"]'
    with site.running(options.binary, options.provider, everything, keys, has_tls=True) as (place, provider):
        more = {"APP_HOST": site.APP_HOST, "APP_PORT": str(port), "TLS_DIRECTORY": str(place.directory)}
        more["NODE_EXTRA_CA_CERTS"] = str(place.directory / "cert.pem")
        over_tls = run_pages(options.npm, place, provider, "pages_tls.test.mjs", more)
    return tuple(map(sum, zip(plain, over_tls, strict=True)))


def run_pages(npm, place, provider, tests, more=None):
    """Tests of the pages in a browser: how many passed and how many failed."""
    environment = {
        "NPM_DIRECTORY": str(npm.resolve()),
        "CHROMIUM": shutil.which("chromium") or "chromium",
        "GATEWAY": place.url,
        "PROVIDER": provider.issuer,
        "NO_COLOR": "1",
        **(more or {}),
    }
    command = ["node", "--test", "--test-force-exit", "--test-reporter=spec", str(HERE / tests)]
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        watchdog = threading.Timer(PAGES_TIMEOUT_S, child.terminate)
        watchdog.start()
        try:
            printed = "".join(shown(line) for line in child.stdout)
        finally:
            watchdog.cancel()
            child.terminate()
        status = child.wait()
    if status:
        print(place.log())
    counts = {kind: int(count) for kind, count in re.findall(r"^\S (pass|fail|cancelled) (\d+)$", printed, re.M)}
    failed = counts.get("fail", 0) + counts.get("cancelled", 0)
    return counts.get("pass", 0), failed or int(status != 0)


def shown(line):
    print(line, end="", flush=True)
    return line


def judge_providers(options, everything):
    """With providers that somebody else wrote, and a gateway for each."""
    with providers.running(options.binary, options.npm, everything) as sites:
        suite = unittest.TestSuite()
        for profile, place in sites:
            add(suite, test_providers.Providers, profile, place)
            if options.all and profile.rotates:
                add(suite, test_providers.Rotation, profile, place)
        counts = run(chosen(suite, options.words))
        if counts[1]:
            print("\n".join(place.log() for _, place in sites))
    return counts


def client_tests(place, provider, known, options):
    suite = unittest.TestSuite()
    for sdk in known:
        for kind in clients.KINDS:
            add(suite, test_sdks.Flow, place, provider, sdk, kind)
            if not options.all and kind != SHOWN[sdk.name]:
                continue
            add(suite, test_sdks.Ends, place, provider, sdk, kind)
            if options.all or sdk.is_newest:
                add(suite, test_sdks.Kills, place, provider, sdk, kind)
                if sdk.refreshes_at_401:
                    add(suite, test_sdks.Parallel, place, provider, sdk, kind)
    add(suite, test_sdks.Together, place, known)
    add(suite, test_authlib.Authlib, place)
    add(suite, test_suite.Suite, place, options.npm)
    return suite


def chosen(suite, words):
    return unittest.TestSuite(test for test in suite if not words or any(word in test.id() for word in words))


PARTS = {"clients": judge_clients, "pages": judge_pages, "providers": judge_providers}


if __name__ == "__main__":
    sys.exit(main())
