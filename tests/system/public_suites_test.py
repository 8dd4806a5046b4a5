"""What ./dev suites makes of suites: on a folder that holds a small one of our own."""

import pathlib
import tempfile
import unittest

import harness
import public_suites
from public_suites import FAILED, PASSED, SKIPPED, Place

# On "ext4" everything passes; elsewhere the second case fails and the third is missing.
TAP_SCRIPT = """
echo 1..3
echo "ok 1"
if [ "$(basename "$(dirname "$PWD")")" = ext4 ]; then echo "ok 2"; echo "ok 3"; else echo "not ok 2"; fi
"""
LTP_CASES = """# comment
open01 test "$(basename "$(dirname "$PWD")")" = ext4
open02 exit 32
rename01 true
fork01 false
"""


class PublicSuites(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.places = []
        for name in ("ext4", "mount"):
            (self.folder / name).mkdir()
            self.places.append(Place(self.folder / name, []))
        self.suites = self.folder / "suites"

    def tap(self, program):
        folder = self.suites / program
        (folder / "tests" / "open").mkdir(parents=True)
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
        (folder / "tests" / "open" / "00.t").write_text(TAP_SCRIPT)

    def ltp(self):
        (self.suites / "ltp" / "testcases" / "bin").mkdir(parents=True)
        (self.suites / "ltp" / "runtest").mkdir()
        (self.suites / "ltp" / "runtest" / "syscalls").write_text(LTP_CASES)

    def run_all(self, *patterns, named=()):
        return public_suites.run_suites(public_suites.suites_in(self.suites), *self.places, patterns,
                                        public_suites.impossible(named), say=lambda _: None)

    def test_what_ext4_passes_and_the_mount_does_not_has_failed(self):
        self.tap("pjdfstest")
        self.assertEqual(self.run_all(), {"pjdfstest:open/00.t/1": PASSED, "pjdfstest:open/00.t/2": FAILED,
                                          "pjdfstest:open/00.t/3": FAILED})

    def test_what_is_named_as_impossible_is_told_apart(self):
        self.tap("fstest")
        verdicts = self.run_all(named=["# comment", "secfs.test:open/00.t/* for no reason"])
        self.assertEqual(list(verdicts.values()), [PASSED, "impossible", "impossible"])

    def test_of_ltp_the_cases_about_files_run(self):
        self.ltp()
        self.assertEqual(self.run_all(), {"ltp:open01": FAILED, "ltp:open02": SKIPPED, "ltp:rename01": PASSED})

    def test_patterns_choose(self):
        self.ltp()
        self.tap("pjdfstest")
        self.assertEqual(list(self.run_all("ltp:re*")), ["ltp:rename01"])

    def test_of_xfstests_generic_quick_is_found(self):
        folder = self.suites / "xfstests"
        (folder / "tests" / "generic").mkdir(parents=True)
        (folder / "check").write_text('echo "generic/001  2s"')
        (folder / "check").chmod(0o755)
        (folder / "check").write_text('#!/bin/sh\n[ $1 = generic/001 ] && echo "$1  1s" || echo "$1  [not run] no"\n')
        for name, groups in ("001", "auto quick"), ("002", "auto"), ("003", "quick rw"):
            (folder / "tests" / "generic" / name).write_text(f"_begin_fstest {groups}\n")
        self.assertEqual(self.run_all(), {"xfstests:generic/001": PASSED, "xfstests:generic/003": SKIPPED})

    def test_an_xfstests_that_cannot_begin_on_the_mount_has_failed(self):
        folder = self.suites / "xfstests"
        (folder / "tests" / "generic").mkdir(parents=True)
        (folder / "tests" / "generic" / "001").write_text("_begin_fstest quick\n")
        (folder / "check").write_text('#!/bin/sh\n[ -z "$AWAY" ] && echo "$1  1s" || exit 1\n')
        (folder / "check").chmod(0o755)
        self.places[1].xfstests = ["env", "AWAY=1"]
        self.assertEqual(self.run_all(), {"xfstests:generic/001": FAILED})

    def test_every_impossibility_has_a_reason(self):
        for reason in public_suites.impossible(public_suites.NAMED.read_text().splitlines()).values():
            self.assertGreater(len(reason), 10)

    def test_a_folder_without_suites_is_nothing_to_run(self):
        self.suites.mkdir()
        self.assertEqual(public_suites.suites_in(self.suites), [])


if __name__ == "__main__":
    harness.main()
