"""A right to mount that ends while it is used: an error that says so, never a program that hangs."""

import json
import os
import pathlib
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, program, run_in, wait_until

END_SECONDS = 15  # the right lives for 3 s, the server looks every few seconds
PROGRAM_SECONDS = 10
LEASE = 10
AGAIN_SECONDS = 40  # a refused client asks every 30 s


class Rights(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-rights-")))
        self.export = self.folder / "export"
        self.export.mkdir()
        self.wan = self.enterContext(Wan(rate="100mbit", delay="5ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))

    def administer(self, command, *arguments):
        state = self.server.folder / "state"
        return run_in(self.wan.ns_b, [program("tuskd"), command, "--state-dir", state, *arguments],
                      PROGRAM_SECONDS).stdout

    def status(self, mount, *options):
        return run_in(self.wan.ns_a, [program("tusk"), "status", *options, mount.path], PROGRAM_SECONDS).stdout

    def listed(self, mount):
        return run_in(self.wan.ns_a, ["ls", mount.path], PROGRAM_SECONDS, check=False)

    def test_one_that_runs_out_is_an_error_until_it_is_given_again(self):
        token = self.administer("token", "--export", "export", "--rw", "--expires", "3s",
                                "--host", f"{self.wan.ip_b}:8875").split()[-1]
        with Mount(self.wan, token) as mount:
            (mount.path / "file").write_text("of the good times")
            wait_until(lambda: json.loads(self.status(mount, "--json"))["refused"], END_SECONDS, "a refusal")
            # What is known is known as long as the lease lasts.
            wait_until(lambda: self.listed(mount).returncode != 0, LEASE + PROGRAM_SECONDS, "the end of the lease")
            self.assertIn("Permission denied", self.listed(mount).stderr)
            text = self.status(mount)
            self.assertRegex(text, "refused: .*right")
            self.assertIn("mount again with a new URL", text)

            key = json.loads(self.status(mount, "--json"))["client_key"]
            self.assertIn(f"tuskd allow --export export -- {key}", text)
            self.administer("allow", "--export", "export", "--rw", "--", key)
            wait_until(lambda: json.loads(self.status(mount, "--json"))["connected"], AGAIN_SECONDS, "being let in")
            self.assertEqual(os.listdir(mount.path), ["file"])


if __name__ == "__main__":
    harness.main(fuse=True)
