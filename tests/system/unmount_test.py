"""Unmounting: in good order, lazily and by force, with the server in and out of reach, and what is said about it."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, fuse_connection, popen_in, program, run_in, wait_until

MIB = 1 << 20
UNSENT = 2 * MIB
COMMAND_SECONDS = 20
WRITER = """
import os, sys
file = open(sys.argv[1], "wb", buffering=0)
print("open", flush=True)
if sys.stdin.readline():
    file.write(os.urandom(int(sys.argv[2])))
    print("written", flush=True)
    sys.stdin.read()
"""
ERROR_SECONDS = 15


class Unmount(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-unmount-")))
        self.export = self.folder / "export"
        self.export.mkdir()
        self.wan = self.enterContext(Wan(rate="100mbit", delay="5ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))
        self.mount = self.enterContext(Mount(self.wan, self.server.url))

    def tusk(self, *words, **options):
        return run_in(self.wan.ns_a, [program("tusk"), *words], COMMAND_SECONDS, **options)

    def open_file(self):
        """A process that has a file of the mount open: ours would hand it on to each program that we start."""
        writer = popen_in(None, [sys.executable, "-c", WRITER, self.mount.path / "file", str(UNSENT)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for pipe in (writer.stdin, writer.stdout):
            self.addCleanup(pipe.close)
        self.addCleanup(harness.stop, writer, signal.SIGKILL)
        self.assertEqual(writer.stdout.readline(), "open\n")
        return writer

    def write_without_the_server(self):
        writer = self.open_file()
        self.lose_the_server()
        print(file=writer.stdin, flush=True)
        self.assertEqual(writer.stdout.readline(), "written\n")
        return writer

    @staticmethod
    def close(writer):
        writer.stdin.close()

    def wait_for_the_end_of(self, pids):
        wait_until(lambda: not set(pids) & set(self.mount.pids()), ERROR_SECONDS, "the daemon's end")

    def lose_the_server(self):
        # One that says goodbye is missed at once; silence is believed only after a while.
        self.server.stop()
        wait_until(lambda: not json.loads(self.tusk("status", "--json", self.mount.path).stdout)["connected"],
                   ERROR_SECONDS, "noticing that the server is gone")

    def test_a_daemon_that_ends_late_leaves_the_next_mount_alone(self):
        early = self.mount.pids()
        file = self.open_file()
        self.tusk("umount", "-l", self.mount.path)
        self.mount._mount()
        self.close(file)
        self.wait_for_the_end_of(early)
        self.assertIn(str(self.mount.path), self.tusk("status").stdout)
        self.tusk("status", self.mount.path)

    def test_lazily_the_rest_is_sent_in_the_background(self):
        pids = self.mount.pids()
        file = self.write_without_the_server()
        said = self.tusk("umount", "-l", self.mount.path).stderr
        self.assertIsNone(fuse_connection(self.mount.path))
        self.assertRegex(said, "out of reach.*2.0 MiB.*umount -f")
        self.server.start()
        self.close(file)
        self.wait_for_the_end_of(pids)
        self.assertEqual((self.export / "file").stat().st_size, UNSENT)

    def test_by_force_unsent_data_is_lost_and_the_daemon_ends(self):
        for lazily_before in (False, True):
            with self.subTest(lazily_before=lazily_before), Mount(self.wan, self.server.url) as self.mount:
                self.write_without_the_server()
                if lazily_before:
                    self.tusk("umount", "-l", self.mount.path)
                said = self.tusk("umount", "-f", self.mount.path).stderr
                self.assertRegex(said, "2.0 MiB .* are lost")
                self.assertIsNone(fuse_connection(self.mount.path))
                self.wait_for_the_end_of(self.mount.pids())
                self.server.start()

    def test_by_force_a_daemon_that_hangs_is_killed(self):
        pids = self.mount.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        said = self.tusk("umount", "-f", self.mount.path).stderr
        self.assertIn("nobody knows", said)
        self.wait_for_the_end_of(pids)
        self.assertIsNone(fuse_connection(self.mount.path))

    def test_waiting_for_a_server_out_of_reach_is_explained(self):
        file = self.write_without_the_server()
        waiting = popen_in(self.wan.ns_a, [program("tusk"), "umount", self.mount.path], stderr=subprocess.PIPE,
                           text=True)
        self.addCleanup(waiting.stderr.close)
        self.addCleanup(harness.stop, waiting, signal.SIGKILL)
        self.assertRegex(waiting.stderr.readline(), "out of reach, waiting.*2.0 MiB.*umount -f")
        self.server.start()
        self.close(file)
        self.assertEqual(waiting.wait(COMMAND_SECONDS), 0, waiting.stderr.read())

    def test_silence_is_explained_before_it_is_an_outage(self):
        file = self.open_file()
        self.server.process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.server.process.send_signal, signal.SIGCONT)
        print(file=file.stdin, flush=True)
        self.assertEqual(file.stdout.readline(), "written\n")
        waiting = popen_in(self.wan.ns_a, [program("tusk"), "umount", self.mount.path], stderr=subprocess.PIPE,
                           text=True)
        self.addCleanup(waiting.stderr.close)
        self.addCleanup(harness.stop, waiting, signal.SIGKILL)
        self.assertTrue(any("out of reach, waiting" in line for line in waiting.stderr))
        self.assertTrue(json.loads(self.tusk("status", "--json", self.mount.path).stdout)["connected"])
        harness.stop(waiting, signal.SIGINT)  # as it says, that leaves it mounted
        self.server.process.send_signal(signal.SIGCONT)
        self.close(file)
        file.wait(COMMAND_SECONDS)
        self.tusk("umount", self.mount.path)
        self.assertEqual((self.export / "file").stat().st_size, UNSENT)

    def test_in_use_with_the_server_out_of_reach(self):
        file = self.open_file()
        refused = self.tusk("umount", self.mount.path, check=False)
        self.assertEqual(refused.returncode, 32)
        self.assertRegex(refused.stderr, "in use .*fuser.*umount -l")
        self.lose_the_server()
        refused = self.tusk("umount", self.mount.path, check=False)
        self.assertEqual(refused.returncode, 32)
        self.assertRegex(refused.stderr, "in use and its server is out of reach; tusk umount -f")
        self.server.start()
        self.close(file)

    def test_another_namespace_that_keeps_the_mount_is_named(self):
        pids = self.mount.pids()
        keeper = popen_in(None, ["unshare", "--mount", "sh", "-c", "echo here; exec cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
        self.addCleanup(harness.stop, keeper, signal.SIGKILL)
        self.addCleanup(keeper.stdout.close)
        self.assertEqual(keeper.stdout.readline(), "here\n")
        finished = self.tusk("umount", self.mount.path, check=False)
        self.assertEqual(finished.returncode, 64)
        self.assertRegex(finished.stderr, rf"waiting for its daemon \(PID {pids[0]}\)")
        self.assertIn("still in use in another mount namespace", finished.stderr)
        keeper.stdin.close()
        self.wait_for_the_end_of(pids)

    def test_what_could_not_be_done_and_nobody_was_told_of_is_said(self):
        (self.mount.path / "folder").mkdir()
        wait_until((self.export / "folder").exists, ERROR_SECONDS, "the folder on the server")
        self.wan.outage(True)
        (self.mount.path / "folder" / "made").mkdir()  # the mount answers it, as the server is not silent yet
        (self.export / "folder").rmdir()
        self.wan.outage(False)
        finished = self.tusk("umount", self.mount.path, check=False)
        self.assertEqual(finished.returncode, 64, finished.stderr)
        self.assertRegex(finished.stderr, "but 1 of the changes .* could not be done; the last: 'made'")
        self.assertIsNone(fuse_connection(self.mount.path))

    def test_without_a_daemon_to_ask_it_says_so(self):
        for path in pathlib.Path("/run/tusk").glob("*.sock"):
            if listener_at(path) in self.mount.pids():
                path.unlink()
        finished = self.tusk("umount", self.mount.path)
        self.assertIn("cannot be asked", finished.stderr)
        self.assertIsNone(fuse_connection(self.mount.path))


def listener_at(path):
    """The process that listens on a Unix socket; None when it is dead."""
    with socket.socket(socket.AF_UNIX) as connection:
        with contextlib.suppress(ConnectionRefusedError):
            connection.connect(str(path))
            return struct.unpack("iii", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return None


if __name__ == "__main__":
    harness.main(fuse=True)
