"""Says how far something is while it runs, from a thread of its own."""

import sys
import threading
import time

from harness import HarnessError, Wan

PROGRESS_SECONDS = 1 if sys.stdout.isatty() else 5


class Progress:
    """For the length of a with block, every few seconds: how long it has taken, what an emulated path carries, and
    what `also` says (a function, called on the thread). `wan` may be something that carries nothing emulated."""

    def __init__(self, wan, also=lambda: ""):
        self.wan, self.also = wan, also
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)

    def _run(self):
        last, then = self._carried(), self._start
        while not self._end.wait(PROGRESS_SECONDS):
            now, carried = time.monotonic(), self._carried()
            words = f"    {now - self._start:4.0f} s"
            if carried and last:
                there, back = ((n - l) * 8e-6 / (now - then) for n, l in zip(carried, last))
                words += f", the line carries {there:.1f} Mbit/s there and {back:.1f} Mbit/s back"
            last, then = carried, now
            words += self.also()
            print(f"\r\033[K{words}" if sys.stdout.isatty() else words,
                  end="" if sys.stdout.isatty() else "\n", flush=True)

    def _carried(self):
        """Bytes that came out of the path so far, each way; None without a path, or when it is gone."""
        if not isinstance(self.wan, Wan):
            return None
        try:
            stats = self.wan.stats()
        except (HarnessError, OSError, ValueError):
            return None
        return stats["ab"]["bytes_out"], stats["ba"]["bytes_out"]
