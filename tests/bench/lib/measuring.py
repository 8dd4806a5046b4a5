"""Timing programs, making files, comparing what arrived, and what processes use."""

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import HarnessError, popen_in, stop, wait_for_exit

MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
MEMORY_FOLDERS = "tusk-bench-"  # and the process that made them


def page_refaults():
    """Pages of files that the kernel has dropped and soon needed again, since it started."""
    for line in pathlib.Path("/proc/vmstat").read_text().splitlines():
        name, value = line.split()
        if name == "workingset_refault_file":
            return int(value)
    return 0


def stolen_seconds():
    """For how long processors of this machine that wanted to run did not, because its host ran something else; of all
    processors together, since it started."""
    line = pathlib.Path("/proc/stat").read_text().splitlines()[0]  # cpu user nice system idle iowait irq softirq steal
    return int(line.split()[8]) / TICKS


# --- Timing -----------------------------------------------------------------------------------------


class Timed:
    """How long a program took, whether it came to its end, and what it printed."""

    def __init__(self, seconds, ended, output):
        self.seconds, self.ended, self.output = seconds, ended, output


def timed(command, limit, ns=None, cwd=None, env=None, must_end=True):
    """Runs a program, to its end or for `limit` seconds; the clock stops with its exit, without the delay of a
    poll. Raises HarnessError when it fails, and when it must end and does not."""
    with Running(command, ns, cwd, env) as running:
        ended = wait_for_exit(running.process, limit)
        seconds = time.monotonic() - running.started
        if not ended and must_end:
            raise HarnessError(f"{command[0]} took more than {limit:.0f} s")
        return Timed(seconds, ended, running.output() if ended else "")


class Running:
    """A program that runs beside what a with block does. It does not survive the block."""

    def __init__(self, command, ns=None, cwd=None, env=None):
        self._command, self._ns, self._cwd, self._env = command, ns, cwd, env

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._out, self._err = (stack.enter_context(tempfile.TemporaryFile(dir="/dev/shm")) for _ in range(2))
            self.started = time.monotonic()
            self.process = popen_in(self._ns, self._command, stdin=subprocess.DEVNULL, stdout=self._out,
                                    stderr=self._err, cwd=self._cwd, env=self._env)
            self._files = stack.pop_all()
        return self

    def output(self, limit=0):
        """What it printed until its end, which comes within so many seconds. Raises HarnessError when it does not,
        and when it fails."""
        if not wait_for_exit(self.process, limit):
            raise HarnessError(f"{self._command[0]} took {limit:.0f} s more than it should")
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        if self.process.wait() != 0:
            errors = texts[1].strip().splitlines() or ["no message"]
            raise HarnessError(f"{self._command[0]} ended with {self.process.returncode}: {errors[-1]}")
        return texts[0]

    def __exit__(self, *_):
        if self.process.poll() is None:
            stop(self.process, signal.SIGKILL)
            wait_for_group(self.process.pid)
        self._files.close()


def wait_for_group(group, limit=10):
    """Until nothing of a process group that was killed is left but zombies, which hold no files open any more."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and any(fields[2] == str(group) and fields[0] not in "ZX"
                                              for fields in map(_stat, pathlib.Path("/proc").glob("[0-9]*"))):
        time.sleep(0.02)


def _stat(process):
    """The fields of /proc/PID/stat after the name: state, parent, group and so on."""
    with contextlib.suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()
    return ["X", "0", "0"]


# --- Files ------------------------------------------------------------------------------------------


def remove_stale_folders():
    """Memory folders of benchmarks that were killed: gigabytes, in which the next one would not fit."""
    for folder in pathlib.Path("/dev/shm").glob(MEMORY_FOLDERS + "*"):
        owner = re.match(r"(\d+)-", folder.name.removeprefix(MEMORY_FOLDERS))
        if owner and not pathlib.Path("/proc", owner[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def memory_folder(needed):
    """A folder in memory, so that no disk is measured, with `export` and `near` in it. Raises HarnessError when
    `needed` bytes have no room."""
    fields = pathlib.Path("/proc/meminfo").read_text().split()
    available = int(fields[fields.index("MemAvailable:") + 1]) * 1024
    if available < needed + (1 << 30):
        raise HarnessError(f"{needed >> 20} MiB of files do not fit into memory, {available >> 20} MiB are free")
    with tempfile.TemporaryDirectory(prefix=f"{MEMORY_FOLDERS}{os.getpid()}-", dir="/dev/shm") as folder:
        folder = pathlib.Path(folder)
        for name in ("export", "near"):
            (folder / name).mkdir()
        yield folder


def make_random_file(path, size):
    """Writes bytes that cannot be compressed. Returns their digest."""
    hasher = hashlib.blake2b()
    with open(path, "wb") as file:
        for first in range(0, size, 8 * MIB):
            block = os.urandom(min(8 * MIB, size - first))
            hasher.update(block)
            file.write(block)
    return hasher.hexdigest()


def digest(path, size=None):
    """Of a file, or of its first `size` bytes."""
    hasher = hashlib.blake2b()
    left = size if size is not None else sys.maxsize
    with open(path, "rb") as file:
        while left > 0 and (block := file.read(min(8 * MIB, left))):
            hasher.update(block)
            left -= len(block)
    return hasher.hexdigest()


def check_digest(path, wanted):
    if digest(path) != wanted:
        raise HarnessError(f"{path.name}: what arrived is not what was sent")


def make_tree(root, files, folders, size=4096):
    """`files` files of `size` random bytes, spread over `folders` directories below root. All mtimes are a day ago,
    so that no program takes them for still changing."""
    past = time.time_ns() - 86_400 * 10**9
    content = os.urandom(size + files)  # each file begins one byte later: all differ
    for number in range(folders):
        (root / f"folder{number:05}").mkdir(parents=True)
    for number in range(files):
        path = root / f"folder{number % folders:05}" / f"file{number:06}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        if size:
            os.write(descriptor, content[number:number + size])
        os.utime(descriptor, ns=(past, past))
        os.close(descriptor)
    for number in range(folders):
        os.utime(root / f"folder{number:05}", ns=(past, past))


def tree_digest(root, times=False):
    """One digest of names, sizes and contents below root; with `times`, of the files' mtimes too."""
    hasher = hashlib.blake2b()
    for folder, folders, names in os.walk(root):
        folders.sort()
        hasher.update(os.path.relpath(folder, root).encode() + b"\0")
        for name in sorted(names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            hasher.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns if times else 0}\0".encode())
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    hasher.update(file.read())
    return hasher.hexdigest()


def count_files(root):
    return sum(len(names) for _, _, names in os.walk(root))


# --- Processes --------------------------------------------------------------------------------------


def cpu_seconds(pids):
    """(user, kernel) seconds of processes so far, from /proc/PID/stat."""
    user = kernel = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11])
        kernel += int(fields[12])
    return user / TICKS, kernel / TICKS


def memory_kib(pids, name="VmHWM"):
    """The sum over processes of a line of /proc/PID/status: VmHWM is the peak resident size, VmRSS today's."""
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                total += int(line.split()[1])
    return total


def descendants(pid):
    """A process and all that it started, while they live."""
    found, unseen = [], [pid]
    while unseen:
        current = unseen.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{current}/task").iterdir():
                unseen += map(int, (task / "children").read_text().split())
    return found
