"""Scans a listener that speaks TLS with sslyze: `python -m tls_scan --binary PATH`, from `tests/`.

Everything runs on the loopback interface with certificates made for the scan, one of each kind of key. The last line
is `N passed, N failed`.
"""

import argparse
import datetime
import pathlib
import signal
import sys
import tempfile
import unittest
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

warnings.filterwarnings("ignore")  # cryptography's about roots that sslyze brings along

import sslyze  # noqa: E402

import suite  # noqa: E402
from interop.process import Process  # noqa: E402

KEYS = {
    "rsa": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
}
CONFIGURATION = """
[listener]
address = "127.0.0.1:0"
[listener.tls]
certificates = [{{ chain = "{chain}", key = {{ file = "{key}" }} }}]
[[endpoint]]
path = "/mcp"
upstreams = ["none"]
[upstream.none]
url = "http://127.0.0.1:9/mcp"
eras = ["modern"]
"""
OLD_VERSIONS = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    tests = unittest.TestSuite()
    for kind in KEYS:
        result = scan(options.binary, kind)
        names = unittest.defaultTestLoader.getTestCaseNames(Scan)
        tests.addTests(Scan(name, kind, result) for name in names)
    return suite.run_all(tests)


def scan(binary, kind):
    """What sslyze finds out about a gateway with a key of this kind."""
    with tempfile.TemporaryDirectory() as directory:
        files = write_certificates(pathlib.Path(directory), KEYS[kind]())
        configuration = pathlib.Path(directory) / "trunkline.toml"
        configuration.write_text(CONFIGURATION.format(**files))
        command = [binary, "run", "--config", configuration]
        with Process("gateway", command, ready=r" listening address=127\.0\.0\.1:(\d+)") as gateway:
            location = sslyze.ServerNetworkLocation("localhost", int(gateway.ready[1]), ip_address="127.0.0.1")
            extra = sslyze.ScanCommandsExtraArguments(
                certificate_info=sslyze.CertificateInfoExtraArgument(custom_ca_file=files["ca"])
            )
            scanner = sslyze.Scanner()
            scanner.queue_scans([sslyze.ServerScanRequest(location, scan_commands_extra_arguments=extra)])
            (found,) = scanner.get_results()
    if found.scan_result is None:
        raise SystemExit(f"the gateway could not be scanned: {found.connectivity_error_trace}")
    return found.scan_result


def write_certificates(directory, key):
    """An authority and a certificate for `localhost`, as files."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    ca = certificate(authority, authority_key.public_key(), authority, authority_key, is_authority=True)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    leaf = certificate(name, key.public_key(), authority, authority_key, is_authority=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    contents = {
        "ca": ca.public_bytes(serialization.Encoding.PEM),
        "chain": leaf.public_bytes(serialization.Encoding.PEM),
        "key": private,
    }
    files = {}
    for file, content in contents.items():
        files[file] = directory / f"{file}.pem"
        files[file].touch(mode=0o600)
        files[file].write_bytes(content)
    return files


def certificate(subject, public_key, issuer, issuer_key, is_authority):
    now = datetime.datetime.now(datetime.timezone.utc)
    usage = {
        "digital_signature": not is_authority,
        "key_cert_sign": is_authority,
        "crl_sign": is_authority,
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "encipher_only": False,
        "decipher_only": False,
    }
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if not is_authority:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
        ).add_extension(
            x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


class Scan(unittest.TestCase):
    """One row of what a scan says."""

    def __init__(self, method, kind, scanned):
        super().__init__(method)
        self.kind = kind
        self.scanned = scanned

    def __str__(self):
        return f"{self.kind}: {self._testMethodName}"

    id = __str__

    def result(self, command):
        attempt = getattr(self.scanned, command)
        self.assertEqual(attempt.status, sslyze.ScanCommandAttemptStatusEnum.COMPLETED, attempt.error_trace)
        return attempt.result

    def accepted(self, version):
        suites = self.result(f"{version}_cipher_suites").accepted_cipher_suites
        return [one.cipher_suite for one in suites]

    def test_old_versions_are_refused(self):
        for version in OLD_VERSIONS:
            self.assertEqual(self.accepted(version), [], version)

    def test_ciphers_of_1_2_are_authenticated_and_forward_secret(self):
        accepted = self.accepted("tls_1_2")
        self.assertTrue(accepted)
        for suite in accepted:
            self.assertRegex(suite.name, r"^TLS_ECDHE_(ECDSA|RSA)_WITH_(AES_(128|256)_GCM|CHACHA20_POLY1305)_")
            self.assertGreaterEqual(suite.key_size, 128)
            self.assertFalse(suite.is_anonymous)

    def test_1_3_is_spoken(self):
        names = {suite.name for suite in self.accepted("tls_1_3")}
        self.assertEqual(
            names, {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
        )

    def test_curves_are_strong(self):
        curves = {curve.name for curve in self.result("elliptic_curves").supported_curves}
        self.assertIn("X25519", curves)
        self.assertLessEqual(curves, {"X25519", "prime256v1", "secp384r1", "secp256r1"})

    def test_nothing_is_compressed(self):
        self.assertFalse(self.result("tls_compression").supports_compression)

    def test_nothing_is_sent_early(self):
        self.assertFalse(self.result("tls_1_3_early_data").supports_early_data)

    def test_nobody_renegotiates(self):
        renegotiation = self.result("session_renegotiation")
        self.assertFalse(renegotiation.is_vulnerable_to_client_renegotiation_dos)
        self.assertTrue(renegotiation.supports_secure_renegotiation)

    def test_known_attacks_fail(self):
        self.assertFalse(self.result("heartbleed").is_vulnerable_to_heartbleed)
        self.assertFalse(self.result("openssl_ccs_injection").is_vulnerable_to_ccs_injection)
        self.assertTrue(self.result("robot").robot_result.name.startswith("NOT_VULNERABLE"))

    def test_nobody_is_talked_down(self):
        self.assertTrue(self.result("tls_fallback_scsv").supports_fallback_scsv)
        self.assertTrue(self.result("tls_extended_master_secret").supports_ems_extension)

    def test_no_sessions_are_kept_here(self):
        # What is said of tickets is no use: a ticket that is replaced when it is used counts as refused.
        resumption = self.result("session_resumption")
        self.assertEqual(resumption.session_id_resumption_result.name, "NOT_SUPPORTED")

    def test_the_chain_is_whole(self):
        deployments = self.result("certificate_info").certificate_deployments
        self.assertEqual(len(deployments), 1)
        for path in deployments[0].path_validation_results:
            if not path.trust_store.name.startswith("Supplied"):
                continue
            self.assertTrue(path.was_validation_successful, path.validation_error)
            return
        self.fail("the scan did not believe our authority")


if __name__ == "__main__":
    sys.exit(main())
