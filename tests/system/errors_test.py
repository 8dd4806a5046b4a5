"""Errors that disks give, seen through a mount: ENOSPC, EDQUOT, EROFS, EACCES and EPERM where a local program would see
them, at the latest from close or fsync; told once, to whoever has the file open that they are about, and in `tusk status`.

The exports are small file systems of their own, on loop devices.
"""

import ctypes
import errno
import json
import mmap
import os
import pathlib
import subprocess
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, program, run_in, wait_until

MIB = 1 << 20
DISK_MIB, INODES = 24, 64
PROGRAM_SECONDS = 60
ALICE, BOB = 65101, 65102
QUOTA_KIB = 2_048
ROOMY_MIB = 512            # enough for a mount to have directories for itself
PHOTO = bytes(range(1, 251)) * 16_000
PHOTOS_MAX = 60
SPACE_SECONDS = 5          # until the server lets go a file that somebody else has removed
SYS_QUOTACTL, Q_SETQUOTA, USRQUOTA, QIF_BLIMITS = 179, 0x800008, 0, 1  # x86-64; <linux/quota.h>


class DiskQuota(ctypes.Structure):
    """struct if_dqblk"""
    _fields_ = [*((name, ctypes.c_uint64) for name in ("hard_kib", "soft_kib", "used", "inodes_hard", "inodes_soft",
                                                       "inodes", "block_time", "inode_time")), ("valid", ctypes.c_uint32)]


def error_of(call, *arguments):
    """The name of the error, or "done"."""
    try:
        call(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def write_until_refused(path, mib):
    """Where a program that writes a file is told that it did not work: "write", "fsync" or "close", and the error."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for step, call in (("write", lambda: [os.write(fd, bytes(MIB)) for _ in range(mib)]), ("fsync", lambda: os.fsync(fd))):
        result = error_of(call)
        if result != "done":
            os.close(fd)
            return step, result
    return "close", error_of(os.close, fd)


class Errors(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-errors-")))
        self.folder.chmod(0o755)
        self.disk, self.point = self.folder / "disk", self.folder / "mount"
        self.disk.mkdir()
        self.wan = self.enterContext(Wan(rate="1gbit", delay="5ms"))

    def make_disk(self, *options, mount_options=(), mib=DISK_MIB):
        """A small ext4 at self.disk."""
        image = self.folder / "image"
        image.write_bytes(b"")
        os.truncate(image, mib * MIB)
        run_in(None, ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", *options, image], PROGRAM_SECONDS)
        finished = run_in(None, ["mount", "-o", ",".join(("loop", *mount_options)), image, self.disk], PROGRAM_SECONDS,
                          check=False)
        if finished.returncode != 0:
            self.skipTest(f"no loop device: {finished.stderr.strip()}")
        self.addCleanup(run_in, None, ["umount", "-l", self.disk], PROGRAM_SECONDS)
        (self.disk / "lost+found").rmdir()
        self.disk.chmod(0o777)

    def mount(self, options=("identity=real",), **of_server):
        self.server = self.enterContext(Tuskd(self.wan, self.disk, **of_server))
        self.mounted = self.enterContext(Mount(self.wan, self.server.url, path=self.point, options=options))
        return self.point

    def status(self):
        return json.loads(run_in(self.wan.ns_a, [program("tusk"), "status", "--json", self.point], PROGRAM_SECONDS).stdout)

    def as_user(self, uid, *command):
        return run_in(None, ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command],
                      PROGRAM_SECONDS, check=False)

    # --- ENOSPC -----------------------------------------------------------------------------------------

    def test_no_space_is_told_to_the_writer_of_that_file_once(self):
        self.make_disk()
        mount = self.mount()
        small = os.open(mount / "small", os.O_RDWR | os.O_CREAT)
        os.write(small, b"fits")
        other = os.open(mount / "large", os.O_RDWR | os.O_CREAT)
        errors_before = self.status()["errors"]
        where, error = write_until_refused(mount / "large", DISK_MIB * 2)
        self.assertEqual(error, "ENOSPC", where)
        self.assertEqual(error_of(os.fsync, other), "ENOSPC")  # whoever else has it open is told, too
        self.assertEqual(error_of(os.fsync, other), "done")
        self.assertEqual((error_of(os.fsync, small), error_of(os.close, small)), ("done", "done"))
        status = self.status()
        self.assertGreater(status["errors"], errors_before)
        self.assertIn("'large'", status["last_error"])
        self.assertIn(os.strerror(errno.ENOSPC), status["last_error"])
        self.assertEqual(error_of(os.close, other), "done")
        self.assertEqual(error_of(lambda: open(mount / "large", "r+b").close()), "done")
        self.assertEqual((mount / "small").read_bytes(), b"fits")
        self.assertEqual(self.status()["errors"], status["errors"])
        os.unlink(mount / "large")  # and all is well again
        (mount / "next").write_bytes(bytes(4 * MIB))
        self.assertEqual((self.disk / "next").stat().st_size, 4 * MIB)

    def test_a_disk_that_fills_up_while_files_that_are_closed_are_on_their_way(self):
        """D2, D7: who goes on is told, and no file is shown with bytes that are nowhere."""
        self.make_disk("-N", "100000", mib=ROOMY_MIB)
        mount = self.mount()
        self.wan.set(delay="50ms")
        own = mount / "own"
        own.mkdir()
        files, told = [], []

        def close_one():
            number = len(files)
            files.append(PHOTO[number:] + PHOTO[:number])
            (own / f"photo{number}").write_bytes(files[-1])
        for _ in range(4):
            close_one()
        with open(self.disk / "filler", "wb") as filler:
            free = os.statvfs(self.disk)
            os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize - len(PHOTO))
        for _ in range(PHOTOS_MAX):
            told.append(error_of(close_one))
            if told[-1] != "done":
                break
        self.assertEqual(told[-1], "ENOSPC")
        run_in(self.wan.ns_a, ["sync", "-f", self.point], PROGRAM_SECONDS, check=False)
        lost = 0
        for number, content in enumerate(files):
            there = self.disk / "own" / f"photo{number}"
            arrived = there.read_bytes() if there.exists() else b""
            if number == len(files) - 1:  # its close failed: any of its pieces may be missing
                self.assertTrue(all(byte in (0, right) for byte, right in zip(arrived, content)), number)
            else:
                self.assertTrue(content.startswith(arrived.rstrip(b"\0")), number)
            if (own / f"photo{number}").exists():
                self.assertTrue((own / f"photo{number}").read_bytes() == arrived, number)
            lost += arrived != content
        # The log's 64 MiB were on their way, and the one that was told.
        self.assertLessEqual(lost * len(PHOTO), 64 * MIB + len(PHOTO))
        self.assertIn(os.strerror(errno.ENOSPC), self.status()["last_error"])
        os.unlink(self.disk / "filler")
        wait_until(lambda: os.statvfs(self.disk).f_bavail * free.f_frsize > len(PHOTO), SPACE_SECONDS, "the filler's space")
        (own / "again").write_bytes(PHOTO)
        run_in(self.wan.ns_a, ["sync", own / "again"], PROGRAM_SECONDS)
        self.assertTrue((self.disk / "own/again").read_bytes() == PHOTO)
        # Those that were closed and are not there: nobody was told of them.
        ended = run_in(self.wan.ns_a, [program("tusk"), "umount", self.point], PROGRAM_SECONDS, check=False)
        self.assertEqual(ended.returncode, 64 if lost > 1 else 0, ended.stderr)
        if lost > 1:
            self.assertRegex(ended.stderr, "of the changes .* could not be done")

    def test_what_is_reserved_is_there_or_refused_at_once(self):
        self.make_disk()
        mount = self.mount()
        with open(mount / "file", "wb") as file:
            self.assertEqual(error_of(os.posix_fallocate, file.fileno(), 0, 2 * DISK_MIB * MIB), "ENOSPC")
            os.posix_fallocate(file.fileno(), 0, DISK_MIB * MIB // 2)
            filler = write_until_refused(mount / "filler", DISK_MIB)
            self.assertEqual(filler[1], "ENOSPC")
            file.write(b"x" * (DISK_MIB * MIB // 2))
            file.flush()
            os.fsync(file.fileno())

    def test_no_space_under_a_mapping_is_told_by_msync(self):
        self.make_disk()
        mount = self.mount()
        with open(mount / "mapped", "w+b") as file:
            os.truncate(mount / "mapped", 2 * DISK_MIB * MIB)
            with mmap.mmap(file.fileno(), 2 * DISK_MIB * MIB) as mapping:
                for page in range(0, len(mapping), mmap.PAGESIZE):
                    mapping[page] = 1
                self.assertEqual(error_of(mapping.flush), "ENOSPC")

    def test_what_is_kept_for_root_is_not_given_to_others(self):
        self.make_disk("-m", "25")
        mount = self.mount()
        written = {}
        for place in (self.disk, mount):
            self.assertIn("No space left", self.as_user(ALICE, "dd", "if=/dev/zero", "bs=64k", "conv=fsync",
                                                        f"of={place}/file").stderr)
            written[place.name] = (self.disk / "file").stat().st_blocks * 512
            os.unlink(place / "file")
            free = os.statvfs(self.disk)
            wait_until(lambda: os.statvfs(self.disk).f_bfree * free.f_frsize > written[place.name], SPACE_SECONDS,
                       "the removed file's space")  # tuskd has looked at it for the mount
        self.assertAlmostEqual(written["mount"], written["disk"], delta=2 * MIB)

    def test_no_space_for_names(self):
        self.make_disk("-N", str(INODES))
        mount = self.mount()
        made = []

        def fill():
            for number in range(INODES * 4):
                (mount / f"file {number}").touch()
                made.append(number)
        self.assertEqual(error_of(fill), "ENOSPC")
        for call in (os.mkdir, os.mkfifo, lambda path: os.symlink("x" * 100, path)):
            self.assertEqual(error_of(call, mount / "one more"), "ENOSPC")
        self.assertEqual(len(os.listdir(mount)), len(made))
        os.unlink(mount / "file 0")
        os.mkdir(mount / "one more")

    def test_programs_fail_as_they_do_locally(self):
        self.make_disk()
        mount = self.mount()
        source = self.folder / "source"
        source.write_bytes(os.urandom(2 * DISK_MIB * MIB))
        for command in (["cp", source, mount / "a"], ["dd", f"if={source}", f"of={mount}/b", "bs=1M", "conv=fsync"],
                        ["tar", "-C", self.folder, "-cf", mount / "c", "source"],
                        ["sh", "-c", f"cat {source} > {mount}/d"]):
            with self.subTest(command[0]):
                finished = run_in(None, command, PROGRAM_SECONDS, check=False)
                self.assertNotEqual(finished.returncode, 0)
                self.assertIn("No space left on device", finished.stderr)
                for path in mount.iterdir():
                    path.unlink()

    # --- EDQUOT -----------------------------------------------------------------------------------------

    def limit(self, uid):
        """A quota for a user on the disk."""
        device = subprocess.run(["findmnt", "-no", "SOURCE", self.disk], capture_output=True, text=True, check=True).stdout
        limits = DiskQuota(hard_kib=QUOTA_KIB, soft_kib=QUOTA_KIB, valid=QIF_BLIMITS)
        libc = ctypes.CDLL(None, use_errno=True)
        command = Q_SETQUOTA << 8 | USRQUOTA
        if libc.syscall(SYS_QUOTACTL, ctypes.c_int(command - (1 << 32) if command >= 1 << 31 else command),
                        device.strip().encode(), uid, ctypes.byref(limits)) != 0:
            self.skipTest(f"quotactl: {os.strerror(ctypes.get_errno())}")

    def test_quotas_hold_for_their_users(self):
        try:
            self.make_disk("-O", "quota", mount_options=("usrquota",))
        except harness.HarnessError as error:
            self.skipTest(f"no quotas: {error}")
        self.limit(ALICE)
        mount = self.mount()
        write = ["dd", "if=/dev/zero", "bs=64k", "count=64", "conv=fsync"]
        for place in (self.disk, mount):
            with self.subTest(place.name):
                self.assertIn("Disk quota exceeded", self.as_user(ALICE, *write, f"of={place}/alice's").stderr)
                os.unlink(place / "alice's")
                self.assertEqual(self.as_user(BOB, *write, f"of={place}/bob's").returncode, 0)
        self.assertIn("Disk quota exceeded", self.status()["last_error"])
        with open(mount / "reserved", "wb") as file:
            os.chown(mount / "reserved", ALICE, ALICE)
            self.assertEqual(error_of(os.posix_fallocate, file.fileno(), 0, 2 * QUOTA_KIB << 10), "EDQUOT")

    # --- EROFS, EACCES, EPERM ---------------------------------------------------------------------------

    def test_a_disk_that_becomes_read_only(self):
        self.make_disk()
        (self.disk / "file").write_text("as it was")
        mount = self.mount(options=("identity=real", "attr_timeout=0"))
        self.assertEqual((mount / "file").read_text(), "as it was")
        run_in(None, ["mount", "-o", "remount,ro", self.disk], PROGRAM_SECONDS)
        for place in (self.disk, mount):
            for call in (lambda: (place / "file").write_text("x"), lambda: (place / "new").touch(),
                         lambda: (place / "dir").mkdir(), lambda: os.unlink(place / "file"),
                         lambda: os.rename(place / "file", place / "x"), lambda: os.chmod(place / "file", 0o600),
                         lambda: os.truncate(place / "file", 0), lambda: os.utime(place / "file", (1, 1)),
                         lambda: os.link(place / "file", place / "x"), lambda: os.symlink("x", place / "x"),
                         lambda: os.setxattr(place / "file", "user.x", b"")):
                self.assertEqual(error_of(call), "EROFS", place)
        self.assertEqual((mount / "file").read_text(), "as it was")

    def test_a_share_for_reading_and_a_mount_for_reading(self):
        self.make_disk()
        (self.disk / "file").write_text("as it was")
        for server, options in (({"rw": False}, ("identity=real",)), ({}, ("identity=real", "ro"))):
            with Tuskd(self.wan, self.disk, **server) as share, Mount(self.wan, share.url, path=self.point, options=options):
                for call in (lambda: (self.point / "file").write_text("x"), lambda: os.unlink(self.point / "file"),
                             lambda: os.chmod(self.point / "file", 0), lambda: (self.point / "new").touch()):
                    self.assertEqual(error_of(call), "EROFS", options)

    def test_what_the_server_may_not_do(self):
        self.make_disk()
        run_in(None, ["chown", "nobody", self.disk], PROGRAM_SECONDS)
        (self.disk / "root's").write_text("secret")
        (self.disk / "root's").chmod(0o600)
        (self.disk / "closed").mkdir(mode=0o700)
        state, config = self.folder / "state", self.folder / "tuskd.toml"
        config.write_text(f'state_dir = "{state}"\nlisten = ["{self.wan.ip_b}:8875"]\n'
                          f'[[export]]\nname = "disk"\npath = "{self.disk}"\naccess = "rw"\nas = "nobody"\n')
        server = harness.popen_in(self.wan.ns_b, [program("tuskd"), "--config", config], stderr=subprocess.DEVNULL)
        self.addCleanup(harness.stop, server)
        asked = [program("tuskd"), "token", "--export", "disk", "--rw", "--config", config, "--host", f"{self.wan.ip_b}:8875"]
        harness.wait_until(lambda: (state / "running").is_dir() and any((state / "running").iterdir()),
                           PROGRAM_SECONDS, "tuskd")
        url = run_in(self.wan.ns_b, asked, PROGRAM_SECONDS).stdout.split()[-1]
        with Mount(self.wan, url, path=self.point) as mount:
            # The kernel here lets root do everything; the server's does not let nobody.
            for error, call in (("EACCES", lambda: (mount.path / "root's").read_text()),
                                ("EACCES", lambda: (mount.path / "root's").write_text("x")),
                                ("EACCES", lambda: os.listdir(mount.path / "closed")),
                                ("EACCES", lambda: (mount.path / "closed" / "x").touch()),
                                ("EPERM", lambda: os.chmod(mount.path / "root's", 0o666)),
                                ("EPERM", lambda: os.utime(mount.path / "root's", (1, 1))),
                                ("EACCES", lambda: os.truncate(mount.path / "root's", 0)),
                                ("EPERM", lambda: os.chown(mount.path / "root's", 1, 1))):
                self.assertEqual(error_of(call), error)
            (mount.path / "nobody's").write_text("mine")
        self.assertEqual((self.disk / "nobody's").read_text(), "mine")
        self.assertEqual((self.disk / "root's").read_text(), "secret")

    def test_what_nobody_may_change(self):
        self.make_disk()
        mount = self.mount()
        for name, flag in (("immutable", "+i"), ("append only", "+a")):
            (self.disk / name).write_text("kept")
            if run_in(None, ["chattr", flag, self.disk / name], PROGRAM_SECONDS, check=False).returncode != 0:
                self.skipTest("no chattr here")
            harness.wait_until_seen(mount / name)
        for place in (self.disk, mount):
            with self.subTest(place.name):
                for call in (lambda: os.unlink(place / "immutable"), lambda: (place / "immutable").write_text("x"),
                             lambda: os.rename(place / "immutable", place / "x"), lambda: os.chmod(place / "immutable", 0),
                             lambda: os.link(place / "immutable", place / "x"),
                             lambda: os.truncate(place / "append only", 0), lambda: os.unlink(place / "append only")):
                    self.assertEqual(error_of(call), "EPERM")
                with open(place / "append only", "a") as file:
                    file.write(", and more")
        self.assertEqual((self.disk / "append only").read_text(), "kept, and more, and more")
        run_in(None, ["chattr", "-i", self.disk / "immutable"], PROGRAM_SECONDS)


if __name__ == "__main__":
    harness.main(fuse=True)
