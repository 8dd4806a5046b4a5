"""An export of a million files: what it costs the server, the mount, and others who use the server meanwhile.

    ./dev bench million [--quick]

A million empty files (100,000 with --quick) in directories of 50, and as many in one directory, are gone through by
`find` across 1 Gbit/s, 100 ms and 0.1 % loss. Measured are the time, what the server's memory and the mount's grew by at
most, the server's CPU, and how long another mount of the same server takes meanwhile for one look at a file that it
knows nothing of: two round trips when nobody else is there.
"""

import contextlib
import os
import sys
import threading
import time

from lib.lines import Line
from lib.measuring import cpu_seconds, make_tree, memory_folder, memory_kib, timed
from lib.results import Session, common_arguments
from harness import HarnessError, Mount, Tuskd

LINE = Line(rtt=100, loss=0.001)
FILES, QUICK_FILES, TINY_FILES = 1_000_000, 100_000, 500
PER_FOLDER = 50
BYTES_PER_FILE = 1500  # what an empty file takes of a file system in memory
LIMIT_SECONDS = 600
LOOKS = 200  # at most
LOOK_PAUSE_SECONDS = 0.2
SERVER_GOAL_MIB = 512  # what it remembers is bounded: a million names of 300 bytes, a million leases a session of 50
LOOK_GOAL_SECONDS = 0.5


class Looker:
    """Looks at one fresh file after the other on a mount of its own, as long as a with block lasts."""

    def __init__(self, folder):
        self._folder, self._stop = folder, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seconds, self.error = [], None

    def _look(self):
        try:
            for number in range(LOOKS):
                if self._stop.wait(LOOK_PAUSE_SECONDS):
                    return
                start = time.monotonic()
                os.stat(self._folder / f"look{number}" / "file")
                self.seconds.append(time.monotonic() - start)
        except OSError as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(LIMIT_SECONDS)


def make_places_to_look(root):
    """Each in a directory of its own, so that no listing tells more than one."""
    for number in range(LOOKS):
        place = root / f"look{number}"
        place.mkdir(parents=True)
        (place / "file").touch()


def going_through(words, files, folders):
    def measure(cell):
        with memory_folder(files * BYTES_PER_FILE) as folder, contextlib.ExitStack() as stack:
            make_tree(folder / "export" / "tree", files, folders, size=0)
            make_places_to_look(folder / "export" / "beside")
            wan = stack.enter_context(LINE.wan())
            server = stack.enter_context(Tuskd(wan, folder / "export"))
            mount = stack.enter_context(Mount(wan, server.url))
            # Nothing is fetched ahead there: each look asks.
            beside = stack.enter_context(Mount(wan, server.url, options=["attr_timeout=0"]))
            server_pids, mount_pids = [server.process.pid], mount.pids()
            before = {"server": memory_kib(server_pids, "VmRSS"), "mount": memory_kib(mount_pids, "VmRSS")}
            cpu = sum(cpu_seconds(server_pids))
            with Looker(beside.path / "beside") as looker:
                run = timed(["find", mount.path / "tree", "-name", "file*"], LIMIT_SECONDS)
            cpu = sum(cpu_seconds(server_pids)) - cpu
            found = run.output.count("/file")
            if found != files:
                raise HarnessError(f"find shows {found} of {files} files")
            if looker.error:
                raise HarnessError(f"a look at a file beside it: {looker.error}")
            grown = {"server": memory_kib(server_pids) - before["server"], "mount": memory_kib(mount_pids) - before["mount"]}
        cell.add(f"{words}: find, cold", run.seconds, "s", note=f"{files / run.seconds:,.0f} files a second")
        cell.add(f"{words}: CPU of the server", cpu, "s")
        cell.add(f"{words}: the server's memory grew by at most", grown["server"] / 1024, "MiB", at_most=SERVER_GOAL_MIB)
        cell.add(f"{words}: the mount's memory grew by at most", grown["mount"] / 1024, "MiB")
        if looker.seconds:
            cell.add(f"{words}: a look at another file meanwhile, slowest of {len(looker.seconds)}", max(looker.seconds),
                     "s", at_most=LOOK_GOAL_SECONDS)
    return measure


def main():
    arguments = common_arguments(__doc__).parse_args()
    files = TINY_FILES if arguments.tiny else QUICK_FILES if arguments.quick else FILES
    session = Session("million", arguments)
    folders = max(1, files // PER_FOLDER)
    session.cell("tree", going_through(f"{files:,} files in {folders:,} directories", files, folders))
    session.cell("one", going_through(f"{files:,} files in one directory", files, 1))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
