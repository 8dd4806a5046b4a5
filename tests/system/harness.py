"""Runs programs, and Tusk, on the two ends of an emulated WAN path. Python 3.11, standard library only.

    with Wan(rate="1gbit", delay="50ms", loss="0.1%") as wan, \\
         Tuskd(wan, "/usr/share") as server, Mount(wan, server.url) as mount:
        run_in(wan.ns_a, ["cp", "-r", mount.path, "/tmp/copy"], timeout=60)
        wan.set(rate="100mbit")
        print(wan.stats()["ab"]["drops"])

Tusk's server lives in namespace B, the mount in namespace A. Nothing here waits without a limit: a program
that hangs in a dead mount cannot be killed before the mount's connection is aborted, so it is left behind
until then, never waited for.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

SKIPPED = 77  # the exit code that ctest takes for "skipped"

READY_SECONDS = 10
STOP_SECONDS = 10
STATUS_SECONDS = 60
UMOUNT_SECONDS = 60
KILL_SECONDS = 5
POLL_SECONDS = 0.01
HANGS_SECONDS = 870

NETNS_FOLDER = "/var/run/netns"
FUSE_CONNECTIONS = pathlib.Path("/sys/fs/fuse/connections")
TEST_ID = "TUSK_TEST_ID"  # in the environment of all we start: how we know our own daemons

SO_RCVBUFFORCE = 33
CLONE_NEWNET = 0x40000000


class HarnessError(Exception):
    """The set-up failed, not what is being tested."""


# --- Finding things ---------------------------------------------------------------------------------


def program(name):
    """The path of one of our programs: in the folders of TUSK_BIN, else beside or above us in a build folder."""
    root = pathlib.Path(__file__).resolve().parents[2]
    folders = [pathlib.Path(p) for p in os.environ.get("TUSK_BIN", "").split(os.pathsep) if p]
    for build in [root / "build" / "release", root / "build" / "debug"]:
        folders += [build / part for part in ("fsserver", "fsclient", "tests/system/wan")]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise HarnessError(f"{name} is not built; TUSK_BIN names the folders to look in")


def build_folder():
    """The build that program() finds ours in."""
    return pathlib.Path(program("tuskd")).parents[1]


def test_program(place):
    """The path of a program that only tests and benchmarks have: tests/`place` of the same build."""
    path = build_folder() / "tests" / place
    if not path.exists():
        raise HarnessError(f"{path} is not built")
    return path


def why_not(fuse=False):
    """None when system tests can run here, else a line that says why they are skipped."""
    reason = None
    if os.geteuid() != 0:
        reason = "only root may create network namespaces"
    elif shutil.which("nsenter") is None:
        reason = "nsenter (package util-linux) is missing"
    elif not _can_open("/dev/net/tun"):
        reason = "/dev/net/tun cannot be opened"
    elif subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        reason = "network namespaces are not allowed here"
    elif fuse and not _can_open("/dev/fuse"):
        reason = "/dev/fuse cannot be opened"
    return f"skipped, because {reason}" if reason else None


def _can_open(device):
    try:
        os.close(os.open(device, os.O_RDWR))
        return True
    except OSError:
        return False


def main(fuse=False):
    """What a test file ends with: runs its tests, or says why not."""
    reason = why_not(fuse)
    if reason:
        print(reason)
        sys.exit(SKIPPED)
    # ctest ends a test after 900 s: its report says before where the test hangs.
    faulthandler.dump_traceback_later(HANGS_SECONDS, repeat=False, exit=False)
    unittest.main(verbosity=2)


def wait_until(condition, timeout, what, interval=POLL_SECONDS):
    """Asks for a fact outside our reach (a file, a mount) until it is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {timeout} s")
        time.sleep(interval)


def wait_until_seen(path, timeout=5):
    """What a program on the server has made shows in a mount half a round trip later: in these tests, which are at both
    ends at once, that may be too late."""
    wait_until(path.exists, timeout, f"{path.name} in the mount")


# --- Programs in namespaces -------------------------------------------------------------------------


class Finished:
    """What a program left: its exit code and output."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr

    def __repr__(self):
        return f"exit code {self.returncode}\n{self.stdout}{self.stderr}"


def _enter(ns, command):
    # `ip netns exec` would make a mount namespace of its own and hide FUSE mounts.
    return [*(["nsenter", f"--net={NETNS_FOLDER}/{ns}"] if ns else []), *map(str, command)]


def popen_in(ns, command, **options):
    """subprocess.Popen in a namespace (None: ours), as the leader of its own process group."""
    return subprocess.Popen(_enter(ns, command), start_new_session=True, **options)


def run_in(ns, command, timeout, check=True, input=None, env=None, cwd=None):
    """Runs a program to its end. Raises TimeoutExpired after `timeout` seconds, even if it cannot be killed,
    and HarnessError when it fails, unless check=False."""
    # Files instead of pipes: a daemon that keeps a pipe open must not keep us waiting.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as inp:
        inp.write((input or "").encode())
        inp.seek(0)
        process = popen_in(ns, command, stdin=inp, stdout=out, stderr=err, env=env, cwd=cwd)
        try:
            process.wait(timeout)
        except BaseException:
            stop(process, signal.SIGKILL, KILL_SECONDS)
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        finished = Finished(process.returncode, *texts)
    if check and finished.returncode != 0:
        raise HarnessError(f"{' '.join(map(str, command))}: {finished}")
    return finished


def wait_for_exit(process, limit):
    """True when the process ended within so many seconds; without the delay of a poll."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(limit * 1000))
    finally:
        os.close(descriptor)


def stop(process, number=signal.SIGTERM, timeout=STOP_SECONDS):
    """Signals a process group of ours and waits a limited time; then SIGKILL. True when it is gone."""
    for attempt in (number, signal.SIGKILL):
        if process.poll() is not None:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, attempt)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout if attempt == number else KILL_SECONDS)
            return True
    return False


@contextlib.contextmanager
def inside(ns):
    """Sockets made by this thread within the block belong to the namespace, and stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"{NETNS_FOLDER}/{ns}", os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET) != 0:
            raise HarnessError(f"enter {ns}: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            if libc.setns(home, CLONE_NEWNET) != 0:
                os.abort()  # every later socket would be in the wrong place
    finally:
        os.close(there)
        os.close(home)


def udp_socket(ns, address, port=0, receive_buffer=64 << 20):
    """A bound UDP socket in a namespace, with a receive buffer that swallows any test's burst."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(ns):
        sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer)
    sock.bind((address, port))
    return sock


# --- The path ---------------------------------------------------------------------------------------


def _changes(settings):
    return ",".join(f"{name.replace('_', '-')}={value}" for name, value in settings.items())


class Wan:
    """An emulated path between namespaces ns_a (address ip_a) and ns_b (ip_b), for the length of a with block.

    Settings are those of `tusk-wan --help` with underscores: Wan(rate="1gbit", ab_loss="1%"). at is a list of
    (time, settings), with times from the start: at=[("10s", {"rate": "100mbit"})].
    """

    def __init__(self, at=(), **settings):
        self.command = [program("tusk-wan")]
        for name, value in settings.items():
            self.command += ["--" + name.replace("_", "-"), str(value)]
        for when, changes in at:
            self.command += ["--at", when, _changes(changes)]
        self.final = None  # the last statistics, once the path is gone
        self._process = None
        self._control = None

    def __enter__(self):
        # Not in the terminal's group: Ctrl-C would take the path from under a mount that has yet to be unmounted.
        self._process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         start_new_session=True)
        ready = self._line(READY_SECONDS).split()
        if len(ready) != 5 or ready[0] != "ready":
            self._process.terminate()
            raise HarnessError(f"tusk-wan did not start: {self._communicate()[1]}")
        self.ns_a, self.ns_b, self.ip_a, self.ip_b = ready[1:]
        self.ip6_a, self.ip6_b = map(_ipv6_of, (self.ip_a, self.ip_b))
        self.control_path = f"/run/tusk-wan{self._process.pid}.sock"
        if "--control" in self.command:
            self.control_path = self.command[self.command.index("--control") + 1]
        self._control = socket.socket(socket.AF_UNIX)
        self._control.settimeout(READY_SECONDS)
        self._control.connect(self.control_path)
        self._replies = self._control.makefile("r")
        return self

    def __exit__(self, *_):
        self._replies.close()
        self._control.close()
        self._process.terminate()
        out, err = self._communicate()
        if self._process.returncode != 0:
            raise HarnessError(f"tusk-wan failed: {err}")
        self.final = json.loads(out)

    @property
    def pid(self):
        return self._process.pid

    def set(self, **settings):
        """Changes settings from now on."""
        self.command_line("set " + _changes(settings))

    def at(self, after, /, **settings):
        """Changes settings when `after` ("1.5s") has passed from now."""
        self.command_line(f"at {after} {_changes(settings)}")

    def outage(self, on):
        self.command_line("outage " + ("on" if on else "off"))

    def stats(self):
        """The figures so far, as a dictionary: elapsed_s, ab and ba."""
        return json.loads(self.command_line("stats"))

    def settled_stats(self, timeout=5):
        """The figures once no packet is under way any more."""
        stats = {}

        def nothing_under_way():
            stats.update(self.stats())
            return stats["ab"]["under_way"] == 0 and stats["ba"]["under_way"] == 0

        wait_until(nothing_under_way, timeout, "packets under way")
        return stats

    def command_line(self, line):
        """Sends one line to the control socket and returns the answer."""
        self._control.sendall(line.encode() + b"\n")
        reply = self._replies.readline().rstrip("\n")
        if not reply or reply.startswith("error"):
            raise HarnessError(f"{line}: {reply or 'no answer'}")
        return reply

    def ping(self, count, interval=0.0, size=56):
        """Round trips from A to B in milliseconds (ICMP, answered by B's kernel); lost ones are missing."""
        with inside(self.ns_a):
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        with sock:
            sock.settimeout(2)
            return [ms for ms in (_ping_once(sock, self.ip_b, n, size, interval) for n in range(count)) if ms]

    def _communicate(self):
        """What is left of the output of tusk-wan, which has been told to end."""
        try:
            return [text.decode() for text in self._process.communicate(timeout=STOP_SECONDS)]
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise HarnessError("tusk-wan did not end when told to") from None

    def _line(self, timeout):
        readable, _, _ = select.select([self._process.stdout], [], [], timeout)
        return self._process.stdout.readline().decode() if readable else ""


def _ipv6_of(ipv4):
    _, high, low, host = ipv4.split(".")
    return f"fd00:{high}:{low}::{host}"


def _ping_once(sock, address, sequence, size, interval):
    identifier = os.getpid() & 0xFFFF

    def packet(checksum):
        return struct.pack("!BBHHH", 8, 0, checksum, identifier, sequence & 0xFFFF) + bytes(size)

    words = struct.unpack(f"!{(8 + size) // 2}H", packet(0)[: (8 + size) // 2 * 2])
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    start = time.perf_counter()
    sock.sendto(packet(~(total + (total >> 16)) & 0xFFFF), (address, 0))
    while True:
        try:
            reply = sock.recv(65535)[20:]
        except TimeoutError:
            return None
        now = time.perf_counter()
        kind, _, _, got_identifier, got_sequence = struct.unpack("!BBHHH", reply[:8])
        if kind == 0 and (got_identifier, got_sequence) == (identifier, sequence & 0xFFFF):
            if interval:
                time.sleep(interval)
            return (now - start) * 1e3


# --- Tusk on the path -------------------------------------------------------------------------------


def _is_failure(kind):
    """Whether a with block was left because of what went wrong: not by Ctrl-C or a signal."""
    return kind is not None and issubclass(kind, Exception)


class _Logged:
    """A folder for logs and state that stays, and is named, when the with block fails (and was not interrupted)."""

    def _open_folder(self, kind):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tusk-{kind}-"))
        self.log_path = self.folder / "log"

    def _close_folder(self, failed):
        if failed or os.environ.get("TUSK_KEEP_LOGS"):
            print(f"kept {self.log_path}; it ends:\n{self.log(20)}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, lines=None):
        """What the program has written so far, or its last lines."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text if lines is None else "\n".join(text.splitlines()[-lines:])


class Tuskd(_Logged):
    """`tuskd share` in namespace B, for the length of a with block. url is what a mount needs."""

    def __init__(self, wan, directory, rw=True, port=8875, ipv6=False, state_dir=None, options=()):
        self.wan, self.directory, self.rw, self.options = wan, directory, rw, options
        self.listen = f"[{wan.ip6_b}]:{port}" if ipv6 else f"{wan.ip_b}:{port}"
        self.state_dir = state_dir
        self.process = None

    def __enter__(self):
        self._open_folder("server")
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def command(self, url_file):
        return [program("tuskd"), "share", self.directory, *(["--rw"] if self.rw else []), "--listen", self.listen,
                "--state-dir", self.state_dir or self.folder / "state", "--url-file", url_file, *self.options]

    def start(self):
        """Also after stop() or kill(): the same directory, state and address."""
        url_file = self.folder / "url"
        url_file.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = popen_in(self.wan.ns_b, self.command(url_file), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def ready():
            if self.process.poll() is not None:
                raise HarnessError(f"tuskd ended with {self.process.returncode}: {self.log(20)}")
            return url_file.exists() and "#" in url_file.read_text()  # the token is its last part

        wait_until(ready, READY_SECONDS, "tuskd's URL")
        self.url = url_file.read_text().strip()

    def stop(self):
        """SIGTERM, as an administrator does. Returns the exit code."""
        if not stop(self.process):
            raise HarnessError("tuskd cannot be ended")
        return self.process.returncode

    def kill(self):
        """SIGKILL: a crash."""
        stop(self.process, signal.SIGKILL)

    def __exit__(self, kind, *_):
        if self.process:
            stop(self.process)
        self._close_folder(_is_failure(kind))


class Mount(_Logged):
    """`tusk mount` in namespace A, for the length of a with block. path is the mount point.

    state: what the client remembers from mount to mount, else it is new. nice: how much it leaves the processors to
    others. ready_seconds: how long the command took to return, starting it included. The end of the block unmounts
    with `tusk umount`; when that fails or takes longer than umount_seconds the mount is torn down by force, and the
    block fails."""

    def __init__(self, wan, url, path=None, options=(), env=None, umount_seconds=UMOUNT_SECONDS, state=None, nice=0):
        self.wan, self.url, self.options, self.env = wan, url, options, env or {}
        self.nice = nice
        self.umount_seconds = umount_seconds
        self._wanted_path, self._wanted_state = path, state

    def __enter__(self):
        self._open_folder("mount")
        self.path = pathlib.Path(self._wanted_path or self.folder / "mnt")
        self.path.mkdir(parents=True, exist_ok=True)
        self._id = uuid.uuid4().hex
        self._connection = None
        try:
            self._mount()
        except BaseException:
            self._tear_down()
            self._close_folder(True)
            raise
        return self

    def _mount(self):
        url_file = self.folder / "url"
        url_file.touch(mode=0o600)
        url_file.write_text(self.url)
        command = ["nice", "-n", str(self.nice), program("tusk"), "mount", "--url-file", url_file, self.path, "--state-dir",
                   self._wanted_state or self.folder / "state", *(["-o", ",".join(self.options)] * bool(self.options))]
        with open(self.log_path, "ab") as log:
            started = time.monotonic()
            process = popen_in(self.wan.ns_a, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               env={**os.environ, **self.env, TEST_ID: self._id})
        ended = wait_for_exit(process, READY_SECONDS)
        self.ready_seconds = time.monotonic() - started
        if not ended:
            stop(process, signal.SIGKILL)
            raise HarnessError("tusk mount did not return")
        if process.wait() != 0:
            raise HarnessError(f"tusk mount ended with {process.returncode}: {self.log(20)}")
        self._connection = fuse_connection(self.path)
        if self._connection is None:
            raise HarnessError(f"tusk mount returned 0, but nothing is mounted at {self.path}")

    def umount(self):
        """`tusk umount`: flushes, waits, unmounts. Raises when it fails."""
        run_in(self.wan.ns_a, [program("tusk"), "umount", self.path], self.umount_seconds)

    def status(self):
        """What `tusk status --json` says, as a dictionary."""
        return json.loads(run_in(self.wan.ns_a, [program("tusk"), "status", "--json", self.path], STATUS_SECONDS).stdout)

    def pids(self):
        """The processes of this mount, without fusermount3: it waits for their end, to unmount."""
        marker = f"{TEST_ID}={self._id}".encode()
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (marker in (entry / "environ").read_bytes().split(b"\0")
                        and (entry / "comm").read_text().strip() != "fusermount3"):
                    found.append(int(entry.name))
        return found

    def kill(self):
        """SIGKILL: a crash of the client."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __exit__(self, kind, *_):
        failure = None
        if fuse_connection(self.path) is not None:
            try:
                self.umount()
            except (HarnessError, subprocess.TimeoutExpired) as error:
                failure = error
        self._tear_down()
        self._close_folder(_is_failure(kind) or failure is not None)
        if failure and kind is None:
            raise failure

    def _tear_down(self):
        """Leaves nothing behind, whatever state the mount is in. Touches no path inside the mount: that could hang."""
        connection = fuse_connection(self.path)
        if connection is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run_in(None, ["umount", "-l", self.path], KILL_SECONDS, check=False)
        elif self.pids():
            connection = self._connection  # unmounted, but still in use
        # Without a daemon the number may be another mount's by now.
        if connection is not None:
            abort_fuse(connection)
        self.kill()


def fuse_connection(path):
    """The number of the FUSE connection mounted at `path`, None without one. Does not touch the mount."""
    wanted = os.fsencode(os.path.abspath(path))
    connection = None
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split()
            kind = fields[fields.index(b"-") + 1]
            mounted = re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4])
            if kind.startswith(b"fuse") and mounted == wanted:
                connection = int(fields[2].split(b":")[1])  # the minor device number; the last mount is on top
    return connection


def abort_fuse(connection):
    """Fails everything that waits for a FUSE connection. Harmless when it is gone already."""
    if not any(FUSE_CONNECTIONS.glob("*")):
        subprocess.run(["mount", "-t", "fusectl", "none", FUSE_CONNECTIONS], capture_output=True)
    with contextlib.suppress(OSError):
        (FUSE_CONNECTIONS / str(connection) / "abort").write_text("1")
