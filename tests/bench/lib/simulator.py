"""Runs tusk-sim, the transport in virtual time, and reads what it prints."""

import re
import subprocess

from harness import HarnessError, test_program

SECONDS_MAX = 1800  # of real time, for one run


def _run(arguments, limit):
    finished = subprocess.run([test_program("simulation/tusk-sim"), *map(str, arguments)], capture_output=True, text=True, timeout=limit)
    if finished.returncode != 0:
        words = " ".join(map(str, arguments))
        raise HarnessError(f"tusk-sim {words}: {finished.stdout[-400:]}{finished.stderr[-400:]}")
    return finished.stdout


def parse_transfer(output):
    """What one transfer says of itself, as a dictionary of numbers."""
    first = re.search(r"^(done|NOT DONE) in ([\d.]+) s: ([\d.]+) Mbit/s, ([\d.]+) % of the limit ([\d.]+)", output,
                      re.MULTILINE)
    second = re.search(r"queue mean ([\d.]+) ms, most ([\d.]+) ms; (\d+) packets, (\d+) dropped by the queue, "
                       r"(\d+) lost on the way, (\d+) taken for\s+lost, (\d+) of them only late", output)
    if not first or not second or first[1] != "done":
        raise HarnessError(f"tusk-sim did not finish its transfer: {output[-400:]}")
    if "WRONG" in output:
        raise HarnessError(output[output.index("WRONG"):][:400])
    names = ("queue_mean_ms", "queue_max_ms", "packets", "queue_drops", "path_losses", "taken_for_lost", "only_late")
    return {"seconds": float(first[2]), "mbit": float(first[3]), "limit_mbit": float(first[5]),
            **{name: float(second[i + 1]) for i, name in enumerate(names)}}


def transfer(line, size, *more, rested=True, limit=SECONDS_MAX):
    """One transfer of `size` bytes across a Line; tusk-sim checks the content. rested: on a connection that is some
    seconds old, as a mount's is."""
    arguments = [*line.simulated(), "--size", f"{size}b", *(["--rested"] if rested else []), *more]
    return parse_transfer(_run(arguments, limit))


def parse_flows(output):
    """Rows of {time, shares: percent of the line for each flow, None before it joined, jain, queue_ms, dropped}."""
    rows = []
    for line in output.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 5 or not re.fullmatch(r"[\d.]+", fields[0]):
            continue
        rows.append({"time": float(fields[0]),
                     "shares": [None if field == "-" else float(field) for field in fields[1:-3]],
                     "jain": float(fields[-3]) if "nan" not in fields[-3] else 0.0,
                     "queue_ms": float(fields[-2]), "dropped": int(fields[-1])})
    if not rows:
        raise HarnessError(f"tusk-sim printed no rows: {output[-400:]}")
    return rows


def flows(line, names, lasting, every, *more, limit=SECONDS_MAX):
    """Several flows that share a Line, as "model,cubic@5s"; times in seconds."""
    return parse_flows(_run([*line.simulated(), "--flows", names, "--lasting", f"{lasting * 1000:.0f}ms",
                             "--every", f"{every * 1000:.0f}ms", *more], limit))
