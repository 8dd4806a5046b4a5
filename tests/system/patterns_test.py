"""Ways of reading, on a path of 1 Gbit/s and 100 ms: each gets the read-ahead that fits it.

What is read is compared with the file; what crossed the line is told by `tusk status --json`. All files are in
memory, so that no disk is measured. The kernel's cache is not: each way of reading has its own file or mount.
"""

import concurrent.futures
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import unittest

import films
import harness
from harness import Mount, Tuskd, Wan, run_in

KIB, MIB = 1 << 10, 1 << 20
ROUND_TRIP = 0.1
LINE = 955e6 / 8           # file bytes a second that the path can carry
IN_FLIGHT = 12 * MIB       # what it holds
ATTEMPTS = 3               # somebody else's work on a shared machine is not our speed
COMMAND_SECONDS = 60
SETTLED_BYTES = 4096       # acknowledgements and questions that have nothing to do with reading
FILE_SIZE = 512 * MIB
FILM_SIZE, INDEX_SIZE, PROBE_MOVED_MAX = 10 << 30, 6 * MIB, 32 * MIB
FILM_SECONDS = 10
STREAM_SHARE_MIN = 0.4     # of the line, with compilers running beside it
STRIDE, STEP, STRIDES = MIB, 64 * KIB, 256
STRIDES_TO_LEARN, STRIDES_MOVED_MAX = 8, 2
PIECE, SEEKS = 8 * MIB, 8
QUEUE_MAX = 0.02           # of what was wanted before a jump, which is on its way and cannot be overtaken
LATE_MAX = 0.02            # of a program on a shared machine, once in seven jumps
RANDOM_READS, RANDOM_MOVED_MAX = 200, 4
FILES, FILES_AT_ONCE, FILE_BYTES, FILE_ROUNDS = 500, 50, 8 * MIB, 4
CACHE = 64 * MIB
RSS_BESIDE = 192 * MIB     # of the client, beside its cache


def timed(action):
    started = time.monotonic()
    result = action()
    return time.monotonic() - started, result


class Patterns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.memory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir="/dev/shm")))
        cls.export = cls.memory / "export"
        cls.export.mkdir()
        cls.content = os.urandom(MIB)  # of each MiB the first bytes tell which
        with open(cls.export / "large", "wb") as file:
            for number in range(FILE_SIZE // MIB):
                file.write(number.to_bytes(8, "little") + cls.content[8:])
        cls.wan = cls.enterClassContext(Wan(rate="1gbit", delay=f"{ROUND_TRIP * 500:.0f}ms"))
        cls.server = cls.enterClassContext(Tuskd(cls.wan, cls.export))

    def mount(self, *options):
        """A fresh one: nothing cached, nothing learnt."""
        mounted = self.enterContext(Mount(self.wan, self.server.url, options=options))
        mounted.status()
        return mounted

    def moved(self, mounted):
        """Bytes that have come over the line, also those of fetches that were given up, once nothing comes any
        more."""
        counts = []

        def settled():
            counts.append(mounted.status()["path"]["bytes_received"])
            return len(counts) > 1 and counts[-1] - counts[-2] < SETTLED_BYTES

        harness.wait_until(settled, COMMAND_SECONDS, "the line to be quiet", interval=2 * ROUND_TRIP)
        return counts[-1]

    def open(self, mounted, name="large"):
        file = os.open(mounted.path / name, os.O_RDONLY)
        self.addCleanup(os.close, file)
        return file

    def check(self, offset, got):
        """Only the ends of each MiB: a full comparison would cost more than the reading."""
        at = offset
        while at < offset + len(got):
            number, inside = divmod(at, MIB)
            length = min(MIB - inside, offset + len(got) - at)
            wanted = number.to_bytes(8, "little") + self.content[8:]
            self.assertEqual(got[at - offset:at - offset + length], wanted[inside:inside + length], f"bytes at {at}")
            at += length

    def read(self, file, offset, length):
        """As programs read: in steps of 128 KiB."""
        seconds_first = None
        started = time.monotonic()
        for at in range(offset, offset + length, 128 * KIB):
            got = os.pread(file, min(128 * KIB, offset + length - at), at)
            seconds_first = seconds_first or time.monotonic() - started
            self.check(at, got)
        return seconds_first

    def attempts(self, measure):
        """`measure` returns None when all is well, else what is not."""
        for attempt in range(ATTEMPTS):
            complaint = measure()
            if complaint is None:
                return
            print(f"  attempt {attempt + 1}: {complaint}", flush=True)
        self.fail(complaint)

    def say(self, text):
        print(f"\n{text}", flush=True)

    # ---- probers

    def make_films(self):
        for name in ("ffmpeg", "ffprobe"):
            if shutil.which(name) is None:
                self.skipTest(f"{name} is not installed")
        small = self.memory / "small.mp4"
        quiet = ["ffmpeg", "-nostdin", "-v", "error", "-y"]
        length = f"duration={FILM_SECONDS}"
        subprocess.run([*quiet, "-f", "lavfi", "-i", f"testsrc2=size=640x360:rate=25:{length}", "-f", "lavfi", "-i",
                        f"sine={length}", "-threads", "1", "-c:v", "mpeg4", "-b:v", "4M", "-c:a", "aac", small],
                       check=True, timeout=COMMAND_SECONDS)
        films.stretch_mp4(small.read_bytes(), self.export / "index-last.mp4", FILM_SIZE, INDEX_SIZE)
        first = self.memory / "first.mp4"
        subprocess.run([*quiet, "-i", small, "-c", "copy", "-movflags", "+faststart", first], check=True,
                       timeout=COMMAND_SECONDS)
        films.stretch_mp4(first.read_bytes(), self.export / "index-first.mp4", FILM_SIZE, INDEX_SIZE)
        matroska = subprocess.run([*quiet, "-i", small, "-c", "copy", "-f", "matroska", "-"], check=True,
                                  capture_output=True, timeout=COMMAND_SECONDS).stdout
        films.stretch_matroska(matroska, self.export / "film.mkv", FILM_SIZE)
        return ["index-last.mp4", "index-first.mp4", "film.mkv"]

    def test_probing_a_film_moves_little(self):
        for name in self.make_films():
            with self.subTest(name):
                mounted = self.mount()
                before = self.moved(mounted)
                seconds, probed = timed(lambda: run_in(self.wan.ns_a, [
                    "ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "csv=p=0",
                    mounted.path / name], COMMAND_SECONDS))
                self.assertEqual(set(probed.stdout.split()), {"mpeg4", "aac"})
                moved = self.moved(mounted) - before
                self.say(f"ffprobe of {name}: {seconds:.2f} s, {moved / MIB:.1f} MiB moved")
                self.assertLessEqual(moved, PROBE_MOVED_MAX)

    def test_a_prober_that_reads_much(self):
        """What ffprobe reads at most of a film whose streams it does not know: head, index at the tail, then 5 MB."""
        # Usually 30 to 31 MiB; a prober that the machine keeps from running for 100 ms is a slower reader, and more of
        # what was fetched ahead has come when it closes the file.
        def measure():
            mounted = self.mount()
            before = self.moved(mounted)
            file = os.open(mounted.path / "large", os.O_RDONLY)
            seconds, _ = timed(lambda: [self.read(file, offset, length) for offset, length in (
                (0, 64 * KIB), (FILE_SIZE - INDEX_SIZE, INDEX_SIZE), (64 * KIB, 5 * MIB))])
            os.close(file)
            moved = self.moved(mounted) - before
            self.say(f"head, tail, 5 MiB of the head: {seconds:.2f} s, {moved / MIB:.1f} MiB moved")
            return None if moved <= PROBE_MOVED_MAX else f"{moved / MIB:.1f} MiB moved"
        self.attempts(measure)

    # ---- streams

    def test_one_reader_in_order(self):
        def measure():
            mounted = self.mount()
            file = self.open(mounted)
            seconds, _ = timed(lambda: self.read(file, 0, FILE_SIZE // 2))
            share = FILE_SIZE / 2 / seconds / LINE
            self.say(f"in order: {seconds:.2f} s, {share:.0%} of the line")
            return None if share >= STREAM_SHARE_MIN else f"{share:.0%} of the line"
        self.attempts(measure)

    def several(self, readers, shared):
        mounted = self.mount()
        part = FILE_SIZE // readers
        length = min(part, 256 * MIB // readers)
        files = [self.open(mounted)] * readers if shared else [self.open(mounted) for _ in range(readers)]
        before = self.moved(mounted)
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(readers) as pool:
            list(pool.map(lambda n: self.read(files[n], n * part, length), range(readers)))
        seconds = time.monotonic() - started
        share = readers * length / seconds / LINE
        waste = (self.moved(mounted) - before) / (readers * length)
        self.say(f"{readers} readers, {'one handle' if shared else 'a handle each'}: {seconds:.2f} s, "
                 f"{share:.0%} of the line, {waste:.2f} times the bytes")
        return None if share >= STREAM_SHARE_MIN else f"{share:.0%} of the line"

    def test_two_readers(self):
        self.attempts(lambda: self.several(2, shared=False))

    def test_eight_readers(self):
        self.attempts(lambda: self.several(8, shared=False))

    def test_two_readers_of_one_handle(self):
        self.attempts(lambda: self.several(2, shared=True))

    def test_eight_readers_of_one_handle(self):
        self.attempts(lambda: self.several(8, shared=True))

    # ---- strides

    def strides(self, offsets, name):
        def measure():
            mounted = self.mount()
            file = self.open(mounted)
            before = self.moved(mounted)
            seconds = []
            for offset in offsets:
                took, got = timed(lambda: os.pread(file, STEP, offset))
                self.check(offset, got)
                seconds.append(took)
            moved = (self.moved(mounted) - before) / (len(offsets) * STEP)
            later = seconds[STRIDES_TO_LEARN:]
            mean = sum(later) / len(later)
            self.say(f"{name}: {sum(seconds):.2f} s in all, {mean * 1e3:.1f} ms for each read after the first "
                     f"{STRIDES_TO_LEARN}, {moved:.2f} times the bytes")
            self.assertLessEqual(moved, STRIDES_MOVED_MAX)
            return None if mean <= ROUND_TRIP / 4 else f"{mean * 1e3:.1f} ms for each read"
        self.attempts(measure)

    def test_strides_forwards(self):
        first = 100 * MIB
        self.strides([first + n * STRIDE for n in range(STRIDES)], "strides forwards")

    def test_strides_backwards(self):
        last = 400 * MIB
        self.strides([last - n * STRIDE for n in range(STRIDES)], "strides backwards")

    def test_backwards(self):
        last = 300 * MIB
        self.strides([last - n * STEP for n in range(4 * STRIDES)], "backwards without gaps")

    # ---- jumps

    def test_a_player_that_seeks(self):
        def measure():
            mounted = self.mount()
            file = self.open(mounted)
            before = self.moved(mounted)
            # The order is not one that could be guessed.
            places = [0] + [place * 48 * MIB for place in (5, 2, 9, 1, 7, 3, 8)]
            self.assertEqual(len(places), SEEKS)
            firsts = [self.read(file, place, PIECE) for place in places]
            moved = self.moved(mounted) - before
            waste = (moved - SEEKS * PIECE) / SEEKS
            middle, worst = statistics.median(firsts[1:]), max(firsts[1:])
            self.say(f"seeks: the first bytes after {middle * 1e3:.0f} ms, at most {worst * 1e3:.0f} ms, "
                     f"{waste / MIB:.1f} MiB too much for each")
            # Usually 18 to 19 MiB; a player that the machine keeps from running has more of the window come before it
            # jumps, as with the prober.
            if waste > 2 * IN_FLIGHT:
                return f"{waste / MIB:.1f} MiB too much for each"
            soon = middle <= ROUND_TRIP + QUEUE_MAX and worst <= ROUND_TRIP + QUEUE_MAX + LATE_MAX
            return None if soon else f"first bytes after {middle * 1e3:.0f} ms, at most {worst * 1e3:.0f} ms"
        self.attempts(measure)

    def test_random_reads(self):
        mounted = self.mount()
        file = self.open(mounted)
        before = self.moved(mounted)
        places = random.Random(7).sample(range(FILE_SIZE // (4 * KIB)), RANDOM_READS)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for place, got in zip(places, pool.map(lambda p: os.pread(file, 4 * KIB, p * 4 * KIB), places)):
                self.check(place * 4 * KIB, got)
        moved = (self.moved(mounted) - before) / (RANDOM_READS * 4 * KIB)
        status = mounted.status()
        self.say(f"random reads: {moved:.1f} times the bytes, {status['fetched_ahead_bytes']} bytes ahead")
        self.assertLessEqual(moved, RANDOM_MOVED_MAX)
        self.assertLessEqual(status["fetched_ahead_bytes"], RANDOM_READS * 4 * KIB / 10)

    # ---- many

    def test_many_open_files(self):
        folder = self.export / "many"
        folder.mkdir()
        self.addCleanup(shutil.rmtree, folder)
        for number in range(FILES):
            with open(folder / str(number), "wb") as file:
                file.write(number.to_bytes(8, "little"))
                file.truncate(FILE_BYTES)
        mounted = self.mount(f"cache-mem={CACHE}")
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE))
        opened = list(pool.map(lambda number: self.open(mounted, f"many/{number}"), range(FILES)))
        highest, read = 0, 0
        started = time.monotonic()
        for round_ in range(FILE_ROUNDS):
            for number, got in enumerate(pool.map(lambda file: os.pread(file, 64 * KIB, round_ * 64 * KIB), opened)):
                self.assertEqual(len(got), 64 * KIB)
                self.assertEqual(got[:8], number.to_bytes(8, "little") if round_ == 0 else bytes(8))
                read += len(got)
                if number % FILES_AT_ONCE == 0:
                    highest = max(highest, mounted.status()["cache_used_bytes"])
        seconds = time.monotonic() - started
        status = mounted.status()
        resident = max(int(line.split()[1]) * KIB for pid in mounted.pids()
                       for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                       if line.startswith("VmHWM:"))
        # One of them is read on, while the others stay open.
        last_seconds, _ = timed(lambda: [os.pread(opened[7], MIB, at) for at in range(MIB, FILE_BYTES, MIB)])
        self.say(f"{FILES} open files: {seconds:.2f} s, {highest / MIB:.0f} MiB in the cache, {resident / MIB:.0f} MiB "
                 f"resident, {status['path']['bytes_received'] / read:.1f} times the bytes; then 7 MiB of one in "
                 f"{last_seconds:.2f} s")
        self.assertLessEqual(highest, CACHE + FILES_AT_ONCE * MIB)
        self.assertLessEqual(resident, CACHE + RSS_BESIDE)


if __name__ == "__main__":
    harness.main(fuse=True)
