#!/usr/bin/env python3
"""Proves that the WAN emulator is a fair path: its round trip, and that TCP fills it. Needs root and iperf3.

    tests/system/wan_proof.py          the rows that must hold; about a minute; exit code 1 when one does not
    tests/system/wan_proof.py --all    also loss and CUBIC, which are for information

A throughput is what the receiver got from the first byte on, start-up included, in Mbit/s of TCP payload. It
can never exceed the limit, rate x (1 - loss) x payload / MTU: a figure that does is a fault too.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading

import harness
from harness import Wan, inside, popen_in, run_in, stop

SECONDS = 15
TCP_HEADERS = 52  # IPv4, TCP and its timestamps
TRICKLE_PORT = 9
TRICKLE_INTERVAL = 1e-3
MEASURING_ERROR = 1.005  # of the limit: the receiver's clock and ours differ by parts of a round trip


class Row:
    """One iperf3 run, and the least throughput that is good enough."""

    def __init__(self, control, gbit, delay, mtu=1500, loss=0.0, at_least=None):
        self.control, self.gbit, self.delay, self.mtu, self.loss = control, gbit, delay, mtu, loss
        self.at_least = at_least
        self.limit = gbit * 1e3 * (1 - loss / 100) * (mtu - TCP_HEADERS) / mtu

    def run(self):
        with Wan(rate=f"{self.gbit}gbit", delay=self.delay, mtu=self.mtu, loss=f"{self.loss}%") as wan:
            server = popen_in(wan.ns_b, ["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
            try:
                while b"listening" not in server.stdout.readline():
                    pass
                before = wan.stats()
                result = json.loads(run_in(wan.ns_a, ["iperf3", "-c", wan.ip_b, "-C", self.control, "-t", SECONDS, "-J"],
                                           timeout=3 * SECONDS).stdout)
                after = wan.stats()
            finally:
                stop(server)
        elapsed = after["elapsed_s"] - before["elapsed_s"]
        self.cpu = {way: (after[way]["cpu_s"] - before[way]["cpu_s"]) / elapsed for way in ("ab", "ba")}
        self.drops = after["ab"]["drops"]
        self.queue = after["ab"]["queue_ms"]["max"]
        # From the first byte until the last one is there, not until the sender has handed it over.
        received = result["end"]["sum_received"]
        self.mbit = received["bytes"] * 8 / received["seconds"] / 1e6

    def holds(self):
        lost_here = self.drops["overflow"] + self.drops["refused"]
        return (self.at_least or 0) <= self.mbit <= self.limit * MEASURING_ERROR and lost_here == 0

    def __str__(self):
        wanted = f">= {self.at_least}" if self.at_least else ""
        return (f"{self.control:6} {self.gbit:4} {self.delay:>6} {self.mtu:5} {self.loss:6} {self.mbit:9.1f} "
                f"{self.limit:7.0f} {wanted:>8} {self.cpu['ab']:8.0%} {self.cpu['ba']:8.0%} {self.queue:9.1f} "
                f"{self.drops['queue']:7} {self.drops['loss']:7}  {'ok' if self.holds() else 'MISSED'}")


HEADER = (f"{'TCP':6} Gbit  delay   MTU loss % {'Mbit/s':>9} {'limit':>7} {'wanted':>8} {'cpu ab':>8} {'cpu ba':>8} "
          f"{'queue ms':>9} {'qdrops':>7} {'losses':>7}")


@contextlib.contextmanager
def trickle(wan):
    """A datagram a millisecond each way. What has slept for 50 ms on a virtual machine wakes up to 4 ms late, whoever
    asked to be woken; the path is for traffic, which does not let it sleep."""
    done = threading.Event()
    with contextlib.ExitStack() as stack:
        ends = []
        for ns, peer in ((wan.ns_a, wan.ip_b), (wan.ns_b, wan.ip_a)):
            with inside(ns):
                end = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            end.bind(("", TRICKLE_PORT))  # and is not read
            ends.append((end, (peer, TRICKLE_PORT)))

        def run():
            while not done.wait(TRICKLE_INTERVAL):
                for end, peer in ends:
                    end.sendto(b"", peer)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sending = pool.submit(run)
            try:
                yield
            finally:
                done.set()
            sending.result()  # or what ended it before


def round_trips():
    """Prints the ping table; True when every median is within half a millisecond, or a hundredth."""
    good = True
    print(f"{'RTT set':>10} {'median':>9} {'least':>9} {'most':>9}   (ms)")
    with Wan(rate="1gbit") as wan:
        for delay_us in (0, 100, 5_000, 50_000):
            wan.set(delay=f"{delay_us}us")
            with trickle(wan):
                wan.ping(3)
                times = wan.ping(20)
            median = statistics.median(times)
            wanted = 2 * delay_us / 1e3
            held = wanted <= median <= wanted + max(0.5, wanted / 100)
            good = good and held
            print(f"{wanted:10.2f} {median:9.3f} {min(times):9.3f} {max(times):9.3f}  {'ok' if held else 'MISSED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also loss and CUBIC")
    arguments = parser.parse_args()
    reason = harness.why_not() or (None if shutil.which("iperf3") else "skipped, because iperf3 is missing")
    if reason:
        print(reason)
        return harness.SKIPPED
    rows = [Row("bbr", 1, "50ms", at_least=850), Row("bbr", 4, "10ms", mtu=9000, at_least=3400),
            Row("bbr", 1, "100us", at_least=850)]
    if arguments.all:
        for gbit, delay, mtu in ((1, "50ms", 1500), (4, "10ms", 9000)):
            for control in ("bbr", "cubic"):
                rows += [Row(control, gbit, delay, mtu, loss) for loss in (0.0, 0.1, 1.0)
                         if (control, loss) != ("bbr", 0.0)]
    # Other work on the machine shows in every figure below.
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    good = round_trips()
    print("\n" + HEADER)
    for row in rows:
        row.run()
        print(row, flush=True)
        good = good and row.holds()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
