"""A reload with credentials, and a restart with a wrong configuration."""

import subprocess

from booted.units import LISTENS, Units

CERTIFICATE = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 8443)))"
#: Several clients that connect, wait some time, give up and come back.
HAMMER = """
import socket, threading, time
def connect():
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", 8080), timeout=5):
            time.sleep(0.1)
clients = [threading.Thread(target=connect) for _ in range(4)]
for client in clients:
    client.start()
for client in clients:
    client.join()
"""


class Configuration(Units):
    #: For how long clients meet a wrong configuration.
    wrong_for_s = 10

    def make_certificate(self, name):
        folder = self.machine.path("/etc/trunkline")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
        files = ["-keyout", folder / "tls.key", "-out", folder / "tls.pem", "-subj", f"/CN={name}"]
        subprocess.run([*command, *files], check=True, capture_output=True, timeout=60)
        return (folder / "tls.pem").read_text().strip()

    def test_a_reload_with_credentials_succeeds_and_a_restart_takes_up_new_ones(self):
        first = self.make_certificate("first.example.com")
        listener = (
            '[[listener]]\naddress = "127.0.0.1:8443"\n[listener.tls]\n'
            'certificates = [{ chain = "/etc/trunkline/tls.pem", key = { credential = "tls.key" } }]\n'
        )
        text = self.configure('{ credential = "token" }', listener)
        self.write("/etc/trunkline/token", "swordfish\n")
        self.machine.path("/etc/trunkline/token").chmod(0o600)
        self.write_drop_in("LoadCredential=tls.key:/etc/trunkline/tls.key\nLoadCredential=token:/etc/trunkline/token\n")
        self.systemctl("daemon-reload")
        self.systemctl("start", "trunkline")
        self.assertEqual(self.client(CERTIFICATE), first)
        self.systemctl("reload", "trunkline")
        # A wrong configuration still fails, and goes on with the old one.
        self.write("/etc/trunkline/trunkline.toml", "bogus = 1\n" + text)
        self.assertNotEqual(self.machine.systemctl("reload", "trunkline").returncode, 0)
        self.write("/etc/trunkline/trunkline.toml", text)
        second = self.make_certificate("second.example.com")
        # Versions of systemd differ in what a reload hands over; whichever it is, a pair that fits is served.
        self.machine.systemctl("reload", "trunkline")
        self.assertIn(self.client(CERTIFICATE), (first, second))
        self.systemctl("restart", "trunkline")
        self.assertEqual(self.client(CERTIFICATE), second)

    def test_a_wrong_configuration_leaves_the_socket_and_the_client_that_waits_is_served(self):
        text = self.configure()
        self.systemctl("daemon-reload")
        self.systemctl("start", "demo", "trunkline.socket", "trunkline")
        self.client(LISTENS)
        self.assert_served()
        self.write("/etc/trunkline/trunkline.toml", "bogus = 1\n" + text)
        self.assertNotEqual(self.machine.systemctl("restart", "trunkline").returncode, 0)
        self.client(HAMMER.format(seconds=self.wrong_for_s))
        self.assert_socket_goes_on()
        self.write("/etc/trunkline/trunkline.toml", text)
        seconds = self.assert_served()
        self.assert_socket_goes_on()
        self.tell(f"wrong for {self.wrong_for_s} s, the first client after the repair was served within {seconds:.2f} s")
        # Restarts go on to refuse nobody.
        self.systemctl("restart", "trunkline")
        self.assert_served()
