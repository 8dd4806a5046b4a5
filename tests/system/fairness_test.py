"""A mount beside clients that may enter and mean harm: its own operations stay quick, and are never refused."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, popen_in, program, run_in, stop, test_program, wait_until

HOSTILE = 10
ENTRIES = 3000            # of the directory that they list: some 25 ms of a worker each time
MEASURED_SECONDS = 4
P99_SECONDS = 0.050
P99_SECONDS_BUSY = 1.0    # where others keep the processors busy; one queue for all took 60
ATTEMPTS = 3              # somebody else's work on a shared machine is not ours
READY_SECONDS = 20
PROGRAM_SECONDS = 10
LOG_SESSIONS = 12         # of 60 MiB each
EARLY_LOG_MIB = 288       # nine sixteenths of an eighth of what requests may hold, and what they are copied to
SERVER_MIB = 100          # without any
FLIGHTS, FLOOD_SECONDS = 5000, 3  # first flights a second, which nothing follows
CONNECTIONS = 400
KEPT_MIB = 16             # of allocators
END_SECONDS = 20          # connections without a handshake end after 10 s, and memory goes back 2 s later

# What an editor does when it saves, without the suite's own process in between.
SAVES = """
import os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
until, took = time.monotonic() + seconds, []
while time.monotonic() < until:
    began = time.monotonic()
    file = os.open(f"{folder}/saved", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(file, b"x" * 1024, 0)
    os.fsync(file)
    os.close(file)
    took.append(time.monotonic() - began)
    time.sleep(0.01)  # else the first of its operations waits for nobody
took.sort()
print(len(took), took[len(took) // 2], took[int(len(took) * 0.99)])
"""


def resident_mib(pid, which="VmRSS"):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(which + ":"):
            return int(line.split()[1]) >> 10
    raise harness.HarnessError(f"no memory of {pid}")


class Fairness(unittest.TestCase):
    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-fairness-")))
        self.export = folder / "export"
        (self.export / "big").mkdir(parents=True)
        self.wan = self.enterContext(Wan(rate="1gbit", delay="1ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))

    def token(self, *options):
        state = self.server.folder / "state"
        return run_in(self.wan.ns_b, [program("tuskd"), "token", "--state-dir", state, "--export", "export", *options,
                                      "--host", f"{self.wan.ip_b}:8875"], PROGRAM_SECONDS).stdout.split()[-1]

    def attack(self, mode, count, *arguments, url=None, seconds=60):
        """A hostile client that has done what it can, and goes on."""
        command = [test_program("system/hostile/hostile_client"), mode, url or self.token(), str(seconds), str(count),
                   *arguments]
        process = popen_in(self.wan.ns_a, command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(stop, process)
        line = process.stdout.readline()
        self.assertTrue(line.startswith("ready"), line)
        return process

    def saves(self, mount):
        words = run_in(self.wan.ns_a, ["python3", "-c", SAVES, mount.path, str(MEASURED_SECONDS)],
                       READY_SECONDS + MEASURED_SECONDS).stdout.split()
        return int(words[0]), float(words[1]), float(words[2])

    def test_a_save_beside_ten_floods_of_walks(self):
        for file in range(ENTRIES):
            (self.export / "big" / f"a-file-with-a-name-{file:06}").touch()
        with Mount(self.wan, self.server.url) as mount:
            alone = self.saves(mount)
            self.attack("walk", HOSTILE, "big")
            beside = []
            busy = max(os.getloadavg()[0], alone[2] / P99_SECONDS * 2) > (os.cpu_count() or 1)
            bound = P99_SECONDS_BUSY if busy else P99_SECONDS
            for _ in range(ATTEMPTS):
                beside.append(self.saves(mount))
                if beside[-1][2] <= bound:
                    break
            print(f"saves, median, p99: alone {alone}, beside ten {beside}")
            self.assertLessEqual(beside[-1][2], bound)

    def test_logs_before_their_turn_take_no_more_than_their_part(self):
        # Who may only read holds none at all.
        self.attack("early-logs", LOG_SESSIONS)
        self.assertLess(resident_mib(self.server.process.pid), SERVER_MIB)
        self.attack("early-logs", LOG_SESSIONS, url=self.token("--rw"))
        self.assertLess(resident_mib(self.server.process.pid), SERVER_MIB + EARLY_LOG_MIB)
        with Mount(self.wan, self.server.url) as mount:
            (mount.path / "file").write_text("of somebody else")
            run_in(self.wan.ns_a, ["sync", mount.path / "file"], PROGRAM_SECONDS)

    def test_the_memory_of_connections_that_ended_goes_back_to_the_system(self):
        def held():
            return resident_mib(self.server.process.pid, "RssAnon")  # programs and libraries are files

        # Allocators and threads take some memory once, whatever the connections.
        self.attack("sessions", CONNECTIONS // 10, seconds=1).wait(READY_SECONDS)
        before = held()
        run_in(self.wan.ns_a, [test_program("bench/flood"), "proven", self.server.listen, str(FLIGHTS), str(FLOOD_SECONDS)],
               READY_SECONDS)
        self.attack("sessions", CONNECTIONS, seconds=1).wait(READY_SECONDS)
        most = held()
        wait_until(lambda: held() <= before + KEPT_MIB, END_SECONDS, f"of {most} MiB all but {before + KEPT_MIB}")


if __name__ == "__main__":
    harness.main(fuse=True)
