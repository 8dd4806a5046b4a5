"""Timing programs, making files, comparing what arrived, and what processes use."""

import contextlib
import hashlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

from harness import HarnessError, popen_in, stop

MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


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
    with tempfile.TemporaryFile(dir="/dev/shm") as out, tempfile.TemporaryFile(dir="/dev/shm") as err:
        start = time.monotonic()
        process = popen_in(ns, command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            ended = wait_for_exit(process, limit)
        except BaseException:
            stop(process, signal.SIGKILL)
            raise
        seconds = time.monotonic() - start
        if not ended:
            stop(process, signal.SIGKILL)
            wait_for_group(process.pid)
        for file in (out, err):
            file.seek(0)
        output = out.read().decode(errors="replace")
        if ended and process.wait() != 0:
            errors = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise HarnessError(f"{command[0]} ended with {process.returncode}: {errors[-1]}")
    if not ended and must_end:
        raise HarnessError(f"{command[0]} took more than {limit:.0f} s")
    return Timed(seconds, ended, output)


def wait_for_exit(process, limit):
    """True when the process ended within so many seconds."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(limit * 1000))
    finally:
        os.close(descriptor)


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


@contextlib.contextmanager
def memory_folder(needed):
    """A folder in memory, so that no disk is measured, with `export` and `near` in it. Raises HarnessError when
    `needed` bytes have no room."""
    fields = pathlib.Path("/proc/meminfo").read_text().split()
    available = int(fields[fields.index("MemAvailable:") + 1]) * 1024
    if available < needed + (1 << 30):
        raise HarnessError(f"{needed >> 20} MiB of files do not fit into memory, {available >> 20} MiB are free")
    with tempfile.TemporaryDirectory(prefix="tusk-bench-", dir="/dev/shm") as folder:
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
