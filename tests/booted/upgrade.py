"""The package of a later version, installed by dpkg while clients call."""

from booted.units import Units

#: The dependencies of the package are there, but not in the machine's database of packages, which is empty. The edited
#: configuration is kept, as an operator says who is asked.
DPKG = ("env", "PATH=/usr/sbin:/usr/bin", "dpkg", "--force-depends", "--force-confold")
STATE = ("/var/lib/private/trunkline", "/var/lib/trunkline", "/var/cache/private/trunkline", "/var/log/private/trunkline")


class Upgrade(Units):
    #: The folder in which tests/packages leaves what it builds.
    packages = None

    def setUp(self):
        names = ("first.deb", "second.deb")
        if not self.packages or not all((self.packages / name).exists() for name in names):
            self.skipTest("there are no packages to install: --packages names the folder that tests/packages has filled")
        if not self.machine.is_usr_its_own():
            self.skipTest("there are no overlays here, so that /usr of the booted machine cannot be written to")
        super().setUp()
        for name in names:
            self.machine.path(f"/opt/{name}").write_bytes((self.packages / name).read_bytes())

    def write_units(self):
        """Those of the package, and nothing else."""
        for unit in ("trunkline.service", "trunkline.socket"):
            self.machine.path(f"/etc/systemd/system/{unit}").unlink(missing_ok=True)
        for folder in ("updates", "info", "triggers"):
            self.machine.path(f"/var/lib/dpkg/{folder}").mkdir(parents=True, exist_ok=True)
        self.machine.path("/var/lib/dpkg/status").touch()
        # In an image of a container it keeps packages from starting services.
        self.machine.path("/usr/sbin/policy-rc.d").unlink(missing_ok=True)

    def dpkg(self, *arguments):
        done = self.machine.run(*DPKG, *arguments)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}{self.status()}")
        return done.stdout

    def purge(self):
        self.stop_all()
        self.dpkg("--purge", "trunkline")

    def test_an_upgrade_loses_no_call(self):
        self.dpkg("--install", "/opt/first.deb")
        self.addCleanup(self.purge)
        self.configure()
        self.systemctl("enable", "trunkline.socket")
        with self.load() as load:
            process, socket = self.main_pid(), self.property("trunkline.socket", "ActiveEnterTimestampMonotonic")
            self.dpkg("--install", "/opt/second.deb")
            self.assertIn("Version: 0.1.1-1", self.dpkg("--status", "trunkline"))
            self.assertNotEqual(self.main_pid(), process, "the new one serves")
            load.goes_on()
        load.assert_nothing_lost()
        self.assertEqual(self.property("trunkline.socket", "ActiveEnterTimestampMonotonic"), socket, "the socket stayed")
        self.tell(f"{load.told['calls']} calls, 0 lost in an upgrade, longest {load.told['longest_s']:.2f} s")
        self.purge()
        left = [place for place in STATE if self.machine.path(place).exists()]
        self.assertEqual(left, [])
