"""What POSIX says of files, names, rights and times, asserted on a local directory and then on a mount.

Each assertion runs on the server's own file system first: one that fails there is wrong, not Tusk. Then it runs on a mount
of that file system with the owners as they are. Where POSIX leaves a choice, the mount must choose as the file system
does (`p.same`). Other users are this process with other effective ids.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, run_in

ALICE, BOB, CAROL = 65101, 65102, 65103  # nobody's numbers, and their groups'
NAME_MAX, PATH_MAX = 255, 4096
CLOCK_SECONDS = 20
PROGRAM_SECONDS = 60
EMLINK_AT_MOST = 70_000  # ext4: 65,000; file systems with more are not asked
KINDS = {"file": stat.S_IFREG, "fifo": stat.S_IFIFO, "block": stat.S_IFBLK, "char": stat.S_IFCHR,
         "socket": stat.S_IFSOCK, "dir": stat.S_IFDIR, "symlink": stat.S_IFLNK}
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
OPEN_FOR_IOCTL = 3  # an access mode of Linux: both rights, neither read(2) nor write(2)
F_OFD_GETLK, F_OFD_SETLK = 36, 37
ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER = 1, 2, 4, 16, 32
AT_FDCWD, UTIME_OMIT, UTIME_NOW = -100, (1 << 30) - 2, (1 << 30) - 1

LIBC = ctypes.CDLL(None, use_errno=True)


def renameat2(source, target, flags):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def utimensat(path, atime, mtime):
    """Times as (seconds, nanoseconds), where the latter may be UTIME_OMIT or UTIME_NOW."""
    if LIBC.utimensat(AT_FDCWD, os.fsencode(path), (ctypes.c_long * 4)(*atime, *mtime), 0) != 0:
        raise OSError(ctypes.get_errno(), "utimensat")


def acl(user, group, other, named=()):
    """An ACL as in system.posix_acl_*; named: {uid: permissions}, with a mask that takes nothing away."""
    named = dict(named)
    entries = [(ACL_USER_OBJ, user, -1), *((ACL_USER, bits, uid) for uid, bits in named.items()),
               (ACL_GROUP_OBJ, group, -1), *([(ACL_MASK, 7, -1)] if named else []), (ACL_OTHER, other, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def record_lock(fd, command, kind, start=0, length=0):
    """fcntl(2); what it tells: (kind, start, length)."""
    told = fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, _ = struct.unpack("hhqqi4x", told)
    return kind, start, length


@contextlib.contextmanager
def another_process(work):
    """Within the block another process has done `work`; it ends with the block."""
    (done, ready), (until, over) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(ready, b".")
            os.close(over)
            os.read(until, 1)
        finally:
            os._exit(0)
    try:
        os.close(ready)
        os.close(until)
        if os.read(done, 1) != b".":
            raise AssertionError("the other process failed")
        yield
    finally:
        os.close(over)
        os.waitpid(child, 0)
        os.close(done)


def eaccess(path, wanted):
    """access(2) asks for the real user; this for who the process acts as."""
    if LIBC.eaccess(os.fsencode(path), wanted) != 0:
        raise OSError(ctypes.get_errno(), "eaccess")


@contextlib.contextmanager
def acting(uid, gid=None, groups=()):
    """Within the block this process touches files as somebody else."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(uid if gid is None else gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def outcome(call, *arguments, **keywords):
    """The name of the error, or "done"."""
    try:
        call(*arguments, **keywords)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def opened(path, flags, mode=0o644):
    os.close(os.open(path, flags, mode))


def make(kind, path, mode=0o644):
    if kind == "dir":
        os.mkdir(path)
    elif kind == "symlink":
        os.symlink("nowhere", path)
        return path
    elif kind == "file":
        opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    else:
        os.mknod(path, KINDS[kind] | mode, os.makedev(1, 3))
    os.chmod(path, mode)
    return path


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


class Place:
    """A new directory on one of the two sides, with what assertions are made of."""

    def __init__(self, test, root, read_only, decisions):
        self.test, self.decisions = test, decisions
        self.root = pathlib.Path(tempfile.mkdtemp(dir=root))
        self.read_only = read_only / self.root.name  # the same directory where nothing may be changed
        self.root.chmod(0o777)
        self.equal = test.assertEqual
        self._clock = self.root / ".clock"
        self._clock.write_text("")
        self._clock.chmod(0o666)
        self._numbers = iter(range(1_000_000))
        self._asked = iter(range(1_000_000))

    def __truediv__(self, name):
        return self.root / name

    def new(self, kind="file", mode=0o644, owner=None, inside=None):
        path = make(kind, (inside or self.root) / f"n{next(self._numbers)}", mode)
        if owner is not None:
            os.chown(path, owner, owner, follow_symlinks=False)
        return path

    def free(self):
        return self.root / f"n{next(self._numbers)}"

    def refused(self, error, call, *arguments, **keywords):
        self.equal(outcome(call, *arguments, **keywords), errno.errorcode[error], f"{call}{arguments}")

    def same(self, value):
        """Whatever the local file system says is right."""
        number = next(self._asked)
        if number == len(self.decisions):
            self.decisions.append(value)
        self.equal(value, self.decisions[number], f"question {number}, where the local file system decides")

    @contextlib.contextmanager
    def moving(self, clocks):
        """Within the block exactly these times must advance: {path or (path before, path after): "mc"}."""
        pairs = {(key if isinstance(key, tuple) else (key, key)): value for key, value in clocks.items()}
        before = {key: os.lstat(key[0]) for key in pairs}
        self.tick()
        yield
        for key, moved in pairs.items():
            after = os.lstat(key[1])
            for letter in "mc":
                name = f"st_{letter}time_ns"
                what = f"{letter}time of {key[1].name}"
                if letter in moved:
                    self.test.assertGreater(getattr(after, name), getattr(before[key], name), what)
                else:
                    self.equal(getattr(after, name), getattr(before[key], name), what)

    def now(self):
        """The time of the last tick."""
        return os.stat(self._clock).st_mtime_ns

    def tick(self):
        """Returns when the file system's clock has moved."""
        os.utime(self._clock)
        first = self.now()

        def moved():
            os.utime(self._clock)
            return self.now() > first
        harness.wait_until(moved, CLOCK_SECONDS, "the clock")


def on_both_sides(function):
    def test(self):
        decisions = []
        for side, (root, read_only) in self.sides.items():
            with self.subTest(side):
                function(Place(self, root, read_only, decisions))
    test.__doc__ = function.__doc__
    return test


# What takes a path. Those with two are tried with either.
LOOK = {
    "stat": os.stat, "lstat": os.lstat, "open": lambda p: opened(p, os.O_RDONLY), "listdir": os.listdir,
    "chdir": os.chdir, "readlink": os.readlink, "statvfs": os.statvfs, "access": lambda p: eaccess(p, os.R_OK),
}
ALTER = {
    "chmod": lambda p: os.chmod(p, 0o600), "chown": lambda p: os.chown(p, 0, 0),
    "lchown": lambda p: os.lchown(p, 0, 0), "truncate": lambda p: os.truncate(p, 1), "utime": os.utime,
    "open to write": lambda p: opened(p, os.O_WRONLY), "open to truncate": lambda p: opened(p, os.O_WRONLY | os.O_TRUNC),
    "setxattr": lambda p: os.setxattr(p, "user.colour", b"red"),
}
REMOVE = {
    "unlink": os.unlink, "rmdir": os.rmdir, "rename from": lambda p: os.rename(p, p.parent / "elsewhere"),
}
CREATE = {
    "mkdir": os.mkdir, "mkfifo": os.mkfifo, "mknod": lambda p: os.mknod(p, stat.S_IFREG | 0o644),
    "symlink": lambda p: os.symlink("target", p), "create": lambda p: opened(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
}


def two_paths(p):
    """link and rename, with a good path on the other side."""
    return {"link from": lambda path: os.link(path, p.free()), "link to": lambda path: os.link(p.new(), path),
            "rename to": lambda path: os.rename(p.new(), path)}


def every_call(p):
    return LOOK | ALTER | REMOVE | CREATE | two_paths(p)


class Posix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tusk-posix-")))
        folder.chmod(0o755)
        if run_in(None, ["stat", "-f", "-c", "%T", folder], PROGRAM_SECONDS).stdout.strip() != "ext2/ext3":
            raise unittest.SkipTest("skipped, because there is no ext4 here to compare with (TMPDIR chooses)")
        export, point, ro_point, ro_local = (folder / name for name in ("export", "mount", "mount-ro", "export-ro"))
        for path in (export, ro_local):
            path.mkdir()
        run_in(None, ["mount", "--bind", export, ro_local], PROGRAM_SECONDS)
        cls.addClassCleanup(run_in, None, ["umount", "-l", ro_local], PROGRAM_SECONDS)
        run_in(None, ["mount", "-o", "remount,bind,ro", ro_local], PROGRAM_SECONDS)
        wan = cls.enterClassContext(Wan(rate="1gbit"))
        server = cls.enterClassContext(Tuskd(wan, export, options=["--setuid"]))
        own = ("identity=real", "dev", "no_auto_unmount")  # fusermount3 knows no "dev"
        cls.enterClassContext(Mount(wan, server.url, path=point, options=own))
        cls.enterClassContext(Mount(wan, server.url, path=ro_point, options=(*own, "ro")))
        cls.export = export
        cls.sides = {"the file system": (export, ro_local), "the mount": (point, ro_point)}
        cls.addClassCleanup(os.umask, os.umask(0o022))
        cls.addClassCleanup(os.chdir, os.getcwd())

    def test_canary_what_is_wrong_is_noticed(self):
        place = Place(self, *self.sides["the mount"], ["as the file system"])
        with self.assertRaises(AssertionError):
            place.refused(errno.ENOENT, os.stat, place.root)
        with self.assertRaises(AssertionError):
            place.same("otherwise")
        for moved, change in (("c", lambda: None), ("", lambda: os.chmod(place.root, 0o755))):
            with self.assertRaises(AssertionError), place.moving({place.root: moved}):
                change()

    # --- Errors that every call gives -----------------------------------------------------------------

    @on_both_sides
    def test_a_path_through_what_is_no_directory(p):
        for kind in set(KINDS) - {"dir", "symlink"}:
            through = p.new(kind)
            for call in every_call(p).values():
                p.refused(errno.ENOTDIR, call, through / "x")

    @on_both_sides
    def test_names_and_paths_too_long(p):
        longest = "n" * NAME_MAX
        make("file", p / longest)
        os.rename(p / longest, p / ("m" * NAME_MAX))
        os.unlink(p / ("m" * NAME_MAX))
        as_long = os.path.join(p.root, *["."] * PATH_MAX)
        for call in every_call(p).values():
            p.refused(errno.ENAMETOOLONG, call, p / (longest + "n"))
        for call in (os.stat, os.mkdir, os.unlink, os.rmdir, os.mkfifo, os.listdir):
            p.refused(errno.ENAMETOOLONG, call, as_long[:PATH_MAX])

    @on_both_sides
    def test_the_longest_path(p):
        os.chdir(p.root)
        deep = "/".join(["d" * 200] * 20)
        os.makedirs(deep)
        rest = PATH_MAX - 1 - len(deep) - 1
        path = pathlib.Path(deep) / ("f" * min(rest, NAME_MAX))
        path.write_text("deep")
        p.equal(path.read_text(), "deep")
        os.chdir("/")

    @on_both_sides
    def test_what_is_not_there(p):
        for call in every_call(p).values():
            p.refused(errno.ENOENT, call, p / "missing" / "x")
        for call in (LOOK | ALTER | REMOVE | {"link from": two_paths(p)["link from"]}).values():
            p.refused(errno.ENOENT, call, p / "missing")
            p.refused(errno.ENOENT, call, p / "missing")  # from what is remembered of it
        dangling = p.new("symlink")
        for name, call in (LOOK | ALTER).items():
            if name not in ("lstat", "readlink", "lchown"):
                p.refused(errno.ENOENT, call, dangling)
        opened(p / "through", os.O_CREAT | os.O_WRONLY)

    @on_both_sides
    def test_too_many_symbolic_links(p):
        os.symlink("b", p / "a")
        os.symlink("a", p / "b")
        for call in every_call(p).values():
            p.refused(errno.ELOOP, call, p / "a" / "x")
        for name, call in (LOOK | ALTER).items():
            if name not in ("lstat", "readlink", "lchown"):
                p.refused(errno.ELOOP, call, p / "a")
        p.refused(errno.ELOOP, opened, p / "a", os.O_RDONLY | os.O_NOFOLLOW)
        last = p.new("dir")
        for number in range(39):  # 40 are followed
            os.symlink(last.name, p / f"s{number}")
            last = p / f"s{number}"
        os.listdir(last)

    @on_both_sides
    def test_names_taken(p):
        for kind in KINDS:
            taken = p.new(kind)
            for call in (CREATE | {"link to": two_paths(p)["link to"]}).values():
                p.refused(errno.EEXIST, call, taken)

    @on_both_sides
    def test_directories_that_may_not_be_searched(p):
        private = p.new("dir", 0o755, ALICE)
        inner = p.new("file", 0o666, BOB, private)
        for mode in (0o700, 0o766):
            os.chmod(private, mode)
            with acting(BOB):
                for call in (LOOK | ALTER | REMOVE | CREATE).values():
                    p.refused(errno.EACCES, call, inner)
        os.chmod(private, 0o711)
        with acting(BOB):
            p.equal(os.stat(inner).st_uid, BOB)
            p.refused(errno.EACCES, os.listdir, private)

    @on_both_sides
    def test_directories_that_may_not_be_written(p):
        closed = p.new("dir", 0o755, ALICE)
        inner = p.new("file", 0o666, BOB, closed)
        with acting(BOB):
            for call in CREATE.values():
                p.refused(errno.EACCES, call, closed / "x")
            p.refused(errno.EACCES, os.unlink, inner)
            p.refused(errno.EACCES, os.rename, inner, p / "away")
            mine = p.new()
            p.refused(errno.EACCES, os.rename, mine, closed / "x")
            p.refused(errno.EACCES, os.rename, mine, inner)
            p.refused(errno.EACCES, os.link, mine, closed / "x")
        os.rename(inner, p / "away")

    @on_both_sides
    def test_slashes_at_the_end(p):
        folder, file, link = p.new("dir"), p.new(), p / "to folder"
        os.symlink(folder.name, link)
        for name, call in (LOOK | ALTER | {"unlink": os.unlink, "rmdir": os.rmdir}).items():
            p.equal((name, outcome(call, f"{file}/")), (name, "ENOTDIR"))
        p.refused(errno.EISDIR, opened, f"{folder}/", os.O_CREAT | os.O_WRONLY)
        p.refused(errno.EISDIR, opened, f"{p / 'new'}/", os.O_CREAT | os.O_WRONLY)
        p.refused(errno.ENOENT, os.symlink, "x", f"{p / 'new'}/")
        p.refused(errno.ENOENT, os.link, file, f"{p / 'new'}/")
        p.refused(errno.ENOENT, os.mknod, f"{p / 'new'}/")
        p.equal(stat.S_ISDIR(os.lstat(f"{link}/").st_mode), True)
        for call in (os.unlink, os.rmdir):
            p.same(outcome(call, f"{link}/"))
        os.mkdir(f"{p / 'made'}/")
        os.rename(f"{p / 'made'}/", f"{p / 'moved'}/")
        os.rmdir(f"{p / 'moved'}/")

    @on_both_sides
    def test_dots_and_nothing(p):
        folder = p.new("dir")
        for call in (LOOK | ALTER | CREATE).values():
            p.refused(errno.ENOENT, call, "")
        for dots in (f"{folder}/.", f"{folder}/.."):
            for name in ("mkdir", "mkfifo", "mknod", "symlink"):
                p.refused(errno.EEXIST, CREATE[name], dots)
            p.refused(errno.EISDIR, os.unlink, dots)
            p.refused(errno.EEXIST, os.link, p.new(), dots)
            p.same(outcome(opened, dots, os.O_CREAT | os.O_WRONLY))
            p.same(outcome(os.rename, p.new(), dots))

    @on_both_sides
    def test_what_is_refused_moves_no_time(p):
        folder, file, full = p.new("dir"), p.new("file", 0o644, ALICE), p.new("dir")
        inner = p.new("dir", inside=full)
        calls = [lambda: os.mkdir(folder), lambda: os.mkfifo(file), lambda: os.symlink("x", file),
                 lambda: os.link(file, folder), lambda: os.link(folder, p / "x"), lambda: os.rmdir(full),
                 lambda: os.rmdir(file), lambda: os.unlink(folder), lambda: os.rename(file, folder),
                 lambda: os.rename(folder, file), lambda: os.rename(folder, full), lambda: os.rename(full, inner / "x"),
                 lambda: os.rename(p / "missing", file), lambda: opened(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY),
                 lambda: opened(folder, os.O_WRONLY), lambda: os.truncate(file, -1),
                 lambda: os.removexattr(file, "user.missing")]
        by_bob = [lambda: os.chown(file, BOB, BOB), lambda: os.utime(file, (1, 1)),
                  lambda: opened(file, os.O_WRONLY | os.O_TRUNC), lambda: os.setxattr(file, "user.x", b""),
                  lambda: os.unlink(inner), lambda: os.mkdir(full / "x")]

        def refuse_all():
            for number, call in enumerate(calls):
                p.test.assertNotEqual(outcome(call), "done", number)
            with acting(BOB):
                for number, call in enumerate(by_bob):
                    p.test.assertNotEqual(outcome(call), "done", number)
        refuse_all()  # from here on the times of directories are the server's (SEMANTICS D6)
        with p.moving({path: "" for path in (p.root, folder, file, full, inner)}):
            refuse_all()

    @on_both_sides
    def test_read_only(p):
        make("file", p / "file")
        make("dir", p / "dir")
        there = p.read_only
        for name, call in ALTER.items():
            p.equal((name, outcome(call, there / "file")), (name, "EROFS"))
        for name in ("unlink", "rename from"):
            p.refused(errno.EROFS, REMOVE[name], there / "file")
        p.refused(errno.EROFS, os.rmdir, there / "dir")
        for call in CREATE.values():
            p.refused(errno.EROFS, call, there / "new")
        p.refused(errno.EROFS, os.link, there / "file", there / "new")
        p.equal((there / "file").read_bytes(), b"")

    # --- Making -----------------------------------------------------------------------------------------

    @on_both_sides
    def test_what_is_made_has_mode_owner_and_times(p):
        makers = {"file": lambda path, mode: opened(path, os.O_CREAT | os.O_WRONLY, mode), "dir": os.mkdir,
                  "fifo": os.mkfifo, "socket": lambda path, mode: os.mknod(path, stat.S_IFSOCK | mode)}
        for kind, call in makers.items():
            for mode, umask, result in ((0o755, 0, 0o755), (0o151, 0, 0o151), (0o777, 0o077, 0o700),
                                        (0o345, 0o022, 0o345), (0o777, 0o501, 0o276)):
                path = p.free()
                os.umask(umask)
                with p.moving({p.root: "mc"}), acting(ALICE, BOB):
                    call(path, mode)
                os.umask(0o022)
                found = os.lstat(path)
                p.equal((stat.S_IFMT(found.st_mode), mode_of(path), found.st_uid, found.st_gid),
                        (KINDS[kind], result, ALICE, BOB), kind)
                p.test.assertGreaterEqual(found.st_mtime_ns, p.now())

    @on_both_sides
    def test_device_nodes(p):
        for kind in ("block", "char"):
            path = p.free()
            os.mknod(path, KINDS[kind] | 0o600, os.makedev(7, 300))
            found = os.lstat(path)
            p.equal((stat.S_IFMT(found.st_mode), os.major(found.st_rdev), os.minor(found.st_rdev)),
                    (KINDS[kind], 7, 300))
            with acting(ALICE):
                p.refused(errno.EPERM, os.mknod, p.free(), KINDS[kind] | 0o600, os.makedev(1, 3))
        null = p.free()
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        null.write_text("gone")
        p.equal(null.read_text(), "")

    @on_both_sides
    def test_kinds_that_mknod_does_not_make(p):
        for kind in (stat.S_IFDIR, stat.S_IFLNK):
            p.same(outcome(os.mknod, p.free(), kind | 0o755))
        with acting(ALICE):
            for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                path = p.free()
                os.mknod(path, kind | 0o640)
                p.equal((mode_of(path), os.lstat(path).st_uid), (0o640, ALICE))

    @on_both_sides
    def test_fifos_carry_bytes(p):
        fifo = p.new("fifo")
        p.refused(errno.ENXIO, opened, fifo, os.O_WRONLY | os.O_NONBLOCK)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(writer, b"through")
        p.equal(os.read(reader, 100), b"through")
        os.close(reader)
        os.close(writer)

    @on_both_sides
    def test_sockets_are_met_through_their_name(p):
        os.chdir(p.root)
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("socket")
            server.listen()
            client.connect("socket")
        p.refused(errno.ENXIO, opened, "socket", os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as late:
            p.refused(errno.ECONNREFUSED, late.connect, "socket")
        os.chdir("/")

    @on_both_sides
    def test_set_group_id_directories_give_their_group(p):
        shared = p.new("dir", 0o2777)
        os.chown(shared, ALICE, CAROL)
        os.chmod(shared, 0o2777)
        with acting(BOB):
            for kind in ("file", "dir"):
                path = p.new(kind, 0o755, inside=shared)
                p.equal(os.stat(path).st_gid, CAROL)
            os.mkdir(shared / "inherits")
            opened(shared / "no group", os.O_CREAT | os.O_WRONLY, 0o2775)
        p.equal(mode_of(shared / "inherits") & 0o2000, 0o2000)
        p.same(mode_of(shared / "no group"))

    @on_both_sides
    def test_symbolic_links(p):
        for length in (1, 255, 1000, PATH_MAX - 1):
            target, path = "t" * length, p.free()
            with p.moving({p.root: "mc"}):
                os.symlink(target, path)
            p.equal((os.readlink(path), os.lstat(path).st_size, mode_of(path)), (target, length, 0o777))
        p.refused(errno.ENAMETOOLONG, os.symlink, "t" * PATH_MAX, p.free())
        p.refused(errno.ENOENT, os.symlink, "", p.free())
        p.refused(errno.EINVAL, os.readlink, p.new())
        p.refused(errno.EINVAL, os.readlink, p.new("dir"))
        with acting(ALICE):
            link = p.new("symlink")
        p.equal(os.lstat(link).st_uid, ALICE)

    # --- Modes and owners ------------------------------------------------------------------------------

    @on_both_sides
    def test_chmod(p):
        for kind in set(KINDS) - {"symlink"}:
            path = p.new(kind)
            for mode in (0o000, 0o111, 0o644, 0o1755, 0o7777):
                with p.moving({path: "c", p.root: ""} if kind != "dir" else {path: "c"}):
                    os.chmod(path, mode)
                p.equal(mode_of(path), mode, kind)
        link = p / "link"
        file = p.new()
        os.symlink(file.name, link)
        os.chmod(link, 0o321)
        p.equal((mode_of(file), mode_of(link)), (0o321, 0o777))
        p.same(outcome(os.chmod, link, 0o600, follow_symlinks=False) if os.chmod in os.supports_follow_symlinks else "")
        file = p.new("file", 0o644, ALICE)
        with acting(BOB), p.moving({file: ""}):
            p.refused(errno.EPERM, os.chmod, file, 0o666)
        with acting(ALICE):
            os.chmod(file, 0o640)

    @on_both_sides
    def test_chmod_by_who_is_not_of_the_group_drops_set_group_id(p):
        for kind in ("file", "dir"):
            path = p.new(kind, 0o755)
            os.chown(path, ALICE, BOB)
            with acting(ALICE):
                os.chmod(path, 0o2755)
            p.equal(mode_of(path), 0o755)
            with acting(ALICE, groups=[BOB]):
                os.chmod(path, 0o2755)
            p.equal(mode_of(path), 0o2755)
        file = p.new("file", 0o644, ALICE)
        with acting(ALICE):
            os.chmod(file, 0o1644)
        p.same(mode_of(file))

    @on_both_sides
    def test_chown(p):
        for kind in KINDS:
            path = p.new(kind)
            for uid, gid, result in ((ALICE, BOB, (ALICE, BOB)), (-1, CAROL, (ALICE, CAROL)),
                                     (BOB, -1, (BOB, CAROL)), (0, 0, (0, 0))):
                with p.moving({path: "c"}):
                    os.chown(path, uid, gid, follow_symlinks=False)
                found = os.lstat(path)
                p.equal((found.st_uid, found.st_gid), result, kind)
        file = p.new("file", 0o644, ALICE)
        os.symlink(file.name, p / "link")
        os.chown(p / "link", BOB, BOB)
        p.equal((os.stat(file).st_uid, os.lstat(p / "link").st_uid), (BOB, 0))

    @on_both_sides
    def test_chown_by_others_than_root(p):
        file = p.new("file", 0o644, ALICE)
        with acting(ALICE, groups=[CAROL]):
            with p.moving({file: "c"}):
                os.chown(file, -1, CAROL)
            os.chown(file, ALICE, ALICE)
            p.refused(errno.EPERM, os.chown, file, BOB, -1)
            p.refused(errno.EPERM, os.chown, file, -1, BOB)
        with acting(BOB, groups=[CAROL]), p.moving({file: ""}):
            p.refused(errno.EPERM, os.chown, file, BOB, -1)
            p.refused(errno.EPERM, os.chown, file, -1, CAROL)
        with acting(BOB):
            p.same(outcome(os.chown, file, -1, -1))

    @on_both_sides
    def test_chown_takes_set_user_id_away(p):
        for who in (0, ALICE):
            for kind, mode in (("file", 0o6755), ("file", 0o6644), ("file", 0o2745), ("dir", 0o6755)):
                path = p.new(kind, mode, ALICE)
                os.chmod(path, mode)
                with acting(who, groups=[CAROL]):
                    os.chown(path, -1, CAROL)
                p.same(oct(mode_of(path)))

    @on_both_sides
    def test_writing_takes_set_user_id_away(p):
        changes = {"write": lambda path: path.write_bytes(b"x"), "truncate": lambda path: os.truncate(path, 3),
                   "ftruncate": lambda path: with_fd(path, os.O_RDWR, lambda fd: os.ftruncate(fd, 4)),
                   "write in place": lambda path: with_fd(path, os.O_WRONLY, lambda fd: os.pwrite(fd, b"y", 1)),
                   "allocate": lambda path: with_fd(path, os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 9))}
        for who in (ALICE, BOB, 0):
            for mode in (0o6777, 0o4777, 0o2777, 0o4766):  # FUSE leaves set-group-ID that is no such thing: no x for the group
                for change in changes.values():
                    path = p.new("file", 0o666, ALICE)
                    os.chmod(path, mode)
                    with acting(who):
                        change(path)
                    p.same((who, oct(mode_of(path))))

    @on_both_sides
    def test_the_rights_of_owner_group_and_others(p):
        def gives(path, flags):
            return outcome(opened, path, flags) == "done"
        for bits in range(8):
            for who, shift, uid, groups in (("owner", 6, ALICE, []), ("group", 3, BOB, [ALICE]), ("others", 0, BOB, [])):
                # Who is not meant has all rights: the class that fits first decides alone.
                file = p.new("file", 0o777 & ~(7 << shift) | bits << shift, ALICE)
                directory = p.new("dir", 0o777 & ~(7 << shift) | bits << shift, ALICE)
                make("file", directory / "in")
                with acting(uid, groups=groups):
                    p.equal((gives(file, os.O_RDONLY), gives(file, os.O_WRONLY), gives(file, os.O_RDWR)),
                            (bits & 4 != 0, bits & 2 != 0, bits & 6 == 6), (who, bits))
                    p.equal((outcome(os.listdir, directory) == "done", outcome(os.stat, directory / "in") == "done",
                             outcome(os.mkdir, directory / "new") == "done",
                             outcome(os.unlink, directory / "in") == "done"),
                            (bits & 4 != 0, bits & 1 != 0, bits & 3 == 3, bits & 3 == 3), (who, bits))
        with acting(ALICE):
            made = os.open(p / "without rights", os.O_CREAT | os.O_RDWR, 0)  # rights are asked of the next
            os.write(made, b"x")
            os.close(made)
            p.refused(errno.EACCES, opened, p / "without rights", os.O_RDONLY)

    @on_both_sides
    def test_sticky_directories(p):
        for directory_of in (ALICE, BOB):
            sticky = p.new("dir", 0o1777, directory_of)
            os.chmod(sticky, 0o1777)
            for owner in (ALICE, CAROL):
                for kind in ("file", "dir", "fifo", "symlink"):
                    for who in (ALICE, BOB, CAROL, 0):
                        allowed = who in (0, owner, directory_of)
                        remove = os.rmdir if kind == "dir" else os.unlink
                        victims = [p.new(kind, 0o777, owner, sticky) for _ in range(3)]
                        mine = p.new(kind, 0o777, who)
                        with acting(who):
                            results = [outcome(remove, victims[0]), outcome(os.rename, mine, victims[1]),
                                       outcome(os.rename, victims[2], p.free())]
                        allowed_to_move = "done" if allowed else "EPERM"
                        if kind == "dir" and allowed and who not in (0, owner):
                            p.same(results[2])  # moving a directory writes its ".."
                            results.pop()
                        p.equal(set(results), {allowed_to_move}, (directory_of, owner, kind, who))

    # --- Links -------------------------------------------------------------------------------------------

    @on_both_sides
    def test_hard_links(p):
        for kind in set(KINDS) - {"dir"}:
            one, two, three = p.new(kind), p.free(), p.free()
            with p.moving({one: "c", p.root: "mc"}):
                os.link(one, two, follow_symlinks=False)
            os.link(two, three, follow_symlinks=False)
            if kind != "symlink":
                os.chmod(three, 0o600)
            stats = {path: os.lstat(path) for path in (one, two, three)}
            p.equal(len(set(stats.values())), 1, kind)
            p.equal(stats[one].st_nlink, 3)
            with p.moving({one: "c", p.root: "mc"}):
                os.unlink(two)
            os.unlink(three)
            p.equal(os.lstat(one).st_nlink, 1)
        file = p.new()
        os.link(file, p / "other")
        file.write_text("the same bytes")
        p.equal((p / "other").read_text(), "the same bytes")
        p.refused(errno.EPERM, os.link, p.new("dir"), p.free())
        with acting(ALICE):
            p.refused(errno.EPERM, os.link, p.new("dir"), p.free())

    @on_both_sides
    def test_too_many_links(p):
        most = os.pathconf(p.test.export, "PC_LINK_MAX")
        if not 1000 < most < EMLINK_AT_MOST:
            return
        folder = p.new("dir")
        make("file", folder / "0")
        there = p.test.export / folder.relative_to(p.root.parent)
        harness.wait_until((there / "0").exists, 10, "the file on the server")
        for number in range(1, most):
            os.link(there / "0", there / str(number))
        p.refused(errno.EMLINK, os.link, folder / "0", p.free())
        shutil.rmtree(there)

    @on_both_sides
    def test_unlink(p):
        for kind in set(KINDS) - {"dir"}:
            path = p.new(kind)
            with p.moving({p.root: "mc"}):
                os.unlink(path)
            p.refused(errno.ENOENT, os.lstat, path)
        p.refused(errno.EISDIR, os.unlink, p.new("dir"))
        path = p.new()
        path.write_text("still here")
        with open(path, "r+") as file, p.moving({p.root: "mc"}):
            os.unlink(path)
            p.equal((file.read(), os.fstat(file.fileno()).st_nlink), ("still here", 0))
            file.write(", and longer")
            file.flush()
            os.fchmod(file.fileno(), 0o600)
            os.ftruncate(file.fileno(), 20)
            file.seek(0)
            p.equal((file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)), ("still here, and long", 0o600))
            p.refused(errno.ENOENT, os.stat, path)
            make("file", path)  # the name is free again
        p.equal(path.read_text(), "")

    @on_both_sides
    def test_a_running_program(p):
        program = p / "program"
        shutil.copy("/bin/sleep", program)
        running = subprocess.Popen([program, str(PROGRAM_SECONDS * 10)])
        try:
            # Since when Linux starts the program before Popen returns, it is running.
            p.same((outcome(opened, program, os.O_WRONLY), outcome(opened, program, os.O_RDWR | os.O_TRUNC),
                    outcome(os.truncate, program, 1)))
            os.rename(program, p / "renamed")
            os.unlink(p / "renamed")
        finally:
            running.kill()
            running.wait(PROGRAM_SECONDS)
        shutil.copy("/bin/true", program)
        with open(program, "r+b"):
            p.refused(errno.ETXTBSY, subprocess.run, [program])
        subprocess.run([program], check=True, timeout=PROGRAM_SECONDS)

    # --- Directories -----------------------------------------------------------------------------------

    @on_both_sides
    def test_rmdir(p):
        parent = p.new("dir")
        p.equal(os.stat(parent).st_nlink, 2)
        child = p.new("dir", inside=parent)
        p.same(os.stat(parent).st_nlink)
        for error, path in ((errno.ENOTEMPTY, parent), (errno.EINVAL, f"{child}/."), (errno.ENOTEMPTY, f"{child}/..")):
            p.refused(error, os.rmdir, path)
        with p.moving({parent: "mc"}):
            os.rmdir(child)
        p.same(os.stat(parent).st_nlink)
        for kind in set(KINDS) - {"dir"}:
            p.refused(errno.ENOTDIR, os.rmdir, p.new(kind))
            one = p.new(kind, inside=parent)
            p.refused(errno.ENOTEMPTY, os.rmdir, parent)
            os.unlink(one)
        link = p / "to parent"
        os.symlink(parent.name, link)
        p.refused(errno.ENOTDIR, os.rmdir, link)
        os.rmdir(parent)

    @on_both_sides
    def test_a_directory_removed_from_under_somebody(p):
        folder = p.new("dir")
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.chdir(folder)
        os.rmdir(folder)
        p.refused(errno.ENOENT, os.getcwd)
        p.refused(errno.ENOENT, os.mkdir, "new")
        p.refused(errno.ENOENT, opened, "new", os.O_CREAT | os.O_WRONLY)
        p.equal(os.listdir(fd), [])
        p.same(os.fstat(fd).st_nlink)
        os.chdir("/")
        os.close(fd)

    @on_both_sides
    def test_a_directory_that_is_gone_can_still_be_asked(p):
        def removed():
            folder = p.new("dir")
            return folder, lambda: os.rmdir(folder)

        def replaced():
            folder, other = p.new("dir"), p.new("dir")
            return folder, lambda: os.rename(other, folder)

        for way in (removed, replaced):
            folder, remove = way()
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            remove()
            for _ in range(2):
                p.same(os.fstat(fd).st_nlink)
                for call in (lambda: os.fchmod(fd, 0o711), lambda: os.utime(fd, ns=(5, 6)), lambda: os.fchown(fd, 1, 2),
                             lambda: os.fsync(fd), lambda: os.close(os.open(".", os.O_RDONLY, dir_fd=fd))):
                    p.equal(outcome(call), "done")
                told = os.fstat(fd)
                p.equal((stat.S_IMODE(told.st_mode), told.st_mtime_ns, told.st_uid, told.st_gid), (0o711, 6, 1, 2))
                p.equal(os.listxattr(fd), [])
                p.refused(errno.ENODATA, os.getxattr, fd, "user.colour")
                p.refused(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
                pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
            os.close(fd)

    @on_both_sides
    def test_mount_points_are_busy(p):
        point = p.new("dir")
        run_in(None, ["mount", "-t", "tmpfs", "none", point], PROGRAM_SECONDS)
        try:
            p.refused(errno.EBUSY, os.rmdir, point)
            p.refused(errno.EBUSY, os.rename, point, p.free())
            p.refused(errno.EBUSY, os.rename, p.new("dir"), point)
            p.refused(errno.EXDEV, os.rename, p.new(), point / "x")
            p.refused(errno.EXDEV, os.link, p.new(), point / "x")
        finally:
            run_in(None, ["umount", point], PROGRAM_SECONDS)
        os.rmdir(point)

    @on_both_sides
    def test_listings(p):
        folder = p.new("dir")
        names = {f"name {number} \N{SNOWMAN}" for number in range(500)} | {b"\xff\xfe".decode(errors="surrogateescape")}
        for name in names:
            make("file", folder / name)
        kinds = {p.new(kind, inside=folder).name: kind for kind in KINDS}
        p.equal(set(os.listdir(folder)), names | set(kinds))
        with os.scandir(folder) as entries:
            found = {entry.name: entry for entry in entries}
        for name, kind in kinds.items():
            p.equal((found[name].is_file(follow_symlinks=False), found[name].is_dir(follow_symlinks=False),
                     found[name].is_symlink(), found[name].inode()),
                    (kind == "file", kind == "dir", kind == "symlink", os.lstat(folder / name).st_ino))
        p.equal(os.stat(p / ".." / p.root.name).st_ino, os.stat(p.root).st_ino)

    @on_both_sides
    def test_what_is_added_or_removed_while_it_is_listed(p):
        for number in range(300):
            make("file", p / f"old{number}")
        with os.scandir(p.root) as entries:
            seen = [next(entries).name for _ in range(10)]
            for number in range(300):
                if f"old{number}" not in seen:
                    os.unlink(p / f"old{number}")
                    seen.append(f"old{number}")
                    break
            make("file", p / "new")
            rest = [entry.name for entry in entries]
        listed = seen[:10] + rest
        p.equal(len(listed), len(set(listed)), "nothing twice")
        p.equal({f"old{number}" for number in range(300)} - set(listed) - set(seen[10:]), set(), "nothing left out")

    # --- Renaming ---------------------------------------------------------------------------------------

    @on_both_sides
    def test_rename(p):
        for kind in KINDS:
            source, target = p.new(kind), p.free()
            before = os.lstat(source)
            with p.moving({p.root: "mc", (source, target): "c"}):
                os.rename(source, target)
            after = os.lstat(target)
            p.equal((after.st_ino, after.st_mode, after.st_mtime_ns), (before.st_ino, before.st_mode, before.st_mtime_ns))
            p.refused(errno.ENOENT, os.lstat, source)
            other = p.new("dir")
            with p.moving({p.root: "mc", other: "mc", (target, other / "in"): "c"} if kind != "dir"
                          else {p.root: "mc", other: "mc"}):
                os.rename(target, other / "in")
            os.rename(other / "in", source)

    @on_both_sides
    def test_rename_over_what_is_there(p):
        for source_kind in KINDS:
            for target_kind in KINDS:
                source, target = p.new(source_kind), p.new(target_kind)
                expected = ("done" if (source_kind == "dir") == (target_kind == "dir")
                            else "ENOTDIR" if source_kind == "dir" else "EISDIR")
                inode = os.lstat(source).st_ino
                p.equal(outcome(os.rename, source, target), expected, (source_kind, target_kind))
                if expected == "done":
                    p.equal(os.lstat(target).st_ino, inode)
                    p.refused(errno.ENOENT, os.lstat, source)
        full = p.new("dir")
        p.new(inside=full)
        p.same(outcome(os.rename, p.new("dir"), full))
        target = p.new()
        os.link(target, p / "kept")
        with p.moving({p / "kept": "c"}):
            os.rename(p.new(), target)
        p.equal(os.stat(p / "kept").st_nlink, 1)
        target.write_text("old")
        with open(target) as file:
            source = p.new()
            source.write_text("new")
            os.rename(source, target)
            p.equal((file.read(), target.read_text()), ("old", "new"))

    @on_both_sides
    def test_rename_that_cannot_be(p):
        folder = p.new("dir")
        inner = p.new("dir", inside=folder)
        for error, source, target in (
                (errno.EINVAL, folder, inner / "x"), (errno.EINVAL, folder, folder / "x"), (errno.ENOTEMPTY, inner, folder),
                (errno.EBUSY, f"{folder}/.", p.free()), (errno.EBUSY, f"{folder}/..", p.free()),
                (errno.ENOENT, p / "missing", p.free()), (errno.ENOTDIR, p.new(), f"{p.new()}/")):
            p.refused(error, os.rename, source, target)
        one = p.new()
        os.link(one, p / "two")
        with p.moving({one: "", p.root: ""}):
            os.rename(one, p / "two")  # the same file: nothing is done
        p.equal(os.stat(one).st_nlink, 2)
        os.rename(one, one)
        p.test.assertTrue(one.exists())

    @on_both_sides
    def test_rename_counts_the_links_of_directories(p):
        source, target, moved = p.new("dir"), p.new("dir"), "moved"
        os.mkdir(source / moved)
        os.mkdir(target / "replaced")

        def links():
            return [os.stat(path).st_nlink for path in (p.root, source, target)]
        p.equal(links()[1:], [3, 3])
        with p.moving({source: "mc", target: "mc"}):
            os.rename(source / moved, target / "replaced")
        p.equal(links()[1:], [2, 3])
        os.rename(target / "replaced", p / moved)
        p.equal(links()[1:], [2, 2])
        renameat2(p / moved, target, RENAME_EXCHANGE)
        p.equal([os.stat(path).st_nlink for path in (p / moved, target)], [2, 2])

    @on_both_sides
    def test_rename_of_a_directory_writes_its_parent_entry(p):
        moved = p.new("dir", 0o555, ALICE)
        target = p.new("dir", 0o777, ALICE)
        with acting(ALICE):
            p.refused(errno.EACCES, os.rename, moved, target / "x")
            os.rename(moved, p / "same parent")
        os.rename(p / "same parent", target / "x")
        p.equal(os.stat(target / "x" / "..").st_ino, os.stat(target).st_ino)

    @on_both_sides
    def test_rename_with_flags(p):
        one, two = p.new(), p.new("dir")
        p.refused(errno.EEXIST, renameat2, one, two, RENAME_NOREPLACE)
        renameat2(one, p / "free", RENAME_NOREPLACE)
        with p.moving({p.root: "mc"}):
            renameat2(p / "free", two, RENAME_EXCHANGE)
        p.equal(((p / "free").is_dir(), two.is_file()), (True, True))
        p.refused(errno.ENOENT, renameat2, two, p / "missing", RENAME_EXCHANGE)
        p.refused(errno.EINVAL, renameat2, two, p / "free", RENAME_EXCHANGE | RENAME_NOREPLACE)

    @on_both_sides
    def test_other_file_systems(p):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
            away = pathlib.Path(elsewhere) / "x"
            p.refused(errno.EXDEV, os.rename, p.new(), away)
            p.refused(errno.EXDEV, os.link, p.new(), away)
            make("file", away)
            p.refused(errno.EXDEV, os.rename, away, p.free())
            p.refused(errno.EXDEV, os.link, away, p.free())

    @on_both_sides
    def test_a_rename_that_leaves_a_whiteout(p):
        one, two = p.new(), p.new()
        for target in (two, p / "free"):
            renameat2(one, target, RENAME_WHITEOUT)
            left = os.lstat(one)
            p.equal((stat.S_ISCHR(left.st_mode), left.st_rdev, stat.S_IMODE(left.st_mode), left.st_uid),
                    (True, 0, 0, 0))
            p.test.assertTrue(target.is_file())
            os.unlink(one)
            one = p.new()
        p.refused(errno.EINVAL, renameat2, one, two, RENAME_WHITEOUT | RENAME_EXCHANGE)
        p.same(outcome(renameat2, one, two, RENAME_WHITEOUT | RENAME_NOREPLACE))

    # --- Opening, reading, writing ---------------------------------------------------------------------

    @on_both_sides
    def test_open(p):
        folder, file = p.new("dir"), p.new()
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
            p.refused(errno.EISDIR, opened, folder, flags)
        p.refused(errno.ENOTDIR, opened, file, os.O_DIRECTORY)
        p.refused(errno.EEXIST, opened, file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.symlink(file.name, p / "link")
        p.refused(errno.ELOOP, opened, p / "link", os.O_NOFOLLOW)
        p.refused(errno.EEXIST, opened, p / "link", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.symlink("made through it", p / "dangling")
        opened(p / "dangling", os.O_CREAT | os.O_WRONLY)
        p.test.assertTrue((p / "made through it").is_file())
        p.refused(errno.EBADF, with_fd, file, os.O_RDONLY, lambda fd: os.write(fd, b"x"))
        p.refused(errno.EBADF, with_fd, file, os.O_WRONLY, lambda fd: os.read(fd, 1))
        p.refused(errno.EISDIR, with_fd, folder, os.O_RDONLY, lambda fd: os.read(fd, 1))
        p.refused(errno.EBADF, with_fd, file, OPEN_FOR_IOCTL, lambda fd: os.read(fd, 1))
        p.refused(errno.EBADF, with_fd, file, OPEN_FOR_IOCTL, lambda fd: os.write(fd, b"x"))
        only_readable = p.new("file", 0o444, ALICE)
        with acting(BOB):
            p.refused(errno.EACCES, opened, only_readable, OPEN_FOR_IOCTL)
        with p.moving({file: "", p.root: ""}):
            opened(file, os.O_RDWR | os.O_CREAT)
        file.write_text("content")
        with p.moving({file: "mc"}):
            opened(file, os.O_WRONLY | os.O_TRUNC)
        p.equal(os.stat(file).st_size, 0)
        p.test.assertIn(outcome(opened, p.root, os.O_RDWR | os.O_TMPFILE), ("done", "EOPNOTSUPP", "ENOTSUP"))

    @on_both_sides
    def test_opening_what_is_there_to_create_it(p):
        file = p.new("file", 0o640, ALICE)
        file.write_text("content")
        with p.moving({file: "", p.root: ""}):
            opened(file, os.O_CREAT | os.O_WRONLY, 0o777)
        with p.moving({file: "mc", p.root: ""}):
            opened(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o777)
        found = os.stat(file)
        p.equal((mode_of(file), found.st_uid, found.st_size), (0o640, ALICE, 0))
        closed = p.new("dir", 0o755, ALICE)
        inner = p.new("file", 0o666, ALICE, closed)
        with acting(BOB):
            opened(inner, os.O_CREAT | os.O_WRONLY)  # nothing is made in the directory
            p.refused(errno.EEXIST, opened, inner, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        p.same(outcome(opened, closed, os.O_CREAT | os.O_DIRECTORY))

    @on_both_sides
    def test_truncating_by_opening_wants_the_right_to_write(p):
        for flags in (os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_TRUNC, os.O_CREAT | os.O_RDONLY | os.O_TRUNC):
            file = p.new("file", 0o644, ALICE)
            file.write_text("content")
            with acting(BOB), p.moving({file: ""}):
                p.refused(errno.EACCES, opened, file, flags)
            p.equal(file.read_text(), "content")
            with acting(ALICE):
                opened(file, flags)
            p.same(os.stat(file).st_size)

    @on_both_sides
    def test_an_open_file_keeps_the_rights_it_was_opened_with(p):
        file = p.new("file", 0o644, ALICE)
        with acting(ALICE):
            fd = os.open(file, os.O_RDWR)
        os.chown(file, BOB, BOB)
        os.chmod(file, 0)
        with acting(ALICE):
            p.refused(errno.EACCES, opened, file, os.O_RDONLY)
            os.write(fd, b"0123456789")
            os.ftruncate(fd, 5)
            os.fsync(fd)
            p.equal(os.pread(fd, 10, 0), b"01234")
            p.refused(errno.EPERM, os.fchmod, fd, 0o644)
            p.refused(errno.EPERM, os.utime, fd, (1, 1))
        with acting(BOB):
            os.fchmod(fd, 0o600)
        os.close(fd)
        p.equal((file.read_bytes(), mode_of(file)), (b"01234", 0o600))

    @on_both_sides
    def test_appending(p):
        path = p.new()
        path.write_text("0123456789")
        with open(path, "r+b", buffering=0) as other, open(path, "ab", buffering=0) as file:
            file.write(b"a")
            p.equal(file.tell(), 11)
            os.pwrite(file.fileno(), b"b", 3)  # Linux appends all the same
            other.seek(0, os.SEEK_END)
            other.write(b"c")
            file.write(b"d")
            os.ftruncate(file.fileno(), 4)
            file.write(b"e")
        p.equal(path.read_bytes(), b"0123e")

    @on_both_sides
    def test_too_many_open_files(p):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        path, taken = p.new(), []
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        try:
            p.refused(errno.EMFILE, lambda: taken.extend(os.open(path, os.O_RDONLY) for _ in range(200)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in taken:
                os.close(fd)

    @on_both_sides
    def test_reading_and_writing(p):
        path = p.new()
        with open(path, "r+b", buffering=0) as file:
            with p.moving({path: "mc"}):
                file.write(b"0123456789")
                os.fsync(file.fileno())
            with p.moving({path: ""}):
                file.seek(5)
                p.equal(file.read(), b"56789")
            p.equal(os.pread(file.fileno(), 10, 10), b"")
            p.equal(os.pwritev(file.fileno(), [b"a", b"b"], 100), 2)
            p.equal(os.fstat(file.fileno()).st_size, 102)
            p.equal(os.pread(file.fileno(), 200, 8), b"89" + bytes(90) + b"ab")
            with p.moving({path: ""}):
                p.equal(os.write(file.fileno(), b""), 0)
            p.refused(errno.EINVAL, os.pread, file.fileno(), 1, -1)
            p.refused(errno.EINVAL, os.lseek, file.fileno(), -1, os.SEEK_SET)
            p.refused(errno.ENXIO, os.lseek, file.fileno(), 103, os.SEEK_DATA)
            p.equal(os.lseek(file.fileno(), 0, os.SEEK_HOLE), 102)
        with open(path, "ab", buffering=0) as file:
            file.seek(0)
            file.write(b"end")
            p.equal((path.read_bytes()[-3:], os.stat(path).st_size), (b"end", 105))
        subprocess.run([sys.executable, "-c", SIZE_LIMIT, path], check=True, timeout=PROGRAM_SECONDS)

    @on_both_sides
    def test_truncate(p):
        path = p.new()
        path.write_bytes(b"x" * 10_000)
        for size in (5_000, 20_000, 0, 1, (1 << 32) + 1, 4096):
            with p.moving({path: "mc"}):
                os.truncate(path, size)
            p.equal(os.stat(path).st_size, size)
        p.equal(path.read_bytes(), bytes(4096))
        with open(path, "r+b") as file, p.moving({path: "mc"}):
            os.ftruncate(file.fileno(), 3)
        p.refused(errno.EINVAL, os.truncate, path, -1)
        p.refused(errno.EISDIR, os.truncate, p.new("dir"), 0)
        p.refused(errno.EINVAL, with_fd, path, os.O_RDONLY, lambda fd: os.ftruncate(fd, 0))
        p.same(outcome(os.truncate, path, (1 << 63) - 1))
        p.same(outcome(os.truncate, p.new("fifo"), 0))
        owned = p.new("file", 0o644, ALICE)
        with acting(BOB), p.moving({owned: ""}):
            p.refused(errno.EACCES, os.truncate, owned, 1)

    @on_both_sides
    def test_the_size_a_truncation_keeps(p):
        path = p.new()
        path.write_bytes(b"abc")
        for change in (lambda: os.truncate(path, 3), lambda: with_fd(path, os.O_RDWR, lambda fd: os.ftruncate(fd, 3))):
            before = os.stat(path)
            p.tick()
            change()
            after = os.stat(path)
            p.same((after.st_mtime_ns > before.st_mtime_ns, after.st_ctime_ns > before.st_ctime_ns))

    @on_both_sides
    def test_space(p):
        path = p.new()
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
            found = os.fstat(file.fileno())
            p.equal(found.st_size, 1 << 20)
            p.test.assertGreaterEqual(found.st_blocks * 512, 1 << 20)
        os.truncate(p.new(), 1 << 30)
        with open(p / "sparse", "wb") as file:
            file.seek(1 << 24)
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
            p.test.assertLess(os.fstat(file.fileno()).st_blocks * 512, 1 << 20)
        p.refused(errno.EBADF, with_fd, path, os.O_RDONLY, lambda fd: os.posix_fallocate(fd, 0, 10))
        for offset, length in ((0, 0), (-1, 5), (5, -1), ((1 << 63) - 1, 1)):
            p.same(outcome(with_fd, path, os.O_RDWR, lambda fd: os.posix_fallocate(fd, offset, length)))
        p.same(outcome(with_fd, p.new("dir"), os.O_RDONLY, lambda fd: os.posix_fallocate(fd, 0, 1)))
        p.same(os.statvfs(p.root).f_namemax)

    # --- Times -------------------------------------------------------------------------------------------

    @on_both_sides
    def test_utimensat(p):
        for kind in set(KINDS) - {"symlink"}:
            path = p.new(kind)
            for seconds in (0, 1, 1_000_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) + 5, -1, -100_000):
                utimensat(path, (seconds, 123_456_789), (seconds, 987_654_321))
                found = os.stat(path)
                p.equal((found.st_atime_ns, found.st_mtime_ns),
                        (seconds * 10**9 + 123_456_789, seconds * 10**9 + 987_654_321), kind)
            with p.moving({path: "c"}):
                utimensat(path, (77, 0), (0, UTIME_OMIT))
            p.equal((os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns), (77 * 10**9, found.st_mtime_ns))
            with p.moving({path: ""}):
                utimensat(path, (0, UTIME_OMIT), (0, UTIME_OMIT))
            p.tick()
            utimensat(path, (0, UTIME_OMIT), (0, UTIME_NOW))
            p.test.assertGreaterEqual(os.stat(path).st_mtime_ns, p.now())
            p.equal(os.stat(path).st_atime_ns, 77 * 10**9)
        p.refused(errno.EINVAL, utimensat, p.new(), (0, 10**9), (0, 0))
        link = p.new("symlink")
        os.utime(link, ns=(5, 7), follow_symlinks=False)
        p.equal(os.lstat(link).st_mtime_ns, 7)

    @on_both_sides
    def test_who_may_set_times(p):
        now, exact, mixed = ((0, UTIME_NOW),) * 2, ((1, 0),) * 2, ((0, UTIME_NOW), (0, UTIME_OMIT))
        for mode, who, times, expected in (
                (0o644, ALICE, exact, "done"), (0o444, ALICE, now, "done"), (0o444, ALICE, exact, "done"),
                (0o666, BOB, now, "done"), (0o644, BOB, now, "EACCES"), (0o666, BOB, exact, "EPERM"),
                (0o644, BOB, exact, "EPERM"), (0o666, BOB, mixed, "EPERM"), (0o600, 0, exact, "done"),
                (0o600, BOB, ((0, UTIME_OMIT),) * 2, "done")):
            path = p.new("file", mode, ALICE)
            with acting(who):
                p.equal(outcome(utimensat, path, *times), expected, (oct(mode), who, times))

    # --- Extended attributes -----------------------------------------------------------------------------

    @on_both_sides
    def test_default_acls_count_instead_of_the_umask(p):
        before = os.umask(0o077)
        try:
            for made_here in (True, False):
                folder = p.new("dir", 0o777)
                if not made_here:  # the mount knows it from the server
                    harness.wait_until(lambda: (p.test.export / p.root.name / folder.name).is_dir(), CLOCK_SECONDS,
                                       "the directory at the server")
                os.setxattr(folder, "system.posix_acl_default", acl(7, 7, 5, {BOB: 7}))
                for kind in ("file", "dir", "fifo"):
                    path = folder / kind
                    if kind == "dir":
                        os.mkdir(path, 0o777)
                    elif kind == "fifo":
                        os.mkfifo(path, 0o666)
                    else:
                        opened(path, os.O_CREAT | os.O_WRONLY, 0o666)
                    p.same((mode_of(path), os.getxattr(path, "system.posix_acl_access"), sorted(os.listxattr(path))))
                p.same((mode_of(folder / "dir" / "." ), os.getxattr(folder / "dir", "system.posix_acl_default")))
                opened(folder / "dir" / "file", os.O_CREAT | os.O_WRONLY, 0o640)
                p.same(mode_of(folder / "dir" / "file"))
                os.removexattr(folder, "system.posix_acl_default")
                opened(folder / "later", os.O_CREAT | os.O_WRONLY, 0o666)
                p.equal(mode_of(folder / "later"), 0o600)
        finally:
            os.umask(before)

    @on_both_sides
    def test_a_default_acl_keeps_others_out_from_the_next_file_on(p):
        p.root.chmod(0o777)
        folder = p.new("dir", 0o755)
        os.setxattr(folder, "system.posix_acl_default", acl(7, 5, 0))
        (folder / "secret").write_text("secret")
        with acting(BOB):
            p.refused(errno.EACCES, opened, folder / "secret", os.O_RDONLY)

    @on_both_sides
    def test_an_acl_set_by_who_is_not_of_the_group_drops_set_group_id(p):
        for groups, kept in ((), False), ((CAROL,), True):
            file = p.new("file")
            os.chown(file, ALICE, CAROL)
            os.chmod(file, 0o2755)
            with acting(ALICE, groups=groups):
                os.setxattr(file, "system.posix_acl_access", acl(7, 7, 7, {BOB: 4}))
            p.equal(bool(os.stat(file).st_mode & stat.S_ISGID), kept)

    @on_both_sides
    def test_a_lock_of_an_open_file_ends_with_it(p):
        file = p.new()
        ours = os.open(file, os.O_RDWR)
        with another_process(lambda: record_lock(os.open(file, os.O_RDWR), F_OFD_SETLK, fcntl.F_WRLCK)):
            p.refused(errno.EAGAIN, record_lock, ours, F_OFD_SETLK, fcntl.F_WRLCK)
            p.refused(errno.EAGAIN, record_lock, ours, fcntl.F_SETLK, fcntl.F_RDLCK)
        record_lock(ours, F_OFD_SETLK, fcntl.F_WRLCK)
        again = os.open(file, os.O_RDWR)
        p.refused(errno.EAGAIN, record_lock, again, F_OFD_SETLK, fcntl.F_WRLCK)
        os.close(ours)
        record_lock(again, F_OFD_SETLK, fcntl.F_WRLCK)
        record_lock(again, F_OFD_SETLK, fcntl.F_UNLCK)
        record_lock(again, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 10)
        # A process keeps its own lock when another one opens and closes the file.
        with another_process(lambda: p.refused(errno.EAGAIN, record_lock, os.open(file, os.O_RDWR), fcntl.F_SETLK,
                                               fcntl.F_WRLCK)):
            pass
        with another_process(lambda: p.refused(errno.EAGAIN, record_lock, os.open(file, os.O_RDWR), F_OFD_SETLK,
                                               fcntl.F_WRLCK)):
            pass
        os.close(again)

    @on_both_sides
    def test_the_first_lock_in_the_way_is_named(p):
        file = p.new()
        ours = os.open(file, os.O_RDWR)

        def lock():
            fd = os.open(file, os.O_RDWR)
            record_lock(fd, fcntl.F_SETLK, fcntl.F_WRLCK, 10, 5)
            record_lock(fd, fcntl.F_SETLK, fcntl.F_RDLCK, 1, 5)

        with another_process(lock):
            p.equal(record_lock(ours, fcntl.F_GETLK, fcntl.F_WRLCK), (fcntl.F_RDLCK, 1, 5))
            p.equal(record_lock(ours, fcntl.F_GETLK, fcntl.F_RDLCK), (fcntl.F_WRLCK, 10, 5))
            p.equal(record_lock(ours, fcntl.F_GETLK, fcntl.F_WRLCK, 6), (fcntl.F_WRLCK, 10, 5))
        os.close(ours)

    @on_both_sides
    def test_a_change_is_seen_however_soon(p):
        file, other = p.new(), p.free()
        for change in (lambda: os.link(file, other), lambda: os.unlink(other), lambda: os.chown(file, -1, -1),
                       lambda: os.chmod(file, 0o600), lambda: os.rename(file, other), lambda: os.rename(other, file)):
            seen = os.lstat(file if file.exists() else other).st_ctime_ns
            change()
            p.test.assertGreater(os.lstat(file if file.exists() else other).st_ctime_ns, seen)

    @on_both_sides
    def test_extended_attributes(p):
        for kind in ("file", "dir"):
            path = p.new(kind, 0o755, ALICE)
            with p.moving({path: "c"}):
                os.setxattr(path, "user.colour", b"red")
            os.setxattr(path, "user.empty", b"")
            p.equal((os.getxattr(path, "user.colour"), os.getxattr(path, "user.empty"), sorted(os.listxattr(path))),
                    (b"red", b"", ["user.colour", "user.empty"]))
            p.refused(errno.EEXIST, os.setxattr, path, "user.colour", b"", os.XATTR_CREATE)
            p.refused(errno.ENODATA, os.setxattr, path, "user.size", b"", os.XATTR_REPLACE)
            p.refused(errno.ENODATA, os.getxattr, path, "user.size")
            p.refused(errno.ENODATA, os.removexattr, path, "user.size")
            p.refused(errno.EOPNOTSUPP, os.setxattr, path, "unknown.name", b"")
            p.refused(errno.ERANGE, os.setxattr, path, "user." + "n" * 256, b"")
            p.same(outcome(os.setxattr, path, "user.large", bytes(64_000)))
            with acting(BOB):
                p.refused(errno.EACCES, os.setxattr, path, "user.colour", b"blue")
                p.equal(os.getxattr(path, "user.colour"), b"red")
                p.same(outcome(os.setxattr, path, "trusted.mine", b""))
                p.same(outcome(os.getxattr, path, "trusted.mine"))
            os.removexattr(path, "user.colour")
            p.equal(os.listxattr(path), ["user.empty"])
        for kind in ("fifo", "char", "symlink"):
            p.same(outcome(os.setxattr, p.new(kind), "user.colour", b"red", follow_symlinks=False))
        private = p.new("file", 0o600, ALICE)
        with acting(BOB):
            p.refused(errno.EACCES, os.getxattr, private, "user.colour")


SIZE_LIMIT = """
import errno, os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
fd = os.open(sys.argv[1], os.O_WRONLY)
assert os.pwrite(fd, b"x" * 20, 40) == 10
for call in (lambda: os.pwrite(fd, b"x", 50), lambda: os.ftruncate(fd, 106)):
    try:
        call()
        sys.exit("no error")
    except OSError as error:
        assert error.errno == errno.EFBIG, error
"""


def with_fd(path, flags, call):
    fd = os.open(path, flags)
    try:
        return call(fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    harness.main(fuse=True)
