"""How many round trips one waits before a mount is there, and for the first byte of a file: by a path so long that the
machine's own time is nothing beside it."""

import os
import pathlib
import re
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan

RTT = 0.6  # s
LEAST = 0.95  # of a round trip: the emulator's own is exact, this tells that nothing was answered from here
PROGRAM = 0.3  # s, for starting and mounting on a machine that is busy with other tests


class Start(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        far = cls.folder / "folder"
        far.mkdir()
        (far / "file").write_bytes(os.urandom(1 << 20))
        cls.wan = cls.enterClassContext(Wan(rate="1gbit", delay=f"{RTT / 2 * 1000}ms"))
        cls.server = cls.enterClassContext(Tuskd(cls.wan, cls.folder))

    def test_a_first_mount_is_there_after_two_round_trips(self):
        # One for keys and identities, one to attach. Three were the goal, two with a ticket, which it has none of.
        began = time.monotonic()
        with Mount(self.wan, self.server.url):
            took = time.monotonic() - began
        self.assertGreaterEqual(took, 2 * LEAST * RTT)
        self.assertLess(took, 2 * RTT + PROGRAM)

    def test_the_first_byte_comes_a_round_trip_after_the_open(self):
        with Mount(self.wan, self.server.url) as mount:
            os.listdir(mount.path / "folder")
            began = time.monotonic()
            with open(mount.path / "folder" / "file", "rb", buffering=0) as file:
                first = file.read(1)
            took = time.monotonic() - began
            self.assertEqual(first, (self.folder / "folder" / "file").read_bytes()[:1])
        self.assertLess(took, RTT + PROGRAM)

    def test_a_server_without_mounts_sleeps_and_knows_of_the_first_one(self):
        def sleeps():
            statuses = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/status")
            counts = re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", "".join(s.read_text() for s in statuses), re.MULTILINE)
            return sum(map(int, counts))

        def listed():
            command = [harness.program("tuskd"), "clients", "--state-dir", state]
            return self.wan.ip_a in harness.run_in(self.wan.ns_b, command, timeout=30).stdout

        state = self.folder / "state"
        # A watch would wake it whenever anything changes on the file system of this test.
        with Tuskd(self.wan, self.folder / "folder", port=8876, state_dir=state, options=["--watch", "none"]) as server:
            time.sleep(2.5)
            before = sleeps()
            time.sleep(5)
            self.assertLessEqual(sleeps() - before, 2)
            with Mount(self.wan, server.url):
                harness.wait_until(listed, 4, "the mount among `tuskd clients`")


if __name__ == "__main__":
    harness.main(fuse=True)
