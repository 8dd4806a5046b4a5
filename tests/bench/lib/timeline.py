"""Program: reads a file from its start for a while, and prints how far it was when, and a digest of what it read.

    timeline.py FILE SECONDS [INTERVAL]

Prints JSON: opened (seconds that open took), first (seconds from there to the first byte), times (monotonic) and bytes
(so far) every INTERVAL seconds, and the BLAKE2b digest of those bytes.
"""

import hashlib
import json
import os
import sys
import time

FIRST, REST = 4096, 1 << 20


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    interval = float(sys.argv[3]) if len(sys.argv) > 3 else 0.02
    hasher = hashlib.blake2b()
    start = time.monotonic()
    descriptor = os.open(path, os.O_RDONLY)
    opened = time.monotonic()
    block = os.read(descriptor, FIRST)
    first = time.monotonic()
    times, counts, total, due = [opened, first], [0, len(block)], len(block), first + interval
    hasher.update(block)
    while (now := time.monotonic()) < start + seconds:
        block = os.read(descriptor, REST)
        if not block:
            break
        hasher.update(block)
        total += len(block)
        if now >= due:
            times.append(time.monotonic())
            counts.append(total)
            due = now + interval
    times.append(time.monotonic())
    counts.append(total)
    print(json.dumps({"opened": opened - start, "first": first - opened, "times": times, "bytes": counts,
                      "digest": hasher.hexdigest()}))


if __name__ == "__main__":
    main()
