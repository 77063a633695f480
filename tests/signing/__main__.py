"""Runs the tests of sign-in with real clients: `python -m signing --binary PATH --provider PATH --npm DIRECTORY --python1 PATH`,
from `tests/`.

The official SDKs and authlib sign in at a gateway, before the provider of the demo and several of `oidc-provider`. Words
at the end choose tests by their names. The last line is `N passed, N failed`; the log of the
gateway is shown when a test fails.
"""

import argparse
import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "interop"))  # the everything server's fixtures, under the names it uses itself

from interop.cases import add, run  # noqa: E402
from interop.topology import everything_server  # noqa: E402
from signing import clients, providers, site, test_authlib, test_providers, test_sdks  # noqa: E402

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
        counts = [judge_sdks(options, everything), judge_providers(options, everything)]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def judge_sdks(options, everything):
    """With the provider of the demo, and one gateway for all tests."""
    known = clients.sdks(sys.executable, options.python1, options.npm)
    with site.running(options.binary, options.provider, everything) as (place, provider):
        counts = run(chosen(sdk_tests(place, provider, known, options.all), options.words))
        if counts[1]:
            print(place.log())
    return counts


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


def sdk_tests(place, provider, known, everything):
    suite = unittest.TestSuite()
    for sdk in known:
        for kind in clients.KINDS:
            add(suite, test_sdks.Flow, place, provider, sdk, kind)
            if everything or kind == SHOWN[sdk.name]:
                add(suite, test_sdks.Ends, place, provider, sdk, kind)
            if sdk.refreshes_at_401 and (everything or kind == SHOWN[sdk.name]):
                add(suite, test_sdks.Parallel, place, provider, sdk, kind)
    add(suite, test_sdks.Together, place, known)
    add(suite, test_authlib.Authlib, place)
    return suite


def chosen(suite, words):
    return unittest.TestSuite(test for test in suite if not words or any(word in test.id() for word in words))


if __name__ == "__main__":
    sys.exit(main())
