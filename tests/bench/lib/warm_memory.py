"""Memory that does not have to come from the host of a virtual machine while a copy is timed."""

import contextlib
import mmap
import pathlib
import threading

REPORTING = pathlib.Path("/sys/module/page_reporting")
MADV_POPULATE_WRITE = 23  # Linux 5.14; Python 3.11 has no name for it
CHUNK = 16 << 20
LOOK_SECONDS = 0.02
LEFT_TO_OTHERS = 2 << 30


def _bytes(name):
    fields = pathlib.Path("/proc/meminfo").read_text().split()
    return int(fields[fields.index(name + ":") + 1]) * 1024


@contextlib.contextmanager
def warm_memory(size):
    """For the length of a with block, up to `size` bytes of what programs write into new files or pages come from
    memory that the host has just given.

    A kernel that tells its host which pages are free ("free page reporting", virtio-balloon) loses them, and gets each
    back by a fault of the host's when it is written: 3 s a GiB on the machine of docs/BENCHMARKS.md, 0.7 when
    they were freed a moment ago. A copy of 3 GiB writes two such files, at 1 Gbit/s three quarters of a core. So this takes
    memory before the copy begins, and gives back while it runs as much as is taken: the kernel hands out last what was
    free for longest. Does nothing on a machine that keeps its pages."""
    if not REPORTING.exists():
        yield
        return
    size = min(size, _bytes("MemAvailable") - LEFT_TO_OTHERS) // CHUNK * CHUNK
    if size <= 0:
        yield
        return
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for start in range(0, size, CHUNK):
            held.madvise(MADV_POPULATE_WRITE, start, CHUNK)
        end = threading.Event()
        thread = threading.Thread(target=_give_back, args=(held, size, end), daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def _give_back(held, size, end):
    level, given = _bytes("MemFree") + 4 * CHUNK, 0
    while given < size and not end.wait(LOOK_SECONDS):
        for _ in range(max(0, level - _bytes("MemFree")) // CHUNK):
            if given < size:
                held.madvise(mmap.MADV_DONTNEED, given, CHUNK)
                given += CHUNK
