"""Many clients of one server: 64 mounts that copy at once, a thousand that do nothing.

    ./dev bench many [--quick]

64 mounts (16 with --quick) each copy a file of their own at once, out of the mount and then into it, across 20 ms and
500 Mbit/s, which two cores can fill with 64 programs and both ends (where the line is not full, the machine decides who
has what): they should finish within 5 % of each other, with Jain's index of what each had when the first was done at
least 0.95, and together fill the line. Each mount has 64 MiB of
cache, since they share one machine's memory.
A thousand idle clients are connections without FUSE, each with its own key, session and socket (idle_clients): what the
server holds for them is the growth of its resident memory; its CPU is looked at for a minute (ten seconds with --quick),
beside that of a server that has one.
"""

import concurrent.futures
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from lib import drawing
from lib.lines import Line, size_text
from lib.measuring import MIB, check_digest, cpu_seconds, make_random_file, memory_folder, memory_kib
from lib.mounts import DIRECTIONS, INTO, OUT
from lib.results import Session, common_arguments
from lib.series import jain_index, read_series
from lib.warm_memory import warm_memory
from harness import HarnessError, Mount, Tuskd, popen_in, stop, test_program
from progress import Progress

LINE = Line(rate=500, rtt=20)
MOUNTS, QUICK_MOUNTS = 64, 16
FILE, TINY_FILE = 64 << 20, 1 << 20
IDLE = 1000
IDLE_SECONDS, QUICK_IDLE_SECONDS = 60, 10
SETTLE_SECONDS = 3  # until the handshakes' memory is used again or given back
SPREAD_GOAL, JAIN_GOAL = 5, 0.95
KIB_GOAL = 64
CPU_GOAL = 1  # percent of one core for all of them: a hundred-thousandth for each
CONNECT_SECONDS = 300
COPY_SECONDS = 300
SAMPLE_SECONDS = 0.05
WINDOW_SECONDS = 5  # in which what each had is compared
# Who sends stands for as many machines: 64 that copy into memory would leave the server a hundredth of this one.
NICE = {OUT: 0, INTO: 19}


def copy_all(files, copies, arrived, nice):
    """Copies each file, all from one moment on: starting so many programs takes a second by itself. Seconds of each from
    that moment to its exit, and looks at what had `arrived` of each until the first was done: (seconds, sizes)."""
    gate, opener = os.pipe()
    with contextlib.ExitStack() as stack:
        try:
            command = ["nice", "-n", str(nice), "sh", "-c", 'read -r _; exec cp "$1" "$2"', "sh"]
            runs = [popen_in(None, [*command, file, copy], stdin=gate) for file, copy in zip(files, copies)]
            for run in runs:
                stack.callback(stop, run, signal.SIGKILL)
        finally:
            os.close(gate)
            os.close(opener)  # every shell's read ends
        return wait_for_all(runs, arrived)


def wait_for_all(runs, arrived):
    started = time.monotonic()
    seconds, looks = [None] * len(runs), []
    while None in seconds:
        if time.monotonic() - started > COPY_SECONDS:
            raise HarnessError(f"cp took more than {COPY_SECONDS} s")
        if seconds.count(None) == len(runs):
            sizes = [copy.stat().st_size if copy.exists() else 0 for copy in arrived]
            looks.append((time.monotonic() - started, sizes))
        time.sleep(SAMPLE_SECONDS)
        for number, run in enumerate(runs):
            if seconds[number] is None and run.poll() is not None:
                seconds[number] = time.monotonic() - started
                if run.returncode != 0:
                    raise HarnessError(f"cp ended with {run.returncode}")
    return seconds, looks


def had_in_windows(looks):
    """What each had in one WINDOW_SECONDS after the other."""
    began, before = looks[0]
    for when, sizes in looks:
        if when - began >= WINDOW_SECONDS:
            yield [after - size for after, size in zip(sizes, before)]
            began, before = when, sizes


def busy_mounts(count, size, direction):
    source, target = ("export", "near") if direction == OUT else ("near", "export")
    way = "ba" if direction == OUT else "ab"

    def copied(series):
        with memory_folder(2 * count * size) as folder, contextlib.ExitStack() as stack:
            wanted = [make_random_file(folder / source / f"file{number}", size) for number in range(count)]
            arrived = [folder / target / f"copy{number}" for number in range(count)]
            wan = stack.enter_context(LINE.wan(series=series, series_interval="50ms"))
            server = stack.enter_context(Tuskd(wan, folder / "export"))
            mounts = [stack.enter_context(Mount(wan, server.url, options=["cache_mem=64M"], nice=NICE[direction]))
                      for _ in range(count)]
            places = {"near": [folder / "near"] * count, "export": [mount.path for mount in mounts]}
            files = [place / f"file{number}" for number, place in enumerate(places[source])]
            copies = [place / f"copy{number}" for number, place in enumerate(places[target])]
            # The copies, and what the kernel holds of the mounts.
            with warm_memory(2 * count * size):
                began = wan.stats()["elapsed_s"]
                with Progress(wan):
                    seconds, looks = copy_all(files, copies, arrived, NICE[direction])
            queue = wan.stats()[way]["queue_ms"]
            for copy, digest in zip(arrived, wanted):
                check_digest(copy, digest)
            return began, seconds, looks, queue

    def measure(cell):
        with tempfile.NamedTemporaryFile() as series:
            began, seconds, looks, queue = copied(series.name)
            rows = [row for row in read_series(series.name) if began <= row["time_s"] <= began + max(seconds)]
        words = f"{count} mounts, {size_text(size)} each, {direction}"
        sizes = looks[-1][1]
        cell.details.update(seconds=seconds, sizes=sizes, arrived=[
            [when, *(value / MIB for value in (min(each), statistics.median(each), max(each)))] for when, each in looks],
            line=[[row["time_s"] - began, row[f"{way}_mbit"]] for row in rows],
            queue=[[row["time_s"] - began, row[f"{way}_queue_ms"]] for row in rows])
        cell.add(f"{words}: the first is done before the last by", (1 - min(seconds) / max(seconds)) * 100, "%",
                 at_most=SPREAD_GOAL, note=f"{min(seconds):.1f} to {max(seconds):.1f} s")
        if any(sizes):
            cell.add(f"{words}: Jain's index just before the first was done", jain_index(sizes), at_least=JAIN_GOAL)
            indices = [jain_index(had) for had in had_in_windows(looks) if any(had)]
            if indices:
                cell.add(f"{words}: Jain's index of {WINDOW_SECONDS} s", statistics.median(indices),
                         note=f"the median of {len(indices)} times; the least {min(indices):.3f}")
        cell.add(f"{words}: together", count * size * 8e-6 / max(seconds) / LINE.limit * 100, "% of the limit",
                 note=f"{LINE}; queue {queue['mean']:.0f} ms on average, {queue['max']:.0f} at most")
    return measure


def draw(session, keys):
    drawings = []
    for key in keys:
        arrived = session.details(key, "arrived")
        if not arrived:
            continue
        had = [(name, [(look[0], look[number]) for look in arrived])
               for number, name in ((1, "least"), (2, "median"), (3, "most"))]
        drawings += [drawing.line_plot(f"{key}: what each had, until the first was done", "s", "MiB", had),
                     drawing.line_plot("", "s", "Mbit/s on the path", [("all", session.details(key, "line"))]),
                     drawing.line_plot("", "s", "ms of queue", [("queue", session.details(key, "queue"))])]
    if drawings:
        session.draw("many.svg", drawing.sheet(drawings, 3))


def idle(count, seconds):
    def measure(cell):
        with memory_folder(1 << 20) as folder, LINE.wan() as wan, Tuskd(wan, folder / "export") as server:
            pids = [server.process.pid]

            def passing():
                """CPU seconds of the server, and the packets it sent."""
                cpu, packets = sum(cpu_seconds(pids)), wan.stats()["ba"]["packets_in"]
                time.sleep(seconds)
                return sum(cpu_seconds(pids)) - cpu, wan.stats()["ba"]["packets_in"] - packets

            with client(wan, server, 1):  # what the first one makes the server load is not counted
                time.sleep(SETTLE_SECONDS)
                alone, _ = passing()
            before = memory_kib(pids, "VmRSS")
            with client(wan, server, count):
                time.sleep(SETTLE_SECONDS)
                after = memory_kib(pids, "VmRSS")
                cpu, packets = passing()
        cell.add(f"{count} idle clients: memory of the server for each", (after - before) / count, "KiB",
                 at_most=KIB_GOAL, note=f"{before >> 10} to {after >> 10} MiB")
        cell.add(f"{count} idle clients: CPU of the server", round(cpu / seconds * 100, 2), "% of one core", at_most=CPU_GOAL,
                 note=f"over {seconds} s: {cpu / seconds / count * 1e6:.1f} us a second for each; "
                      f"{alone / seconds * 100:.2f} % with one; {packets / seconds:.0f} packets a second sent by it")
    return measure


@contextlib.contextmanager
def client(wan, server, count):
    """So many idle clients, for the length of a with block."""
    process = popen_in(wan.ns_a, [test_program("bench/idle_clients"), server.url, count], stdin=subprocess.PIPE,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            line = pool.submit(process.stdout.readline)
            try:
                ready = line.result(CONNECT_SECONDS)
            except concurrent.futures.TimeoutError:
                stop(process)
                raise HarnessError(f"{count} clients were not connected within {CONNECT_SECONDS} s") from None
        if ready.split() != [b"ready", str(count).encode()]:
            stop(process)
            raise HarnessError(f"idle_clients: {process.stderr.read().decode(errors='replace').strip()[-300:]}")
        yield
    finally:
        process.stdin.close()
        stop(process)


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--mounts", type=int, help="that copy at once (64)")
    arguments = parser.parse_args()
    session = Session("many", arguments)
    few = arguments.quick or arguments.tiny
    count = arguments.mounts or (2 if arguments.tiny else QUICK_MOUNTS if few else MOUNTS)
    busy = [f"{count} mounts, {direction}" for direction in DIRECTIONS]
    for key, direction in zip(busy, DIRECTIONS):
        session.cell(key, busy_mounts(count, TINY_FILE if arguments.tiny else FILE, direction))
    clients = 20 if arguments.tiny else IDLE
    seconds = 1 if arguments.tiny else QUICK_IDLE_SECONDS if few else IDLE_SECONDS
    session.cell(f"{clients} idle clients", idle(clients, seconds))
    draw(session, busy)
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
