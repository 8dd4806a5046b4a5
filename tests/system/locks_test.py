"""flock and fcntl locks between two mounts: who is kept out, who gets them next, and what becomes of them when programs,
clients and servers die or cannot be reached.

Each program that holds or wants a lock is a process of its own, which says on a line what has happened.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, popen_in

SOON = 30.0           # nothing but round trips and a busy machine
RECOVERY_SECONDS = 90  # a client notices, comes back, and others have waited for it
GRACE_SECONDS = 45      # what the server gives those who had locks before a restart
LEFT_SECONDS = 35  # C5; the server last heard from it up to 5 s before its end
FULL = bool(os.environ.get("TUSK_FULL"))
KINDS = ("flock", "fcntl")

# Takes a lock and holds it until its input ends. What it says: "waiting", then "held" or the error; with "write" it
# then writes a line for each line it reads.
HOLDER = """
import errno, fcntl, os, signal, sys
path, kind, mode, start, length = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
def say(text):
    print(text, flush=True)
class Interrupted(Exception):
    pass
def interrupted(*_):
    raise Interrupted
signal.signal(signal.SIGUSR1, interrupted)
fd = os.open(path, os.O_RDWR)
how = fcntl.LOCK_SH if "shared" in mode else fcntl.LOCK_EX
if "try" in mode:
    how |= fcntl.LOCK_NB
say("waiting")
try:
    fcntl.flock(fd, how) if kind == "flock" else fcntl.lockf(fd, how, length, start)
    say("held")
except OSError as error:
    say(errno.errorcode[error.errno])
except Interrupted:
    say("interrupted")
for line in sys.stdin:
    try:
        if line.startswith("write"):
            os.pwrite(fd, b"by the holder", 0)
            os.fsync(fd)
            say("written")
        elif line.startswith("also"):
            _, start, length = line.split()
            fcntl.lockf(fd, fcntl.LOCK_EX, int(length), int(start))
            say("held")
        elif line.startswith("unlock"):
            fcntl.flock(fd, fcntl.LOCK_UN) if kind == "flock" else fcntl.lockf(fd, fcntl.LOCK_UN, length, start)
            say("unlocked")
    except OSError as error:
        say(errno.errorcode[error.errno])
"""


class Program:
    """One HOLDER."""

    def __init__(self, test, path, kind, mode="exclusive", start=0, length=0):
        self.test = test
        self.process = popen_in(None, [sys.executable, "-c", HOLDER, path, kind, mode, start, length],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.heard = b""
        test.addCleanup(self.end)
        self.said("waiting")

    def line(self, within):
        """What it says next; None if that is nothing for so long."""
        deadline = time.monotonic() + within
        while b"\n" not in self.heard:
            if not select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            self.heard += os.read(self.process.stdout.fileno(), 4096) or b"(the end)\n"
        line, self.heard = self.heard.split(b"\n", 1)
        return line.decode()

    def said(self, expected, within=SOON):
        self.test.assertEqual(self.line(within), expected)

    def says_nothing(self, seconds=0.3):
        """That a lock is waited for shows in that nothing happens."""
        self.test.assertIsNone(self.line(seconds))

    def told(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        harness.stop(self.process, signal.SIGKILL)
        self.process.stdout.close()


class Locks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-locks-")))
        self.export = self.folder / "export"
        self.export.mkdir()
        (self.export / "file").write_text("content")
        self.wan = self.enterContext(Wan(rate="100mbit", delay="5ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))
        self.mounts = [self.enterContext(Mount(self.wan, self.server.url)) for _ in range(2)]
        self.here, self.there = (mount.path / "file" for mount in self.mounts)

    def holds(self, path, kind, mode="exclusive", start=0, length=0):
        program = Program(self, path, kind, mode, start, length)
        program.said("held")
        return program

    def wants(self, path, kind, mode="exclusive", start=0, length=0):
        program = Program(self, path, kind, mode, start, length)
        program.says_nothing()
        return program

    def refused(self, path, kind, mode="try", start=0, length=0):
        Program(self, path, kind, mode, start, length).said("EAGAIN")

    def test_who_is_kept_out(self):
        for kind in KINDS:
            shared = self.holds(self.here, kind, "shared")
            self.holds(self.there, kind, "try shared").end()
            self.refused(self.there, kind)
            shared.end()
            exclusive = self.holds(self.here, kind)
            self.refused(self.there, kind)
            self.refused(self.there, kind, "try shared")
            self.refused(self.here, kind)
            exclusive.told("unlock")
            exclusive.said("unlocked")
            self.holds(self.there, kind, "try").end()

    def test_ranges(self):
        self.holds(self.here, "fcntl", start=100, length=100)
        self.refused(self.there, "fcntl", start=150, length=1)
        self.refused(self.there, "fcntl", start=0, length=101)
        self.refused(self.there, "fcntl")
        self.holds(self.there, "fcntl", "try", start=200)
        self.refused(self.here, "fcntl", start=1 << 40, length=1)
        with open(self.there, "r+") as file:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, whence, start, length, pid = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))
            self.assertEqual((kind, start, length), (fcntl.F_WRLCK, 100, 100))

    def test_a_program_on_the_server_is_kept_out_and_keeps_out(self):
        for kind in KINDS:
            holder = self.holds(self.here, kind)
            self.refused(self.export / "file", kind)
            holder.end()
            local = self.holds(self.export / "file", kind)
            self.refused(self.there, kind)
            waiting = self.wants(self.there, kind)
            local.end()
            waiting.said("held")
            waiting.end()

    def test_who_waits_gets_it_next(self):
        for kind in KINDS:
            for release in ("told", "end", "kill"):
                holder = self.holds(self.here, kind)
                waiting = self.wants(self.there, kind)
                beside = self.wants(self.here, kind)
                {"told": lambda: holder.told("unlock"), "end": holder.end, "kill": holder.kill}[release]()
                waiting.said("held")
                beside.says_nothing()
                waiting.end()
                beside.said("held")
                beside.end()
                holder.end()

    def test_who_waits_can_be_interrupted_and_has_nothing_then(self):
        for kind in KINDS:
            holder = self.holds(self.here, kind)
            interrupted, killed = self.wants(self.there, kind), self.wants(self.there, kind)
            interrupted.kill(signal.SIGUSR1)
            interrupted.said("interrupted")
            killed.kill()
            killed.process.wait(SOON)
            holder.end()
            self.holds(self.here, kind, "try").end()
            interrupted.end()

    def test_a_deadlock_is_an_error(self):
        one = self.holds(self.here, "fcntl", start=0, length=10)
        two = self.holds(self.there, "fcntl", start=20, length=10)
        one.told("also 20 10")
        one.says_nothing()
        two.told("also 0 10")
        two.said(errno.errorcode[errno.EDEADLK])
        two.end()
        one.said("held")

    @unittest.skipUnless(FULL, "takes a minute: TUSK_FULL=1")
    def test_a_client_that_is_killed_loses_its_locks_to_those_who_want_them(self):
        holders = [self.holds(self.here, kind) for kind in KINDS]
        waiting = [self.wants(self.there, kind) for kind in KINDS]
        self.mounts[0].kill()
        for program in waiting:
            program.said("held", within=LEFT_SECONDS)
        for program in holders:
            program.end()

    def test_an_outage_changes_nothing(self):
        for kind in KINDS if FULL else ["fcntl"]:
            holder = self.holds(self.here, kind)
            waiting = self.wants(self.there, kind)
            self.wan.outage(True)
            self.wan.at("3s", outage="off")
            holder.told("write")
            holder.said("written", within=RECOVERY_SECONDS)
            waiting.says_nothing()
            holder.told("unlock")
            waiting.said("held", within=RECOVERY_SECONDS)
            waiting.end()
            holder.end()

    def test_a_restarted_server_gives_locks_to_those_who_had_them(self):
        for stop, kinds in (("stop", KINDS if FULL else ["flock"]), ("kill", KINDS if FULL else ["fcntl"])):
            for kind in kinds:
                holder = self.holds(self.here, kind, start=5, length=10)
                reader = self.holds(self.there, "fcntl" if kind == "flock" else "flock", "shared")
                waiting = self.wants(self.there, kind, start=8, length=1)
                getattr(self.server, stop)()
                if not FULL:
                    holder.told("write")  # who has nothing to ask notices a crash after 20 s only
                self.server.start()
                late = Program(self, self.there, kind, "try", 6, 1)  # asked in the time of grace
                late.said("EAGAIN", within=RECOVERY_SECONDS)
                if FULL:
                    holder.told("write")
                holder.said("written", within=RECOVERY_SECONDS)
                waiting.says_nothing()
                self.refused(self.export / "file", kind, start=5, length=1)
                # Somebody else's close is not the end of a lock that was taken through an earlier open.
                self.assertEqual(self.here.read_bytes()[:7], b"by the ")
                self.refused(self.there, kind, start=5, length=1)
                holder.told("unlock")
                holder.said("unlocked")
                waiting.said("held")
                for program in (waiting, holder, reader):
                    program.end()
                self.holds(self.here, kind).end()

    @unittest.skipUnless(FULL, "takes half a minute: TUSK_FULL=1")
    def test_who_does_not_come_back_is_not_waited_for_longer(self):
        self.holds(self.here, "flock")
        self.server.kill()
        self.mounts[0].kill()
        self.server.start()
        self.holds_within(self.there, "flock", RECOVERY_SECONDS)
        self.server.stop()
        self.server.start()
        started = time.monotonic()
        self.holds_within(self.there, "fcntl", RECOVERY_SECONDS)
        self.assertLess(time.monotonic() - started, GRACE_SECONDS, "nobody has to be waited for again")

    def holds_within(self, path, kind, seconds):
        program = Program(self, path, kind)
        program.said("held", within=seconds)
        return program

    def test_a_lock_that_somebody_has_got_meanwhile_is_lost_and_said_so(self):
        holder = self.holds(self.here, "flock")
        self.server.kill()
        local = self.holds(self.export / "file", "flock")  # a program on the server, while there is no tuskd
        self.server.start()
        holder.told("write")
        holder.said("EIO", within=RECOVERY_SECONDS)
        local.end()


if __name__ == "__main__":
    harness.main(fuse=True)
