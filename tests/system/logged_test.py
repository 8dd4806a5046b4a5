"""What a mount has answered by itself (docs/SEMANTICS.md, D7) when something dies before all of it has arrived: the server,
the line, the program that waits for it, the mount.
"""

import collections
import errno
import os
import pathlib
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, popen_in, run_in, wait_until

FULL = bool(os.environ.get("TUSK_FULL"))
ROUND_TRIP = 0.1
FILES = 2_000
DONE_SECONDS = 180
PHOTOS, PHOTO_BYTES = 200, 2_000_000
CUT_SECONDS = 15            # longer than a lease
LOG_BYTES_MIN = 8 << 20     # a log that grows no more holds more than that
SOON = 3.0                  # who is interrupted ends within it, whatever he waited for
BESIDE_A_DEAD_MOUNT = 17.0  # SEMANTICS C2
COMMAND_SECONDS = 60

# Makes files and directories of its own, renames, replaces and removes some. Each call that fails is a line. It says where
# it is, so that the test can disturb it, and goes on whatever happens.
WORK = """
import os, sys
root, count, larger = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        print("error", call.__name__, error.errno, *arguments[:1], flush=True)

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def mode(path):
    os.chmod(path, 0o640)

def age(path):
    os.utime(path, ns=(10**18, 10**18 + 5))

for number in range(count):
    folder = f"{root}/d{number // 50}"
    name = f"{folder}/f{number}"
    if number % 50 == 0:
        attempt(os.mkdir, folder)
        attempt(os.mkdir, folder + "/sub")
    attempt(write, name, f"file {number}\\n" * (number % 40) + "x" * larger)
    if number % 3 == 0:
        attempt(os.rename, name, f"{folder}/sub/moved{number}")
    if number % 3 == 1:
        attempt(mode, name)
        attempt(age, name)
    if number % 15 == 1:
        attempt(write, name + "~", f"newer {number}\\n")
        attempt(os.rename, name + "~", name)
    if number % 7 == 5 and number % 3 != 0:
        attempt(os.unlink, name)
    if number % 50 == 30:
        attempt(os.mkdir, f"{folder}/gone")
        attempt(write, f"{folder}/gone/too", "x")
        attempt(os.unlink, f"{folder}/gone/too")
        attempt(os.rmdir, f"{folder}/gone")
    if number % 50 == 49:
        attempt(os.rename, folder + "/sub", folder + "/kept")
    if number % 100 == 99:
        print("at", number, flush=True)
"""
AGED = 10**18 + 5

# One file after the other, each at first under another name. It says what it has been told is done.
ONE_BY_ONE = """
import os, sys
for number in range(1_000_000):
    with open(f"{sys.argv[1]}/{number}~", "w") as file:
        file.write(f"file {number}")
    os.rename(f"{sys.argv[1]}/{number}~", f"{sys.argv[1]}/{number}")
    print(number, flush=True)
"""

WAIT_FOR_THE_LOG = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"x")
print("waits", flush=True)
os.fsync(fd)
print("ended", flush=True)
"""

# What SEMANTICS O2 allows when a killed server does not remember what it had done: it is done again.
DONE_TWICE = {("mkdir", errno.EEXIST), ("rename", errno.ENOENT), ("unlink", errno.ENOENT), ("rmdir", errno.ENOENT)}


def tree_of(root):
    """{path: what it is}, with the times that were set."""
    tree = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = pathlib.Path(folder, name)
            found = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(found.st_mode) else None
            tree[str(path.relative_to(root))] = (oct(found.st_mode), found.st_mtime_ns == AGED, content)
    return tree


@unittest.skipUnless(FULL, "takes long: TUSK_FULL=1")
class Logged(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-logged-")))
        self.export, self.local = self.folder / "export", self.folder / "local"
        for folder in (self.export, self.local):
            folder.mkdir()
        self.wan = self.enterContext(Wan(rate="100mbit", delay=f"{ROUND_TRIP * 500:.0f}ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))

    def mounted(self):
        return self.enterContext(Mount(self.wan, self.server.url))

    def full_log(self, mount):
        """Returns what is in the log once its program waits: nothing is added for a second."""
        seen = collections.deque(maxlen=10)

        def full():
            seen.append(mount.status()["pending_bytes"])
            return len(seen) == seen.maxlen and seen[0] == seen[-1] > LOG_BYTES_MIN
        wait_until(full, CUT_SECONDS, "a full log", interval=0.1)
        print(f"the log is full with {seen[0] >> 20} MiB", file=sys.stderr)
        return seen[0]

    def start(self, code, *arguments):
        process = popen_in(self.wan.ns_a, [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(harness.stop, process, signal.SIGKILL)
        return process

    def work(self, mount, disturb, larger=0, files=FILES):
        """Works on the mount, disturbed in the middle. Returns the errors that were told: (call, errno)."""
        working = self.start(WORK, mount.path, files, larger)
        errors = []
        for line in iter(working.stdout.readline, ""):
            if line.startswith("error"):
                _, call, number, _ = line.split()
                errors.append((call, int(number)))
            elif line == f"at {files // 2 - 1}\n":
                disturb()
        self.assertEqual(working.wait(DONE_SECONDS), 0)
        return errors

    def assert_all_is_done(self, mount, larger=0, files=FILES):
        """On the server is what the same work leaves on a local directory, and nobody says otherwise."""
        run_in(None, [sys.executable, "-c", WORK, self.local, files, larger], DONE_SECONDS)
        self.assertEqual(mount.status()["last_error"], "")
        mount.umount()
        expected, found = tree_of(self.local), tree_of(self.export)
        self.assertGreater(len(expected), files // 2)
        differences = {path: [str(tree.get(path))[:100] for tree in (expected, found)]
                       for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)}
        self.assertEqual(list(differences.items())[:20], [])

    def test_the_server_is_killed(self):
        mount = self.mounted()

        def crash():
            self.server.kill()
            self.server.start()

        errors = self.work(mount, crash)
        print("told:", errors, file=sys.stderr)
        self.assertLessEqual(set(errors), DONE_TWICE)
        self.assertLessEqual(len(errors), 1, "one program, so one call that was no entry of the log")
        self.assert_all_is_done(mount)

    def test_the_server_is_killed_with_photographs_on_their_way(self):
        self.wan.set(rate="1gbit")
        mount, held = self.mounted(), []

        def crash():
            held.append(mount.status()["pending_bytes"])
            self.server.kill()
            self.server.start()

        errors = self.work(mount, crash, PHOTO_BYTES, PHOTOS)
        print(f"told: {errors}; {held[0] >> 20} MiB were on their way", file=sys.stderr)
        self.assertGreater(held[0], PHOTO_BYTES)
        self.assertLessEqual(set(errors), DONE_TWICE)
        self.assert_all_is_done(mount, PHOTO_BYTES, PHOTOS)

    def test_another_mount_looks_at_photographs_on_their_way(self):
        """C3: what is closed there is seen here, however much of it is still on its way."""
        self.wan.set(rate="1gbit")
        writing, looking = self.mounted(), self.mounted()
        (writing.path / "own").mkdir()
        for number in range(20):
            (writing.path / f"own/{number}").write_bytes(bytes([number]) * PHOTO_BYTES)
        self.assertGreater(writing.status()["pending_bytes"], PHOTO_BYTES)
        for number in range(20):
            self.assertTrue((looking.path / f"own/{number}").read_bytes() == bytes([number]) * PHOTO_BYTES, number)

    def test_the_server_is_killed_again_and_again(self):
        mount = self.mounted()
        for attempt in range(5):
            folder = mount.path / f"{attempt}"
            folder.mkdir()
            working = self.start(ONE_BY_ONE, folder)
            wait_until(lambda: len(os.listdir(self.export / f"{attempt}")) > 50, COMMAND_SECONDS, "files")
            self.server.kill()
            self.server.start()
            last = int(working.stdout.readline())
            harness.stop(working, signal.SIGKILL)
            for line in working.stdout:
                last = int(line) if line.endswith("\n") else last
            run_in(self.wan.ns_a, ["sync", "-f", folder], COMMAND_SECONDS)
            run_in(self.wan.ns_a, [sys.executable, "-c", "import os, sys; os.fsync(os.open(sys.argv[1], 0))", folder],
                   COMMAND_SECONDS)
            self.assertEqual(mount.status()["last_error"], "")
            for number in range(last + 1):
                self.assertEqual((self.export / f"{attempt}" / f"{number}").read_text(), f"file {number}")

    def test_the_line_is_cut_while_the_log_is_full(self):
        mount, larger, filled = self.mounted(), 50_000, []

        def cut():
            self.wan.outage(True)
            self.wan.at(f"{CUT_SECONDS}s", outage="off")
            filled.append(self.full_log(mount))

        self.assertEqual(self.work(mount, cut, larger), [])
        self.assertEqual(len(filled), 1)
        self.assert_all_is_done(mount, larger)

    def test_who_waits_for_the_log_can_be_interrupted(self):
        mount = self.mounted()
        own = mount.path / "own"
        own.mkdir()
        (own / "before").write_text("x")
        self.wan.outage(True)
        for number in (signal.SIGINT, signal.SIGKILL):
            process = self.start(WAIT_FOR_THE_LOG, own / number.name)
            self.assertTrue(select.select([process.stdout], [], [], COMMAND_SECONDS)[0])
            self.assertEqual(process.stdout.readline(), "waits\n")
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(1)
            self.interrupted(process, number)
        self.wan.outage(False)
        wait_until(lambda: sorted(os.listdir(self.export / "own")) == ["SIGINT", "SIGKILL", "before"], COMMAND_SECONDS,
                   "what they had made")

    def test_who_waits_for_room_in_the_log_can_be_interrupted(self):
        mount = self.mounted()
        own = mount.path / "own"
        own.mkdir()
        (own / "before").write_text("x")
        self.wan.outage(True)
        working = self.start(WORK, own, FILES, 60_000)
        self.full_log(mount)
        self.interrupted(working, signal.SIGINT)
        self.wan.outage(False)
        mount.umount()

    def interrupted(self, process, number):
        started = time.monotonic()
        os.kill(process.pid, number)
        self.assertNotEqual(process.wait(COMMAND_SECONDS), 0)
        took = time.monotonic() - started
        print(f"{signal.Signals(number).name}: ended after {took:.2f} s", file=sys.stderr)
        self.assertLess(took, SOON)
        self.assertNotIn("ended", process.stdout.read())

    def test_a_mount_that_dies_leaves_what_it_had_sent_in_order(self):
        for cut in (False, True):
            with self.subTest(cut=cut):
                dying, other = (Mount(self.wan, self.server.url) for _ in range(2))
                with other, dying:
                    self.die_beside(dying, other, self.export / f"cut {cut}", cut)

    def die_beside(self, dying, other, there, cut):
        own = dying.path / there.name
        own.mkdir()
        working = self.start(ONE_BY_ONE, own)
        wait_until(lambda: len(os.listdir(there)) > 100, COMMAND_SECONDS, "files")
        if cut:
            self.wan.outage(True)
            for _ in range(100):
                working.stdout.readline()
        self.assertGreater(dying.status()["pending_bytes"], 0)
        dying.kill()
        self.wan.outage(False)
        died = time.monotonic()
        (other.path / there.name / "other's").write_text("x")
        took = time.monotonic() - died
        print(f"a change beside a mount that died: {took:.1f} s", file=sys.stderr)
        self.assertLess(took, BESIDE_A_DEAD_MOUNT)
        harness.stop(working, signal.SIGKILL)
        names = set(os.listdir(other.path / there.name)) - {"other's"}
        whole = {name for name in names if not name.endswith("~")}
        self.assertEqual(whole, {str(number) for number in range(len(whole))})
        self.assertLessEqual(names - whole, {f"{len(whole)}~"})
        for name in whole:
            self.assertEqual((there / name).read_text(), f"file {name}")
        said = [int(line) for line in working.stdout if line.endswith("\n")]
        print(f"of {max(said) + 1} files that were said to be there {len(whole)} are", file=sys.stderr)
        wait_until(lambda: set(os.listdir(there)) == names | {"other's"}, 1, "nothing comes later")


if __name__ == "__main__":
    harness.main(fuse=True)
