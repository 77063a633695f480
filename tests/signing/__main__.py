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
    parser.add_argument("--all", action="store_true", help="all tests of every SDK in every kind of registration")
    parser.add_argument("words", nargs="*", help="only tests with one of these in their names")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    with everything_server("everything") as server:
        everything = server.ready[1]
        judges = (judge_sdks, judge_pages_over_tls, judge_providers)
        counts = [judge(options, everything) for judge in judges]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def judge_sdks(options, everything):
    """With the provider of the demo, and one gateway for all tests."""
    known = clients.sdks(sys.executable, options.python1, options.npm)
    with site.running(options.binary, options.provider, everything) as (place, provider):
        counts = run(chosen(client_tests(place, provider, known, options), options.words))
        if not options.words or "pages" in options.words:
            judged = run_pages(options.npm, place, provider, "pages.test.mjs")
            counts = tuple(map(sum, zip(counts, judged, strict=True)))
        if counts[1]:
            print(place.log())
    return counts


def judge_pages_over_tls(options, everything):
    """With a gateway that has a certificate, and an app with a site of its own."""
    if options.words and "pages" not in options.words:
        return 0, 0
    port = free_port()
    keys = f'redirects = ["https://{site.APP_HOST}:{port}"]'
    with site.running(options.binary, options.provider, everything, keys, has_tls=True) as (place, provider):
        more = {"APP_HOST": site.APP_HOST, "APP_PORT": str(port), "TLS_DIRECTORY": str(place.directory)}
        more["NODE_EXTRA_CA_CERTS"] = str(place.directory / "cert.pem")
        counts = run_pages(options.npm, place, provider, "pages_tls.test.mjs", more)
        if counts[1]:
            print(place.log())
    return counts


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
            if options.all or kind == SHOWN[sdk.name]:
                add(suite, test_sdks.Ends, place, provider, sdk, kind)
            if sdk.refreshes_at_401 and (options.all or kind == SHOWN[sdk.name]):
                add(suite, test_sdks.Parallel, place, provider, sdk, kind)
    add(suite, test_sdks.Together, place, known)
    add(suite, test_authlib.Authlib, place)
    add(suite, test_suite.Suite, place, options.npm)
    return suite


def chosen(suite, words):
    return unittest.TestSuite(test for test in suite if not words or any(word in test.id() for word in words))


if __name__ == "__main__":
    sys.exit(main())
