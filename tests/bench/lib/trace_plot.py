"""Draws what a connection's engine thought over time: `./dev plot TRACE [SVG]`.

TRACE is a qlog file of a mount or a server (made while QLOGDIR names a folder; JSON text sequences, RFC 7464) or a
CSV of the simulator (`tusk-sim ... --trace FILE`).
"""

import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib import drawing  # noqa: E402

RECORD_SEPARATOR = "\x1e"
RATE_WINDOW = 0.2  # s; shorter ones show the bursts of the acknowledgements, not the rate


class TraceError(Exception):
    """The file is no trace; the message says why."""


def read(path):
    """The samples, in order: dicts with time (s), sent (bytes), lost, window, in_flight (bytes), pacing (bit/s), bandwidth
    (bit/s), rtt, rtt_min (ms), state."""
    content = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    samples = read_qlog(content) if content.startswith(RECORD_SEPARATOR) else read_csv(content)
    if not samples:
        raise TraceError(f"{path}: no samples in it")
    return samples


def read_qlog(content):
    samples, state = [], ""
    for record in content.split(RECORD_SEPARATOR):
        try:
            event = json.loads(record)
        except ValueError:
            continue  # the last one of a program that was stopped
        data = event.get("data", {})
        if event.get("name") == "recovery:congestion_state_updated":
            state = data["new"]
        elif event.get("name") == "recovery:metrics_updated":
            samples.append({"time": event["time"] / 1e3, "sent": data["bytes_sent"], "lost": data["packets_lost"],
                            "window": data["congestion_window"], "in_flight": data["bytes_in_flight"],
                            "pacing": data["pacing_rate"], "bandwidth": data["bandwidth"], "rtt": data["smoothed_rtt"],
                            "rtt_min": data["min_rtt"], "state": state})
    return samples


def read_csv(content):
    samples = []
    for row in csv.DictReader(content.splitlines()):
        try:
            samples.append({"time": float(row["time_s"]), "sent": int(row["done_bytes"]), "lost": int(row["lost"]),
                            "window": int(row["window"]), "in_flight": int(row["in_flight"]),
                            "pacing": float(row["pacing_mbit"]) * 1e6, "bandwidth": float(row["bandwidth_mbit"]) * 1e6,
                            "rtt": float(row["rtt_ms"]), "rtt_min": float(row["rtt_min_ms"]), "state": row["state"]})
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"neither a qlog file nor a CSV of tusk-sim ({error})") from error
    return samples


def rates(samples, what):
    """(time, per second) of a count that grows, over windows of RATE_WINDOW."""
    line, first = [], samples[0]
    for sample in samples[1:]:
        if sample["time"] - first["time"] >= RATE_WINDOW:
            line.append((sample["time"], (sample[what] - first[what]) / (sample["time"] - first["time"])))
            first = sample
    return line


def states(samples):
    """(time, name) of each change of state."""
    changes, last = [], None
    for sample in samples:
        if sample["state"] != last:
            last = sample["state"]
            changes.append((sample["time"], last))
    return changes


def draw(samples):
    def line(what, scale):
        return [(sample["time"], sample[what] * scale) for sample in samples]

    return drawing.sheet([
        drawing.line_plot("Rate", "s", "Mbit/s", [("sent", [(t, rate * 8e-6) for t, rate in rates(samples, "sent")]),
                                                  ("paced", line("pacing", 1e-6)),
                                                  ("believed", line("bandwidth", 1e-6))], marks=states(samples)),
        drawing.line_plot("Round trip", "s", "ms", [("smoothed", line("rtt", 1)), ("least", line("rtt_min", 1))]),
        drawing.line_plot("Under way", "s", "MB", [("window", line("window", 1e-6)),
                                                   ("in flight", line("in_flight", 1e-6))]),
        drawing.line_plot("Lost", "s", "packets/s", [("lost", rates(samples, "lost"))]),
    ])


def main(arguments):
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    target = pathlib.Path(arguments[1] if len(arguments) == 2 else arguments[0] + ".svg")
    try:
        target.write_text(draw(read(arguments[0])).svg(), encoding="utf-8")
    except (OSError, TraceError) as error:
        print(f"plot: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
