"""Random reads and writes of every kind on a few files, compared with bytes in memory: in one mount, and in two at once.

What is tried: read, write, append, truncate, mapped reads and writes, holes, zeroed and reserved ranges, copy_file_range
within and between files, SEEK_DATA and SEEK_HOLE, fsync, closing and opening, dropped pages. A failure prints its seed and
the last operations; TUSK_SEED=N replays it, TUSK_STEPS=N shortens or lengthens it, TUSK_FULL=1 tries many seeds.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import random
import struct
import sys
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, popen_in, run_in

SEED = int(os.environ.get("TUSK_SEED", "0")) or time.time_ns() % 1_000_000
FULL = bool(os.environ.get("TUSK_FULL"))
STEPS = int(os.environ.get("TUSK_STEPS", "0")) or (1_000 if FULL else 400)
SEEDS = 10 if FULL else 1
TURNS = STEPS // 10  # of each of two processes that take turns; each turn is some operations
RUN_SECONDS_MAX = 300
SIZE_MAX = 1_500_000
WRITE_MAX = 300_000
FILES = ("one", "two", "three")
EDGES = (4_096, 65_536, 262_144, 1 << 20)  # a page, a small file, what one call carries, a block of the cache
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 0x01, 0x02, 0x10
LAST_OPERATIONS = 30

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Mismatch(Exception):
    pass


class Exerciser:
    """Does the same to files in `folder` and to bytes in memory. Same seed, same operations."""

    def __init__(self, folder, seed):
        self.folder, self.chance = pathlib.Path(folder), random.Random(seed)
        self.fds = {name: os.open(self.folder / name, os.O_RDWR | os.O_CREAT) for name in FILES}
        self.model = {name: bytearray() for name in FILES}
        self.history = []
        self.operations = [operation for name, weight in self.WEIGHTS.items() for operation in [getattr(self, name)] * weight]

    WEIGHTS = {"read": 8, "write": 8, "append": 2, "truncate": 3, "map_read": 3, "map_write": 4, "punch": 3, "zero": 2,
               "reserve": 1, "copy": 3, "find_holes": 1, "sync": 1, "reopen": 1, "drop_pages": 2, "size": 1}

    def close(self):
        for fd in self.fds.values():
            os.close(fd)

    def step(self):
        name = self.chance.choice(FILES)
        operation = self.chance.choice(self.operations)
        try:
            operation(name, self.model[name])
        except OSError as error:
            raise Mismatch(f"{self.history[-1]}: {error}") from error

    def note(self, *words):
        self.history = [*self.history[-LAST_OPERATIONS:], " ".join(map(str, words))]

    def check(self, what, found, expected):
        if found != expected:
            first = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]),
                         min(len(found), len(expected)))
            raise Mismatch(f"{what}: {len(found)} bytes for {len(expected)}, different from {first} on: "
                           f"{bytes(found[first:first + 16]).hex()} for {bytes(expected[first:first + 16]).hex()}")

    def compare_all(self, folder):
        """Every byte, as another opener sees it."""
        for name, expected in self.model.items():
            self.check(f"all of {folder / name}", (folder / name).read_bytes(), expected)

    # --- Where ------------------------------------------------------------------------------------------

    def place(self, limit):
        """An offset up to `limit`, often where something begins or ends."""
        if self.chance.random() < 0.5:
            return self.chance.randint(0, limit)
        edge = self.chance.choice(EDGES)
        at = self.chance.randint(0, limit // edge) * edge + self.chance.choice((-1, 0, 0, 1))
        return min(max(at, 0), limit)

    def length(self):
        return self.chance.choice((1, 100, 4_096, 20_000, WRITE_MAX)) * self.chance.randint(50, 100) // 100 + 1

    def room(self):
        """An offset to write at and bytes for it: may leave a gap behind the end."""
        offset = self.place(SIZE_MAX - WRITE_MAX)
        return offset, self.chance.randbytes(min(self.length(), SIZE_MAX - offset))

    def range_within(self, model):
        offset = self.place(max(len(model) - 1, 0))
        return offset, min(self.length(), max(len(model) - offset, 1))

    @staticmethod
    def put(model, offset, data):
        if len(model) < offset:
            model.extend(bytes(offset - len(model)))
        model[offset:offset + len(data)] = data

    # --- What -------------------------------------------------------------------------------------------

    def read(self, name, model):
        offset, length = self.place(len(model) + 10), self.length()
        self.note("read", name, offset, length)
        self.check(self.history[-1], os.pread(self.fds[name], length, offset), model[offset:offset + length])

    def write(self, name, model):
        offset, data = self.room()
        self.note("write", name, offset, len(data))
        self.check("written", [os.pwrite(self.fds[name], data, offset)], [len(data)])
        self.put(model, offset, data)

    def append(self, name, model):
        data = self.chance.randbytes(min(self.length(), SIZE_MAX - len(model)))
        self.note("append", name, len(data))
        fd = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND)
        with contextlib.closing(os.fdopen(fd, "wb", buffering=0)) as file:
            self.check("appended", [file.write(data)], [len(data)])
        model += data

    def truncate(self, name, model):
        size = self.place(min(len(model) + WRITE_MAX, SIZE_MAX))
        self.note("truncate", name, len(model), "to", size)
        if self.chance.random() < 0.5:
            os.ftruncate(self.fds[name], size)
        else:
            os.truncate(self.folder / name, size)
        del model[size:]
        model.extend(bytes(size - len(model)))

    def mapped(self, name, offset, length, access):
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        return start, mmap.mmap(self.fds[name], offset + length - start, access=access, offset=start)

    def map_read(self, name, model):
        if not model:
            return
        offset, length = self.range_within(model)
        self.note("mapped read", name, offset, length)
        start, mapping = self.mapped(name, offset, length, mmap.ACCESS_READ)
        with mapping:
            self.check(self.history[-1], mapping[offset - start:], model[offset:offset + length])

    def map_write(self, name, model):
        if not model:
            return
        offset, length = self.range_within(model)
        flush = self.chance.random() < 0.3
        self.note("mapped write", name, offset, length, "msync" * flush)
        data = self.chance.randbytes(length)
        start, mapping = self.mapped(name, offset, length, mmap.ACCESS_WRITE)
        with mapping:
            mapping[offset - start:] = data
            if flush:
                mapping.flush()
        model[offset:offset + length] = data

    def punch(self, name, model):
        offset, length = self.range_within(model)
        self.note("punch", name, offset, length)
        fallocate(self.fds[name], PUNCH_HOLE | KEEP_SIZE, offset, length)
        within = max(min(length, len(model) - offset), 0)
        model[offset:offset + within] = bytes(within)

    def zero(self, name, model):
        offset, length = self.place(SIZE_MAX - WRITE_MAX), self.length()
        keep = self.chance.random() < 0.5
        self.note("zero", name, offset, length, "keep size" * keep)
        try:
            fallocate(self.fds[name], ZERO_RANGE | (KEEP_SIZE if keep else 0), offset, length)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return  # not every file system can
        within = max(min(length, len(model) - offset), 0) if keep else length
        if within:
            self.put(model, offset, bytes(within))

    def reserve(self, name, model):
        offset, length = self.place(SIZE_MAX - WRITE_MAX), self.length()
        keep = self.chance.random() < 0.5
        self.note("reserve", name, offset, length, "keep size" * keep)
        fallocate(self.fds[name], KEEP_SIZE if keep else 0, offset, length)
        if not keep:
            model.extend(bytes(max(offset + length - len(model), 0)))

    def copy(self, name, model):
        source = self.chance.choice(FILES)
        offset, length = self.range_within(self.model[source])
        target = self.place(SIZE_MAX - WRITE_MAX)
        if source == name and abs(target - offset) < length:
            return  # overlapping ones are refused
        self.note("copy", source, offset, length, "to", name, target)
        data = bytes(self.model[source][offset:offset + length])
        os.fstat(self.fds[source])  # the kernel goes by the size it knows (docs/SEMANTICS.md, what cannot be)
        done = 0
        while done < len(data):
            copied = os.copy_file_range(self.fds[source], self.fds[name], len(data) - done, offset + done, target + done)
            if copied == 0:
                raise Mismatch(f"{self.history[-1]}: nothing more after {done}")
            done += copied
        if data:
            self.put(model, target, data)

    def find_holes(self, name, model):
        self.note("find holes", name)
        at = 0
        while at < len(model):
            try:
                data = os.lseek(self.fds[name], at, os.SEEK_DATA)
            except OSError:
                data = len(model)  # ENXIO: no data any more
            if any(model[at:data]):
                raise Mismatch(f"{name} has bytes between {at} and {data}, where the file says there is a hole")
            at = os.lseek(self.fds[name], data, os.SEEK_HOLE) if data < len(model) else data

    def sync(self, name, model):
        self.note("fsync", name)
        self.chance.choice((os.fsync, os.fdatasync))(self.fds[name])

    def reopen(self, name, model):
        self.note("close and open", name)
        os.close(self.fds[name])
        self.fds[name] = os.open(self.folder / name, os.O_RDWR)

    def drop_pages(self, name, model):
        self.note("drop pages of", name)
        os.posix_fadvise(self.fds[name], 0, 0, os.POSIX_FADV_DONTNEED)

    def size(self, name, model):
        self.note("size of", name)
        sizes = [os.fstat(self.fds[name]).st_size, os.stat(self.folder / name).st_size]
        if sizes != [len(model)] * 2:
            raise Mismatch(f"{name} has {len(model)} bytes, fstat and stat say {sizes}")


def exercise(folder, seed, steps, planted_fault=False):
    exerciser = Exerciser(folder, seed)
    with contextlib.closing(exerciser):
        try:
            for step in range(steps):
                exerciser.step()
                if planted_fault and step == steps - 1:
                    os.pwrite(exerciser.fds["one"], b"written by nobody", len(exerciser.model["one"]))
        except Mismatch as error:
            raise Mismatch("\n".join([*exerciser.history, f"seed {seed}: {error}"])) from None
    return exerciser


# --- Two processes -----------------------------------------------------------------------------------


class Shared:
    """The model on this machine's disk, for processes that take turns."""

    def __init__(self, folder):
        self.folder = folder

    def load(self, model):
        for name in FILES:
            model[name][:] = (self.folder / name).read_bytes()

    def store(self, model):
        for name in FILES:
            (self.folder / name).write_bytes(model[name])


def take_turns(folder, model_folder, seed, turns):
    """One of the processes: some operations under a lock that the others ask for, too, then somebody else's turn."""
    exerciser, shared = Exerciser(folder, seed), Shared(pathlib.Path(model_folder))
    lock = os.open(pathlib.Path(folder) / "lock", os.O_RDWR)
    take = fcntl.flock if seed // 8 % 2 else fcntl.lockf  # for all processes the same
    for turn in range(turns):
        take(lock, fcntl.LOCK_EX)
        shared.load(exerciser.model)
        try:
            # What holds a file's bytes is that file's lock: what is cached is checked when it is given.
            for fd in exerciser.fds.values():
                fcntl.lockf(fd, fcntl.LOCK_EX)
            for _ in range(exerciser.chance.randint(1, 12)):
                exerciser.step()
        except Mismatch as error:
            sys.exit("\n".join([*exerciser.history, f"seed {seed}, turn {turn}: {error}"]))
        shared.store(exerciser.model)
        for fd in exerciser.fds.values():
            fcntl.lockf(fd, fcntl.LOCK_UN)
        take(lock, fcntl.LOCK_UN)


RECORD, RECORDS = 1_000, 300  # no record begins where a page does


def count_records(path, seed, turns):
    """One of the processes: adds one to random records, each under its own range lock, while others do so beside it."""
    chance = random.Random(seed)
    fd = os.open(path, os.O_RDWR)
    for _ in range(turns):
        at, length = chance.randrange(RECORDS) * RECORD, RECORD
        fcntl.lockf(fd, fcntl.LOCK_EX, length, at)
        bytes_before = os.pread(fd, length, at)
        words = struct.unpack(f"<{length // 4}I", bytes_before)
        if len(set(words)) != 1:
            sys.exit(f"seed {seed}: the record at {at} is of several ages: {sorted(set(words))}")
        os.pwrite(fd, struct.pack("<I", words[0] + 1) * (length // 4), at)
        fcntl.lockf(fd, fcntl.LOCK_UN, length, at)


class Exercise(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-exercise-")))
        self.export, self.near = self.folder / "export", self.folder / "near"
        self.export.mkdir()
        self.near.mkdir()

    def mounts(self, *options_of_each):
        wan = self.enterContext(Wan(rate="1gbit", delay="1ms", jitter="0.5ms"))
        server = self.enterContext(Tuskd(wan, self.export))
        return [self.enterContext(Mount(wan, server.url, options=options)).path for options in options_of_each]

    def test_a_local_directory_passes(self):
        exercise(self.near, SEED, STEPS).compare_all(self.near)

    def test_canary_a_byte_that_nobody_wrote_is_noticed(self):
        with self.assertRaises(Mismatch):
            exercise(self.near, SEED, STEPS, planted_fault=True).compare_all(self.near)

    def test_one_mount(self):
        for name, options in (("as it is", ()), ("little memory", ("cache_mem=16M",)), ("asking", ("attr_timeout=0",))):
            with self.subTest(name):
                [mount] = self.mounts(options)
                for seed in range(SEED, SEED + SEEDS):
                    print(f"\nseed {seed}, {name}", file=sys.stderr, flush=True)
                    for path in mount.iterdir():
                        path.unlink()
                    done = exercise(mount, seed, STEPS)
                    done.compare_all(mount)
                    done.compare_all(self.export)  # closed: the server has it all

    def test_two_mounts_that_take_turns(self):
        mounts = self.mounts((), ())
        for seed in range(SEED, SEED + SEEDS):
            print(f"\nseed {seed}", file=sys.stderr, flush=True)
            for folder in (self.near, self.export):
                for name in (*FILES, "lock"):
                    (folder / name).write_bytes(b"")
            self.run_both("take_turns", [(mount, self.near, seed * 8 + number, TURNS)
                                         for number, mount in enumerate(mounts)])
            for name in FILES:
                for folder in (self.export, *mounts):
                    self.assertEqual((folder / name).read_bytes(), (self.near / name).read_bytes())

    def test_two_mounts_that_write_side_by_side(self):
        mounts = self.mounts((), ())
        records = self.export / "records"
        for seed in range(SEED, SEED + SEEDS):
            records.write_bytes(bytes(RECORD * RECORDS))
            # Each process once more, so that there are two in each mount, too.
            self.run_both("count_records", [(mount / "records", seed * 8 + number, STEPS // 4)
                                            for number, mount in enumerate(mounts * 2)])
            counted = struct.unpack(f"<{RECORD * RECORDS // 4}I", records.read_bytes())
            self.assertEqual(sum(counted), STEPS // 4 * 4 * (RECORD // 4))

    def run_both(self, function, arguments_of_each):
        processes = []
        for number, arguments in enumerate(arguments_of_each):
            errors = open(self.folder / f"errors {number}", "w+")
            self.addCleanup(errors.close)
            process = popen_in(None, [sys.executable, "-B", __file__, function, *arguments], stderr=errors)
            self.addCleanup(harness.stop, process)
            processes.append((process, errors))
        deadline = time.monotonic() + RUN_SECONDS_MAX
        for process, errors in processes:
            code = process.wait(deadline - time.monotonic())
            errors.seek(0)
            self.assertEqual(code, 0, errors.read())


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("take_turns", "count_records"):
        globals()[sys.argv[1]](*sys.argv[2:-2], *map(int, sys.argv[-2:]))
    else:
        harness.main(fuse=True)
