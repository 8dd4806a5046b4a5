"""One run of a benchmark: its arguments, its cells one after the other, and the files it leaves.

    session = Session("grid", arguments)
    session.cell("100 ms, 0.1 %", lambda cell: cell.add("cp out", 93.1, "%", at_least=90))
    sys.exit(session.finish())

results.json is written after every cell, so that a run that is interrupted keeps what it has and --resume goes on
from there. A cell that fails is a line that says so, and the others go on.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
import traceback

from lib import ROOT
from lib import tables
from lib.measuring import page_refaults, remove_stale_folders, stolen_seconds
import harness

# Arguments that say how to run, not what is measured: they may differ when a run is taken up again.
NOT_MEASURED = {"resume", "only", "out", "repeat"}
STOLEN_MUCH = 0.01  # of the processors' time
HEADER = ("what", "measured", "goal", "verdict", "note")


@dataclasses.dataclass
class Figure:
    """One measured value. With a goal, `at_least` or `at_most`, it has a verdict."""

    what: str
    value: float | None
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def goal(self):
        if self.at_least is not None:
            return f">= {tables.number(self.at_least)} {self.unit}".rstrip()
        if self.at_most is not None:
            return f"<= {tables.number(self.at_most)} {self.unit}".rstrip()
        return ""

    @property
    def verdict(self):
        if not self.goal:
            return ""
        met = self.value is not None and (self.at_least is None or self.value >= self.at_least) and \
            (self.at_most is None or self.value <= self.at_most)
        return "met" if met else "MISSED"

    def row(self):
        measured = f"{tables.number(self.value)} {self.unit}".rstrip()
        return self.what, measured, self.goal, self.verdict, self.note


class Cell:
    """What one part of a benchmark found out."""

    def __init__(self, quiet=False):
        self.quiet = quiet
        self.figures = []
        self.details = {}  # whatever JSON can hold: what drawings are made of

    def add(self, what, value, unit="", at_least=None, at_most=None, note=""):
        figure = Figure(what, value, unit, at_least, at_most, note)
        self.figures.append(figure)
        if not self.quiet:
            print("    " + "  ".join(part for part in figure.row() if part), flush=True)


def common_arguments(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few cells and smaller files: minutes instead of hours")
    parser.add_argument("--tiny", action="store_true",
                        help="seconds: only shows that it runs, on any build; its figures mean nothing")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, help="results folder (build/results/NAME-DATE)")
    parser.add_argument("--resume", nargs="?", const=True, metavar="DIR",
                        help="go on with an interrupted run: the newest, or the one in DIR")
    parser.add_argument("--repeat", type=_at_least_one, default=1, metavar="N",
                        help="measure each cell N times, keep the median")
    parser.add_argument("--only", type=_pattern, metavar="PATTERN",
                        help="only cells whose name matches this regular expression")
    return parser


def _at_least_one(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def _pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


class Session:
    def __init__(self, name, arguments, emulates=True):
        """arguments: parsed ones of common_arguments(). emulates: whether a path is emulated and mounted across. Ends the
        program where the benchmark cannot run."""
        self.name, self.arguments = name, arguments
        reason = harness.why_not(fuse=True) if emulates else None
        if reason:
            print(reason)
            sys.exit(harness.SKIPPED)
        remove_stale_folders()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(143))  # through the with blocks: nothing stays behind
        self.machine = machine()
        self.folder = self._choose_folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "results.json"
        self.cells = {}
        self.known, self.seen = [], []
        if arguments.resume and self.path.exists():
            before = json.loads(self.path.read_text())
            self._check_resumable(before)
            self.cells = {key: cell for key, cell in before["cells"].items() if not cell.get("error")}
        if not arguments.tiny:
            refuse_slow_builds(self.machine["build"])
        if self.machine["commit"] != checked_out():
            print(f"note: the programs are of commit {self.machine['commit']}, not of what is checked out here")
        print(f"{name}: commit {self.machine['commit']}, {self.machine['cores']} cores of {self.machine['processor']}, "
              f"Linux {self.machine['kernel']}, load {os.getloadavg()[0]:.1f}\nresults in {self.folder}", flush=True)

    def _choose_folder(self):
        if isinstance(self.arguments.resume, str):
            folder = pathlib.Path(self.arguments.resume)
            if not (folder / "results.json").exists():
                sys.exit(f"{self.name}: nothing to resume in {folder}")
            return folder
        if self.arguments.out:
            return self.arguments.out
        results = ROOT / "build" / "results"
        if self.arguments.resume:
            found = sorted(path.parent for path in results.glob(f"{self.name}-*/results.json"))
            if not found:
                sys.exit(f"{self.name}: nothing to resume in {results}")
            return found[-1]
        return results / f"{self.name}-{time.strftime('%Y%m%d-%H%M%S')}"

    def _check_resumable(self, before):
        if before["commit"] != self.machine["commit"]:
            sys.exit(f"{self.path} is of commit {before['commit']}, this is {self.machine['commit']}: "
                     "figures of two versions do not belong in one table")
        if before["options"] != self._options():
            sys.exit(f"{self.path} was measured with {before['options']}, not with {self._options()}")

    def _options(self):
        """What was asked to be measured, as JSON gives it back."""
        options = {name: value for name, value in vars(self.arguments).items() if name not in NOT_MEASURED}
        return json.loads(json.dumps(options, default=str))

    def cell(self, key, measure):
        """Measures one cell, unless it is there already or not wanted. Returns it, None when there is none."""
        self.known.append(key)
        if self.arguments.only and not self.arguments.only.search(key):
            return None
        self.seen.append(key)
        if key in self.cells:
            print(f"{key}: measured before", flush=True)
            return self.cells[key]
        print(key, flush=True)
        start, load, refaults, stolen = time.monotonic(), os.getloadavg()[0], page_refaults(), stolen_seconds()
        runs, error = [], None
        try:
            for _ in range(self.arguments.repeat):
                runs.append(Cell())
                measure(runs[-1])
        except KeyboardInterrupt:
            self.finish()
            sys.exit(130)
        except Exception as failure:  # whatever it is, the other cells of a run of hours are measured
            error = str(failure).strip() or repr(failure)
            print(f"    FAILED: {error}", flush=True)
            if not isinstance(failure, (harness.HarnessError, subprocess.SubprocessError)):
                traceback.print_exc()
        seconds = time.monotonic() - start
        stolen = (stolen_seconds() - stolen) / max(seconds * os.cpu_count(), 1e-3)
        if stolen > STOLEN_MUCH:
            print(f"    the host took {stolen * 100:.1f} % of this machine's processors meanwhile", flush=True)
        merged = median_of(runs)
        self.cells[key] = {"figures": [dataclasses.asdict(figure) for figure in merged.figures],
                           "details": merged.details, "seconds": round(seconds, 2),
                           "load_before": load, "page_refaults": page_refaults() - refaults, "stolen": stolen,
                           "at": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        if error:
            self.cells[key]["error"] = error
        self._save()
        return self.cells[key]

    def details(self, key, name, default=None):
        return self.cells.get(key, {}).get("details", {}).get(name, default)

    def draw(self, name, drawing):
        (self.folder / name).write_text(drawing.svg())
        print(f"drawn: {self.folder / name}", flush=True)

    def rows(self):
        rows = []
        for key in self.seen:
            cell = self.cells.get(key)
            if cell is None:
                continue
            rows += [Figure(**figure).row() for figure in cell["figures"]]
            if cell.get("error"):
                rows.append((key, "-", "", "FAILED", cell["error"].splitlines()[0][:120]))
        return rows

    def finish(self):
        """Prints and writes the table. Returns the exit code: 1 when a cell failed."""
        self._save()
        rows = self.rows()
        if not rows:
            print(f"nothing was measured; the cells are: {'; '.join(self.known)}")
            return 1
        print("\n" + tables.text_table(HEADER, rows))
        head = (f"`./dev bench {self.name} {' '.join(sys.argv[1:])}`, commit {self.machine['commit']}, "
                f"{self.machine['cores']} cores of {self.machine['processor']}, Linux {self.machine['kernel']}\n\n")
        (self.folder / "table.md").write_text(head + tables.markdown_table(HEADER, rows) + "\n")
        verdicts = [row[3] for row in rows]
        print(f"\n{verdicts.count('met')} goals met, {verdicts.count('MISSED')} missed, "
              f"{verdicts.count('FAILED')} failed; all in {self.folder}", flush=True)
        return 1 if "FAILED" in verdicts else 0

    def _save(self):
        contents = {"benchmark": self.name, **self.machine, "options": self._options(), "cells": self.cells}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(contents, indent=1) + "\n")
        part.rename(self.path)


def median_of(runs):
    """Several runs of one cell as one: of each figure the median, with the note of a run that had it (or is nearest),
    and how far they were apart; the details of the run that had the first figure."""
    if len(runs) == 1:
        return runs[0]
    merged = Cell(quiet=True)
    merged.details = runs[0].details
    for figure in runs[0].figures:
        measured = [(other, run) for run in runs for other in run.figures
                    if other.what == figure.what and other.value is not None]
        if not measured:
            merged.figures.append(figure)
            continue
        values = [other.value for other, _ in measured]
        median = statistics.median(values)
        nearest, its_run = min(measured, key=lambda pair: abs(pair[0].value - median))
        if not merged.figures:
            merged.details = its_run.details
        spread = f"of {len(values)}: {tables.number(min(values))} to {tables.number(max(values))}"
        merged.figures.append(dataclasses.replace(nearest, value=median,
                                                  note="; ".join(filter(None, (nearest.note, spread)))))
    return merged


# --- The machine and the build ----------------------------------------------------------------------


def machine():
    """What a figure means nothing without."""
    processor = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    try:
        build = str(harness.build_folder())
        commits = {name: commit_of(harness.program(name)) for name in ("tuskd", "tusk")}
    except harness.HarnessError as error:
        sys.exit(str(error))
    if len(set(commits.values())) > 1:
        sys.exit(f"the programs are not of one commit: {commits}. ./dev build makes them anew")
    return {"commit": commits["tuskd"], "build": build, "cores": os.cpu_count(),
            "processor": processor[1].strip() if processor else platform.machine(),
            "memory_gib": round(int(memory[1]) / (1 << 20), 1), "kernel": platform.release(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def commit_of(program):
    """What a program of ours says it was built from; "unknown" where it was not built from a checkout."""
    said = harness.run_in(None, [program, "--version"], 10).stdout
    found = re.search(r"commit ([0-9a-f]+(?:\+changes)?)", said)
    return found[1] if found else "unknown"


def checked_out():
    """The same of this checkout, as packaging/commit.cmake has it for programs that are built now."""
    script = ROOT / "packaging" / "commit.cmake"
    return harness.run_in(None, ["cmake", f"-DSOURCE={ROOT}", "-P", script], 60).stderr.strip() or "unknown"


def refuse_slow_builds(build):
    """Ends the program when the programs were built without optimisation or with a sanitizer, or nobody knows."""
    cache = pathlib.Path(build) / "CMakeCache.txt"
    problem = slow_build(cache.read_text()) if cache.exists() else "nobody knows how (it has no CMakeCache.txt)"
    if problem:
        sys.exit(f"{build} is built {problem}: its figures would mislead. ./dev build makes build/release")


def slow_build(cache):
    """Why the build of a CMakeCache.txt is no good for measuring, None when it is."""
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.MULTILINE)
    sanitizers = re.search(r"^TUSK_SANITIZE:\w+=(.+)$", cache, re.MULTILINE)
    if sanitizers:
        return f"with sanitizers ({sanitizers[1]})"
    if not kind or kind[1] not in ("Release", "RelWithDebInfo"):
        return "without optimisation"
    return None
