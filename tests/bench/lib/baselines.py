"""What Tusk is measured beside, on the same emulated path: iperf3 over TCP CUBIC and BBR, scp, sshfs, rclone mount.

Programs are those installed, or those that ./dev unpacked into build/baseline. What is to be had nowhere is skipped,
with a word: missing() says which."""

import contextlib
import getpass
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from lib import ROOT
from lib.measuring import Running, digest
from lib.warm_memory import warm_memory
from demo_ssh import PORT, SshServer
from harness import HarnessError, abort_fuse, fuse_connection, popen_in, run_in, stop, wait_for_exit, wait_until

READY_SECONDS = 20
UNPACKED = ROOT / "build" / "baseline"
CONTROLS = ("cubic", "bbr")

os.environ.setdefault("TUSK_BASELINE", str(UNPACKED))  # where demo_ssh looks for sshd


def find(program):
    """The path of a program, None when there is none."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found:
        return found
    for folder in ("usr/bin", "usr/sbin"):
        if os.access(UNPACKED / folder / program, os.X_OK):
            return str(UNPACKED / folder / program)
    return None


def missing():
    """Words about what cannot be compared with, by name of the method."""
    ssh = ["sshd", "ssh", "scp", "ssh-keygen"]
    needs = {"iperf3": ["iperf3"], "scp": ssh, **{method: [*ssh, method] for method in MOUNTS}}
    return {method: f"skipped, because {' and '.join(p for p in programs if not find(p))} is not installed"
            for method, programs in needs.items() if not all(map(find, programs))}


def environment():
    """For unpacked programs: where their libraries are."""
    libraries = os.pathsep.join(sorted({str(path.parent) for path in UNPACKED.glob("usr/lib/**/*.so.*")}))
    return {**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else dict(os.environ)


# --- iperf3 -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def iperf3_server(wan):
    """An iperf3 server for one run in namespace B."""
    server = popen_in(wan.ns_b, [find("iperf3"), "-s", "-1", "--forceflush"], stdout=subprocess.PIPE,
                      stderr=subprocess.DEVNULL, env=environment())
    try:
        while (line := server.stdout.readline()) and b"listening" not in line:
            pass
        yield server
    finally:
        stop(server)


@contextlib.contextmanager
def tcp_flow(wan, control, seconds, outwards):
    """One TCP flow that runs beside what the with block does, which gets a function that waits for its end and returns
    iperf3's parsed report. outwards: the bytes go from B to A, as when a file is copied out of a mount."""
    command = [find("iperf3"), "-c", wan.ip_b, "-C", control, "-t", f"{seconds:g}", "-J", *(["-R"] if outwards else [])]
    with iperf3_server(wan), Running(command, wan.ns_a, env=environment()) as client:
        yield lambda: json.loads(client.output(3 * seconds + 20))


def iperf3(wan, control, seconds, outwards):
    """Mbit/s that one TCP flow got from its first byte on. Also the parsed report."""
    with tcp_flow(wan, control, seconds, outwards) as report_of:
        report = report_of()
    received = report["end"]["sum_received"]
    return received["bytes"] * 8e-6 / (received["seconds"] or seconds), report


# --- ssh --------------------------------------------------------------------------------------------


def ssh_server(wan, folder):
    """sshd in namespace B with its keys below `folder`; a context manager."""
    return SshServer(wan, folder)


def ssh_options(server):
    """For ssh and for what runs it, as a list of NAME=VALUE."""
    return [f"IdentityFile={server.folder}/user_key", f"Port={PORT}", "BatchMode=yes", "StrictHostKeyChecking=no",
            f"UserKnownHostsFile={server.folder}/known_hosts", "LogLevel=ERROR"]


class _ForeignMount:
    """A FUSE mount of another program in namespace A, for the length of a with block."""

    def __init__(self, wan, server, directory):
        self.wan, self.server, self.directory = wan, server, directory
        self.path = None

    def __enter__(self):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="tusk-baseline-"))
        self.path = self._folder / "mnt"
        self.path.mkdir()
        with open(self._folder / "log", "wb") as log:
            self._process = popen_in(self.wan.ns_a, self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env=environment())
        try:
            wait_until(self._ready, READY_SECONDS, f"a mount by {type(self).__name__}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _ready(self):
        if self._process.poll() is not None and fuse_connection(self.path) is None:
            raise HarnessError((self._folder / "log").read_text(errors="replace").strip() or "ended")
        return fuse_connection(self.path) is not None

    def pids(self):
        return [self._process.pid]

    def __exit__(self, *_):
        connection = fuse_connection(self.path)
        with contextlib.suppress(HarnessError, subprocess.TimeoutExpired):
            run_in(None, ["umount", self.path], 60)
        if fuse_connection(self.path) is not None:
            with contextlib.suppress(HarnessError, subprocess.TimeoutExpired):
                run_in(None, ["umount", "-l", self.path], 5, check=False)
            abort_fuse(connection)
        stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


class Sshfs(_ForeignMount):
    name = "sshfs"

    def command(self):
        options = ssh_options(self.server)
        return [find("sshfs"), "-f", "-F", "none", *[word for option in options for word in ("-o", option)],
                f"{getpass.getuser()}@{self.wan.ip_b}:{self.directory}", self.path]


class Rclone(_ForeignMount):
    name = "rclone"

    def command(self):
        remote = (f":sftp,host={self.wan.ip_b},port={PORT},user={getpass.getuser()},"
                  f"key_file={self.server.folder}/user_key:{self.directory}")
        return [find("rclone"), "mount", "--config", "/dev/null", "--vfs-cache-mode", "writes",
                "--cache-dir", self._folder / "cache", "--vfs-write-back", "0s", remote, self.path]


MOUNTS = {"sshfs": Sshfs, "rclone": Rclone}


# --- Copies that may take far too long -----------------------------------------------------------------


def check_what_arrived(source, result, size):
    """By hash. Of a copy that was stopped the first half is compared: behind it some may write with gaps."""
    size = size if size == source.stat().st_size else size // 2
    if digest(result, size) != digest(source, size):
        raise HarnessError(f"{result} is not what {source} is, in its first {size} bytes")


def copy_for_a_while(command, source, result, seconds, ns=None):
    """Mbit/s of a copy of `source` that is stopped after a while: by then so much of `result` had arrived. A program
    that ends before all has arrived, as rclone lets it, does not stop the clock, nor does the time count that it takes
    to be stopped. Removes `result`."""
    size = source.stat().st_size

    def arrived():
        return min(size, result.stat().st_size) if result.exists() else 0

    try:
        with warm_memory(2 * size), Running(command, ns, env=environment()) as copy:
            if wait_for_exit(copy.process, seconds):
                copy.output()  # that it went well
            left = max(0, copy.started + seconds - time.monotonic())
            with contextlib.suppress(HarnessError):
                wait_until(lambda: arrived() == size, left, "the whole file")
            elapsed, came = time.monotonic() - copy.started, arrived()
        if came > 0:
            check_what_arrived(source, result, came)
        return came * 8e-6 / elapsed
    finally:
        result.unlink(missing_ok=True)
