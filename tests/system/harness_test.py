"""The harness around Tusk survives the worst mounts and servers. Uses stand-ins for tusk and tuskd (fake/)."""

import contextlib
import io
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import harness
from harness import HarnessError, Mount, Tuskd, Wan, fuse_connection, run_in

PATIENCE_SECONDS = 15  # far above what any test here takes, far below a hang


class Teardown(unittest.TestCase):
    def setUp(self):
        fake = pathlib.Path(__file__).resolve().parent / "fake"
        bins = os.pathsep.join([str(fake), os.environ.get("TUSK_BIN", "")])
        self.enterContext(mock.patch.dict(os.environ, {"TUSK_BIN": bins}))
        # What failing blocks keep goes with the test.
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch("tempfile.tempdir", folder))
        self.errors = self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.wan = self.enterContext(Wan())
        self.start = time.monotonic()

    def tearDown(self):
        self.assertLess(time.monotonic() - self.start, PATIENCE_SECONDS)

    def test_a_mount_that_answers_nothing_is_torn_down_and_fails_the_block(self):
        mount = Mount(self.wan, "tusk://fake#token", umount_seconds=0.3)
        with self.assertRaises(subprocess.TimeoutExpired), mount:
            self.assertIsNotNone(fuse_connection(mount.path))
            self.assertEqual(len(mount.pids()), 1)
            with self.assertRaises(subprocess.TimeoutExpired):
                run_in(self.wan.ns_a, ["stat", mount.path / "file"], 0.3)
        self.assertIsNone(fuse_connection(mount.path))
        harness.wait_until(lambda: not mount.pids(), 5, "the daemon's end")
        self.assertIn("kept", self.errors.getvalue())

    def test_a_failing_block_keeps_its_own_error(self):
        with self.assertRaisesRegex(ValueError, "mine"), Mount(self.wan, "url", umount_seconds=0.3):
            raise ValueError("mine")

    def test_a_crashed_client_leaves_nothing(self):
        mount = Mount(self.wan, "url", umount_seconds=0.3)
        with contextlib.suppress(subprocess.TimeoutExpired), mount:
            mount.kill()
        self.assertIsNone(fuse_connection(mount.path))

    def test_a_mount_point_with_a_strange_name_is_recognised(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a b\\040\tü"
            with contextlib.suppress(subprocess.TimeoutExpired):
                with Mount(self.wan, "url", path=path, umount_seconds=0.3):
                    self.assertIsNotNone(fuse_connection(path))
            self.assertIsNone(fuse_connection(path))

    def test_a_mount_that_fails_is_told(self):
        with self.assertRaisesRegex(HarnessError, "ended with 1: tusk: token refused"):
            with Mount(self.wan, "url", env={"FAKE_TUSK": "fail"}):
                pass

    def test_success_without_a_mount_is_noticed(self):
        with self.assertRaisesRegex(HarnessError, "nothing is mounted"):
            with Mount(self.wan, "url", env={"FAKE_TUSK": "idle"}):
                pass

    def test_a_server_lives_as_long_as_its_block_and_can_be_restarted(self):
        with Tuskd(self.wan, "/usr/share") as server:
            self.assertEqual(server.url, "tusk://fake:8875/data#token")
            first = server.process
            server.kill()
            self.assertIsNotNone(first.poll())
            server.start()
            self.assertIsNone(server.process.poll())
        self.assertIsNotNone(server.process.poll())
        self.assertFalse(server.folder.exists())

    def test_a_server_that_does_not_start_is_told(self):
        with mock.patch.dict(os.environ, {"FAKE_TUSKD": "fail"}):
            with self.assertRaisesRegex(HarnessError, "the address is in use"), Tuskd(self.wan, "/usr/share"):
                pass


class Skipping(unittest.TestCase):
    def test_the_reason_is_said(self):
        with mock.patch("os.geteuid", return_value=1000):
            self.assertEqual(harness.why_not(), "skipped, because only root may create network namespaces")
        with mock.patch("harness._can_open", side_effect=lambda device: device != "/dev/fuse"):
            self.assertIsNone(harness.why_not())
            self.assertEqual(harness.why_not(fuse=True), "skipped, because /dev/fuse cannot be opened")

    def test_a_missing_program_is_named(self):
        with self.assertRaisesRegex(HarnessError, "no-such-program is not built"):
            harness.program("no-such-program")


if __name__ == "__main__":
    harness.main(fuse=True)
