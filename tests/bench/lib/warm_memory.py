"""Memory that does not have to come from the host of a virtual machine while a copy is timed."""

import contextlib
import mmap
import pathlib
import threading

from harness import HarnessError

BALLOONS = pathlib.Path("/sys/bus/virtio/drivers/virtio_balloon")
REPORTS_FREE_PAGES = 5  # bit of a balloon's features, virtio 1.2, 5.5.3
MADV_POPULATE_WRITE = 23  # Linux 5.14; Python 3.11 has no name for it
CHUNK = 16 << 20
LOOK_SECONDS = 0.02
LEFT_FREE = 2 << 30


def _free():
    fields = pathlib.Path("/proc/meminfo").read_text().split()
    return int(fields[fields.index("MemFree:") + 1]) * 1024


def gives_pages_back():
    """Does the kernel tell a host which pages are free?"""
    return any(balloon.read_text()[REPORTS_FREE_PAGES] == "1" for balloon in BALLOONS.glob("virtio*/features"))


@contextlib.contextmanager
def warm_memory(size):
    """For the length of a with block, up to `size` bytes of what programs write into new files or pages come from
    memory that the host has just given; and a quarter more, which the programs themselves take while they run: where
    only the last 25 MB of a copy were without, they were written at 180 MB/s.

    A kernel that tells its host which pages are free ("free page reporting") loses them, and gets each back by a fault
    of the host's when it is written: 3 s a GiB on the machine of docs/BENCHMARKS.md, 0.7 when they were freed a moment
    ago. A copy of 3 GiB writes two such files, at 1 Gbit/s most of a core. So this takes memory before the copy begins,
    and gives back while it runs as much as is taken: the kernel hands out last what was free for longest. Does nothing
    on a machine that keeps its pages, or has none to spare."""
    size = min(size + size // 4, _free() - LEFT_FREE) // CHUNK * CHUNK
    if size <= 0 or not gives_pages_back():
        yield
        return
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        try:
            for start in range(0, size, CHUNK):
                held.madvise(MADV_POPULATE_WRITE, start, CHUNK)
        except OSError as error:
            raise HarnessError(f"no memory to begin with: {error}") from error
        keeper = _Keeper(held, size)
        keeper.start()
        try:
            yield
        finally:
            keeper.stop()


class _Keeper(threading.Thread):
    """Keeps as much memory free as there is now, by giving back what is held."""

    def __init__(self, held, size):
        super().__init__(daemon=True)
        self._held, self._size, self._given = held, size, 0
        self._level = _free() + 4 * CHUNK
        self._end, self._error = threading.Event(), None

    def stop(self):
        self._end.set()
        self.join()
        if self._error:
            raise HarnessError(f"memory was not given back in time: {self._error}")

    def run(self):
        try:
            while self._given < self._size and not self._end.wait(LOOK_SECONDS):
                for _ in range(max(0, self._level - _free()) // CHUNK):
                    if self._given < self._size:
                        self._held.madvise(mmap.MADV_DONTNEED, self._given, CHUNK)
                        self._given += CHUNK
        except OSError as error:
            self._error = error
