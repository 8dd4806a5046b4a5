"""A path that becomes another one under a transfer: how soon the goodput is what the new one can carry.

    ./dev bench handover [--quick]

The three scenarios of Hagernäs 2015: 10 Gbit/s 74 ms to 100 Mbit/s 92 ms; the reverse; 400 to 100
to 1000 Mbit/s at 92 ms; loss 0.06 % where it is wide and 0.13 % where it is narrow. At full rate in the simulator; on
the emulator, through a mount, with 1 Gbit/s in place of 10. The goal: from one second after the change on, plus the
time in which what stands in the queue then drains, two seconds carry within 10 % of the new limit, and so does each second from
there to the next change: what fell there was FASP's goodput. Drawn: goodput and queue.
"""

import dataclasses
import sys
import tempfile
import time

from lib import drawing, simulator
from lib.lines import Line, rate_text
from lib.measuring import make_random_file, memory_folder
from lib.mounts import mounted
from lib.results import Session, common_arguments
from lib.series import first_time_at, least_rate, rate_between, rates, read_for, read_series

WIDE_LOSS, NARROW_LOSS = 0.0006, 0.0013
SETTLE = 1.0  # seconds after the change
WINDOW = 2.0  # seconds that are judged
WITHIN = 0.1
STAY = 8.0  # seconds on each path
SOON_WINDOW = 0.25  # the mean that says when it was there first: at its end
EVERY = 0.05
LEAST_WINDOW = 1.0
SIMULATED_WINDOW = "768mib"


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    lines: tuple  # one after the other

    def times(self, stay):
        """When each path begins."""
        return [number * stay for number in range(len(self.lines))]


def wide(rate):
    return Line(rate=rate, rtt=74, loss=WIDE_LOSS)


NARROW = Line(rate=100, rtt=92, loss=NARROW_LOSS)
THIRD = Scenario("400, 100, 1000 Mbit/s at 92 ms",
                 (Line(rate=400, rtt=92, loss=WIDE_LOSS), NARROW, Line(rate=1000, rtt=92, loss=WIDE_LOSS)))


def scenarios(rate):
    return (Scenario(f"{rate_text(rate)} 74 ms to 100 Mbit/s 92 ms", (wide(rate), NARROW)),
            Scenario(f"100 Mbit/s 92 ms to {rate_text(rate)} 74 ms", (NARROW, wide(rate))), THIRD)


def changes(line):
    settings = line.settings()
    return ",".join(f"{name}={settings[name]}" for name in ("rate", "delay", "loss", "queue"))


def drain_seconds(before, after, queued_ms):
    """How long what was in flight takes to leave the new bottleneck: what stood in its queue, which nothing cuts off, and
    of the rest what finds room there."""
    stood = queued_ms / 1e3 * before.rate / after.rate
    rest = min(before.in_flight * 8e-6 / after.rate, after.queue / 1e3)
    return max(stood, rest)


def judge(cell, where, scenario, stay, times, counts, queue, reader=None):
    """Adds what each change did to the file data that arrives: its bytes (counts) so far at times that begin with the
    first path: of bodies in the simulator, of all datagrams on the emulator, with repeats and parity. queue: (time, ms).
    reader is what counts are, of a program that reads in order, for information: it gets
    nothing while one block is missing, and all that waited behind it at once."""
    for number in range(1, len(scenario.lines)):
        before, after = scenario.lines[number - 1:number + 1]
        change = scenario.times(stay)[number]
        queued = max((ms for when, ms in queue if change - 0.1 <= when <= change), default=0)
        drain = drain_seconds(before, after, queued)
        start = change + SETTLE + drain
        share = rate_between(times, counts, start, start + WINDOW) / after.limit
        there = first_time_at(times, counts, change, change + stay, (1 - WITHIN) * after.limit, SOON_WINDOW)
        words = f"{where}: {rate_text(before.rate)} {before.rtt:g} ms to {rate_text(after.rate)} {after.rtt:g} ms"
        cell.add(words, share * 100, "% of the limit", at_least=100 * (1 - WITHIN),
                 note=f"from {SETTLE + drain:.2f} s after the change on, for {WINDOW:g} s" + (
                     "" if after.limit < before.limit else "; a quarter of a second that was there ended after " +
                     (f"{there - change + SOON_WINDOW:.2f} s" if there is not None else "more than that")) + (
                     f"; the reader got {rate_between(*reader, start, start + WINDOW) / after.limit:.0%}"
                     if reader else ""))
        left = change + stay - start  # none, after a queue that took so long to leave
        least = least_rate(times, counts, start, change + stay, LEAST_WINDOW) / after.limit if left >= LEAST_WINDOW else None
        cell.add(f"{words}: the least second from there on", least and least * 100, "% of the limit",
                 at_least=100 * (1 - WITHIN), note=f"of {left:.1f}")


def simulated(scenario, stay):
    def measure(cell):
        first = scenario.lines[0]
        turns = []
        for when, line in list(zip(scenario.times(stay), scenario.lines))[1:]:
            turns += ["--then", f"{when * 1000:.0f}ms:{changes(line)}"]
        # Shares are in percent of the first path's rate.
        rows = simulator.flows(first, "model", stay * len(scenario.lines), EVERY, "--window", SIMULATED_WINDOW,
                               "--bodies", *turns)
        times, counts = [0.0], [0.0]
        for row in rows:
            counts.append(counts[-1] + (row["shares"][0] or 0) / 100 * first.rate * (row["time"] - times[-1]) / 8e-6)
            times.append(row["time"])
        queue = [[row["time"], row["queue_ms"]] for row in rows]
        cell.details.update(goodput=rates(times, counts, EVERY), queue=queue)
        judge(cell, "simulated", scenario, stay, times, counts, queue)
    return measure


def arrivals(rows, began, payload_share):
    """Times since `began` and the bytes of file data that came out of the path by then, towards A."""
    times, counts = [0.0], [0.0]
    for row in rows:
        since = row["time_s"] - began
        if since > 0:
            counts.append(counts[-1] + row["ba_mbit"] * payload_share * (since - times[-1]) / 8e-6)
            times.append(since)
    return times, counts


def emulated(scenario, stay):
    def measure(cell):
        seconds = stay * len(scenario.lines)
        size = int(sum(line.rate for line in scenario.lines) * stay * 1e6 / 8) + (64 << 20)
        with memory_folder(2 * size) as folder, tempfile.NamedTemporaryFile() as series:
            make_random_file(folder / "export" / "far", size)
            with mounted(scenario.lines[0], folder / "export", series=series.name, series_interval="20ms") as \
                    (wan, _, mount):
                for when, line in list(zip(scenario.times(stay), scenario.lines))[1:]:
                    wan.command_line(f"at {when * 1000:.0f}ms {changes(line)}")
                began, then = wan.stats()["elapsed_s"], time.monotonic()  # the same moment by two clocks
                line = read_for(mount.path / "far", folder / "export" / "far", seconds, EVERY)
            rows = read_series(series.name)
        read = [when - then for when in line["times"]]
        times, counts = arrivals(rows, began, NARROW.payload_share)
        queue = [[row["time_s"] - began, row["ba_queue_ms"]] for row in rows if began <= row["time_s"] <= began + seconds]
        cell.details.update(goodput=rates(times, counts, 0.1), queue=queue,
                            reader=[[when + read[0], mbit] for when, mbit in rates(read, line["bytes"], 0.1)])
        judge(cell, "mounted", scenario, stay, times, counts, queue, (read, line["bytes"]))
    return measure


def draw(session, key, scenario, stay):
    goodput, queue = session.details(key, "goodput"), session.details(key, "queue")
    if not goodput:
        return []
    begins = scenario.times(stay)
    marks = [(when, f"{rate_text(line.rate)}, {line.rtt:g} ms") for when, line in zip(begins, scenario.lines)]
    levels = [(when, when + stay, line.limit) for when, line in zip(begins, scenario.lines)]
    reader = session.details(key, "reader")
    lines = [("arrives", goodput)] + ([("is read", reader)] if reader else [])
    return [drawing.line_plot(key, "s", "Mbit/s of file data", lines, marks, levels),
            drawing.line_plot("", "s", "ms of queue", [("queue", queue)], marks)]


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--skip", action="append", default=[], choices=["mounted", "simulated"])
    arguments = parser.parse_args()
    session = Session("handover", arguments, emulates="mounted" not in arguments.skip)
    stay = 4.2 if arguments.tiny else STAY
    simulated_rate = 1000 if arguments.quick or arguments.tiny else 10_000
    drawings = []
    for scenario in scenarios(simulated_rate)[:1 if arguments.tiny else None]:
        if "simulated" not in arguments.skip:
            key = f"simulated, {scenario.name}"
            session.cell(key, simulated(scenario, stay))
            drawings += draw(session, key, scenario, stay)
    for scenario in scenarios(1000)[1 if arguments.tiny else 0:2 if arguments.tiny else None]:
        if "mounted" not in arguments.skip:
            key = f"mounted, {scenario.name}"
            session.cell(key, emulated(scenario, stay))
            drawings += draw(session, key, scenario, stay)
    if drawings:
        session.draw("handover.svg", drawing.sheet(drawings, 2))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
