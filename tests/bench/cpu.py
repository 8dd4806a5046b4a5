"""What a byte costs: client and server in two namespaces joined by a plain veth pair, MTU 1500.

    ./dev bench cpu [--quick] [--baselines]

Reads a 4 GiB file (1 GiB with --quick) that the server has in memory through the mount into /dev/null, and writes one;
Mbit/s, and the user and kernel CPU seconds per GiB of tusk and of tuskd, from /proc/PID/stat. Everything runs on the
same cores: what the two sides have to share. With --baselines the same for iperf3 over TCP, scp, sshfs and rclone
mount in the same run. With perf installed another read is profiled: the ten largest costs. Also the transport alone,
memory to memory, and the peak memory of both sides at 1 Gbit/s and 200 ms, and at 2000 ms, where as many bytes are on their
way as at 10 Gbit/s and 200 ms (in a tenth of the packets a second). A veth pair does not cut what the kernel is given as
one into packets: 64 KiB of TCP, and a run of up to 64 of our datagrams. What is timed begins with memory at hand
(lib/warm_memory.py): the pages of the files, which a virtual machine may have to get from its host, would cost more than all
the rest. (Who gives it back while they are taken counts for the machine and in the profile, not for a side.)
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import sys
import tempfile
import time

from lib import baselines, drawing
from lib.lines import Line, parse_size, size_text
from lib.measuring import TICKS, check_digest, cpu_seconds, descendants, make_random_file, memory_folder, memory_kib, \
    timed
from lib.mounts import DIRECTIONS, INTO, OUT, copy_large, mounted
from lib.results import Session, common_arguments
from lib.veth import Veth
from lib.warm_memory import warm_memory
from harness import HarnessError, Mount, Tuskd, test_program, wait_until

GIB = 1 << 30
SIZE, QUICK_SIZE, TINY_SIZE = 4 * GIB, GIB, 4 << 20
CIPHER = "AES-256-GCM"
READ_GOAL, WRITE_GOAL = 5000, 4000  # Mbit/s
FAR = Line(rtt=200)
# What has to be held is what is on its way: as much as at 10 Gbit/s and 200 ms, which one machine does not emulate.
FURTHER = Line(rtt=2000)
MEMORY_GOALS = {FAR: 256, FURTHER: 1536}  # MiB
TRANSPORT_GOAL = 10_000  # Mbit/s
COPY_SECONDS_MAX = 300
COSTS_SHOWN = 10


# --- CPU --------------------------------------------------------------------------------------------


def busy_seconds():
    """CPU seconds of the whole machine that were not idle, so far."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = fields[:8]
    return (user + nice + system + interrupts + soft_interrupts) / TICKS


def tree_seconds(pid):
    """CPU seconds of a process, of all that it started, and of those of them that ended."""
    total = 0
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def children_seconds():
    """CPU seconds of programs that we started and that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def per_gib(seconds, size):
    return seconds * GIB / size


# --- Tusk -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_veth(folder):
    with Veth() as veth, Tuskd(veth, folder / "export") as server, Mount(veth, server.url) as mount:
        yield veth, server, mount


def read_command(path):
    return ["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"]


def check_read(mount, name, wanted):
    """What the mount gives for a file is what was made; outside of any measurement."""
    seen = timed(["b2sum", mount.path / name], COPY_SECONDS_MAX).output.split()[0]
    if seen != wanted:
        raise HarnessError(f"{name} read through the mount is not what was made")


def write_command(source, target):
    return ["dd", f"if={source}", f"of={target}", "bs=1M", "status=none"]


def tusk_cell(direction, size):
    def measure(cell):
        with memory_folder(2 * size + (size >> 1)) as folder:
            wanted = make_random_file(folder / "export" / "far", size)
            with on_veth(folder) as (_, server, mount):
                command = read_command(mount.path / "far") if direction == OUT else \
                    write_command(folder / "export" / "far", mount.path / "copy")
                sides = {"client": mount.pids(), "server": [server.process.pid]}
                with warm_memory(2 * size):
                    before = {side: cpu_seconds(pids) for side, pids in sides.items()}
                    machine = busy_seconds()
                    seconds = timed(command, COPY_SECONDS_MAX).seconds
                    machine = busy_seconds() - machine
                    after = {side: cpu_seconds(pids) for side, pids in sides.items()}
                peak = {side: memory_kib(pids) >> 10 for side, pids in sides.items()}
                cipher = mount.status()["path"]["cipher"]
                if cipher != CIPHER:
                    raise HarnessError(f"the mount is encrypted with {cipher}, not {CIPHER}")
                if direction == OUT:
                    check_read(mount, "far", wanted)
                else:
                    check_digest(folder / "export" / "copy", wanted)
        what = "read" if direction == OUT else "write"
        cell.add(f"tusk, {what} through the mount", size * 8e-6 / seconds, "Mbit/s",
                 at_least=READ_GOAL if direction == OUT else WRITE_GOAL, note=f"{size_text(size)}, {cipher}")
        for side in sides:
            user, kernel = (per_gib(b - a, size) for a, b in zip(before[side], after[side]))
            cell.add(f"tusk, {what}, {side}", user + kernel, "CPU s/GiB",
                     note=f"user {user:.2f}, kernel {kernel:.2f}; peak memory {peak[side]} MiB")
        cell.add(f"tusk, {what}, the whole machine", per_gib(machine, size), "CPU s/GiB",
                 note=f"{machine / seconds:.2f} of {os.cpu_count()} cores busy, dd included")
    return measure


def profile_cell(direction, size):
    """The ten largest costs of another run, profiled."""
    def measure(cell):
        with memory_folder(2 * size + (size >> 1)) as folder, tempfile.TemporaryDirectory() as scratch:
            make_random_file(folder / "export" / "far", size)
            data = pathlib.Path(scratch) / "perf.data"
            with on_veth(folder) as (_, _, mount):
                command = read_command(mount.path / "far") if direction == OUT else \
                    write_command(folder / "export" / "far", mount.path / "copy")
                with warm_memory(2 * size):
                    timed(["perf", "record", "-q", "-a", "-F", "499", "-o", data, "--", *command], COPY_SECONDS_MAX)
            report = timed(["perf", "report", "-q", "--stdio", "-i", data, "--sort", "comm,dso,symbol",
                            "--percent-limit", "0.01"], COPY_SECONDS_MAX).output
        what = "read" if direction == OUT else "write"
        costs = parse_profile(report)
        cell.details["costs"] = costs
        for share, words in costs[:COSTS_SHOWN]:
            cell.add(f"profile, {what}: {words}", share, "% of what was busy")
    return measure


def parse_profile(report):
    """(percent of what was not idle, "program  library  function"), largest first. Functions without a name, as in
    stripped libraries, are taken together."""
    costs = collections.Counter()
    for line in report.splitlines():
        found = re.match(r"\s*([\d.]+)%\s+(\S+)\s+(\S+)\s+\[.\]\s+(\S+)", line)
        if found and found[2] != "swapper":
            function = "(no names)" if re.fullmatch(r"(0x)?[0-9a-f]{8,}", found[4]) else found[4]
            costs[f"{found[2]}  {found[3].strip('[]')}  {function}"] += float(found[1])
    busy = sum(costs.values()) or 1
    return [(share / busy * 100, words) for words, share in costs.most_common()]


# --- The others -------------------------------------------------------------------------------------


def iperf3_cell(control):
    def measure(cell):
        with Veth() as veth:
            machine = busy_seconds()
            mbit, report = baselines.iperf3(veth, control, 5, True)
            machine = busy_seconds() - machine
        seconds = report["end"]["sum_received"]["seconds"]
        size = report["end"]["sum_received"]["bytes"]
        usage = report["end"]["cpu_utilization_percent"]
        cell.add(f"iperf3, TCP {control.upper()}", mbit, "Mbit/s")
        for side, name in (("client", "host_total"), ("server", "remote_total")):
            cell.add(f"iperf3, TCP {control.upper()}, {side}", per_gib(usage[name] / 100 * seconds, size), "CPU s/GiB")
        cell.add(f"iperf3, TCP {control.upper()}, the whole machine", per_gib(machine, size), "CPU s/GiB")
    return measure


def ssh_cell(method, direction, size):
    """scp, sshfs or rclone."""
    def measure(cell):
        with memory_folder(2 * size + (size >> 1)) as folder, Veth() as veth, contextlib.ExitStack() as stack:
            wanted = make_random_file(folder / "export" / "far", size)
            (folder / "ssh").mkdir()
            server = stack.enter_context(baselines.ssh_server(veth, folder / "ssh"))
            far, near, copy = folder / "export" / "far", folder / "near" / "copy", folder / "export" / "copy"
            ns, client = veth.ns_a, None
            if method == "scp":
                command = server.scp(server.remote(far), near) if direction == OUT else \
                    server.scp(far, server.remote(copy))
            else:
                mount = stack.enter_context(baselines.MOUNTS[method](veth, server, folder / "export"))
                client, ns = mount.pids()[0], None
                command = read_command(mount.path / "far") if direction == OUT else \
                    write_command(far, mount.path / "copy")
            sides = {"client": (lambda: tree_seconds(client)) if client else children_seconds,
                     "server": lambda: tree_seconds(server._process.pid)}
            with warm_memory(2 * size):
                before, machine = {side: used() for side, used in sides.items()}, busy_seconds()
                start = time.monotonic()
                timed(command, COPY_SECONDS_MAX, ns=ns)
                if direction == INTO:  # rclone is not ready when its program is
                    wait_until(lambda: copy.exists() and copy.stat().st_size == size, COPY_SECONDS_MAX,
                               "the whole file")
                seconds = time.monotonic() - start
                machine = busy_seconds() - machine
                after = {side: used() for side, used in sides.items()}
            if direction == INTO or method == "scp":
                check_digest(near if direction == OUT else copy, wanted)
        what = "read" if direction == OUT else "write"
        cell.add(f"{method}, {what}", size * 8e-6 / seconds, "Mbit/s", note=size_text(size))
        for side in sides:
            cell.add(f"{method}, {what}, {side}", per_gib(after[side] - before[side], size), "CPU s/GiB")
        cell.add(f"{method}, {what}, the whole machine", per_gib(machine, size), "CPU s/GiB")
    return measure


# --- The transport alone, and memory ----------------------------------------------------------------


def transport_cell(tiny):
    def measure(cell):
        with tempfile.NamedTemporaryFile() as out, Veth() as veth:  # for its loopback, which has the MTU of 1500
            timed([test_program("bench/tusk_bench"), *(["--tiny"] if tiny else []), "--benchmark_filter=^BM_Transport(Read|Write)/",
                   f"--benchmark_out={out.name}", "--benchmark_out_format=json"], 120, ns=veth.ns_a)
            report = json.loads(pathlib.Path(out.name).read_text())
        for run in report["benchmarks"]:
            name = "read" if "Read" in run["name"] else "write"
            size = run["bytes_per_second"] * run["real_time"] / 1e3
            cell.add(f"the transport alone, memory to memory, {name}", run["bytes_per_second"] * 8e-6, "Mbit/s",
                     at_least=None if tiny else TRANSPORT_GOAL,
                     note=f"both sides {per_gib(run['cpu_time'] / 1e3, size):.2f} CPU s/GiB, loopback, datagrams of "
                          f"{run['mtu']:.0f} bytes")
    return measure


def memory_cell(line, direction, size):
    def measure(cell):
        with memory_folder(2 * size + (size >> 1)) as folder:
            wanted = make_random_file(folder / "export" / "far", size)
            with mounted(line, folder / "export") as (wan, server, mount):
                mbit = copy_large(wan, mount, folder, "far", size, wanted, direction, COPY_SECONDS_MAX)
                for side, pids in (("client", mount.pids()), ("server", [server.process.pid])):
                    cell.add(f"peak memory, {line.in_flight / (1 << 20):.0f} MiB on their way, cp {direction} the mount, {side}",
                             memory_kib(pids) / 1024, "MiB", at_most=MEMORY_GOALS[line],
                             note=f"{line}, {size_text(size)} at {mbit:.0f} Mbit/s")
    return measure


def draw(session):
    """What a byte costs each side, ours and the others', from the figures that are there."""
    measured = {figure["what"]: figure["value"] for cell in session.cells.values() for figure in cell["figures"]}
    suffix = ", the whole machine"
    whats = [what.removesuffix(suffix) for what in measured if what.endswith(suffix)]
    costs = [(what, [measured[f"{what}, client"], measured[f"{what}, server"]]) for what in whats]
    machine = [(what, [measured[what + suffix]]) for what in whats]
    session.draw("cpu.svg", drawing.sheet([drawing.bars("Cost", "CPU s/GiB", costs, ("client", "server")),
                                           drawing.bars("The whole machine, the program that reads or writes included",
                                                        "CPU s/GiB", machine)]))


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--size", type=parse_size, help="of the file (4gib)")
    parser.add_argument("--baselines", action="store_true", help="also scp, sshfs, rclone mount")
    arguments = parser.parse_args()
    session = Session("cpu", arguments)
    size = arguments.size or (TINY_SIZE if arguments.tiny else QUICK_SIZE if arguments.quick else SIZE)
    missing = baselines.missing()
    for direction in DIRECTIONS:
        session.cell(f"tusk {direction}", tusk_cell(direction, size))
    for control in baselines.CONTROLS if not arguments.tiny else ():
        if "iperf3" in missing:
            print(f"iperf3: {missing['iperf3']}")
        else:
            session.cell(f"iperf3 {control}", iperf3_cell(control))
    for method in ("scp", *baselines.MOUNTS) if arguments.baselines else ():
        for direction in DIRECTIONS:
            if method in missing:
                print(f"{method}: {missing[method]}")
            else:
                session.cell(f"{method} {direction}", ssh_cell(method, direction, size))
    session.cell("transport", transport_cell(arguments.tiny))
    for line in (FAR,) if arguments.tiny else MEMORY_GOALS:
        for direction in DIRECTIONS:
            session.cell(f"memory {line.rtt:g} ms {direction}",
                         memory_cell(line, direction, size if arguments.tiny else GIB if line is FAR else 3 * GIB))
    if shutil.which("perf") is None:
        print("profile: skipped, because perf (package linux-perf) is not installed")
    for direction in DIRECTIONS if shutil.which("perf") and not arguments.tiny else ():
        session.cell(f"profile {direction}", profile_cell(direction, size))
    draw(session)
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
