"""Paths that do worse than lose a packet now and then: what a transfer reaches of what they can carry.

    ./dev bench rough [--quick]

1 Gbit/s and 100 ms with burst loss (Gilbert, mean 8 and 50 packets), reordering, jitter, duplication, corruption, a
return channel of a hundredth of the rate; and a satellite at 1000 ms. In the simulator, and through a mount, out of it
and into it (cp, from its start to its exit, what arrived compared by hash). The goal is 90 % of the limit in each: rate x (1 - what the path
loses) x payload/MTU.
"""

import dataclasses
import sys

from lib import drawing, simulator
from lib.lines import Line, size_text
from lib.measuring import make_random_file, memory_folder
from lib.mounts import INTO, OUT, copy_large, mounted
from lib.results import Session, common_arguments

GOAL = 90
SIZE, QUICK_SIZE, TINY_SIZE = 3 << 30, 1 << 30, 4 << 20


@dataclasses.dataclass(frozen=True)
class Rough:
    """A path with something the matter. lost: the share that it takes beyond its line's loss."""

    name: str
    line: Line
    lost: float = 0
    sides: tuple = (OUT, INTO)  # of the mounted ones
    simulated: tuple = ()  # more arguments of tusk-sim
    size_divisor: int = 1

    @property
    def limit(self):
        return self.line.limit * (1 - self.lost)


def rough(name, *more, lost=0.0, **options):
    return Rough(name, Line(more=more), lost, **options)


PATHS = (
    rough("burst loss 1 %, mean 8 packets", ("burst_loss", "1%"), ("burst_length", "8"), lost=0.01),
    rough("burst loss 1 %, mean 50 packets", ("burst_loss", "1%"), ("burst_length", "50"), lost=0.01),
    rough("5 % reordered by 2 to 10 ms", ("reorder", "5%"), ("reorder_min", "2ms"), ("reorder_max", "10ms")),
    rough("jitter of 10 ms each way", ("jitter", "10ms")),
    rough("1 % duplicated", ("duplicate", "1%")),
    rough("0.1 % corrupted", ("corrupt", "0.1%"), lost=0.001, simulated=("--secure",)),
    rough("return channel of 10 Mbit/s, out", ("ab_rate", "10mbit"), sides=(OUT,)),
    rough("return channel of 10 Mbit/s, into", ("ba_rate", "10mbit"), sides=(INTO,), simulated=("--store",)),
    Rough("satellite: 100 Mbit/s, 1000 ms, 0.1 %", Line(rate=100, rtt=1000, loss=0.001), size_divisor=3),
    Rough("satellite with a return channel of 1 Mbit/s",
          Line(rate=100, rtt=1000, loss=0.001, more=(("ab_rate", "1mbit"),)), sides=(OUT,), size_divisor=3),
)


def simulated(path, size):
    def measure(cell):
        result = simulator.transfer(path.line, size, *path.simulated)
        again = (result["taken_for_lost"] - result["path_losses"] - result["queue_drops"]) / result["packets"]
        cell.details.update(share=result["mbit"] / path.limit, **result)
        cell.add(f"simulated, {path.name}", result["mbit"] / path.limit * 100, "% of the limit", at_least=GOAL,
                 note=f"{size_text(size)}; sent in vain {max(0, again):.2%}, dropped by the queue "
                      f"{result['queue_drops'] / result['packets']:.2%}")
    return measure


def mounted_cell(path, direction, size):
    def measure(cell):
        with memory_folder(2 * size + (size >> 1)) as folder:
            wanted = make_random_file(folder / "export" / "far", size)
            with mounted(path.line, folder / "export") as (wan, _, mount):
                mbit = copy_large(wan, mount, folder, "far", size, wanted, direction,
                                  90 + 20 * size * 8e-6 / path.limit)
                way = wan.settled_stats()["ba" if direction == OUT else "ab"]
        cell.details.update(share=mbit / path.limit, path=way, mbit=mbit)
        sent = way["bytes_in"] / size * path.limit / path.line.rate - 1
        cell.add(f"mounted, {path.name}, cp {direction} the mount", mbit / path.limit * 100, "% of the limit",
                 at_least=GOAL, note=f"{mbit:.0f} Mbit/s, {size_text(size)}; sent beyond the least {sent:.1%}, dropped "
                                     f"by the queue {way['drops']['queue'] / max(1, way['packets_in']):.2%}")
    return measure


def draw(session):
    columns = {"simulated": "simulated, {}", "out": f"mounted, {{}}, {OUT}", "into": f"mounted, {{}}, {INTO}"}
    shares = {(path.name, column): session.details(key.format(path.name), "share")
              for path in PATHS for column, key in columns.items()}
    session.draw("rough.svg", drawing.heat_map("What rough paths leave of a transfer", list(columns),
                                               [path.name for path in PATHS], shares,
                                               "share of rate x (1 - lost) x payload/MTU"))


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--skip", action="append", default=[], choices=["mounted", "simulated"])
    arguments = parser.parse_args()
    session = Session("rough", arguments, emulates="mounted" not in arguments.skip)
    size = TINY_SIZE if arguments.tiny else QUICK_SIZE if arguments.quick else SIZE
    for path in PATHS[:1] if arguments.tiny else PATHS:
        path_size = size // path.size_divisor
        if "simulated" not in arguments.skip:
            session.cell(f"simulated, {path.name}", simulated(path, path_size))
        for direction in path.sides if "mounted" not in arguments.skip else ():
            session.cell(f"mounted, {path.name}, {direction}", mounted_cell(path, direction, path_size))
    draw(session)
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
