"""Figures over time: percentiles, rates of windows, and what tusk-wan writes with --series."""

import csv
import json
import math
import pathlib
import sys

from lib.measuring import Running, digest
from harness import HarnessError

FOLDER = pathlib.Path(__file__).resolve().parent


def percentile(values, share):
    """The smallest value that at least so many of them do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise HarnessError("nothing was measured")
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def jain_index(shares):
    """1: all have as much; 1/n: one of n has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def read_series(path):
    """The rows of tusk-wan --series as dictionaries of numbers."""
    with open(path, newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


class Reading:
    """Reads a file on a mount for so many seconds, beside what a with block does."""

    def __init__(self, path, original, seconds, interval=0.02):
        self._path, self._original, self._seconds = path, original, seconds
        self._program = Running([sys.executable, "-B", FOLDER / "timeline.py", path, f"{seconds:g}", f"{interval:g}"])

    def __enter__(self):
        self._program.__enter__()
        return self

    def __exit__(self, *failure):
        self._program.__exit__(*failure)

    def line(self):
        """Waits for its end. What timeline.py says, once the bytes are compared."""
        line = json.loads(self._program.output(self._seconds + 60))
        if line["digest"] != digest(self._original, line["bytes"][-1]):
            raise HarnessError(f"{self._path.name} read through the mount is not what was made")
        return line


def read_for(path, original, seconds, interval=0.02):
    """Reads a file on a mount for a while (timeline.py says what comes back), and checks the bytes."""
    with Reading(path, original, seconds, interval) as reading:
        return reading.line()


def count_at(times, counts, when):
    """What a rising count was at a time, in a straight line between its samples."""
    if when <= times[0]:
        return counts[0]
    for (before, low), (after, high) in zip(zip(times, counts), zip(times[1:], counts[1:])):
        if when <= after:
            return low + (high - low) * ((when - before) / (after - before) if after > before else 1)
    return counts[-1]


def rate_between(times, counts, start, end):
    """Mbit/s of a count of bytes between two times."""
    return (count_at(times, counts, end) - count_at(times, counts, start)) * 8e-6 / (end - start)


def first_time_at(times, counts, start, end, wanted, window, step=0.01):
    """The first time from `start` on from which the next `window` seconds carry `wanted` Mbit/s on average; None when
    there is none before `end`."""
    when = start
    while when + window <= end:
        if rate_between(times, counts, when, when + window) >= wanted:
            return when
        when += step
    return None


def least_rate(times, counts, start, end, window, step=0.05):
    """Mbit/s of the `window` seconds between two times that carried least."""
    count = max(1, int((end - start - window) / step + 1e-9) + 1)
    return min(rate_between(times, counts, when, when + window) for when in (start + n * step for n in range(count)))


def rates(times, counts, window=0.1):
    """(seconds since the first sample, Mbit/s) for every window: what is drawn."""
    result, when = [], times[0]
    while when + window <= times[-1]:
        result.append((when + window / 2 - times[0], rate_between(times, counts, when, when + window)))
        when += window
    return result
