"""A server machine whose power can be cut: an ext4 on a loop device, and tuskd on it with a boot id of its own.

    with Wan() as wan, Machine(wan) as machine, Mount(wan, machine.server.url) as mount:
        (mount.path / "f").write_text("x")
        machine.cut_power()      # what the disk has not written is gone; the machine boots and tuskd starts again

The cut kills tuskd, then shuts ext4 down without a flush of its journal (EXT4_IOC_SHUTDOWN, as xfstests' godown does).
What it does not do: tear a sector, or lose what the disk has acknowledged.
"""

import contextlib
import fcntl
import os
import pathlib
import struct
import subprocess
import tempfile
import uuid

import harness
from harness import HarnessError, Tuskd, popen_in, program, run_in, wait_until

EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
COMMAND_SECONDS = 60
DISK_MIB = 768
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# tuskd in a mount namespace where the kernel's boot id is another one. FUSE mounts are no business of it: a copy of one
# would keep it alive.
BOOT = f"""
awk '/ - fuse/ {{ print $5 }}' /proc/self/mountinfo | while read -r point; do umount -l "$point"; done
mount --bind "$0" {BOOT_ID} && exec "$@"
"""


class MachineTuskd(Tuskd):
    """tuskd on a machine whose boot id stands in the file `boot_id`."""

    def __init__(self, wan, directory, boot_id, preload=None, **options):
        super().__init__(wan, directory, **options)
        self.boot_id, self.preload = boot_id, preload

    def command(self, url_file):
        preload = ["env", f"LD_PRELOAD={self.preload}"] if self.preload else []
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, self.boot_id, *preload,
                *super().command(url_file)]


class Machine:
    """export is the directory that `server` serves, in an ext4 of its own. preload: a library that lies to tuskd."""

    def __init__(self, wan, preload=None, mib=DISK_MIB):
        self.wan, self.preload, self.mib = wan, preload, mib
        self.cuts = 0

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tusk-power-")))
            self.image, self.disk, self.boot_id = (self.folder / name for name in ("image", "disk", "boot_id"))
            self.disk.mkdir()
            self.folder.chmod(0o755)
            self.image.write_bytes(b"")
            os.truncate(self.image, self.mib << 20)
            run_in(None, ["mkfs.ext4", "-q", "-F", self.image], COMMAND_SECONDS)
            self._boot()
            stack.callback(lambda: run_in(None, ["umount", "-l", self.disk], COMMAND_SECONDS, check=False))
            self.export = self.disk / "export"
            self.export.mkdir()
            self.export.chmod(0o777)
            os.sync()
            self.server = stack.enter_context(MachineTuskd(self.wan, self.export, self.boot_id, self.preload,
                                                           state_dir=self.disk / "state"))
            os.sync()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure):
        return self._stack.__exit__(*failure)

    def _boot(self):
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        run_in(None, ["mount", "-o", "loop", self.image, self.disk], COMMAND_SECONDS)

    def power_off(self):
        """tuskd is gone, and all that the disk has not written."""
        self.server.kill()
        descriptor = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)
        wait_until(lambda: run_in(None, ["umount", self.disk], COMMAND_SECONDS, check=False).returncode == 0,
                   COMMAND_SECONDS, "the disk is not in use", interval=0.05)
        wait_until(lambda: not run_in(None, ["losetup", "-j", self.image], COMMAND_SECONDS).stdout, COMMAND_SECONDS,
                   "the loop device is free", interval=0.05)
        self.cuts += 1

    def power_on(self):
        """The machine boots: ext4 replays its journal, and tuskd starts."""
        self._boot()
        self.server.start()

    def cut_power(self):
        self.power_off()
        self.power_on()

    def look_at_disk(self):
        """Cuts the power, and mounts the disk without tuskd: `export` shows what the disk holds."""
        self.power_off()
        self._boot()


def why_not():
    """None where a machine can be had, else a line that says why not."""
    with tempfile.TemporaryDirectory(prefix="tusk-power-") as folder:
        image, point = pathlib.Path(folder, "image"), pathlib.Path(folder, "point")
        point.mkdir()
        image.write_bytes(b"")
        os.truncate(image, 8 << 20)
        run_in(None, ["mkfs.ext4", "-q", "-F", image], COMMAND_SECONDS)
        if run_in(None, ["mount", "-o", "loop", image, point], COMMAND_SECONDS, check=False).returncode != 0:
            return "skipped, because there is no loop device"
        run_in(None, ["umount", point], COMMAND_SECONDS)
    return None


FORGETFUL = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
int fsync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; }
int fdatasync(int fd) { return fsync(fd); }
int syncfs(int fd) { return fsync(fd); }
int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) { (void)offset; (void)bytes; (void)flags; return fsync(fd); }
void sync(void) {}
"""


def forgetful_library(folder):
    """A library under which fsync and its like answer before anything is on the disk: the fault that tests must find."""
    source, library = pathlib.Path(folder, "forgetful.c"), pathlib.Path(folder, "forgetful.so")
    source.write_text(FORGETFUL)
    run_in(None, ["cc", "-shared", "-fPIC", "-O1", "-o", library, source], COMMAND_SECONDS)
    return library
