#!/usr/bin/env python3
"""Shows Tusk at work: everyday tools on a mount that is 100 ms away, and what they reach of the line.

    ./dev demo [DIR]        DIR, by default /usr/share, is the real tree that is exported

Exports DIR, mounts it across an emulated path of 1 Gbit/s, 100 ms round trip and 0.1 % loss, and runs cp -r,
rsync -a, tar and diff -r on the mount. Copies 1 GiB that cannot be compressed out of a mount and into one. What
arrived is compared with what was there. scp and rsync over ssh run on the same path, for comparison. Without root
it all happens on loopback. Changes nothing outside a temporary folder.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import harness
from demo_ssh import SshServer
from harness import HarnessError, Mount, Tuskd, Wan, popen_in, run_in, stop
from progress import Progress

RATE_MBIT = 1000
DELAY_MS = 50  # one way
LOSS = 0.001
MTU, PAYLOAD = 1500, 1434  # bytes of a packet, and of file in it
LIMIT_MBIT = RATE_MBIT * (1 - LOSS) * PAYLOAD / MTU

BIG_BYTES = 1 << 30
TREE_BYTES_MAX = 1 << 30
TREE_FILES_MAX = 20_000
TREE_PATHS_MAX = 400  # named on one command line
TREE_STEP_SECONDS = 45  # a tool on the tree should take no longer; the first files show how many that allows
PROBE_FILES = 200
STEP_SECONDS_MAX = 600
COMPARISON_SECONDS = 20  # TCP would need many minutes for some of this: it shows its speed, then is stopped
MEMORY_RESERVE = 2 << 30  # left over when the demo's files go into memory

MIB = 1 << 20


def say(text):
    print(text, flush=True)


class Loopback:
    """What stands for the path where none can be emulated."""

    ns_a = ns_b = None
    ip_a = ip_b = "127.0.0.1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


# --- The tree ---------------------------------------------------------------------------------------


class Portion:
    """Paths below a tree's root, all or some of it, in the order of their names: whole folders where they fit."""

    def __init__(self, root, files_max, bytes_max):
        self.root, self.files_max, self.bytes_max = pathlib.Path(root), files_max, bytes_max
        self.paths, self.files, self.bytes, self.complete = [], 0, 0, True
        self._add(pathlib.Path("."))

    def _add(self, path):
        files, size = _count(self.root / path, self.files_max - self.files)
        if self.files + files <= self.files_max and self.bytes + size <= self.bytes_max and \
                len(self.paths) < TREE_PATHS_MAX:
            self.paths.append(path)
            self.files += files
            self.bytes += size
        elif (self.root / path).is_dir() and not (self.root / path).is_symlink() and self.files < self.files_max:
            for entry in sorted(os.listdir(self.root / path)):
                self._add(path / entry)
        else:
            self.complete = False

    def arguments(self):
        return [f"./{path}" if str(path) != "." else "." for path in self.paths]


def _count(path, files_max):
    """Files, folders and links at and below a path, and the bytes in its files; stops soon after files_max."""
    status = os.lstat(path)
    files, size = 1, status.st_size if not path.is_dir() else 0
    if path.is_dir() and not path.is_symlink():
        for folder, folders, names in os.walk(path):
            files += len(folders) + len(names)
            if files > files_max:
                break
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return files, size


def bytes_below(path):
    """Bytes in a file, or in those below a folder, that others may be writing."""
    total = path.stat().st_size if path.is_file() else 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


# --- Steps ------------------------------------------------------------------------------------------


class Row:
    """A line of the table at the end."""

    def __init__(self, what, size, seconds, result):
        self.what, self.size, self.seconds, self.result = what, size, seconds, result

    def cells(self, limit):
        mbit = self.size * 8 / 1e6 / self.seconds if self.seconds else 0
        return (self.what, _size_text(self.size), f"{self.seconds:.1f} s", f"{mbit:.1f}",
                f"{mbit / limit:.0%}" if limit else "-", self.result)


def _size_text(size):
    return f"{size / MIB / 1024:.2f} GiB" if size >= 1 << 30 else f"{size / MIB:.1f} MiB"


class Demo:
    def __init__(self, wan, tree, work):
        self.wan, self.tree, self.work = wan, tree, work
        self.server_folder, self.client_folder = work / "server", work / "client"
        self.rows = []
        self.good = True

    def timed(self, what, command, result=None, cwd=None, limit=STEP_SECONDS_MAX):
        """Runs a program on the mount's side; result is what it makes. Returns how long it took, and whether it came to its end."""
        say(f"{what}")
        def arrived():
            return f", {_size_text(bytes_below(result))} arrived" if result else ""

        with Progress(self.wan, arrived):
            start = time.monotonic()
            process = popen_in(self.wan.ns_a, command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
            try:
                _, errors = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - start
                stop(process, signal.SIGKILL)
                return seconds, False
            except BaseException:
                stop(process, signal.SIGKILL)
                raise
            seconds = time.monotonic() - start
        if process.returncode != 0:
            text = errors.decode(errors="replace").strip().splitlines() or ["no message"]
            raise HarnessError(f"{command[0]} ended with {process.returncode}: {text[-1]}")
        return seconds, True

    def row(self, what, size, seconds, problem, good="ok"):
        self.good = self.good and not problem
        self.rows.append(Row(what, size, seconds, problem or good))
        say(f"    {seconds:.1f} s, {problem or good}")

    @contextlib.contextmanager
    def attempt(self, what):
        """What fails is a row that says so, and the rest goes on."""
        try:
            yield
        except (HarnessError, OSError, subprocess.SubprocessError) as error:
            self.row(what, 0, 0, f"FAILED: {str(error).splitlines()[0][:100]}")

    def run(self):
        ports = (8875, 8876) if self.wan.ns_b else (free_port(), free_port())
        with Tuskd(self.wan, self.tree, rw=False, port=ports[0]) as server:
            say(f"tuskd share {shlex.quote(self.tree)}   ->   tusk mount '{server.url}' ...")
            self.tree_tools(server)
        with Tuskd(self.wan, str(self.server_folder), rw=True, port=ports[1]) as server:
            self.big_file(server)

    # The real tree. Every tool has a mount of its own, so that none profits from what another left in a cache.

    def tree_tools(self, server):
        portion = self.choose_portion(server)
        self.portion = portion
        copy = self.client_folder / "copy"
        archive = self.client_folder / "tree.tar"
        names = portion.arguments()
        plan = [
            ("cp -r", ["cp", "-r", "--parents", *names, copy], copy, lambda: self.differs(copy)),
            ("rsync -a", ["rsync", "-a", "--relative", *names, f"{copy}/"], copy,
             lambda: self.differs(copy)),
            ("tar", ["tar", "-cf", archive, *names], archive, lambda: self.archive_differs(archive)),
            ("diff -r", self.diff_command(names, self.tree), None, lambda: None),
        ]
        for what, command, result, problem in plan:
            copy.mkdir()
            with self.attempt(what), Mount(self.wan, server.url) as mount:
                seconds, ended = self.timed(f"{what} of {portion.files} files through the mount", command, result,
                                            mount.path)
                self.row(what, portion.bytes, seconds, problem() if ended else "FAILED: took too long", "identical")
            shutil.rmtree(copy)
            archive.unlink(missing_ok=True)

    def choose_portion(self, server):
        everything = Portion(self.tree, TREE_FILES_MAX, TREE_BYTES_MAX)
        probe = Portion(self.tree, PROBE_FILES, TREE_BYTES_MAX // 64)
        if probe.complete:
            return everything
        copy = self.client_folder / "probe"
        copy.mkdir()
        with Mount(self.wan, server.url) as mount:
            seconds, ended = self.timed(f"cp of the first {probe.files} files, to see how many make a short demo",
                                        ["cp", "-r", "--parents", *probe.arguments(), copy], copy, mount.path)
        shutil.rmtree(copy)
        if not ended:
            raise HarnessError("the first files could not be copied")
        budget = max(PROBE_FILES, int(probe.files / seconds * TREE_STEP_SECONDS))
        portion = Portion(self.tree, min(budget, TREE_FILES_MAX), TREE_BYTES_MAX)
        if not portion.complete:
            total, size = _count(pathlib.Path(self.tree), sys.maxsize)
            say(f"    {probe.files / seconds:.0f} files/s: of the {total} files ({_size_text(size)}) in {self.tree} the "
                f"tools below get {portion.files} ({_size_text(portion.bytes)}), the rest is left out")
        return portion

    def diff_command(self, names, original):
        each = 'original=$1; shift; for name; do diff -r --no-dereference "$original/$name" "$name" || exit 1; done'
        return ["sh", "-c", each, "sh", str(original), *names]

    def differs(self, copy):
        found = run_in(None, self.diff_command(self.portion.arguments(), copy), STEP_SECONDS_MAX, check=False,
                       cwd=self.tree)
        return f"FAILED: differs: {found.stdout.strip()[:80]}" if found.returncode else None

    def archive_differs(self, archive):
        # Owners are the mounting user's when the demo does not run as root.
        found = run_in(None, ["tar", "--diff", "-f", archive, "-C", self.tree], STEP_SECONDS_MAX, check=False)
        problems = [line for line in found.stdout.splitlines() if not line.endswith(("Uid differs", "Gid differs"))]
        return f"FAILED: differs: {problems[0][:80]}" if problems else None

    # The big file, both ways.

    def big_file(self, server):
        what_out, what_in = "cp 1 GiB out of the mount", "cp 1 GiB into the mount"
        source = self.server_folder / "big"
        arrived = self.client_folder / "big"
        wanted = make_random_file(source)
        with self.attempt(what_out), Mount(self.wan, server.url) as mount:
            seconds, ended = self.timed(what_out, ["cp", f"{mount.path}/big", arrived], arrived)
            self.row(what_out, BIG_BYTES, seconds, None if ended and sha256(arrived) == wanted else
                     "FAILED: not the same bytes", "same sha256")
        arrived.unlink(missing_ok=True)
        source.rename(arrived)
        with self.attempt(what_in), Mount(self.wan, server.url) as mount:
            seconds, ended = self.timed(what_in, ["cp", arrived, f"{mount.path}/big"], source)
            self.row(what_in, BIG_BYTES, seconds, None if ended and sha256(source) == wanted else
                     "FAILED: not the same bytes", "same sha256")
        source.unlink(missing_ok=True)

    # The same over TCP.

    def comparison(self, control):
        """scp and rsync with a TCP congestion control, which the path has been told to use."""
        name = f"TCP {control}" if control else "TCP"
        here, there = self.client_folder / "big", self.server_folder / "big"
        copy = self.client_folder / "copy"
        copy.mkdir()
        try:
            ssh = SshServer(self.wan, self.work / "ssh")
        except HarnessError as error:
            say(f"No comparison with scp: {error}")
            return
        with ssh:
            # rsync keeps what follows the "/./".
            sources = [ssh.remote(f"{self.tree}/{path}") for path in self.portion.arguments()]
            self.limited(f"  rsync -a over ssh, {name}", ssh.rsync(sources, copy), copy, self.portion.bytes)
            self.limited(f"  scp 1 GiB from there, {name}", ssh.scp(ssh.remote(here), there), there, BIG_BYTES)
            self.limited(f"  scp 1 GiB to there, {name}", ssh.scp(here, ssh.remote(there)), there, BIG_BYTES)

    def limited(self, what, command, result, size):
        with self.attempt(what):
            seconds, ended = self.timed(what.strip(), command, result, limit=COMPARISON_SECONDS)
            arrived = size if ended else bytes_below(result)
            self.row(what, arrived, seconds, None, "complete" if ended else f"stopped after {COMPARISON_SECONDS} s")
        if result.is_dir():
            shutil.rmtree(result)
        result.unlink(missing_ok=True)

    def print_table(self):
        emulated = isinstance(self.wan, Wan)
        limit = LIMIT_MBIT if emulated else None
        lines = [("what", "size", "time", "Mbit/s", "of limit", ""), *(row.cells(limit) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(6)]
        say("")
        if emulated:
            say(f"Path: {RATE_MBIT} Mbit/s, {2 * DELAY_MS} ms round trip, {LOSS:.1%} loss, MTU {MTU}; "
                f"limit {LIMIT_MBIT:.0f} Mbit/s = rate x (1 - loss) x {PAYLOAD} / {MTU}")
        for line in lines:
            say(f"{line[0]:<{widths[0]}}  " + "  ".join(f"{line[i]:>{widths[i]}}" for i in range(1, 5)) + f"  {line[5]}")


# --- Files ------------------------------------------------------------------------------------------


def make_random_file(path):
    """Writes BIG_BYTES that cannot be compressed. Returns their SHA-256."""
    say("Making 1 GiB that cannot be compressed")
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for _ in range(BIG_BYTES // (8 * MIB)):
            block = os.urandom(8 * MIB)
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def work_folder():
    """A folder in memory when there is room, so that no disk is measured."""
    needed = 2 * BIG_BYTES + BIG_BYTES // 8
    fields = pathlib.Path("/proc/meminfo").read_text().split()
    available = int(fields[fields.index("MemAvailable:") + 1]) * 1024
    with contextlib.ExitStack() as stack:
        parent = None
        if available >= needed + MEMORY_RESERVE and os.geteuid() == 0:
            mounted = pathlib.Path(tempfile.mkdtemp(prefix="tusk-demo-"))
            stack.callback(mounted.rmdir)
            run_in(None, ["mount", "-t", "tmpfs", "-o", f"size={needed},mode=700", "tusk-demo", mounted], 10)
            stack.callback(run_in, None, ["umount", "-l", mounted], 10)
            parent = mounted
        elif available >= needed + MEMORY_RESERVE and shutil.disk_usage("/dev/shm").free >= needed:
            parent = pathlib.Path("/dev/shm")
        else:
            say("Files go to disk, not to memory (too little is free): the disk is measured too.")
            if shutil.disk_usage(tempfile.gettempdir()).free < needed:
                raise HarnessError(f"{tempfile.gettempdir()} has no room for {_size_text(needed)}")
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="work-", dir=parent)))
        for name in ("server", "client", "ssh"):
            (work / name).mkdir(mode=0o700)
        yield work


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def path(emulated, control=None):
    """A context manager: the path for one part of the demo."""
    if not emulated:
        return Loopback()
    options = {"tcp": control} if control else {}
    return Wan(rate=f"{RATE_MBIT}mbit", delay=f"{DELAY_MS}ms", loss=f"{LOSS:%}", mtu=MTU, **options)


def can_emulate():
    """Whether the path can be emulated; says so, or why not."""
    reason = harness.why_not()
    if reason:
        say(f"What is different here: no path can be emulated ({reason.removeprefix('skipped, because ')}). All runs on\n"
            "loopback, without delay, loss or limit: this shows that Tusk works, not what it is for.")
    else:
        say(f"A path of {RATE_MBIT} Mbit/s, {2 * DELAY_MS} ms round trip and {LOSS:.1%} loss, each way, joins two "
            "network namespaces.")
    return not reason


def congestion_controls(emulated):
    """Those worth comparing: what nearly every machine uses, and the one made for such paths. None on loopback:
    whatever the machine uses."""
    available = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return [name for name in ("cubic", "bbr") if name in available] if emulated else [None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default="/usr/share", help="the tree to export")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the with blocks: nothing stays behind

    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        say("skipped, because /dev/fuse cannot be opened: nothing can be mounted here")
        return harness.SKIPPED
    tree = os.path.realpath(arguments.directory)
    if not os.path.isdir(tree):
        parser.error(f"{tree} is no directory")
    try:
        emulated = can_emulate()
        with work_folder() as work:
            with path(emulated) as wan:
                demo = Demo(wan, tree, work)
                demo.run()
            for control in congestion_controls(emulated):
                with path(emulated, control) as demo.wan:
                    demo.comparison(control)
    except (HarnessError, subprocess.SubprocessError) as error:
        say(f"The demo broke off: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    demo.print_table()
    return 0 if demo.good else 1


if __name__ == "__main__":
    sys.exit(main())
