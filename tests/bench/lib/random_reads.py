"""Program: reads random 4 KiB pages of a file with many threads for a while, compares them with the original, and
prints the latency of each in seconds as JSON.

    random_reads.py FILE ORIGINAL THREADS SECONDS SEED
"""

import json
import mmap
import os
import random
import sys
import threading
import time

PAGE = 4096


def main():
    path, original, threads, seconds, seed = sys.argv[1:]
    # A page of the kernel's cache would bring its neighbours with it, and later reads would hit them.
    descriptor, truth = os.open(path, os.O_RDONLY | os.O_DIRECT), os.open(original, os.O_RDONLY)
    pages = list(range(os.fstat(truth).st_size // PAGE))
    random.Random(int(seed)).shuffle(pages)  # no page twice
    end = time.monotonic() + float(seconds)
    latencies, wrong = [], []

    def reader():
        buffer = mmap.mmap(-1, PAGE)  # aligned, as O_DIRECT wants
        while pages and time.monotonic() < end:
            place = pages.pop() * PAGE
            start = time.perf_counter()
            count = os.preadv(descriptor, [buffer], place)
            latencies.append(time.perf_counter() - start)
            if count != PAGE or buffer[:] != os.pread(truth, PAGE, place):
                wrong.append(place)

    workers = [threading.Thread(target=reader) for _ in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({"latencies": latencies, "wrong": wrong}))


if __name__ == "__main__":
    main()
