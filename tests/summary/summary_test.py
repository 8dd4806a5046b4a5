"""What the summary of all tests says: nothing that failed, or never ran, is counted as passed or skipped."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.sax import saxutils

SUMMARY = pathlib.Path(__file__).resolve().with_name("summary.py")
UNITTEST_FAILURE = """test_the_first (t.T.test_the_first) ... ok
======================================================================
FAIL: test_the_second (t.T.test_the_second)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "t.py", line 7, in test_the_second
    self.assertEqual(seen, 3)
AssertionError: 2 != 3
"""
GOOGLETEST_FAILURE = """[ RUN      ] Queue.IsShort
queue_test.cc:12: Failure
Expected: (queue) <= (20ms), actual: 31 vs 20
[  FAILED  ] Queue.IsShort (3 ms)
"""


def case(name, status="run", output="", skipped=None):
    more = "" if skipped is None else f'<skipped message="{skipped}"/>'
    return f'<testcase name="{name}" status="{status}">{more}<system-out>{saxutils.escape(output)}</system-out></testcase>'


class Summary(unittest.TestCase):
    def of(self, reports, *arguments):
        """Its exit code and its lines, for reports by their names."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in reports.items():
                paths.append(pathlib.Path(folder) / f"{name}.xml")
                paths[-1].write_text(content)
            done = subprocess.run([sys.executable, "-B", SUMMARY, *arguments, *paths], capture_output=True, text=True,
                                  check=False, timeout=30)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def of_cases(self, *cases):
        return self.of({"unit": f"<testsuite>{''.join(cases)}</testsuite>"})

    def test_reports_add_up(self):
        code, lines = self.of({"unit": f"<testsuite>{case('a')}{case('b')}</testsuite>",
                               "system": f"<testsuite>{case('c')}</testsuite>"})
        self.assertEqual((code, lines), (0, ["3 passed, 0 failed, 0 skipped"]))

    def test_a_failure_is_named_with_what_its_test_says_of_it(self):
        code, lines = self.of_cases(case("good"), case("bad", "fail", UNITTEST_FAILURE))
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["FAILED unit: bad", "    FAIL: test_the_second (t.T.test_the_second)",
                                 "        self.assertEqual(seen, 3)", "    AssertionError: 2 != 3",
                                 "1 passed, 1 failed, 0 skipped"])
        _, lines = self.of_cases(case("bad", "fail", GOOGLETEST_FAILURE))
        self.assertIn("    Expected: (queue) <= (20ms), actual: 31 vs 20", lines)

    def test_a_failure_that_says_nothing_known_shows_its_last_lines(self):
        _, lines = self.of_cases(case("bad", "fail", "\n".join(f"line {number}" for number in range(100))))
        self.assertEqual(lines[0], "FAILED unit: bad")
        self.assertEqual(lines[-2], "    line 99")
        self.assertNotIn("    line 1", lines)

    def test_who_skipped_and_why(self):
        _, lines = self.of_cases(case("x"), case("a", "notrun", "skipped, because there is no FUSE", "SKIP_RETURN_CODE=77"),
                                 case("b", "notrun", "a_test.cc:3: Skipped\nneeds root\n", "SKIP_REGULAR_EXPRESSION_MATCHED"))
        self.assertEqual(lines, ["skipped, because there is no FUSE: 1 (unit: a)", "needs root: 1 (unit: b)",
                                 "1 passed, 0 failed, 2 skipped"])

    def test_what_could_not_run_has_failed(self):
        code, lines = self.of_cases(case("x"), case("missing program", "notrun", skipped="Unable to find executable"))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_report_that_is_cut_off_has_failed(self):
        code, lines = self.of({"unit": f"<testsuite>{case('a')}"})
        self.assertEqual(code, 1)
        self.assertRegex(lines[0], "^FAILED unit: the report cannot be read")

    def test_nothing_at_all_has_failed(self):
        self.assertEqual(self.of({}), (1, ["FAILED no test ran", "0 passed, 1 failed, 0 skipped"]))

    def test_steps_without_a_report_count_too(self):
        code, lines = self.of({"unit": f"<testsuite>{case('a')}</testsuite>"}, "--failed", "lint", "--skipped",
                              "fuzzing: no clang")
        self.assertEqual((code, lines), (1, ["fuzzing: no clang: 1 (fuzzing)", "FAILED lint",
                                             "1 passed, 1 failed, 1 skipped"]))


if __name__ == "__main__":
    unittest.main()
