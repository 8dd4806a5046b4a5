"""How soon an answer is there: random reads, ls while a copy fills the line, mount, the first byte, the first second.

    ./dev bench latency [--quick]

1 Gbit/s, 100 ms. Random reads: 4 KiB with O_DIRECT, 32 in flight, 1 % loss, every page compared with the original. ls:
`ls -l` of directories of 20 files that were never looked at, each in a directory of its own (those beside one that was
listed are fetched ahead), with a cp of a large file on the same mount. Ready: from
the start of `tusk mount` to its exit. First byte: read() after an open() of a file that was never looked at; and from the
call of open() on, of one whose folder was listed. To capacity: from the open() of a large file, or the start of a cp into
the mount, to the end of the first round trip that carried 90 %; across the grid's paths of 50 ms and more, and by --quick
across four, out of the mount.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time

from lib import drawing
from lib.lines import Line
from lib.measuring import Running, check_digest, make_random_file, make_tree, memory_folder, timed
from lib.mounts import DIRECTIONS, OUT, mounted
from lib.results import Session, common_arguments
from lib.series import FOLDER, first_time_at, percentile, read_for, read_series
from lib.warm_memory import warm_memory
from harness import HarnessError, Mount, Tuskd, wait_for_exit

RTT = 0.1
LOSSY = Line(rtt=RTT * 1e3, loss=0.01)
CLEAN = Line(rtt=RTT * 1e3)
# Whose first seconds are drawn.
DRAWN = CLEAN, Line(rtt=50, loss=0.001), Line(rtt=200), Line(rtt=200, loss=0.01)
UNKNOWN = [Line(rtt=rtt, loss=percent / 100) for rtt in (50, 100, 150, 200) for percent in (0, 0.1, 0.3, 0.5, 1)]
IN_FLIGHT = 32
READ_SECONDS, QUICK_READ_SECONDS = 120, 20
FOLDERS, QUICK_FOLDERS = 200, 40
FILES_PER_FOLDER = 20
MOUNTS, FIRST_FILES = 10, 20
LISTED_SIZE = 32 << 20  # more than is fetched ahead once a folder was listed
GIB = 1 << 30
FULL_AFTER_SECONDS = 3  # a copy fills the line by then


def scale(arguments, tiny, quick, full):
    return tiny if arguments.tiny else quick if arguments.quick else full


def random_reads(arguments):
    def measure(cell):
        size = scale(arguments, 1 << 20, GIB, GIB)
        with memory_folder(2 * size) as folder:
            make_random_file(folder / "export" / "far", size)
            with mounted(LOSSY, folder / "export") as (_, _, mount):
                seconds = scale(arguments, 1, QUICK_READ_SECONDS, READ_SECONDS)
                run = timed([sys.executable, "-B", FOLDER / "random_reads.py", mount.path / "far",
                             folder / "export" / "far", str(IN_FLIGHT), str(seconds), "1"], seconds + 120)
        result = json.loads(run.output)
        if result["wrong"]:
            raise HarnessError(f"{len(result['wrong'])} pages were not what was made")
        latencies = result["latencies"]
        cell.details["latencies"] = [round(value, 5) for value in latencies]
        for share, goal in ((50, RTT + 0.002), (99, 1.3 * RTT), (99.9, 2.5 * RTT)):
            cell.add(f"4 KiB random reads, 1 % loss, p{share:g}", percentile(latencies, share) * 1e3, "ms",
                     at_most=goal * 1e3, note=f"{len(latencies)} reads, {IN_FLIGHT} in flight")
        cell.add("4 KiB random reads, 1 % loss, slowest", max(latencies) * 1e3, "ms")
    return measure


def ls_under_load(arguments):
    def measure(cell):
        size = scale(arguments, 4 << 20, 4 * GIB, 8 * GIB)
        folders = scale(arguments, 1, QUICK_FOLDERS, FOLDERS)
        with memory_folder(2 * size) as folder:  # the file, and what the mount's kernel keeps of it
            make_random_file(folder / "export" / "far", size)
            for number in range(folders):
                make_tree(folder / "export" / f"parent{number}", FILES_PER_FOLDER, 1, 100)
            with mounted(CLEAN, folder / "export") as (wan, _, mount):
                with Running(["cp", mount.path / "far", "/dev/null"]) as copy:
                    if not arguments.tiny and wait_for_exit(copy.process, FULL_AFTER_SECONDS):
                        raise HarnessError("the copy ended before anything was looked at")
                    before = wan.stats()
                    times = []
                    for number in range(folders):
                        run = timed(["ls", "-l", mount.path / f"parent{number}" / "folder00000"], 60)
                        if run.output.count("file") != FILES_PER_FOLDER:
                            raise HarnessError("ls did not show all files")
                        if wait_for_exit(copy.process, 0) and not arguments.tiny:
                            break  # what follows would be measured on an idle line
                        times.append(run.seconds)
                    after = wan.stats()
        if len(times) < folders / 2:
            raise HarnessError(f"the copy ended after {len(times)} of {folders} directories")
        carried = (after["ba"]["bytes_out"] - before["ba"]["bytes_out"]) * 8e-6 / \
            (after["elapsed_s"] - before["elapsed_s"])
        cell.details["seconds"] = times
        sooner = sum(seconds < RTT for seconds in times)
        note = f"{len(times)} directories of {FILES_PER_FOLDER} files, {sooner} of them there before a round trip was over " \
               f"(fetched ahead), {carried:.0f} Mbit/s of cp meanwhile"
        cell.add("ls -l of an uncached directory beside cp, p50", percentile(times, 50) * 1e3, "ms", note=note)
        cell.add("ls -l of an uncached directory beside cp, p99", percentile(times, 99) * 1e3, "ms",
                 at_most=(2 * RTT + 0.05) * 1e3)
    return measure


def ready(arguments):
    def measure(cell):
        with memory_folder(1 << 20) as folder, CLEAN.wan() as wan, Tuskd(wan, folder / "export") as server:
            times = []
            for _ in range(scale(arguments, 1, 5, MOUNTS)):
                with Mount(wan, server.url) as mount:
                    times.append(mount.ready_seconds)
        cell.add("mount to ready", statistics.median(times) * 1e3, "ms", at_most=3 * RTT * 1e3,
                 note=f"median of {len(times)} first mounts; slowest {max(times) * 1e3:.0f} ms; starting the program "
                      "included")
    return measure


def first_byte(arguments):
    def measure(cell):
        files = scale(arguments, 2, 10, FIRST_FILES)
        with memory_folder(files * ((1 << 20) + LISTED_SIZE)) as folder:
            # Each in a folder of its own: those beside one that was read are fetched ahead.
            names = [f"folder{number}/file" for number in range(files)]
            listed = [f"listed{number}/file" for number in range(files)]
            for name in names + listed:
                (folder / "export" / name).parent.mkdir(parents=True)
                make_random_file(folder / "export" / name, LISTED_SIZE if name in listed else 1 << 20)
            with mounted(CLEAN, folder / "export") as (_, _, mount):
                lines = [read_for(mount.path / name, folder / "export" / name, 5) for name in names]
                for name in listed:
                    timed(["ls", "-l", (mount.path / name).parent], 60)
                known = [read_for(mount.path / name, folder / "export" / name, 5) for name in listed]
        first, goal = [line["first"] * 1e3 for line in lines], (RTT + 0.005) * 1e3
        cell.details["first"] = first
        cell.add("the first byte of a file after open", statistics.median(first), "ms", at_most=goal,
                 note=f"median of {files} files, each in a folder of its own")
        cell.add("the first byte of a file after open, slowest", max(first), "ms", at_most=goal)
        cell.add("open of a file that was never looked at", statistics.median(line["opened"] for line in lines) * 1e3,
                 "ms", note="lookup and open")
        cell.add("the first byte of a file whose folder was listed, from the call of open on",
                 statistics.median(line["opened"] + line["first"] for line in known) * 1e3, "ms", at_most=goal,
                 note=f"median of {files} files")
    return measure


def to_capacity(line, direction, arguments):
    def measure(cell):
        size, rtt = scale(arguments, 4 << 20, GIB, GIB), line.rtt / 1e3
        with memory_folder(2 * size) as folder, tempfile.NamedTemporaryFile() as series:
            far = folder / "export" / "far"
            wanted = make_random_file(far, size)
            with mounted(line, folder / "export", series=series.name, series_interval="5ms") as (wan, _, mount), \
                    warm_memory(2 * size):
                elapsed, now = wan.stats()["elapsed_s"], time.monotonic()
                if direction == OUT:
                    read = read_for(mount.path / "far", far, 6)
                    asked = read["times"][0] - read["opened"]
                else:
                    with Running(["cp", far, mount.path / "copy"]) as copy:
                        copy.output(60)
                    asked = copy.started
                    check_digest(folder / "export" / "copy", wanted)
            rows = read_series(series.name)
        start = elapsed + asked - now  # by the path's clock
        there = "ba_mbit" if direction == OUT else "ab_mbit"
        times, counts, total = [0.0], [0.0], 0.0
        for row in rows:
            total += row[there] * (row["time_s"] - times[-1]) / 8e-6
            times.append(row["time_s"])
            counts.append(total)
        wanted_rate = 0.9 * line.rate * (1 - line.loss)
        reached = first_time_at(times, counts, start, times[-1], wanted_rate, rtt, 0.005)
        if reached is None and not arguments.tiny:
            raise HarnessError(f"the path never carried {wanted_rate:.0f} Mbit/s for a round trip")
        full = times[-1] if reached is None else reached + rtt  # the end of the round trip that was full
        cell.details["plot"] = [[row["time_s"] - start, row[there]] for row in rows if row["time_s"] > start - 0.2]
        cell.add(f"from the first request to 90 % of capacity, {line}, {direction} the mount", (full - start) / rtt, "RTT",
                 at_most=6, note="the mount was new")
    return measure


def main():
    arguments = common_arguments(__doc__).parse_args()
    session = Session("latency", arguments)
    session.cell("random reads", random_reads(arguments))
    session.cell("ls beside cp", ls_under_load(arguments))
    session.cell("ready", ready(arguments))
    session.cell("first byte", first_byte(arguments))
    lines = scale(arguments, DRAWN[:1], DRAWN, UNKNOWN)
    for line, direction in itertools.product(lines, [OUT] if arguments.quick else DIRECTIONS):
        session.cell(f"capacity, {line}, {direction}", to_capacity(line, direction, arguments))
    latencies = session.details("random reads", "latencies")
    if latencies:
        curve = [(percentile(latencies, share) * 1e3, share) for share in
                 [*range(1, 99), *(99 + tenth / 10 for tenth in range(10)), 100]]
        session.draw("random-reads.svg", drawing.line_plot(
            f"4 KiB random reads, {LOSSY}, {IN_FLIGHT} in flight", "ms", "percent that took no longer",
            [("reads", curve)]))
    plots = [(line, session.details(f"capacity, {line}, {OUT}", "plot")) for line in DRAWN]
    drawings = [drawing.line_plot(f"The first seconds of a read, {line}", "seconds since the open", "Mbit/s on the path",
                                  [("path", plot)], levels=[(0, plot[-1][0], 0.9 * line.rate * (1 - line.loss))])
                for line, plot in plots if plot]
    if drawings:
        session.draw("capacity.svg", drawing.sheet(drawings, 2))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
