"""Tries what `deploy/` holds: `python -m deployment --binary PATH`, from `tests/`.

Each overlay for Kubernetes is rendered with kubectl, validated against the schemas, and its configuration checked. The image
is built with buildah, run, called and stopped; without buildah, or where it may not run, the same is done with the file
system of the image. compose.yaml names files and images that are there. `--rules` writes the PrometheusRule anew. The last
line is `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
CONTAINER = ROOT / "deploy" / "container"
RULES = KUBERNETES / "monitoring" / "prometheusrule.yaml"
OVERLAYS = ("single", "replicas", "children")
#: The Kubernetes whose schemas count.
KUBERNETES_VERSION = "1.37"
#: Kinds that the Prometheus Operator brings, which those schemas do not have.
OPERATOR = "monitoring.coreos.com/v1"
DRAIN_TIMEOUT_S = 60


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway")
    parser.add_argument("--rules", action="store_true", help="write the PrometheusRule anew")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    if options.rules:
        RULES.write_text(rules())
        return 0
    Deployment.binary = options.binary.resolve()
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(Deployment)
    outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    failed = len({getattr(test, "test_case", test).id() for test, _ in outcome.failures + outcome.errors})
    print(f"{outcome.testsRun - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def rules():
    """The rules of `config/prometheus` as the Prometheus Operator takes them."""
    files = ("trunkline-recording.yml", "trunkline-alerts.yml")
    groups = [yaml.safe_load((ROOT / "config" / "prometheus" / file).read_text())["groups"] for file in files]
    rule = {
        "apiVersion": OPERATOR,
        "kind": "PrometheusRule",
        "metadata": {"name": "trunkline", "labels": {"app.kubernetes.io/name": "trunkline"}},
        "spec": {"groups": sum(groups, [])},
    }
    head = "# Made of config/prometheus: python3 -m deployment --rules, from tests/.\n"
    return head + yaml.safe_dump(rule, sort_keys=False, width=200)


def rendered(overlay):
    done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


class Deployment(unittest.TestCase):
    binary = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.scratch = pathlib.Path(directory.name)

    def test_overlays_are_what_kubernetes_takes(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                objects = rendered(KUBERNETES / "overlays" / overlay)
                self.assertGreater(len(objects), 5)
                for each in objects:
                    kubernetes_validate.validate(each, KUBERNETES_VERSION, strict=True)

    def test_the_configuration_of_each_overlay_is_valid(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                objects = rendered(KUBERNETES / "overlays" / overlay)
                (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
                directory = self.scratch / overlay
                directory.mkdir()
                for name, text in config["data"].items():
                    (directory / name).write_text(text)
                self.check(directory / "trunkline.toml")

    def test_a_pod_has_time_to_drain(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                objects = rendered(KUBERNETES / "overlays" / overlay)
                (pod,) = [
                    each["spec"]["template"]["spec"]
                    for each in objects
                    if each["kind"] == "Deployment" and each["metadata"]["name"] == "trunkline"
                ]
                # drain.max of the configuration is 40 s.
                self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 50)
                (container,) = pod["containers"]
                for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
                    self.assertEqual(container[probe]["httpGet"]["path"], path)

    def test_monitoring_has_the_rules_of_today(self):
        self.assertEqual(RULES.read_text(), rules(), "refresh it: python3 -m deployment --rules, from tests/")
        kinds = [(each["apiVersion"], each["kind"]) for each in rendered(KUBERNETES / "monitoring")]
        self.assertEqual(sorted(kinds), [(OPERATOR, "PrometheusRule"), (OPERATOR, "ServiceMonitor")])

    def test_compose_names_what_is_there(self):
        compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
        for name, service in compose["services"].items():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                with self.subTest(f"{name}: {source}"):
                    is_there = (CONTAINER / source).exists() if source.startswith(".") else source in compose["volumes"]
                    self.assertTrue(is_there)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name} is open to the network")
        self.check(CONTAINER / "compose" / "trunkline.toml")
        rule_files = yaml.safe_load((CONTAINER / "compose" / "prometheus.yml").read_text())["rule_files"]
        for file in rule_files:
            self.assertTrue((ROOT / "config" / "prometheus" / pathlib.Path(file).name).exists(), file)

    def test_the_image_runs_is_called_and_stops_in_order(self):
        program = self.image() or self.file_system()
        port, admin = free_port(), free_port()
        addresses = ["--address", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        log = (self.scratch / "log").open("w+")
        process = subprocess.Popen([*program, "demo", *addresses], stdout=log, stderr=log, start_new_session=True)
        try:
            self.await_ready(process, admin, log)
            called = subprocess.run(
                [self.binary, "call", f"http://127.0.0.1:{port}/mcp", "weather__forecast", "--city", "Oslo", "--days", "1"],
                capture_output=True, text=True, timeout=30,
            )
            self.assertIn("Oslo:", called.stdout, called.stderr)
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(DRAIN_TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()

    def image(self):
        """How a program of the image is run; `None` where no image can be built or run."""
        if not shutil.which("buildah") or os.geteuid() != 0:
            return None
        built = subprocess.run(
            [sys.executable, CONTAINER / "build.py", "--binary", self.binary], capture_output=True, text=True, timeout=300
        )
        if built.returncode != 0:
            print(f"buildah does not work here: {built.stderr.strip().splitlines()[-1:]}", flush=True)
            return None
        for tag in built.stdout.split()[-2:]:
            remove = ["buildah", "rmi", f"localhost/{tag}"]
            self.addCleanup(subprocess.run, remove, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        name = subprocess.run(
            ["buildah", "from", "localhost/trunkline:latest"], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
        self.addCleanup(subprocess.run, ["buildah", "rm", name], stdout=subprocess.DEVNULL, timeout=60)
        inspected = subprocess.run(["buildah", "inspect", name], capture_output=True, text=True, check=True, timeout=60)
        config = json.loads(inspected.stdout)["OCIv1"]["config"]
        self.assertEqual((config["User"], config["Entrypoint"]), ("65532:65532", ["/usr/bin/trunkline"]))
        return ["buildah", "run", "--isolation", "chroot", name, "--", *config["Entrypoint"]]

    def file_system(self):
        """How a program of the image's file system is run: as its user where that can be, else by its own linker."""
        rootfs = self.scratch / "rootfs"
        subprocess.run(
            [sys.executable, CONTAINER / "build.py", "--binary", self.binary, "--rootfs", rootfs], check=True, timeout=60
        )
        if os.geteuid() == 0:
            return ["chroot", "--userspec=65532:65532", rootfs, "/usr/bin/trunkline"]
        (linker,) = rootfs.glob("lib*/ld-linux*")
        libraries = ":".join(str(path) for path in sorted({path.parent for path in rootfs.rglob("lib*.so*")}))
        return [linker, "--library-path", libraries, rootfs / "usr/bin/trunkline"]

    def await_ready(self, process, admin, log):
        while subprocess.run([self.binary, "ready", "--admin", f"127.0.0.1:{admin}"], capture_output=True, timeout=30).returncode != 0:
            if process.poll() is not None:
                log.seek(0)
                raise AssertionError(f"it ended with {process.returncode}:\n{log.read()}")

    def check(self, config):
        command = [self.binary, "check", "--no-files", "--config", config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    sys.exit(main())
