"""What a flood of datagrams costs a server's clients: a copy beside it, and a mount that begins beside it.

    ./dev bench garbage [--quick]

Both ends and the flood run on this machine, across a plain veth pair, so that whatever the flood costs is missing
elsewhere. The flood comes from another address than the mount's (the server's own) or from the mount's.
A copy out of the mount runs alone, beside 50,000 datagrams a second of each kind to the server, and beside the same to
another server that nobody uses: the difference between the two is what rejecting them costs the server that copies.
What is left of the rate is the median of pairs, alone and beside, one after the other.
A mount begins beside 5,000 first flights a second: seconds until its root can be listed.
"""

import contextlib
import signal
import statistics
import sys
import time

from lib.measuring import make_random_file, memory_folder, timed
from lib.results import Session, common_arguments
from lib.veth import Veth
from harness import HarnessError, Mount, Tuskd, popen_in, stop, test_program

FILE, QUICK_FILE, TINY_FILE = 2 << 30, 1 << 30, 4 << 20
ROUNDS, QUICK_ROUNDS, TINY_ROUNDS = 7, 5, 1
RATE, TINY_RATE = 50_000, 1_000  # datagrams a second
FLIGHTS, TINY_FLIGHTS = 5_000, 500
KINDS = {"noise": "random bytes", "short": "packets of no connection", "flights": "first flights",
         "proven": "first flights with a token"}
GOAL = 85  # percent
MOUNT_GOAL = 2  # seconds
MOUNTS, TINY_MOUNTS = 5, 1
FLOOD_SECONDS = 60
WARM_SECONDS = 0.5  # until the server has seen the flood
COPY_SECONDS = 120


@contextlib.contextmanager
def flood(kind, server, rate, ns):
    """Beside the with block."""
    command = [test_program("bench/flood"), kind, server.listen, rate, FLOOD_SECONDS]
    process = popen_in(ns, command, stdout=-1, text=True)
    try:
        if process.stdout.readline() != "ready\n":
            raise HarnessError("flood did not start")
        time.sleep(WARM_SECONDS)
        yield
        if process.poll() is not None:
            raise HarnessError("the flood was over too soon")
    finally:
        stop(process, signal.SIGKILL)
        process.stdout.close()


def copy_rate(mount, folder, number, size):
    """Mbit/s of a file that nobody has read yet."""
    target = folder / "near" / "copy"
    try:
        return size * 8e-6 / timed(["cp", mount.path / f"file{number}", target], COPY_SECONDS).seconds
    finally:
        target.unlink(missing_ok=True)


def copies(kind, rate, size, rounds):
    def measure(cell):
        with memory_folder(4 * size) as folder, Veth() as veth:
            make_random_file(folder / "export" / "file0", size)
            (folder / "elsewhere").mkdir()
            with Tuskd(veth, folder / "export") as server, Tuskd(veth, folder / "elsewhere", port=8876) as other:
                beside, aside = [], []
                for _ in range(rounds):
                    rates = {}
                    for flooded in (None, server, other):
                        with Mount(veth, server.url) as mount, contextlib.ExitStack() as stack:
                            if flooded:
                                stack.enter_context(flood(kind, flooded, rate, veth.ns_b))
                            rates[flooded] = copy_rate(mount, folder, 0, size)
                    beside.append(100 * rates[server] / rates[None])
                    aside.append(100 * rates[server] / rates[other])
        words = f"copy beside {rate} {KINDS[kind]} a second"
        cell.add(words, statistics.median(beside), "%", at_least=GOAL,
                 note=f"{min(beside):.0f} to {max(beside):.0f}; of the rate beside a flood of another server "
                      f"{statistics.median(aside):.0f} %")
    return measure


def mounts(kind, rate, same, count):
    def measure(cell):
        with memory_folder(64 << 20) as folder, Veth() as veth:
            make_random_file(folder / "export" / "file0", 1 << 20)
            with Tuskd(veth, folder / "export") as server:
                seconds = []
                ns = veth.ns_a if same else veth.ns_b
                with flood(kind, server, rate, ns):
                    for _ in range(count):
                        began = time.monotonic()
                        with Mount(veth, server.url) as mount:
                            if not list(mount.path.iterdir()):
                                raise HarnessError("the mount is empty")
                            seconds.append(time.monotonic() - began)
        words = f"mount beside {rate} {KINDS[kind]} a second from {'its own' if same else 'another'} address"
        cell.add(words, max(seconds), "s", at_most=MOUNT_GOAL, note=f"median {statistics.median(seconds):.2f}")
    return measure


def main():
    arguments = common_arguments(__doc__).parse_args()
    session = Session("garbage", arguments)
    tiny = arguments.tiny
    size = TINY_FILE if tiny else QUICK_FILE if arguments.quick else FILE
    rounds = TINY_ROUNDS if tiny else QUICK_ROUNDS if arguments.quick else ROUNDS
    for kind in ("short",) if tiny else KINDS:
        session.cell(f"copy {kind}", copies(kind, TINY_RATE if tiny else RATE, size, rounds))
    for kind in ("proven",) if tiny else ("flights", "proven"):
        for same in (False,) if tiny else (False, True):
            session.cell(f"mount {kind} {'same' if same else 'other'}",
                         mounts(kind, TINY_FLIGHTS if tiny else FLIGHTS, same, TINY_MOUNTS if tiny else MOUNTS))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
