"""cp of one large file that cannot be compressed, out of the mount and into it, for 25 round trips and losses.

    ./dev bench grid [--quick] [--baselines] [--rate 2.5gbit --mtu 9000] [--cells 100/0.1,200/1] [--direction out]
                     [--remembered]

A cell is RTT in ms / loss in percent of each direction. Its time runs from the start of cp to its exit, close
included; every cell has a path and a mount of its own, the files are in memory, and what arrived is compared by hash
where it arrived. "Limit" is rate x (1 - loss) x payload/MTU: 1434 of 1500, 8934 of 9000 bytes of a packet. The
simulator adds what no emulator on one machine carries: 10 Gbit/s, and the corners 320, 400, 1000 ms and 5 % loss, there
and at 1 Gbit/s. There bytes are fetched, but for the cells that say stored.
--remembered mounts each path twice: the first mount copies 512 MiB, the second, which is timed, finds the path known.
--baselines runs iperf3 (CUBIC and BBR), scp, sshfs and rclone mount on the same paths in between, by emulators of their own.
"""

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import sys
import tempfile

from lib import baselines, drawing, simulator
from lib.lines import Line, parse_rate, parse_size, rate_text, size_text
from lib.measuring import make_random_file, memory_folder
from lib.mounts import DIRECTIONS, INTO, OUT, copy_large, mounted, mounted_again
from lib.results import Session, common_arguments

RTTS = (0, 50, 100, 150, 200)
LOSSES = (0, 0.1, 0.3, 0.5, 1)
CELLS = [(rtt, loss) for rtt in RTTS for loss in LOSSES]
QUICK_CELLS = [(0, 0), (100, 0.1), (200, 1)]
STORED_CELLS = [(0, 0), (50, 0.3), (100, 0.1), (150, 0.5), (200, 0), (200, 1)]  # simulated
CORNERS = [(320, 0.1), (400, 1), (1000, 0.1), (100, 5), (200, 5)]
SIZE, QUICK_SIZE, TINY_SIZE = 3 << 30, 1 << 30, 4 << 20
SIMULATED_SIZE = 30 << 30  # as in the published measurements
FIRST_SIZE = 512 << 20  # copied by the mount of before, of a remembered path
GOAL = 97  # percent of the limit
SLOWEST = 20  # a copy may take so many times what the limit allows, and a minute
TCP_SECONDS, QUICK_TCP_SECONDS = 20, 10  # TCP would need hours for some of this: it shows its speed, then is stopped

# Kachan and Siemens, "Comparison of contemporary solutions for high speed data transport on WAN connections", ICNS
# 2013: shares of 10 Gbit/s that they measured. What the paper does not say is not here.
PUBLISHED = {
    "FileCatalyst Direct": {cell: (0.93, ">= 93 %") for cell in CELLS},
    "TIXstream": {**{(rtt, loss): (0.97, "97 %") for rtt in (0, 50, 100) for loss in (0, 0.1, 0.3)},
                  (200, 1): (0.37, "37 %")},
    "ExpeDat": {(200, 1): (0.05, "< 10 %")},
    "Velocity": {(200, 1): (0.01, "1 %")},
    "Catapult": {(200, 1): (0.01, "1 %")},
}


def cell_name(rtt, loss):
    return f"{rtt:g} ms, {loss:g} %"


@dataclasses.dataclass(frozen=True)
class Source:
    """The file that all cells copy: folder/export/far. No cell leaves anything of it in a cache that the next one sees."""

    folder: pathlib.Path
    size: int
    digest: str


@contextlib.contextmanager
def one_source(size):
    with memory_folder(2 * size + (size >> 1) + 2 * FIRST_SIZE) as folder:
        yield Source(folder, size, make_random_file(folder / "export" / "far", size))


def tusk_cell(line, direction, made):
    def measure(cell):
        source = made()
        size = source.size
        limit = 60 + SLOWEST * size * 8e-6 / line.limit
        with mounted(line, source.folder / "export") as (wan, _, mount):
            mbit = copy_large(wan, mount, source.folder, "far", size, source.digest, direction, limit)
            way = wan.settled_stats()["ba" if direction == OUT else "ab"]
        share = mbit / line.limit
        cell.details.update(share=share, mbit=mbit, path=way)
        cell.add(f"{cell_name(line.rtt, line.loss * 100)}, cp {direction} the mount", share * 100, "% of the limit",
                 at_least=GOAL, note=f"{mbit:.0f} of {line.limit:.0f} Mbit/s, {size_text(size)}; queue at most "
                                     f"{way['queue_ms']['max']:.0f} ms, {way['drops']['queue']} dropped by it; "
                                     f"the path stood still for {way['stood_still_s'] * 1000:.0f} ms")
    return measure


def remembered_cell(line, direction, made):
    """The goal is a time here: the limit's, three round trips, and 0.2 s."""
    def measure(cell):
        source = made()
        size, folder = source.size, source.folder
        limit = 60 + SLOWEST * size * 8e-6 / line.limit
        first_size = min(size, FIRST_SIZE)
        wanted_first = make_random_file(folder / "export" / "first", first_size)

        def first(wan, mount):
            copy_large(wan, mount, folder, "first", first_size, wanted_first, direction, limit)

        try:
            with tempfile.TemporaryDirectory() as state, \
                    mounted_again(line, folder / "export", pathlib.Path(state), first) as (wan, _, mount):
                mbit = copy_large(wan, mount, folder, "far", size, source.digest, direction, limit)
        finally:
            (folder / "export" / "first").unlink()
        seconds, least = size * 8e-6 / mbit, size * 8e-6 / line.limit
        cell.details.update(share=mbit / line.limit, mbit=mbit, seconds=seconds)
        cell.add(f"{cell_name(line.rtt, line.loss * 100)}, known path, cp {direction} the mount", seconds, "s",
                 at_most=least + 3e-3 * line.rtt + 0.2,
                 note=f"{100 * mbit / line.limit:.1f} % of {line.limit:.0f} Mbit/s, {size_text(size)}; the line alone "
                      f"{least:.2f} s")
    return measure


def baseline_cell(arguments, line, direction, made, missing):
    """All other programs on one path, one after the other."""
    def measure(cell):
        folder = made().folder
        seconds = QUICK_TCP_SECONDS if arguments.quick else TCP_SECONDS

        def add(method, mbit):
            cell.details[method] = mbit / line.limit
            cell.add(f"{cell_name(line.rtt, line.loss * 100)}, {method}, {direction}", mbit / line.limit * 100,
                     "% of the limit", note=f"{mbit:.1f} Mbit/s in {seconds} s at most")

        with line.wan(tcp="bbr") as wan, tempfile.TemporaryDirectory() as ssh:
            if "iperf3" not in missing:
                for control in baselines.CONTROLS:
                    add(f"TCP {control.upper()}", baselines.iperf3(wan, control, seconds, direction == OUT)[0])
            if "scp" in missing:  # and with it all that go by ssh
                return
            source, near, far = folder / "export" / "far", folder / "near" / "copy", folder / "export" / "copy"
            with baselines.ssh_server(wan, pathlib.Path(ssh)) as server:
                command = server.scp(server.remote(source), near) if direction == OUT else \
                    server.scp(source, server.remote(far))
                result = near if direction == OUT else far
                add("scp, BBR", baselines.copy_for_a_while(command, source, result, seconds, wan.ns_a))
                for name, kind in baselines.MOUNTS.items():
                    if name in missing:
                        continue
                    with kind(wan, server, folder / "export") as mount:
                        command = ["cp", mount.path / "far", near] if direction == OUT else \
                            ["cp", source, mount.path / "copy"]
                        add(f"{name}, BBR", baselines.copy_for_a_while(command, source, result, seconds))
    return measure


def simulated_name(line, stored):
    return f"simulated, {'stored, ' if stored else ''}{line}"


def simulated_cell(line, size, stored):
    def measure(cell):
        result = simulator.transfer(line, size, *(["--store"] if stored else []))
        share = result["mbit"] / line.limit
        cell.details.update(share=share, **result)
        cell.add(simulated_name(line, stored), share * 100, "% of the limit", at_least=GOAL,
                 note=f"{size_text(size)} in {result['seconds']:.1f} s; queue at most {result['queue_max_ms']:.0f} ms, "
                      f"{result['queue_drops']:.0f} dropped by it")
    return measure


def simulated_runs(arguments):
    """(line, size, whether it is stored) of each."""
    if arguments.tiny:
        line = Line(rtt=100, loss=0.001)
        return [(line, TINY_SIZE, False), (line, TINY_SIZE, True)]

    def wide(cells, mtu=1500):
        return [Line(rate=10_000, rtt=rtt or 0.2, loss=loss / 100, mtu=mtu) for rtt, loss in cells]

    cells = QUICK_CELLS if arguments.quick else CELLS
    corners = CORNERS[:2] if arguments.quick else CORNERS
    stored = QUICK_CELLS if arguments.quick else STORED_CELLS
    size = QUICK_SIZE if arguments.quick else SIZE
    return [*((line, SIMULATED_SIZE, False) for mtu in (1500, 9000) for line in wide(cells, mtu)),
            *((line, SIMULATED_SIZE, False) for line in wide(corners)),
            *((line, SIMULATED_SIZE, True) for line in wide(stored)),
            *((Line(rtt=rtt, loss=loss / 100), size, False) for rtt, loss in corners)]


def draw(session, arguments, directions, cells):
    rows = [f"{loss:g} %" for loss in LOSSES]
    columns = [f"{rtt:g} ms" for rtt in RTTS]

    def heat(title, shares, note=""):
        values = {(f"{loss:g} %", f"{rtt:g} ms"): share for (rtt, loss), share in shares.items()}
        return drawing.heat_map(title, columns, rows, values, note)

    limit_note = "share of rate x (1 - loss) x payload/MTU"
    drawings = []
    for direction in directions:
        shares = {cell: session.details(f"tusk {cell_name(*cell)} {direction}", "share") for cell in cells}
        drawings.append(heat(f"Tusk, cp {direction} the mount, {rate_text(arguments.rate)}", shares, limit_note))
    for direction in directions:
        for method in ("TCP CUBIC", "TCP BBR", "scp, BBR", "sshfs, BBR", "rclone, BBR"):
            shares = {cell: session.details(f"baselines {cell_name(*cell)} {direction}", method) for cell in cells}
            if any(share is not None for share in shares.values()):
                drawings.append(heat(f"{method}, {direction}", shares, limit_note))
    for name, values in PUBLISHED.items():
        drawings.append(heat(f"{name} (published)", values, "Kachan and Siemens 2013, share of 10 Gbit/s"))
    session.draw("grid.svg", drawing.sheet(drawings, 2))
    for mtu in (1500, 9000):
        shares = {(rtt, loss): session.details(simulated_name(Line(10_000, rtt or 0.2, loss / 100, mtu), False), "share")
                  for rtt, loss in CELLS}
        if any(share is not None for share in shares.values()):
            session.draw(f"grid-simulated-mtu{mtu}.svg", heat(f"Tusk in virtual time, 10 Gbit/s, MTU {mtu}", shares,
                                                              limit_note))


def parse_cells(text):
    try:
        return [(float(rtt), float(loss)) for rtt, loss in (cell.split("/") for cell in text.split(","))]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' are no cells such as 100/0.1,200/1 (ms/%)") from None


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--size", type=parse_size, help="of the file (3gib)")
    parser.add_argument("--rate", type=parse_rate, default=1000, help="of the emulated path (1gbit)")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--cells", type=parse_cells, help="RTT/LOSS, as 100/0.1,200/1")
    parser.add_argument("--direction", choices=["out", "into", "both"], default="both")
    parser.add_argument("--remembered", action="store_true", help="by a second mount each, which finds the path known")
    parser.add_argument("--baselines", action="store_true", help="iperf3, scp, sshfs and rclone on the same paths")
    parser.add_argument("--skip", action="append", default=[], choices=["mounted", "simulated"])
    arguments = parser.parse_args()
    session = Session("grid", arguments, emulates="mounted" not in arguments.skip)
    few = arguments.quick or arguments.tiny
    size = arguments.size or (TINY_SIZE if arguments.tiny else QUICK_SIZE if arguments.quick else SIZE)
    cells = arguments.cells or (QUICK_CELLS[1:2] if arguments.tiny else QUICK_CELLS if few else CELLS)
    directions = {"out": [OUT], "into": [INTO], "both": list(DIRECTIONS)}[arguments.direction]
    missing = baselines.missing() if arguments.baselines else {}
    for method, why in missing.items():
        print(f"{method}: {why}")
    if "mounted" not in arguments.skip:
        with contextlib.ExitStack() as stack:
            made = functools.cache(lambda: stack.enter_context(one_source(size)))  # by the first cell that needs it
            for line in (Line(rate=arguments.rate, rtt=rtt, loss=loss / 100, mtu=arguments.mtu) for rtt, loss in cells):
                for direction in directions:
                    name = f"{cell_name(line.rtt, line.loss * 100)} {direction}"
                    cell = remembered_cell if arguments.remembered else tusk_cell
                    session.cell(f"tusk {name}", cell(line, direction, made))
                    if arguments.baselines:
                        session.cell(f"baselines {name}", baseline_cell(arguments, line, direction, made, missing))
    for line, simulated_size, stored in simulated_runs(arguments) if "simulated" not in arguments.skip else ():
        session.cell(simulated_name(line, stored), simulated_cell(line, simulated_size, stored))
    draw(session, arguments, directions, cells)
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
