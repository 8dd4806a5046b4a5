"""Power cuts of the server's machine (power.py) in the middle of programs on a mount (docs/SEMANTICS.md, D1 to D7).

The client lives on, so whatever a program was told is done is on the server's disk in the end, or an error names it: at
the program, at `tusk umount`, in `tusk status`. What fsync has acknowledged is there after the next cut, too.

`./dev test` makes one cut in each of five kinds of work, and one that a canary must find. With TUSK_FULL=1
(`./dev check`) about a hundred cuts are made. TUSK_SEED chooses them.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import power
from harness import Mount, Wan, popen_in, program, run_in, wait_until

FULL = bool(os.environ.get("TUSK_FULL"))
ROUNDS = int(os.environ.get("TUSK_CUTS", 12 if FULL else 1))
SEED = int(os.environ.get("TUSK_SEED", time.time_ns() % 1_000_000))
MIB = 1 << 20
LARGE_BYTES = 48 * MIB       # about 2.5 s on the line
LINE = {"rate": "200mbit", "delay": "5ms"}
PROGRAM_SECONDS = 120
TREE_FILES = 600

# A history from a seed, in a directory of its own. Each call is a line once it has returned: its number, the error, and the
# paths of which nobody knows then what became of them. Calls of the numbers in `failed` are left out: so the same history
# is made on a local directory.
HISTORY = """
import json, os, random, sys
root, seed, count, failed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), set(json.loads(sys.argv[4]))
chance = random.Random(seed)
os.chdir(root)
files, folders, made = [], ["."], 0

def synced(path, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

def write(path, at, data, flags=0, sync=False):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], at + done)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)

def pick(paths):
    return paths[chance.randrange(len(paths))]

for number in range(count):
    kind = chance.choice(["new"] * 6 + ["over"] * 3 + ["truncate", "rename", "rename", "replace", "link", "unlink", "mkdir",
                         "mkdir", "chmod", "time", "xattr", "sync", "sync", "sync folder", "sync folder"])
    made += 1
    name = f"{pick(folders)}/n{made}"
    data = bytes([chance.randrange(256)]) * chance.choice([10, 3000, 5000, 70_000, 300_000])
    at, sync, mode = chance.randrange(400_000), chance.random() < 0.2, chance.choice([0o600, 0o640, 0o755])
    path, folder, first = pick(files) if files else None, pick(folders), files[0] if files else None
    if kind not in ("new", "mkdir", "sync folder") and not files:
        continue
    step = {
        "new": lambda: write(name, 0, data, sync=sync), "over": lambda: write(path, at, data, sync=sync),
        "truncate": lambda: os.truncate(path, at), "rename": lambda: os.rename(path, name),
        "replace": lambda: os.replace(path, first), "link": lambda: os.link(path, name), "unlink": lambda: os.unlink(path),
        "mkdir": lambda: os.mkdir(name), "chmod": lambda: os.chmod(path, mode),
        "time": lambda: os.utime(path, ns=(10**18, 10**18 + made)),
        "xattr": lambda: os.setxattr(path, "user.number", str(made).encode()), "sync": lambda: synced(path),
        "sync folder": lambda: synced(folder)}[kind]
    error = None
    if number not in failed:
        try:
            step()
        except OSError as refused:
            error = refused
    if error or number in failed:
        unknown = [name, path, first]
        files = [known for known in files if known not in unknown]
        print(json.dumps([number, kind, error and error.errno, unknown, str(error)]), flush=True)
        continue
    if kind in ("new", "link"):
        files.append(name)
    elif kind == "mkdir":
        folders.append(name)
    elif kind == "rename":
        files[files.index(path)] = name
    elif kind == "unlink" or kind == "replace" and path != first:
        files.remove(path)
    print(json.dumps([number, kind, 0]), flush=True)
"""
HISTORY_CALLS, CALLS_BESIDE_OTHERS = 1_500, 500

# Looks at all that others make, again and again. A call that fails is a line, but of a name that is just gone, or of a
# file that lost its name before the server ended (N3).
BYSTANDER = """
import errno, os, sys
def complain(error):
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        print(error, flush=True)
while True:
    for folder, folders, files in os.walk(sys.argv[1], onerror=complain):
        for name in files:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    while file.read(1 << 16):
                        pass
            except OSError as error:
                complain(error)
"""

SQLITE = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1] + "/base", timeout=100, isolation_level=None)
base.execute("PRAGMA synchronous=FULL")
base.execute("CREATE TABLE IF NOT EXISTS lines (number INTEGER)")
for number in range(int(sys.argv[2])):
    base.execute("INSERT INTO lines VALUES (?)", (number,))
    print(number, flush=True)
"""

GIT = """
import os, subprocess, sys
os.chdir(sys.argv[1])
def git(*words):
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.fsync=all", *words], check=True,
                   stdout=subprocess.DEVNULL)
git("init", "-q")
for number in range(int(sys.argv[2])):
    for name in range(3):
        open(f"f{name}", "w").write(f"{number} {name}\\n" * 200)
    git("add", "-A")
    git("commit", "-q", "-m", str(number))
    print(number, flush=True)
"""

# Two clocks of progress in one file and one directory, each acknowledged by fsync: what a program relies on most.
ACKNOWLEDGED = """
import os, sys
os.chdir(sys.argv[1])
folder = os.open(".", os.O_RDONLY)
log = os.open("log", os.O_WRONLY | os.O_CREAT, 0o644)
for number in range(int(sys.argv[2])):
    os.pwrite(log, b"%08d\\n" % number, 9 * number)
    os.fsync(log)
    os.mkdir(f"d{number}~")
    os.rename(f"d{number}~", f"d{number}")
    if number:
        os.rmdir(f"d{number - 1}")
    os.fsync(folder)
    print(number, flush=True)
"""


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def tree_of(root):
    """{path: type and mode, mtime where it was set, links, extended attributes, bytes}"""
    tree = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = pathlib.Path(folder, name)
            found = path.lstat()
            is_file = name in files
            aged = found.st_mtime_ns if 10**18 <= found.st_mtime_ns < 10**18 + 10**6 else None
            tree[str(path.relative_to(root))] = (
                oct(found.st_mode), aged, found.st_nlink if is_file else 0,
                [(key, os.getxattr(path, key)) for key in sorted(os.listxattr(path))],
                hashlib.sha256(path.read_bytes()).hexdigest() if is_file else None)
    return tree


def differences(expected, found):
    return {path: (expected.get(path), found.get(path)) for path in expected.keys() | found.keys()
            if expected.get(path) != found.get(path)}


class PowerTest(unittest.TestCase):
    """What all of them have in common."""

    def setUp(self):
        self.chance = random.Random(f"{SEED} {self.id()}")
        print(f"TUSK_SEED={SEED}", file=sys.stderr)
        self.near = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-power-near-")))

    def start(self, code, *arguments):
        process = popen_in(None, [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(harness.stop, process, signal.SIGKILL)
        return process

    def run_cut(self, command, earliest, latest):
        """Runs a program on the mount; in the middle the power is cut. Returns what it left."""
        process = popen_in(None, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(harness.stop, process, signal.SIGKILL)
        time.sleep(self.chance.uniform(earliest, latest))
        self.machine.cut_power()
        self.assertTrue(harness.wait_for_exit(process, PROGRAM_SECONDS), f"{command[0]} hangs")
        return process.wait(), process.stderr.read()

    def rounds(self, one, preload=None):
        """one() disturbs the mount and returns what looks at the disk: after `tusk umount` and one more cut."""
        for number in range(ROUNDS):
            with self.subTest(round=number), Wan(**LINE) as self.wan, power.Machine(self.wan, preload) as self.machine:
                with Mount(self.wan, self.machine.server.url) as self.mount:
                    look = one()
                    self.unmounted = run_in(self.wan.ns_a, [program("tusk"), "umount", self.mount.path], PROGRAM_SECONDS,
                                            check=False)
                self.machine.look_at_disk()
                look(self.machine.export)

    def acknowledged(self, code, count, commits=60):
        """Lines of a program through a cut, until it has gone on well behind it."""
        process = self.start(code, self.mount.path, count)
        last, cut_at = -1, self.chance.randrange(5, commits)
        for line in process.stdout:
            last = int(line)
            if last == cut_at:
                self.machine.cut_power()
            if last == cut_at + commits or last == count - 1:
                break
        harness.stop(process, signal.SIGKILL)
        rest = [int(line) for line in process.stdout if line.endswith("\n")]
        self.assertGreater(last, cut_at, f"it stopped at the cut: {process.stderr.read()[-1000:]}")
        return rest[-1] if rest else last

    def assert_acknowledged(self, export, last):
        lines = (export / "log").read_text().split()
        self.assertEqual(lines, [f"{number:08}" for number in range(len(lines))])
        self.assertGreaterEqual(len(lines), last + 1)
        folders = [name for name in os.listdir(export) if name != "log"]
        numbers = [int(name[1:].rstrip("~")) for name in folders]
        self.assertGreaterEqual(max(numbers), last, folders)


class PowerCuts(PowerTest):
    def assert_told_or_whole(self, code, errors, name, source):
        """A copy is whole on the disk, or somebody was told that it is not."""
        whole = digest(self.machine.export / name) == digest(source)
        told = code != 0 or self.unmounted.returncode != 0
        print(f"{name}: exit code {code} {errors.strip()[-100:]}, whole: {whole}, umount {self.unmounted.returncode} "
              f"{self.unmounted.stderr.strip()[-200:]}", file=sys.stderr)
        self.assertTrue(whole or told, "wrong bytes, and nobody was told")
        self.assertTrue(whole, "the client lives, and has or had the bytes")

    # --- Programs that copy -------------------------------------------------------------------------------

    def copies(self, *command):
        source = self.near / "source"
        source.write_bytes(self.chance.randbytes(LARGE_BYTES))

        def one():
            code, errors = self.run_cut([*command, source, self.mount.path / "copy"], 0.2, 2.2)
            return lambda _: self.assert_told_or_whole(code, errors, "copy", source)
        self.rounds(one)

    def test_cp(self):
        self.copies("cp")

    @unittest.skipUnless(FULL and shutil.which("rsync"), "TUSK_FULL=1, and rsync")
    def test_rsync_in_place(self):
        self.copies("rsync", "--inplace")

    @unittest.skipUnless(FULL, "TUSK_FULL=1")
    def test_a_cut_after_the_copy(self):
        """close has answered, fsync has not been asked for."""
        source = self.near / "source"
        source.write_bytes(self.chance.randbytes(LARGE_BYTES))

        def one():
            run_in(None, ["cp", source, self.mount.path / "copy"], PROGRAM_SECONDS)
            time.sleep(self.chance.uniform(0, 2))
            self.machine.cut_power()
            return lambda _: self.assert_told_or_whole(0, "", "copy", source)
        self.rounds(one)

    def test_tar_of_many_files(self):
        tree, archive = self.near / "tree", self.near / "archive.tar"
        for number in range(TREE_FILES):
            path = tree / f"d{number // 40}" / f"f{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.chance.randbytes(self.chance.choice([100, 4000, 40_000])))
        run_in(None, ["tar", "-C", tree, "-cf", archive, "."], PROGRAM_SECONDS)

        def one():
            code, errors = self.run_cut(["tar", "-C", self.mount.path, "-xf", archive], 0.05, 0.8)
            return lambda export: self.assert_same_tree(code, errors, tree, export)
        self.rounds(one)

    def assert_same_tree(self, code, errors, tree, export):
        wrong = differences(tree_of(tree), tree_of(export))
        print(f"tar: exit code {code}, {len(wrong)} wrong, umount {self.unmounted}", file=sys.stderr)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(list(wrong.items())[:5], [])

    # --- Histories ------------------------------------------------------------------------------------------

    def history(self, disturb, calls=HISTORY_CALLS):
        """A history of calls, disturbed once. Returns what it leaves on a local directory, and the calls that failed."""
        seed = self.chance.randrange(1 << 30)
        print(f"history {seed}", file=sys.stderr)
        made = self.mount.path / "made"
        made.mkdir()
        process = self.start(HISTORY, made, seed, calls, "[]")
        failed, cut_at = [], self.chance.randrange(50, calls // 2)
        for line in process.stdout:
            number, _, error, *_ = json.loads(line)
            if error:
                failed.append(json.loads(line))
            if number >= cut_at:
                cut_at = calls
                disturb()
        self.assertEqual(process.wait(PROGRAM_SECONDS), 0, process.stderr.read())
        local = self.near / f"local{seed}"
        local.mkdir()
        run_in(None, [sys.executable, "-c", HISTORY, local, seed, calls,
                      json.dumps([number for number, *_ in failed])], PROGRAM_SECONDS)
        print("failed:", failed, file=sys.stderr)
        return local, failed

    def disturbances(self):
        """What happens to the server in the middle of a history, by name."""
        def killed():
            self.machine.server.kill()
            self.machine.server.start()

        def restarted():
            self.machine.server.stop()
            self.machine.server.start()
        return {"power": lambda: self.machine.cut_power(), "killed": killed, "restarted": restarted}

    def test_history(self):
        def one():
            local, failed = self.history(self.machine.cut_power)
            return lambda export: self.assert_same_history(local, failed, export, self.unmounted)
        self.rounds(one)

    @unittest.skipUnless(FULL, "TUSK_FULL=1")
    def test_history_before_the_eyes_of_others(self):
        """Another mount and a program on the server look on, and write beside it."""
        for name, disturb in self.disturbances().items():
            with self.subTest(name):
                self.rounds(lambda disturb=disturb: self.history_beside(disturb))

    def history_beside(self, disturb):
        with Mount(self.wan, self.machine.server.url) as other:
            looking = self.start(BYSTANDER, other.path)
            before = (other.path / "of the other", self.machine.export / "of the server")
            for path in before:
                path.write_text("before")
            local, failed = self.history(disturb, CALLS_BESIDE_OTHERS)
            for path in before:
                path.write_text("after")
            harness.stop(looking, signal.SIGKILL)
            self.assertEqual(looking.stdout.read(), "")
            self.assert_same_history(local, failed, other.path)
            for path in before:
                wait_until(lambda path=path: {(mount.path / path.name).read_text() for mount in (self.mount, other)} == {"after"},
                           5, f"what was written to {path.name}")
        return lambda export: self.assert_same_history(local, failed, export, self.unmounted)

    def assert_same_history(self, local, failed, root, unmounted=None):
        self.assertLessEqual(len(failed), 1, "one program: one call that was under way")
        unknown = {os.path.normpath(path) for call in failed for path in call[3] if path}
        wrong = differences(tree_of(local), tree_of(root / "made"))
        self.assertEqual([(path, wrong[path]) for path in sorted(wrong) if path not in unknown][:5], [])
        self.assertEqual(unmounted.returncode if unmounted else 0, 0, unmounted)

    def test_acknowledged_by_fsync(self):
        def one():
            last = self.acknowledged(ACKNOWLEDGED, 100_000)
            return lambda export: self.assert_acknowledged(export, last)
        self.rounds(one)

    # --- Programs that commit ----------------------------------------------------------------------------------

    def test_sqlite(self):
        def one():
            last = self.acknowledged(SQLITE, 100_000)
            return lambda export: self.assert_sqlite(export, last)
        self.rounds(one)

    def assert_sqlite(self, export, last):
        shutil.copytree(export, self.near / f"base{last}", dirs_exist_ok=True)
        output = run_in(None, [sys.executable, "-c", "import sqlite3, sys; base = sqlite3.connect(sys.argv[1] + '/base'); "
                               "print(base.execute('PRAGMA integrity_check').fetchone()[0], "
                               "*[n for (n,) in base.execute('SELECT number FROM lines ORDER BY number')])",
                               self.near / f"base{last}"], PROGRAM_SECONDS).stdout.split()
        self.assertEqual(output[0], "ok")
        self.assertEqual(output[1:], [str(number) for number in range(len(output) - 1)])
        self.assertGreaterEqual(len(output) - 1, last + 1)

    @unittest.skipUnless(FULL and shutil.which("git"), "TUSK_FULL=1, and git")
    def test_git(self):
        def one():
            last = self.acknowledged(GIT, 40, commits=12)
            return lambda export: self.assert_git(export, last)
        self.rounds(one)

    def assert_git(self, export, last):
        for lock in export.glob(".git/*.lock"):  # of a git that was killed
            lock.unlink()
        run_in(None, ["git", "-C", export, "-c", "safe.directory=*", "fsck", "--full", "--strict"], PROGRAM_SECONDS)
        subject = run_in(None, ["git", "-C", export, "-c", "safe.directory=*", "log", "-1", "--format=%s"],
                         PROGRAM_SECONDS).stdout
        self.assertGreaterEqual(int(subject), last)


class Canary(PowerTest):
    """The faults that these tests are for are found."""

    def test_a_server_that_commits_too_early_is_found(self):
        library = power.forgetful_library(self.near)

        def one():
            try:
                last = self.acknowledged(ACKNOWLEDGED, 100_000)
            except AssertionError as found:
                print("found at once:", str(found)[:200], file=sys.stderr)
                return lambda export: None
            return lambda export: self.assert_found(export, last)
        self.rounds(one, preload=library)

    def assert_found(self, export, last):
        try:
            self.assert_acknowledged(export, last)
        except (AssertionError, ValueError, FileNotFoundError) as found:
            print("found:", str(found)[:200], file=sys.stderr)
        else:
            self.fail("nothing was lost, though the server committed nothing")


if __name__ == "__main__":
    if not harness.why_not(fuse=True):
        reason = power.why_not()
        if reason:
            print(reason)
            sys.exit(harness.SKIPPED)
    harness.main(fuse=True)
