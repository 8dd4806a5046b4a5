"""Large programs of others, and their own test suites, with all their files on a mount across a 1 Gbit/s path of 2 ms. For
`./dev check` (TUSK_FULL=1). What is not installed or cannot be downloaded is skipped, with a word.

A suite runs in a directory of the server's own file system first, then in one on the mount: a case that passes there and
does not pass here is a failure. Some fail on either, by the version, the machine or for being root.
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, run_in

FULL = bool(os.environ.get("TUSK_FULL"))
STEP_SECONDS, BUILD_SECONDS, SUITE_SECONDS = 600, 1_800, 1_800
PACKAGE_TREE = pathlib.Path(__file__).resolve().parents[1]  # some hundred small files: our own tests
# Of git's tests those about the work tree, the index, refs and packs: what lies on the file system.
GIT_TESTS = "t0[05]*.sh t1[04]*.sh t20*.sh t30*.sh t53*.sh t70*.sh"
GIT_PASSED = re.compile(r"^ok (\d+ - .*)$", re.MULTILINE)
AT_ONCE = 4  # tests of a suite; they wait for round trips more than they work
# Of SQLite's tests those about files: locks, journals, the log, what is left by crashes and errors of calls. They wait for
# the round trips of each transaction's locks and writes; those that take minutes for it are left out.
SQLITE_DELAY = "0.1ms"
SQLITE_TESTS = """lock lock2 lock3 lock4 lock5 lock7 shared shared2 sharedlock superlock exclusive exclusive2 unixexcl nolock
    journal1 journal2 journal3 rollback savepoint trans3 tempdb pager1 pager3 crash2 crash6 crash8 ioerr4 vacuum vacuum2
    vacuum4 vacuum-into incrvacuum wal wal2 wal4 wal5 wal6 wal7 wal8 wal9 walbak walcrash2 walmode walnoshm waloverwrite
    walpersist walro walro2 walshared mmap1 mmap2 mmap3 io sync symlink delete_db oserror openv2 backup2 bigfile
    bigfile2""".split()
SQLITE_PASSED = re.compile(r"^(\S+)\.\.\..*\bOk$", re.MULTILINE)
SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@unittest.skipUnless(FULL, "takes long: TUSK_FULL=1")
class Suites(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-suites-")))
        self.folder.chmod(0o755)
        self.export = self.folder / "export"
        self.export.mkdir()
        self.local = self.folder / "local-run"  # as long as mount/run: some cases are about the longest path
        self.local.mkdir()
        self.wan = self.enterContext(Wan(rate="1gbit", delay="1ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export, options=["--setuid"]))
        self.mount = self.enterContext(Mount(self.wan, self.server.url, path=self.folder / "mount")).path

    def need(self, *programs):
        for name in programs:
            if shutil.which(name) is None:
                self.skipTest(f"{name} is not installed")

    def run_here(self, *command, timeout=STEP_SECONDS, **options):
        return run_in(None, command, timeout, **options)

    def source(self, package):
        """A Debian source package, unpacked on the mount."""
        self.need("apt-get", "dpkg-source")
        apt = self.folder / "apt"
        (apt / "lists" / "partial").mkdir(parents=True)
        (apt / "sources.sources").write_text(SOURCES)
        options = ["-o", f"Dir::Etc::SourceList={apt}/none", "-o", f"Dir::Etc::SourceParts={apt}",
                   "-o", f"Dir::State::Lists={apt}/lists", "-o", "APT::Sandbox::User=root"]
        for command in (["update"], ["source", "--download-only", package]):
            finished = self.run_here("apt-get", "-q", *options, *command, check=False, cwd=apt)
            if finished.returncode != 0:
                self.skipTest(f"no source of {package} to be had: {finished.stderr.strip()[-200:]}")
        [description] = apt.glob("*.dsc")
        self.run_here("dpkg-source", "--no-check", "-x", description, self.mount / package)
        return self.mount / package

    def test_a_python_environment(self):
        environment = self.mount / "environment"
        python = shutil.which("python3", path="/usr/bin") or sys.executable
        if self.run_here(python, "-c", "import ensurepip", check=False).returncode != 0:
            self.skipTest("ensurepip is not installed (Debian: python3-venv)")
        self.run_here(python, "-m", "venv", environment)
        self.assertRegex(self.run_here(environment / "bin" / "pip", "--version").stdout, re.escape(str(environment)))
        self.run_here(environment / "bin" / "python", "-m", "compileall", "-q", "-f", environment / "lib")
        for module in ("pip", "setuptools"):
            self.run_here(environment / "bin" / "python", "-c", f"import {module}")

    def test_a_package_is_installed_and_removed(self):
        self.need("dpkg", "dpkg-deb")
        stage, root = self.folder / "stage", self.mount / "root"
        shutil.copytree(PACKAGE_TREE, stage / "usr" / "share" / "sample", symlinks=True)
        (stage / "DEBIAN").mkdir()
        (stage / "DEBIAN" / "control").write_text("Package: tusk-sample\nVersion: 1\nArchitecture: all\n"
                                                  "Maintainer: nobody <nobody@example.org>\nDescription: a sample\n")
        self.run_here("dpkg-deb", "--build", "--root-owner-group", "-Znone", stage, self.folder / "sample.deb")
        for name in ("updates", "info", "triggers"):
            (root / "var" / "lib" / "dpkg" / name).mkdir(parents=True)
        for name in ("status", "available"):
            (root / "var" / "lib" / "dpkg" / name).touch()
        dpkg = ["dpkg", f"--root={root}", "--force-not-root", "--force-bad-path", "--log=/dev/null"]
        self.run_here(*dpkg, "--install", self.folder / "sample.deb", timeout=BUILD_SECONDS)
        self.run_here(*dpkg, "--install", self.folder / "sample.deb", timeout=BUILD_SECONDS)  # over itself
        self.run_here("diff", "-r", "--no-dereference", stage / "usr", root / "usr")
        self.assertIn("install ok installed", self.run_here(*dpkg, "--status", "tusk-sample").stdout)
        self.run_here(*dpkg, "--purge", "tusk-sample", timeout=BUILD_SECONDS)
        self.assertFalse((root / "usr" / "share" / "sample").exists())

    def test_git_is_built_and_passes_its_own_tests(self):
        self.need("make", "cc", "perl")
        source = self.source("git")
        bare = ["NO_CURL=1", "NO_OPENSSL=1", "NO_EXPAT=1", "NO_GETTEXT=1", "NO_TCLTK=1", "NO_PYTHON=1", "CFLAGS=-O0"]
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        finished = self.run_here("make", "-j2", "-C", source, *bare, timeout=BUILD_SECONDS, check=False, env=environment)
        if finished.returncode != 0 and "zlib.h" in finished.stderr:
            self.skipTest("zlib1g-dev is not installed")
        self.assertEqual(finished.returncode, 0, finished.stderr[-2000:])
        tests = sorted(path.name for pattern in GIT_TESTS.split() for path in (source / "t").glob(pattern))

        def passed(test, place):
            finished = self.run_here("sh", test, "--no-chain-lint", f"--root={place}", cwd=source / "t", check=False,
                                     timeout=SUITE_SECONDS, env={**environment, "TEST_OUTPUT_DIRECTORY": str(place),
                                                                 "GIT_SKIP_TESTS": "", "HOME": str(self.folder)})
            return collections.Counter(GIT_PASSED.findall(finished.stdout.replace(str(place), "")))

        self.compare(tests, passed)

    def test_sqlite_passes_its_own_tests(self):
        self.need("make", "cc", "tclsh")
        source = self.source("sqlite3")
        build = self.mount / "sqlite-build"
        build.mkdir()
        configured = self.run_here(source / "configure", "--disable-readline", cwd=build, check=False)
        if configured.returncode != 0 or not pathlib.Path("/usr/include/tcl8.6/tcl.h").exists():
            self.skipTest("tcl-dev is not installed")
        self.run_here("make", "-j2", "testfixture", "CFLAGS=-O1", cwd=build, timeout=BUILD_SECONDS)

        self.wan.set(delay=SQLITE_DELAY)

        def passed(test, place):
            place = place / test  # each test makes a directory of the same name
            place.mkdir()
            finished = self.run_here(build / "testfixture", source / "test" / f"{test}.test", cwd=place,
                                     timeout=SUITE_SECONDS, check=False)
            return collections.Counter(SQLITE_PASSED.findall(finished.stdout))

        self.compare(SQLITE_TESTS, passed)

    def compare(self, tests, passed):
        """passed(test, place) runs a test in a directory and counts each case that passes."""
        there = self.mount / "run"
        there.mkdir()

        def both(test):
            return passed(test, self.local), passed(test, there)

        count, missed = 0, {}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for test, (local, mounted) in zip(tests, pool.map(both, tests)):
                count += local.total()
                if local - mounted:
                    missed[test] = sorted(local - mounted)
        print(f"{len(tests)} tests: {count} cases pass locally, all but {sum(map(len, missed.values()))} on the mount",
              file=sys.stderr)
        self.assertGreater(count, len(tests))
        self.assertEqual(missed, {})

    def test_arrays_mapped_from_files(self):
        for python in (sys.executable, "/usr/bin/python3"):
            if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
                break
        else:
            self.skipTest("numpy is not installed (Debian: python3-numpy)")
        self.run_here(python, "-c", MAPPED_ARRAYS, self.mount, self.export)


MAPPED_ARRAYS = """
import pathlib, sys
import numpy as np
mount, export = map(pathlib.Path, sys.argv[1:])
array = np.random.default_rng(1).random((2000, 3000))
np.save(mount / "array.npy", array)
mapped = np.load(mount / "array.npy", mmap_mode="r")
assert (mapped[::37] == array[::37]).all() and (mapped[:, ::41] == array[:, ::41]).all()
written = np.lib.format.open_memmap(mount / "written.npy", mode="w+", dtype=array.dtype, shape=array.shape)
written[...] = array
written.flush()
assert (np.load(export / "written.npy") == array).all()
"""


if __name__ == "__main__":
    harness.main(fuse=True)
