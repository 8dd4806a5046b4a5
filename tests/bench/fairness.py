"""Who gets what of a line, and who waits for whom.

    ./dev bench fairness [--quick]

In the simulator at 100 Mbit/s and 50 ms, and on the emulator at 100 Mbit/s and 50 ms with real TCP (iperf3) beside a
read through a mount (what is alone or beside an interactive flow also at 1 Gbit/s and 100 ms):
  alone         the standing queue, whatever the buffer: at most 20 ms; mounted by the emulator's account
  joining       n flows: Jain's index from 20 round trips after the last joined on, over 2 s and over the 6 s after, at least
                0.95; mounted: n mounts of one server by one host, over 4 s
  beside        one CUBIC or BBR flow, buffers of 0.5, 1 and 4 BDP, whoever was first: both at least 35 % of the line
  interactive   the round trip of somebody else's packets grows by at most 20 ms
  background    yields: two round trips after a start beside it has filled the line it has 5 % of it at most; mounted
                at most 10 % beside TCP
  short         a policer at half the rate, and a buffer of 0.1 BDP: 90 % of the limit, less than 3 % lost
"""

import contextlib
import dataclasses
import statistics
import sys
import tempfile
import time

from lib import baselines, drawing, simulator
from lib.lines import Line
from lib.measuring import make_random_file, memory_folder
from lib.mounts import mounted
from lib.results import Session, common_arguments
from lib.series import Reading, jain_index, percentile, rate_between, rates, read_for, read_series
from harness import HarnessError, Mount, Tuskd, wait_until

RTT_MS = 50
LINE = Line(rate=100, rtt=RTT_MS)
FAST = Line(rate=1000, rtt=100)
QUEUE_GOAL_MS = 20
JAIN_GOAL = 0.95
SHARE_GOAL = 35
BACKGROUND_GOAL = 10  # percent of the line
BUFFERS = (0.5, 1, 4)  # BDP
LONE_BUFFERS = (0.1, 0.5, 1, 4, 20)
FLOWS, QUICK_FLOWS = (2, 4, 8, 16), (2, 8)
MOUNTS = (2, 4)
JOINS_EVERY = 0.5  # s
SETTLED = 20 * RTT_MS / 1e3  # s after the last joined
LIMIT_GOAL, LOST_GOAL = 90, 3
BESIDE_SECONDS, QUICK_BESIDE_SECONDS = 60, 30
FIRST_SECONDS = 5  # the one that was first is alone for so long
START_SECONDS = 3  # of a read alone
SETTLING_SECONDS = 10  # until shares are judged


def with_buffer(bdp, line=LINE):
    return dataclasses.replace(line, queue=bdp * line.rtt)


def column(rows, number, start, end):
    return [row["shares"][number] or 0 for row in rows if start < row["time"] <= end]


# --- In the simulator -------------------------------------------------------------------------------


def at(line, bdp):
    """Words for a path and its buffer; LINE goes without saying."""
    return f"{bdp:g} BDP" if line is LINE else f"{line}, {bdp:g} BDP"


def alone(path, bdp, seconds):
    def measure(cell):
        line = with_buffer(bdp, path)
        rows = simulator.flows(line, "model", seconds, 0.01)
        later = [row for row in rows if row["time"] > 3]
        queues = [row["queue_ms"] for row in later]
        cell.add(f"simulated, alone, buffer of {at(path, bdp)}: standing queue", percentile(queues, 99), "ms",
                 at_most=QUEUE_GOAL_MS,
                 note=f"p99 of {len(queues)} looks; median {statistics.median(queues):.1f}, most {max(queues):.1f}; "
                      f"{statistics.mean(column(later, 0, 0, seconds)):.1f} % of the line")
    return measure


def joining(count, bdp=1.0):
    def measure(cell):
        names = ",".join(f"model@{number * JOINS_EVERY:g}s" for number in range(count))
        start = (count - 1) * JOINS_EVERY + SETTLED
        rows = simulator.flows(with_buffer(bdp), names, start + 8, 0.1)

        def index(start, end):
            return jain_index([sum(column(rows, number, start, end)) for number in range(count)])

        cell.add(f"{count} flows, one every {JOINS_EVERY:g} s: Jain's index from 20 RTT after the last",
                 index(start, start + 2), at_least=JAIN_GOAL, note="over 2 s")
        cell.add(f"{count} flows, one every {JOINS_EVERY:g} s: and then", index(start + 2, start + 8), at_least=JAIN_GOAL,
                 note="over the 6 s after these")
        cell.details["shares"] = [[[row["time"], row["shares"][number] or 0] for row in rows]
                                  for number in range(count)]
    return measure


def beside(other, bdp, other_first, seconds):
    def measure(cell):
        late = f"@{FIRST_SECONDS}s"
        names = f"{other},model{late}" if other_first else f"model,{other}{late}"
        end = FIRST_SECONDS + SETTLING_SECONDS + seconds
        rows = simulator.flows(with_buffer(bdp), names, end, 0.5)
        start = FIRST_SECONDS + SETTLING_SECONDS
        first, second = (statistics.mean(column(rows, number, start, end)) for number in (0, 1))
        theirs, ours = (first, second) if other_first else (second, first)
        cell.details["shares"] = [[[row["time"], row["shares"][number] or 0] for row in rows]
                                  for number in (0, 1)]
        who = other.upper() if other_first else "Tusk"
        add_both(cell, f"simulated, beside {other.upper()}, {bdp:g} BDP, {who} first", ours, theirs,
                 f"over {seconds} s")
    return measure


def add_both(cell, what, ours, theirs, note):
    cell.add(f"{what}: the smaller share", min(ours, theirs), "% of the line", at_least=SHARE_GOAL,
             note=f"Tusk {ours:.1f}, the other {theirs:.1f}; {note}")


def background(seconds):
    """Beside one that asks for something when the background has the line: its start takes some round trips."""
    def measure(cell):
        rtt, joins = LINE.rtt / 1e3, 2.0 + 30 * LINE.rtt / 1e3
        rows = simulator.flows(with_buffer(1), f"background,model@{joins:g}s", joins + seconds, rtt / 5)
        # The first round trip in which the other had half of the line, and the first four in which we have next to none.
        whens = [row["time"] for row in rows if row["time"] >= joins]
        filled = next((when for when in whens if statistics.mean(column(rows, 1, when - rtt, when) or [0]) >= 50), None)
        gone = next((when for when in whens if statistics.mean(column(rows, 0, when, when + 4 * rtt) or [100]) <= 5), None)
        if filled is None or gone is None:
            raise HarnessError(f"{seconds} s after a start beside it the background still has its share")
        cell.details["shares"] = [[[row["time"], row["shares"][number] or 0] for row in rows] for number in (0, 1)]
        cell.add("background: yields after one beside it has half of the line", max(gone - filled, 0) / rtt, "RTT", at_most=2,
                 note=f"that is {(filled - joins) / rtt:.1f} RTT after its first request")
    return measure


def short(name, line, limit_mbit, size):
    def measure(cell):
        result = simulator.transfer(line, size)
        lost = (result["taken_for_lost"] - result["only_late"]) / result["packets"] * 100
        share = result["mbit"] / limit_mbit * 100
        cell.add(f"simulated, {name}", share, "% of the limit", at_least=LIMIT_GOAL)
        cell.add(f"simulated, {name}: lost through us", lost, "%", at_most=LOST_GOAL)
    return measure


# --- On the emulator --------------------------------------------------------------------------------


def more_than_fits(line, seconds):
    """Bytes of a file that a read of so long does not come to the end of."""
    return int(line.rate * (seconds + 10) * 1e6 / 8)


def intervals_of(report, began):
    """(start, end, Mbit/s) of what iperf3, started at `began`, says of each second."""
    return [(began + part["sum"]["start"], began + part["sum"]["end"], part["sum"]["bits_per_second"] / 1e6)
            for part in report["intervals"]]


def shares_of(line, read, report, began, start, seconds):
    """Ours and TCP's, in percent of the line, in the seconds from `start` on."""
    ours = rate_between(read["times"], read["bytes"], start, start + seconds)
    inside = [mbit for first, last, mbit in intervals_of(report, began) if first >= start and last <= start + seconds]
    return ours / line.rate * 100, (statistics.mean(inside) if inside else 0.0) / line.rate * 100


@contextlib.contextmanager
def far_file(line, seconds, **options):
    """A file across the line that `seconds` of it do not carry: its path by a mount, its source, and the line."""
    size = more_than_fits(line, seconds)
    with memory_folder(size) as folder:
        source = folder / "export" / "far"
        make_random_file(source, size)
        with mounted(line, folder / "export", **options) as (wan, _, mount):
            yield mount.path / "far", source, wan


def mounted_joining(count, seconds):
    """Reads through mounts of their own, all of one host."""
    def measure(cell):
        line = with_buffer(1)
        start = (count - 1) * JOINS_EVERY + SETTLED
        size = more_than_fits(line, start + seconds)
        with memory_folder(count * size) as folder, contextlib.ExitStack() as stack:
            for number in range(count):
                make_random_file(folder / "export" / f"far{number}", size)
            wan = stack.enter_context(line.wan())
            server = stack.enter_context(Tuskd(wan, folder / "export"))
            places = [stack.enter_context(Mount(wan, server.url)).path / f"far{number}" for number in range(count)]
            began, readings = time.monotonic(), []
            for number, place in enumerate(places):
                time.sleep(max(0, began + number * JOINS_EVERY - time.monotonic()))
                readings.append(stack.enter_context(
                    Reading(place, folder / "export" / place.name, start + seconds - number * JOINS_EVERY, 0.05)))
            reads = [reading.line() for reading in readings]
        start += reads[0]["times"][0]
        got = [rate_between(read["times"], read["bytes"], start, start + seconds) for read in reads]
        cell.add(f"{count} mounts, a read every {JOINS_EVERY:g} s: Jain's index from 20 RTT after the last",
                 jain_index(got), at_least=JAIN_GOAL, note=f"over {seconds} s; {', '.join(f'{mbit:.1f}' for mbit in got)} Mbit/s")
    return measure


def mounted_before(control, bdp, seconds):
    """A read that is there for the whole time; TCP begins beside it."""
    def measure(cell):
        line = with_buffer(bdp)
        total = FIRST_SECONDS + SETTLING_SECONDS + seconds
        with far_file(line, total) as (far, source, wan), Reading(far, source, total, 0.05) as reading:
            time.sleep(FIRST_SECONDS)
            began = time.monotonic()
            report = baselines.iperf3(wan, control, SETTLING_SECONDS + seconds, True)[1]
            read = reading.line()
        draw_both(cell, read, report, began)
        add_both(cell, f"mounted, beside TCP {control.upper()}, {bdp:g} BDP, Tusk first",
                 *shares_of(line, read, report, began, began + SETTLING_SECONDS, seconds), f"over {seconds} s")
    return measure


def draw_both(cell, read, report, began):
    cell.details["ours"] = rates(read["times"], read["bytes"], 0.5)
    cell.details["theirs"] = [[(first + last) / 2 - read["times"][0], mbit]
                              for first, last, mbit in intervals_of(report, began)]


def mounted_after(control, bdp, seconds):
    """A TCP flow that is there for the whole time; the read begins when it runs."""
    def measure(cell):
        line = with_buffer(bdp)
        total = FIRST_SECONDS + SETTLING_SECONDS + seconds
        with far_file(line, total) as (far, source, wan):
            began = time.monotonic()
            with baselines.tcp_flow(wan, control, total + 5, True) as report_of:
                wait_until(lambda: wan.stats()["ba"]["bytes_out"] > 1 << 20, 20, "TCP's first megabyte")
                read = read_for(far, source, total, 0.05)
                report = report_of()
        start = read["times"][0] + FIRST_SECONDS + SETTLING_SECONDS
        draw_both(cell, read, report, began)
        add_both(cell, f"mounted, beside TCP {control.upper()}, {bdp:g} BDP, TCP first",
                 *shares_of(line, read, report, began, start, seconds), f"over {seconds} s")
    return measure


def mounted_alone(path, bdp, seconds):
    """The queue by the emulator's account, while a read fills the line."""
    def measure(cell):
        line = with_buffer(bdp, path)
        with tempfile.NamedTemporaryFile() as series:
            with far_file(line, seconds, series=series.name, series_interval="10ms") as (far, source, wan):
                began = wan.stats()["elapsed_s"]
                read = read_for(far, source, seconds, 0.05)
            queues = [row["ba_queue_ms"] for row in read_series(series.name)
                      if began + START_SECONDS <= row["time_s"] <= began + seconds]
        ours = rate_between(read["times"], read["bytes"], read["times"][0] + START_SECONDS, read["times"][-1])
        cell.add(f"mounted, alone, buffer of {at(path, bdp)}: standing queue", percentile(queues, 99), "ms",
                 at_most=QUEUE_GOAL_MS, note=f"p99 of {len(queues)} looks; median {statistics.median(queues):.1f}, most "
                                             f"{max(queues):.1f}; {ours / line.limit:.0%} of the limit")
    return measure


def mounted_background(control, seconds):
    """TCP that begins beside a read through a mount of the background priority."""
    def measure(cell):
        line = with_buffer(1)
        alone_for = START_SECONDS + FIRST_SECONDS
        total = alone_for + SETTLING_SECONDS + seconds
        with far_file(line, total, mount_options=["background"]) as (far, source, wan), \
                Reading(far, source, total, 0.05) as reading:
            time.sleep(alone_for)
            began = time.monotonic()
            report = baselines.iperf3(wan, control, SETTLING_SECONDS + seconds, True)[1]
            read = reading.line()
        alone = rate_between(read["times"], read["bytes"], read["times"][0] + START_SECONDS, began)
        ours, theirs = shares_of(line, read, report, began, began + SETTLING_SECONDS, seconds)
        cell.add(f"mounted, background, before TCP {control.upper()} is beside it", alone / line.limit * 100, "% of the limit",
                 at_least=LIMIT_GOAL)
        cell.add(f"mounted, background, once TCP {control.upper()} is beside it", ours, "% of the line",
                 at_most=BACKGROUND_GOAL, note=f"TCP {theirs:.1f}; over {seconds} s")
    return measure


def interactive(path, bdp, seconds):
    """Somebody else's pings while a read fills the line."""
    def measure(cell):
        line = with_buffer(bdp, path)
        with far_file(line, seconds) as (far, source, wan):
            bare = statistics.median(wan.ping(20, 0.02))
            asked = int((seconds - 5) / (0.05 + bare / 1e3))
            with Reading(far, source, seconds, 0.05) as reading:
                time.sleep(START_SECONDS)
                beside_it = wan.ping(asked, 0.05)
                result = reading.line()
        ours = rate_between(result["times"], result["bytes"], result["times"][0] + START_SECONDS, result["times"][-1])
        cell.add(f"mounted, buffer of {at(path, bdp)}: an interactive flow's round trip grows by",
                 percentile(beside_it, 99) - bare, "ms", at_most=QUEUE_GOAL_MS,
                 note=f"p99 of {len(beside_it)}, {asked - len(beside_it)} more lost; median {statistics.median(beside_it) - bare:.1f}; a read has "
                      f"{ours / line.limit:.0%} of the limit meanwhile")
    return measure


def mounted_short(name, line, limit_mbit, seconds):
    def measure(cell):
        with far_file(line, seconds) as (far, source, wan):
            read = read_for(far, source, seconds, 0.05)
            way = wan.settled_stats()["ba"]
        mbit = rate_between(read["times"], read["bytes"], read["times"][0], read["times"][-1])
        lost = (way["drops"]["queue"] + way["drops"]["policer"]) / way["packets_in"] * 100
        cell.add(f"mounted, {name}", mbit / limit_mbit * 100, "% of the limit", at_least=LIMIT_GOAL)
        cell.add(f"mounted, {name}: lost through us", lost, "%", at_most=LOST_GOAL)
    return measure


POLICED = dataclasses.replace(FAST, more=(("policer", "500mbit"), ("policer_burst", "1mib")))
SHALLOW = with_buffer(0.1, FAST)
SHORT = (("policer of 500 Mbit/s with 1 MiB", POLICED, POLICED.limit / 2),
         ("buffer of 0.1 BDP at 1 Gbit/s, 100 ms", SHALLOW, SHALLOW.limit))


def draw_shares(session, keys):
    drawings = []
    for key in keys:
        shares = session.details(key, "shares")
        if shares:
            drawings.append(drawing.line_plot(key, "s", "% of the line",
                                              [(f"flow {number + 1}" if len(shares) <= 6 else "", line)
                                               for number, line in enumerate(shares)]))
        elif session.details(key, "ours"):
            drawings.append(drawing.line_plot(key, "s", "Mbit/s", [("Tusk", session.details(key, "ours")),
                                                                   ("TCP", session.details(key, "theirs"))]))
    if drawings:
        session.draw("fairness.svg", drawing.sheet(drawings, 2))


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--skip", action="append", default=[], choices=["mounted", "simulated"])
    arguments = parser.parse_args()
    session = Session("fairness", arguments, emulates="mounted" not in arguments.skip)
    quick, tiny = arguments.quick, arguments.tiny
    seconds = 2 if tiny else QUICK_BESIDE_SECONDS if quick else BESIDE_SECONDS
    lone = [*((LINE, bdp) for bdp in LONE_BUFFERS), *((FAST, bdp) for bdp in BUFFERS)]
    drawn = []

    def cell(key, measure):
        session.cell(key, measure)
        drawn.append(key)

    if "simulated" not in arguments.skip:
        for line, bdp in lone[:1] if tiny else lone:
            cell(f"alone, {at(line, bdp)}", alone(line, bdp, 4 if tiny else 13))
        for count in FLOWS[:1] if tiny else QUICK_FLOWS if quick else FLOWS:
            cell(f"joining, {count} flows", joining(count))
        for other in () if tiny else ("cubic", "bbr"):
            for bdp in BUFFERS:
                for first in (False, True):
                    cell(f"beside {other}, {bdp:g} BDP, {other if first else 'Tusk'} first",
                         beside(other, bdp, first, seconds))
        cell("background", background(2))
        for name, line, limit in () if tiny else SHORT:
            cell(f"simulated, {name}", short(name, line, limit, (1 if quick else 3) << 30))
    if "mounted" not in arguments.skip:
        if "iperf3" in baselines.missing():
            print(f"beside TCP: {baselines.missing()['iperf3']}")
        for line, bdp in ((LINE, 1),) if tiny else ((LINE, 0.5), (LINE, 1), (LINE, 4), (FAST, 4)):
            cell(f"mounted alone, {at(line, bdp)}", mounted_alone(line, bdp, START_SECONDS + 2 if tiny else 15))
        for line, bdp in ((LINE, 1),) if tiny else ((LINE, 1), (LINE, 4), (FAST, 4)):
            cell(f"interactive, {at(line, bdp)}", interactive(line, bdp, 7 if tiny else 15))
        for count in MOUNTS[:1] if tiny else MOUNTS:
            cell(f"mounted joining, {count} mounts", mounted_joining(count, 1 if tiny else 4))
        for control in () if tiny or "iperf3" in baselines.missing() else baselines.CONTROLS:
            for bdp in BUFFERS[1:2] if quick else BUFFERS:
                cell(f"mounted beside {control}, {bdp:g} BDP, {control} first", mounted_after(control, bdp, seconds))
                cell(f"mounted beside {control}, {bdp:g} BDP, Tusk first", mounted_before(control, bdp, seconds))
            cell(f"mounted background, {control}", mounted_background(control, 10))
        for name, line, limit in () if tiny else SHORT:
            cell(f"mounted, {name}", mounted_short(name, line, limit, 10 if quick else 25))
    draw_shares(session, drawn)
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
