"""Each check of a soak passes where all is well, and fails where it should."""

import dataclasses
import unittest

from soak.evaluation import Sample, Soak, checks

SECONDS = 3600


def well():
    """A soak of an hour without a fault."""
    samples = [
        Sample(at, 40_000 + (at % 7) * 50 if at > 500 else 20_000 + 40 * at, 100 + at % 5) for at in range(0, SECONDS, 5)
    ]
    return Soak(
        seconds=SECONDS,
        samples=samples,
        done={"modern calls": list(range(0, SECONDS, 3))},
        unexplained=[],
        explained={"failing upstream": 7},
        expected=("failing upstream",),
        reloads=59,
        reloads_wanted=59,
        files_before=30,
        files_after=32,
    )


def changed(change):
    soak = well()
    return dataclasses.replace(soak, samples=[change(sample) for sample in soak.samples])


class Checks(unittest.TestCase):
    def failed(self, soak):
        return [check.name for check in checks(soak) if not check.passed]

    def test_a_soak_without_a_fault_passes(self):
        self.assertEqual(self.failed(well()), [])

    def test_memory_may_grow_while_it_warms_up_alone(self):
        grows = changed(lambda sample: dataclasses.replace(sample, resident_kib=40_000 + int(sample.at)))
        self.assertEqual(self.failed(grows), ["memory stays"])

    def test_memory_that_falls_is_no_leak(self):
        falls = changed(lambda sample: dataclasses.replace(sample, resident_kib=40_000 - int(sample.at)))
        self.assertEqual(self.failed(falls), [])

    def test_memory_that_grew_for_a_while_and_was_given_back(self):
        peak = changed(lambda sample: dataclasses.replace(
            sample, resident_kib=60_000 if 1300 < sample.at < 1900 else 40_000))
        self.assertEqual(self.failed(peak), ["memory stays"])

    def test_a_single_sample_is_no_finding(self):
        spike = changed(lambda sample: dataclasses.replace(sample, files=900) if sample.at == 1800 else sample)
        self.assertEqual(self.failed(spike), [])

    def test_files_that_nobody_closes(self):
        leak = changed(lambda sample: dataclasses.replace(sample, files=100 + int(sample.at) // 60))
        self.assertEqual(self.failed(leak), ["open files stay"])
        self.assertEqual(self.failed(dataclasses.replace(well(), files_after=60)), ["no file is left open"])

    def test_an_error_without_a_reason(self):
        soak = dataclasses.replace(well(), unexplained=["modern calls: 502"])
        self.assertEqual(self.failed(soak), ["no unexplained error"])

    def test_a_fault_that_nobody_met(self):
        self.assertEqual(self.failed(dataclasses.replace(well(), explained={})), ["faults were met"])

    def test_a_reload_that_was_not_taken(self):
        self.assertEqual(self.failed(dataclasses.replace(well(), reloads=58)), ["every reload was taken"])

    def test_clients_that_hang(self):
        soak = well()
        soak.done["sessions"] = list(range(0, 2000))
        self.assertEqual(self.failed(soak), ["sessions get on"])


if __name__ == "__main__":
    unittest.main()
