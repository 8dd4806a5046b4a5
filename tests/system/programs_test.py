"""Programs that people use, working on a mount across a 1 Gbit/s path of 10 ms: a build, git, SQLite, ffmpeg, mmap,
executables, and two clients that share a lock and a file. A program that is not installed is skipped, with a word.
"""

import fcntl
import hashlib
import mmap
import os
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, popen_in, run_in, wait_until

STEP_SECONDS_MAX = 120
BUILD_SECONDS_MAX = 240
GIT_FILES = 100
ROWS = 5_000
WRITERS, WRITER_ROWS = 2, 100
GOOGLETEST = pathlib.Path("/usr/src/googletest")
VIDEO_SECONDS, SEEKS = 20, (0, 3.3, 11, 19.5)

INSERT = """
import sqlite3, sys
path, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
base = sqlite3.connect(path, timeout=60, isolation_level=None)
for first in range(0, rows, 10):
    base.execute("BEGIN IMMEDIATE")
    base.executemany("INSERT INTO lines VALUES (?, ?)", [(name, n) for n in range(first, first + 10)])
    base.execute("COMMIT")
"""

TRY_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    (fcntl.flock if sys.argv[2] == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(11)
"""


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-programs-")))
        self.export = self.folder / "export"
        self.export.mkdir()
        self.wan = self.enterContext(Wan(rate="1gbit", delay="5ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))
        self.mount = self.enterContext(Mount(self.wan, self.server.url)).path

    def need(self, *programs):
        for name in programs:
            if shutil.which(name) is None:
                self.skipTest(f"{name} is not installed")

    def run_there(self, *command, timeout=STEP_SECONDS_MAX, **options):
        return run_in(self.wan.ns_a, command, timeout, **options)

    def test_a_source_tree_is_built_on_the_mount(self):
        self.need("cmake", "make", "c++")
        if not GOOGLETEST.is_dir():
            self.skipTest("the package googletest is not installed")
        source, build = self.mount / "googletest", self.mount / "build"
        self.run_there("cp", "-r", GOOGLETEST / "googletest", source)
        self.run_there("cmake", "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Debug", "-Dgtest_build_samples=ON",
                       "-S", source, "-B", build, env={**os.environ, "CCACHE_DISABLE": "1"})
        # One sample and what it needs: the library, a second one with main(), and an executable.
        self.run_there("make", "-j2", "-C", build, "sample1_unittest", timeout=BUILD_SECONDS_MAX)
        tested = self.run_there(build / "sample1_unittest")
        self.assertIn("PASSED", tested.stdout)
        self.assertIn("Built target sample1_unittest",
                      self.run_there("make", "-C", build, "sample1_unittest").stdout)

    def test_git(self):
        self.need("git")
        repository, clone = self.mount / "repository", self.mount / "clone"
        for number in range(GIT_FILES):
            path = self.export / "files" / f"folder {number % 10}" / f"file {number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"line\n" * number)
        names = {"GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "T",
                 "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(self.folder)}

        def git(*command):
            return self.run_there("git", *command, env={**os.environ, **names}).stdout

        git("init", "-q", repository)
        self.run_there("cp", "-r", self.mount / "files", repository / "files")
        git("-C", repository, "add", ".")
        git("-C", repository, "commit", "-q", "-m", "first")
        git("clone", "-q", "--no-hardlinks", repository, clone)
        (clone / "files" / "folder 0" / "file 0").write_text("changed")
        self.assertEqual(git("-C", clone, "status", "--porcelain").splitlines(), [' M "files/folder 0/file 0"'])
        git("-C", clone, "commit", "-q", "-a", "-m", "second")
        git("-C", clone, "gc", "-q")
        git("-C", clone, "fsck", "--strict")
        self.assertEqual(git("-C", clone, "rev-list", "--count", "HEAD").strip(), "2")
        self.assertEqual(git("-C", clone, "status", "--porcelain"), "")

    def test_sqlite(self):
        base = sqlite3.connect(self.mount / "base", timeout=60)
        base.execute("CREATE TABLE lines (who TEXT, number INTEGER)")
        with base:
            base.executemany("INSERT INTO lines VALUES ('first', ?)", [(n,) for n in range(ROWS)])
        writers = [popen_in(self.wan.ns_a, [sys.executable, "-c", INSERT, self.mount / "base", f"writer {n}",
                                            str(WRITER_ROWS)]) for n in range(WRITERS)]
        for writer in writers:
            self.addCleanup(harness.stop, writer)
        for writer in writers:
            self.assertEqual(writer.wait(STEP_SECONDS_MAX), 0)
        self.assertEqual(base.execute("SELECT count(*) FROM lines").fetchone(), (ROWS + WRITERS * WRITER_ROWS,))
        self.assertEqual(base.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        mode = base.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        print(f"\njournal_mode=WAL gives {mode}", flush=True)
        with base:
            base.execute("INSERT INTO lines VALUES ('after', 1)")
        self.assertEqual(base.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        base.close()
        far = sqlite3.connect(self.export / "base")
        self.addCleanup(far.close)
        self.assertEqual(far.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def test_video(self):
        self.need("ffmpeg")
        quiet = ["ffmpeg", "-nostdin", "-v", "error", "-y"]
        near, far = self.folder / "near.mp4", self.mount / "far.mp4"
        make = ["-f", "lavfi", "-i", f"testsrc2=size=640x360:rate=25:duration={VIDEO_SECONDS}", "-threads", "1",
                "-c:v", "mpeg4", "-q:v", "4", "-bitexact"]
        for target in (near, far):
            self.run_there(*quiet, *make, target)  # an mp4's index is written last, then its start is mended
        self.assertEqual(near.read_bytes(), (self.export / "far.mp4").read_bytes())

        def frames(path, *seek):
            return self.run_there(*quiet, *seek, "-i", path, *(["-frames:v", "5"] if seek else []),
                                  "-f", "framemd5", "-").stdout

        self.assertEqual(frames(near), frames(far))
        for second in SEEKS:
            seek = ["-ss", str(second)]
            self.assertEqual(frames(near, *seek), frames(far, *seek), f"at {second} s")

    def test_mapped_files(self):
        content = os.urandom(3 << 20)
        (self.export / "mapped").write_bytes(content)
        harness.wait_until_seen(self.mount / "mapped")
        with open(self.mount / "mapped", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            self.assertEqual(mapped[-5:], content[-5:])
            self.assertEqual(hashlib.sha256(mapped).digest(), hashlib.sha256(content).digest())

    def test_executables(self):
        self.run_there("cp", "/bin/ls", self.mount / "ls")
        script = self.mount / "script"
        script.write_text("#!/bin/sh\necho \"$0 says $1\"\n")
        script.chmod(0o755)
        self.assertEqual(self.run_there(self.mount / "ls", self.mount).stdout, "ls\nscript\n")
        self.assertEqual(self.run_there(script, "hello").stdout, f"{script} says hello\n")

    def test_a_lock_holds_in_another_mount(self):
        with Mount(self.wan, self.server.url) as other:
            path = self.mount / "locked"
            path.write_text("shared")
            for kind, lock in (("flock", fcntl.flock), ("fcntl", fcntl.lockf)):
                with self.subTest(kind):
                    attempt = [sys.executable, "-c", TRY_LOCK, other.path / "locked", kind]
                    with open(path, "r+") as file:
                        lock(file, fcntl.LOCK_EX)
                        self.assertEqual(self.run_there(*attempt, check=False).returncode, 11)
                        lock(file, fcntl.LOCK_UN)
                        self.assertEqual(self.run_there(*attempt, check=False).returncode, 0)

    def test_what_was_closed_is_seen_by_who_opens_in_another_mount(self):
        with Mount(self.wan, self.server.url) as other:
            for number in range(5):
                text = f"version {number} " * (number + 1)
                (self.mount / "file").write_text(text)
                wait_until((other.path / "file").exists, 5, "the name in the other mount")
                self.assertEqual((other.path / "file").read_text(), text)


if __name__ == "__main__":
    harness.main(fuse=True)
