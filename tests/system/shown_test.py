"""What stat(2) and SEEK_DATA tell of a file agree with one another and with ext4, whatever a mount has sent so far.

Each operation runs in a folder of its own, on a mount 10 ms away and on the ext4 that is exported. Both are looked at in
every state: answered here, closed, answered by the server, synced, and forgotten by the kernel.
"""

import ctypes
import errno
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, run_in, wait_until

PAGE = 4096
SETTLE_SECONDS = 20
PROGRAM_SECONDS = 60
KEEP_SIZE, PUNCH_HOLE = 1, 2  # fallocate(2)
LIBC = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def new(path, *pieces, flags=0):
    """A file with bytes at these offsets; it stays open."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o644)
    for offset, size in pieces:
        os.pwrite(fd, os.urandom(size), offset)
    return fd


def small(folder):
    os.close(new(folder / "a", (0, 100)))


def linked(folder):
    small(folder)
    os.link(folder / "a", folder / "b")


def two(folder):
    small(folder)
    os.close(new(folder / "b", (0, 3 * PAGE)))


def sub(folder):
    (folder / "d").mkdir()


def truncated(folder, size):
    fd = new(folder / "a", (0, 20 * PAGE))
    os.ftruncate(fd, size)
    return fd


def allocated(folder, mode, offset, length):
    fd = new(folder / "a", (0, 64 * PAGE))
    fallocate(fd, mode, offset, length)
    return fd


def copied(folder):
    source = os.open(folder / "b", os.O_RDONLY)
    target = new(folder / "c")
    os.copy_file_range(source, target, 3 * PAGE)
    os.close(source)
    return target


def emptied_and_written(folder):
    os.close(new(folder / "a", (0, 30 * PAGE)))
    return new(folder / "a", (5, 1), flags=os.O_TRUNC)


# Name: (what is there before, the operation, which may leave a file open).
OPERATIONS = {
    "empty": (None, lambda f: new(f / "a")),
    "small": (None, lambda f: new(f / "a", (0, 100))),
    "exactly a page": (None, lambda f: new(f / "a", (0, PAGE))),
    "three million bytes": (None, lambda f: new(f / "a", (0, 3_000_000))),
    "hole first": (None, lambda f: new(f / "a", (1 << 20, 100))),
    "hole between": (None, lambda f: new(f / "a", (0, 10), (1 << 20, PAGE + 1))),
    "two in one page": (None, lambda f: new(f / "a", (0, 10), (100, 10))),
    "across a page": (None, lambda f: new(f / "a", (PAGE - 1, 2))),
    "every other page": (None, lambda f: new(f / "a", *((2 * page * PAGE, 10) for page in range(4)))),
    "many blocks with holes": (None, lambda f: new(f / "a", *((page << 18, 300) for page in range(4)))),
    "written over": (None, lambda f: new(f / "a", (0, 3 * PAGE), (0, 3 * PAGE), (PAGE, 10))),
    "appended": (small, lambda f: new(f / "a", (100, 9000))),
    "appended by O_APPEND": (small, lambda f: new(f / "a", (0, 9000), flags=os.O_APPEND)),
    "longer": (None, lambda f: truncated(f, 1 << 20)),
    "shorter": (None, lambda f: truncated(f, 3 * PAGE)),
    "emptied": (None, lambda f: truncated(f, 0)),
    "emptied and written": (None, emptied_and_written),
    "preallocated": (None, lambda f: allocated(f, KEEP_SIZE, 0, 100 * PAGE)),
    "punched": (None, lambda f: allocated(f, KEEP_SIZE | PUNCH_HOLE, 16 * PAGE, 16 * PAGE)),
    "copied": (two, copied),
    "directory": (None, lambda f: (f / "d").mkdir()),
    "directories": (sub, lambda f: [(f / "d" / str(n)).mkdir() for n in range(5)] and None),
    "removed directory": (sub, lambda f: (f / "d").rmdir()),
    "symlink": (small, lambda f: (f / "l").symlink_to("a")),
    "long symlink": (None, lambda f: (f / "l").symlink_to("x" * 500)),
    "fifo": (None, lambda f: os.mkfifo(f / "p")),
    "hard link": (small, lambda f: os.link(f / "a", f / "b")),
    "one of two links": (linked, lambda f: os.unlink(f / "b")),
    "removed": (two, lambda f: os.unlink(f / "b")),
    "renamed": (small, lambda f: (f / "a").rename(f / "c")),
    "replaced": (two, lambda f: (f / "a").rename(f / "b")),
    "moved directory": (lambda f: (sub(f), (f / "e").mkdir()), lambda f: (f / "d").rename(f / "e" / "d")),
    "mode": (small, lambda f: (f / "a").chmod(0o4711)),
    "owner": (small, lambda f: os.chown(f / "a", 1234, 5678)),
    "owner, no change": (small, lambda f: os.chown(f / "a", -1, -1)),
    "times": (small, lambda f: os.utime(f / "a", ns=(10**18, 10**18 + 1))),
    "set-group-ID directory": (lambda f: (f.chmod(0o2777), os.chown(f, 0, 77)), lambda f: (small(f), sub(f))[0]),
}


def holes(path):
    """Where data begins and ends: [(start, end)]."""
    fd = os.open(path, os.O_RDONLY)
    found, at = [], 0
    try:
        while True:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    finally:
        os.close(fd)
    return found


class Side:
    """One operation in a folder of its own, and what can be seen of it."""

    def __init__(self, root, name):
        self.folder = root / name.replace(" ", "-").replace(",", "")
        self.folder.mkdir()
        before, self.operation = OPERATIONS[name]
        if before:
            before(self.folder)
        self.fd = None
        self.before = {st.st_ino: st for st in self._all().values()}

    def run(self):
        done = self.operation(self.folder)
        self.fd = done if isinstance(done, int) else None

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None

    def _all(self):
        paths = [self.folder, *sorted(self.folder.rglob("*"))]
        return {path.relative_to(self.folder): os.lstat(path) for path in paths}

    def seen(self):
        """Of each path what both sides must tell alike, and whether the operation moved its ctime."""
        told = {}
        for path, st in self._all().items():
            was = self.before.get(st.st_ino)
            moved = was and st.st_ctime_ns > was.st_ctime_ns
            told[str(path)] = {
                "mode": oct(st.st_mode), "nlink": st.st_nlink, "owner": (st.st_uid, st.st_gid), "size": st.st_size,
                "blocks": st.st_blocks, "ctime moved": moved, "32-bit number": st.st_ino < 1 << 32,
                "listed": path == pathlib.Path(".") or self._listed(path) == st.st_ino}
        return told

    def _listed(self, path):
        with os.scandir((self.folder / path).parent) as entries:
            return next(entry.inode() for entry in entries if entry.name == path.name)

    def holes(self):
        return {str(path): holes(self.folder / path) for path, st in self._all().items() if stat.S_ISREG(st.st_mode)}

    def sync(self):
        for path, st in self._all().items():
            if stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode):
                fd = os.open(self.folder / path, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)


class Shown(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tusk-shown-")))
        if run_in(None, ["stat", "-f", "-c", "%T", folder], PROGRAM_SECONDS).stdout.strip() != "ext2/ext3":
            raise unittest.SkipTest("skipped, because there is no ext4 here to compare with (TMPDIR chooses)")
        cls.export, cls.local = folder / "export", folder / "local"
        cls.export.mkdir()
        cls.local.mkdir()
        cls.wan = cls.enterClassContext(Wan(rate="1gbit", delay="5ms"))
        cls.server = cls.enterClassContext(Tuskd(cls.wan, cls.export, options=["--setuid"]))

    def both(self, options=()):
        """A mount, and for each operation the two sides of it."""
        mount = self.enterContext(Mount(self.wan, self.server.url,
                                        options=("identity=real", "dev", "no_auto_unmount", *options)))
        here = pathlib.Path(tempfile.mkdtemp(dir=mount.path))
        there = pathlib.Path(tempfile.mkdtemp(dir=self.local))
        return mount, {name: (Side(here, name), Side(there, name)) for name in OPERATIONS}

    def alike(self, state, sides, look=Side.seen):
        for name, (mounted, local) in sides.items():
            with self.subTest(operation=name, state=state):
                self.assertEqual(look(mounted), look(local))

    def each(self, sides, step):
        for pair in sides.values():
            for side in pair:
                step(side)

    def forget(self):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")

    def through_all_states(self, options, looks_at_once):
        mount, sides = self.both(options)
        for name, (mounted, local) in sides.items():
            mounted.run()
            local.run()
            if looks_at_once:
                self.alike("answered here", {name: (mounted, local)})
        self.each(sides, Side.close)
        self.alike("closed", sides)
        wait_until(lambda: mount.status()["pending_bytes"] == 0, SETTLE_SECONDS, "the server's answers")
        self.alike("answered", sides)
        self.each(sides, Side.sync)
        self.alike("synced", sides)
        self.forget()
        self.alike("forgotten by the kernel", sides)
        self.alike("forgotten by the kernel", sides, Side.holes)

    def test_looked_at_from_the_first_moment(self):
        self.through_all_states((), True)

    def test_looked_at_once_closed(self):
        self.through_all_states((), False)

    def test_where_the_server_is_asked_for_everything(self):
        self.through_all_states(("nolog",), True)

    def test_data_is_found_where_it_was_just_written(self):
        _, sides = self.both()
        for name, (mounted, local) in sides.items():
            mounted.run()
            local.run()
            self.alike("answered here", {name: (mounted, local)}, Side.holes)
        self.each(sides, Side.close)

    def test_tar_finds_the_bytes_of_sparse_files_at_once(self):
        mount, _ = self.both()
        bytes_ = os.urandom(3_000_000)
        (mount.path / "file").write_bytes(bytes_)
        command = "tar -C $1 -cSf - file | tar -xOf - file"
        told = subprocess.run(["sh", "-c", command, "sh", mount.path], timeout=PROGRAM_SECONDS, capture_output=True,
                              check=True)
        self.assertEqual(told.stdout, bytes_)


if __name__ == "__main__":
    harness.main(fuse=True)
