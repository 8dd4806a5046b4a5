#!/usr/bin/env python3
"""What was read yesterday comes from this machine's disk today, if it has not changed: across mounts, a restarted
server, a killed client and a full disk. So do listings of directories."""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, program, run_in

COMMAND_SECONDS = 60
MIB = 1 << 20
LARGE = 96 * MIB
SMALL_FILES, SMALL = 400, 3000
TREE_FILES, TREE_FOLDERS = 20_000, 400
LINE = 100e6 / 8 * 0.9  # what the path carries, bytes/s


def digest(path):
    whole = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            whole.update(piece)
    return whole.hexdigest()


class DiskCache(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-disk-")))
        self.export = self.folder / "export"
        self.cache = self.folder / "cache"
        self.export.mkdir()
        (self.export / "large").write_bytes(os.urandom(LARGE))
        self.wan = self.enterContext(Wan(rate="100mbit", delay="50ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export, state_dir=self.folder / "server"))

    def mount(self, size="1G", cache=None):
        return Mount(self.wan, self.server.url, options=(f"cache={cache or self.cache}", f"cache-size={size}"))

    def tusk(self, *arguments, check=True):
        return run_in(self.wan.ns_a, [program("tusk"), *arguments], COMMAND_SECONDS, check=check)

    def read(self, mount, name="large"):
        """Seconds; the bytes are right."""
        started = time.monotonic()
        self.assertEqual(digest(mount.path / name), digest(self.export / name))
        return time.monotonic() - started

    def wait_until_stored(self, mount):
        harness.wait_until(lambda: mount.status()["disk_cache"]["pending_bytes"] == 0, COMMAND_SECONDS, "stored")

    def test_the_next_mount_reads_from_the_disk(self):
        with self.mount() as mount:
            cold = self.read(mount)
            self.wait_until_stored(mount)
            self.assertGreaterEqual(mount.status()["disk_cache"]["used_bytes"], LARGE)
        self.server.stop()
        self.server.start()
        with self.mount() as mount:
            warm = self.read(mount)
            status = mount.status()
            print(f"{LARGE // MIB} MiB: {cold:.1f} s over the line, {warm:.2f} s in the next mount, "
                  f"{status['fetched_bytes']} bytes fetched", file=sys.stderr)
            self.assertEqual(status["fetched_bytes"], 0)
            self.assertEqual(status["disk_cache"]["hit_bytes"], LARGE)
            self.assertEqual(status["disk_cache"]["damaged"], 0)
            self.assertLess(warm, LARGE / LINE / 4)
        self.assertEqual(os.stat(self.cache).st_mode & 0o777, 0o700)

    def test_a_changed_file_is_fetched_anew(self):
        with self.mount() as mount:
            self.read(mount)
        with open(self.export / "large", "r+b") as file:
            file.seek(LARGE // 2)
            file.write(b"changed")
        with self.mount() as mount:
            self.read(mount)
            self.assertEqual(mount.status()["disk_cache"]["hits"], 0)
            # And while it is open, under a lease.
            with open(mount.path / "large", "rb") as reader:
                reader.read(10)
                with open(self.export / "large", "r+b") as file:
                    file.write(b"once more")
                self.assertLess(self.seconds_until(lambda: os.pread(reader.fileno(), 9, 0) == b"once more"), 2)
            self.read(mount)

    @staticmethod
    def seconds_until(condition):
        started = time.monotonic()
        harness.wait_until(condition, COMMAND_SECONDS, "a change is seen")
        return time.monotonic() - started

    def test_a_tree_of_small_files_comes_from_the_disk(self):
        tree = self.export / "tree"
        for number in range(SMALL_FILES):
            folder = tree / f"d{number % 20}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number}").write_bytes(os.urandom(SMALL + number))
        took, fetched = [], []
        for attempt in range(2):
            with self.mount() as mount:
                started = time.monotonic()
                run_in(self.wan.ns_a, ["cp", "-r", mount.path / "tree", self.folder / f"copy{attempt}"], COMMAND_SECONDS)
                took.append(time.monotonic() - started)
                fetched.append(mount.status()["fetched_bytes"])
                subprocess.run(["diff", "-r", tree, self.folder / f"copy{attempt}"], check=True, timeout=COMMAND_SECONDS)
        print(f"{SMALL_FILES} small files: {took[0]:.2f} s and {fetched[0]} bytes, then {took[1]:.2f} s and {fetched[1]}",
              file=sys.stderr)
        self.assertLess(fetched[1], fetched[0] / 10)
        self.assertLess(took[1], took[0] + 1)

    @staticmethod
    def list_all(ns, tree):
        listed = run_in(ns, ["sh", "-c", 'cd "$1" && LC_ALL=C ls -lR --time-style=full-iso', "sh", tree], COMMAND_SECONDS)
        return [line for line in listed.stdout.splitlines() if not line.startswith("total")]

    def go_through(self, tree, **options):
        """What ls -lR says of the tree on a new mount, its seconds, and the bytes that the client received."""
        with Mount(self.wan, self.server.url, **options) as mount:
            before = self.wan.settled_stats()["ba"]["bytes_out"]
            started = time.monotonic()
            listed = self.list_all(self.wan.ns_a, mount.path / tree)
            took = time.monotonic() - started
            received = self.wan.settled_stats()["ba"]["bytes_out"] - before
            if "options" in options:
                self.wait_until_stored(mount)
        return listed, took, received

    def test_a_tree_that_was_listed_before_is_only_confirmed(self):
        tree = self.export / "tree"
        for number in range(TREE_FOLDERS):
            folder = tree / f"part {number % 20:02}" / f"folder {number:03}"
            folder.mkdir(parents=True)
            for file in range(TREE_FILES // TREE_FOLDERS):
                (folder / f"file {number} {file}").write_bytes(b"x" * file)
        cached = {"options": (f"cache={self.cache}", "cache-size=1G")}
        runs = [("without a cache", {}), ("first mount with one", cached), ("the next mount", cached)]
        listed, took, received = zip(*(self.go_through("tree", **options) for _, options in runs))
        for (what, _), seconds, size in zip(runs, took, received):
            print(f"ls -lR of {TREE_FILES} files in {TREE_FOLDERS} folders, {what}: {seconds:.2f} s, {size} bytes received",
                  file=sys.stderr)
        self.assertEqual(listed[0], listed[1])
        self.assertEqual(listed[0], listed[2])
        self.assertLess(received[2], received[0] / 20)

        (tree / "part 07" / "folder 007" / "new").write_bytes(b"12345")
        os.truncate(tree / "part 11" / "folder 011" / "file 11 3", 70)
        os.rename(tree / "part 19" / "folder 019", tree / "part 19" / "renamed")
        near = self.list_all(None, tree)
        far, _, size = self.go_through("tree", **cached)
        print(f"after three changes: {size} bytes received", file=sys.stderr)
        self.assertEqual(far, near)
        self.assertLess(size, received[0] / 5)

    def test_a_killed_client_leaves_no_wrong_bytes(self):
        for attempt in range(3):
            with self.mount() as mount:
                reading = threading.Thread(target=lambda: self.try_to_read(mount.path / "large"))
                reading.start()
                harness.wait_until(lambda: mount.status()["disk_cache"]["stored_bytes"] > (attempt + 1) * 4 * MIB,
                                   COMMAND_SECONDS, "something is stored")
                mount.kill()
                reading.join()
                harness.wait_until(lambda: harness.fuse_connection(mount.path) is None, COMMAND_SECONDS, "unmounted")
        segments = sorted(self.cache.glob("*/*.blocks"))
        self.assertTrue(segments)
        for segment in segments:  # as if the machine had gone, too
            os.truncate(segment, segment.stat().st_size - 1000)
        with self.mount() as mount:
            self.read(mount)
            status = mount.status()
            self.assertGreater(status["disk_cache"]["hit_bytes"], 8 * MIB)
            self.assertGreater(status["fetched_bytes"], 0)

    @staticmethod
    def try_to_read(path):
        try:
            digest(path)
        except OSError:
            pass

    def test_warm_and_pin(self):
        (self.export / "set").mkdir()
        for number in range(8):
            (self.export / "set" / f"part{number}").write_bytes(os.urandom(2 * MIB))
        with self.mount(size="64M") as mount:
            started = time.monotonic()
            warmed = self.tusk("warm", mount.path / "set")
            print(f"tusk warm: {warmed.stdout.strip()}", file=sys.stderr)
            self.assertLess(time.monotonic() - started, 16 * MIB / LINE * 3 + 2)
            self.assertIn("8 files, 16.0 MiB", warmed.stdout)
            self.assertEqual(mount.status()["disk_cache"]["stored_bytes"], 16 * MIB)
            self.tusk("pin", mount.path / "set")
            status = mount.status()
            self.assertEqual(status["disk_cache"]["pins"], ["set"])
            self.assertGreaterEqual(status["disk_cache"]["pinned_bytes"], 16 * MIB)
            self.read(mount)  # more than there is room for
        with self.mount(size="64M") as mount:
            for number in range(8):
                self.read(mount, f"set/part{number}")
            status = mount.status()
            self.assertEqual(status["fetched_bytes"], 0)
            self.assertLessEqual(sum(f.stat().st_size for f in self.cache.glob("*/*.blocks")), 64 * MIB)
            refused = self.tusk("unpin", mount.path / "large", check=False)
            self.assertIn("not pinned", refused.stderr)
            self.tusk("unpin", mount.path / "set")
            self.assertIn("No such file", self.tusk("pin", mount.path / "nothing", check=False).stderr)
            self.assertEqual(mount.status()["disk_cache"]["pins"], [])
            self.assertIn("disk cache", self.tusk("status", mount.path).stdout)

    def test_an_interrupted_warm_says_so_and_can_go_on(self):
        with self.mount() as mount:
            warm = harness.popen_in(self.wan.ns_a, [program("tusk"), "warm", mount.path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True)
            harness.wait_until(lambda: mount.status()["disk_cache"]["stored_bytes"] > MIB, COMMAND_SECONDS, "begun")
            warm.send_signal(signal.SIGINT)
            self.assertIn("interrupted", warm.communicate(timeout=COMMAND_SECONDS)[1])
            self.assertNotEqual(warm.returncode, 0)
            self.tusk("warm", mount.path)
            self.assertGreaterEqual(mount.status()["disk_cache"]["used_bytes"], LARGE)

    def test_what_cannot_be_is_said(self):
        not_mounted = self.tusk("warm", self.folder, check=False)
        self.assertIn("not on a Tusk mount", not_mounted.stderr)
        with Mount(self.wan, self.server.url) as mount:
            self.assertIsNone(mount.status()["disk_cache"])
            self.assertIn("-o cache=DIR", self.tusk("pin", mount.path, check=False).stderr)
        others = self.folder / "others"
        others.mkdir(mode=0o755)
        with self.assertRaisesRegex(harness.HarnessError, "chmod 700"):
            self.mount(cache=others).__enter__()
        mountpoint = self.folder / "mountpoint"
        mountpoint.mkdir()
        inside = self.tusk("mount", "-o", f"cache={mountpoint}/cache", self.server.url, mountpoint, check=False)
        self.assertIn("in the mount itself", inside.stderr)
        with self.mount() as first, self.mount() as second:
            self.assertIsNotNone(first.status()["disk_cache"])
            self.assertIsNone(second.status()["disk_cache"])
            self.assertRegex(second.log(20), "^tusk: warning: another mount of this export")
            self.assertEqual((second.path / "large").stat().st_size, LARGE)

    def test_a_full_disk_is_said_and_nothing_else_happens(self):
        full = self.folder / "full"
        full.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={20 * MIB},mode=0700", "tusk-test", full], check=True)
        self.addCleanup(subprocess.run, ["umount", full], check=True)
        with self.mount(cache=full / "cache") as mount:
            self.read(mount)
            status = mount.status()
            self.assertIn("No space left", status["disk_cache"]["problem"])
            self.assertIn("No space left", status["last_error"])
            self.assertEqual(status["errors"], 1)
        with self.mount(cache=full / "cache") as mount:
            self.read(mount)
            self.assertGreater(mount.status()["disk_cache"]["hit_bytes"], 10 * MIB)


if __name__ == "__main__":
    harness.main(fuse=True)
