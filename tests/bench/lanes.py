"""What a second connection brings a mount whose network threads are the limit.

    ./dev bench lanes [--quick]

A copy out of the mount (what goes into it takes one connection) across 1 Gbit/s and 10 ms, while each network
thread of the mount is held to a tenth of a core by a cgroup of its own (version 1 of the cpu controller; without it
the program is skipped): what a line is for a core that is many times as fast. With one connection and with two, held
and not. Threads that wait for epoll are the network's: there must be as many as connections.
"""

import contextlib
import os
import pathlib
import sys
import time

from lib.lines import Line, size_text
from lib.measuring import make_random_file, memory_folder
from lib.mounts import OUT, copy_large, mounted
from lib.results import Session, common_arguments
from harness import SKIPPED, HarnessError

LINE = Line(rtt=10)
FILE, QUICK_FILE, TINY_FILE = 1 << 30, 256 << 20, 4 << 20
SHARE = 0.1  # of a core
PERIOD_US = 10_000
GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
CONNECTED_SECONDS = 5  # less than the time after which one that did not come about is tried again
COPY_SECONDS = 300


def network_threads(pids, count):
    """Ids of the threads that wait for packets, once there are so many."""
    until = time.monotonic() + CONNECTED_SECONDS
    while time.monotonic() < until:
        found = []
        for pid in pids:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    if (task / "wchan").read_text() in ("ep_poll", "do_epoll_wait"):
                        found.append(int(task.name))
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise HarnessError(f"{len(found)} threads wait for epoll, not {count}")


@contextlib.contextmanager
def held(threads):
    """Each of them has so much of a core, for the length of a with block."""
    groups = []
    try:
        for thread in threads:
            group = GROUPS / f"tusk-bench-{thread}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(SHARE * PERIOD_US)))
            (group / "tasks").write_text(str(thread))
        yield
    finally:
        for group in groups:
            with contextlib.suppress(OSError):
                for task in (group / "tasks").read_text().split():
                    (GROUPS / "tasks").write_text(task)
                group.rmdir()


def copies(connections, size, is_held):
    def measure(cell):
        with memory_folder(4 * size) as folder:
            wanted = make_random_file(folder / "export" / "far", size)
            options = [f"connections={connections}"]
            with mounted(LINE, folder / "export", mount_options=options) as (wan, _, mount):
                threads = network_threads(mount.pids(), connections)
                with held(threads) if is_held else contextlib.nullcontext():
                    rate = copy_large(wan, mount, folder, "far", size, wanted, OUT, COPY_SECONDS)
        words = f", each held to {SHARE:.0%} of a core" if is_held else ""
        cell.add(f"{connections} connections{words}: {size_text(size)} {OUT} the mount", rate, "Mbit/s",
                 note=str(LINE))
    return measure


def main():
    arguments = common_arguments(__doc__).parse_args()
    session = Session("lanes", arguments)
    if not os.access(GROUPS / "cpu.cfs_quota_us", os.W_OK):
        print(f"skipped, because {GROUPS} is no cpu controller of cgroup version 1 that can be written to")
        return SKIPPED
    size = TINY_FILE if arguments.tiny else QUICK_FILE if arguments.quick else FILE
    for connections in (1, 2):
        session.cell(f"{connections} held", copies(connections, size, True))
        session.cell(f"{connections} free", copies(connections, size, False))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
