#!/usr/bin/env python3
"""Adds up the JUnit reports of several ctest runs. Its last line is "N passed, N failed, N skipped", alone: CI reads it.

    tests/summary/summary.py [--failed WHAT]... [--skipped WHAT]... REPORT.xml...

Says what failed and why something was skipped. Exit code 0 only when something passed and nothing failed. A test
that ctest could not run at all (its program is missing, a fixture failed) has failed: only a test itself may say
that it was skipped.
"""

import argparse
import collections
import os
import re
import sys
import xml.etree.ElementTree as xml

REASON_LENGTH = 160
# What a test program says of its failure: unittest's headline and exception, GoogleTest's place, a sanitizer's finding.
TELLING = re.compile(r"^(FAIL|ERROR): |^\w*(Error|Exception|Expired)\b|ERROR: \w+Sanitizer|^SUMMARY: |^  attempt \d|"
                     r"^Segmentation|\bassert")
PLACE = re.compile(r": Failure$")
LINES_AFTER_A_PLACE = 4  # what was expected there, and what came
TELLING_LINES = 12


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.told = {}  # a failed test's name: the lines of its output that say why
        self.skipped = collections.defaultdict(list)  # reason: names

    def add_report(self, path):
        run = os.path.basename(path).removesuffix(".xml")
        try:
            cases = xml.parse(path).getroot().iter("testcase")
        except xml.ParseError as error:
            self.failed.append(f"{run}: the report cannot be read: {error}")
            return
        for case in cases:
            name = f"{run}: {case.get('name')}"
            skipped = case.find("skipped")
            if case.get("status") == "run":
                self.passed += 1
            elif skipped is not None and skipped.get("message", "").startswith("SKIP_"):
                self.skipped[reason_in(case.findtext("system-out") or "")].append(name)
            else:
                self.failed.append(name)
                self.told[name] = telling_in(case.findtext("system-out") or "")


def telling_in(output):
    """Of a failed test's output the lines that say why: the whole may be long, and is far above the summary."""
    lines = [line[:REASON_LENGTH] for line in output.splitlines()]
    telling, left = [], 0
    for line in lines:
        left = 1 + LINES_AFTER_A_PLACE if PLACE.search(line) else left
        if left > 0 or TELLING.search(line):
            telling.append(line)
        left -= 1
    return telling[:TELLING_LINES] or lines[-TELLING_LINES:]


def reason_in(output):
    """The line in which a skipped test says why."""
    for pattern in (r"^(skipped, because .*)$", r": Skipped\n(.+)$", r"\.\.\. skipped '(.+)'$"):
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            return found[1][:REASON_LENGTH]
    return "skipped without a reason"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failed", action="append", default=[], metavar="WHAT")
    parser.add_argument("--skipped", action="append", default=[], metavar="WHAT")
    parser.add_argument("reports", nargs="*")
    arguments = parser.parse_args()

    totals = Totals()
    totals.failed += arguments.failed
    for report in arguments.reports:
        if os.path.exists(report):
            totals.add_report(report)
    for step in arguments.skipped:
        totals.skipped[step].append(step.partition(":")[0])
    if totals.passed == 0 and not totals.failed:
        totals.failed.append("no test ran")

    for reason, names in totals.skipped.items():
        print(f"{reason}: {len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
    for name in totals.failed:
        print(f"FAILED {name}")
        for line in totals.told.get(name, ()):
            print(f"    {line}")
    skipped = sum(map(len, totals.skipped.values()))
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {skipped} skipped")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
