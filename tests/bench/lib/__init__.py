"""What the benchmarks in the folder above have in common: paths and their limits, files and their hashes, timing,
results, tables, drawings, and what Tusk is compared with. Python 3.11, standard library only."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(1, str(ROOT / "tests" / "system"))  # harness, demo_ssh
