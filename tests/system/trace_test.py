"""What both ends thought of a path while a file was read, as `./dev plot` reads and draws it."""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import harness
from harness import Mount, Tuskd, Wan, run_in

PLOT = pathlib.Path(__file__).resolve().parents[1] / "bench/lib/trace_plot.py"
sys.path.insert(0, str(PLOT.parents[1]))

from lib import trace_plot  # noqa: E402

SIZE = 16 << 20
RATE_MBIT, RTT_MS = 200, 20


class Trace(unittest.TestCase):
    def test_of_a_read_shows_what_was_sent_and_can_be_drawn(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/dev/shm")))
        export, traces = folder / "export", folder / "traces"
        export.mkdir()
        traces.mkdir()
        (export / "far").write_bytes(os.urandom(SIZE))
        with unittest.mock.patch.dict(os.environ, QLOGDIR=str(traces)), \
                Wan(rate=f"{RATE_MBIT}mbit", delay=f"{RTT_MS / 2}ms") as wan, Tuskd(wan, export) as server, \
                Mount(wan, server.url) as mount:
            run_in(wan.ns_a, ["cmp", export / "far", mount.path / "far"], 60)
        for side in ("client", "server"):
            with self.subTest(side):
                path = max(traces.glob(f"tusk-{side}-*.sqlog"), key=lambda trace: trace.stat().st_size)
                samples = trace_plot.read(path)
                times = [sample["time"] for sample in samples]
                self.assertEqual(times, sorted(times))
                self.assertTrue(all(sample["state"] for sample in samples))
                self.assertTrue(all(sample["rtt_min"] >= RTT_MS - 1 for sample in samples if sample["rtt_min"] > 0))
                if side == "server":
                    self.assertGreaterEqual(samples[-1]["sent"], SIZE)
                    believed = statistics.median(sample["bandwidth"] for sample in samples[-10:]) * 1e-6
                    self.assertGreater(believed, RATE_MBIT / 2)
                    self.assertLess(believed, RATE_MBIT * 1.25)
                drawing = folder / f"{side}.svg"
                subprocess.run([sys.executable, "-B", PLOT, path, drawing], check=True, timeout=60,
                               stdout=subprocess.DEVNULL)
                self.assertGreaterEqual(drawing.read_text().count("<polyline"), 7)  # one for each quantity


if __name__ == "__main__":
    harness.main(fuse=True)
