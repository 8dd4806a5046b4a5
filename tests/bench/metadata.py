"""Many small files at a distance: ls, find, cp -r, tar, rsync, git, rm on a mount across 1 Gbit/s and 0.1 % loss.

    ./dev bench metadata [--quick] [--baselines] [--only PATTERN]

Each row has a path, a server and a mount of its own, so nothing is cached ("cold"); "warm" is the same again on that
mount. A row that takes longer than its limit is stopped, and its time extrapolated from what was done by then; the
note says so. --quick only makes that limit shorter (20 s instead of 300): what meets its goal is measured in full.
With --baselines the same on sshfs and rclone mounts, which would take many minutes: with fewer files where the note
says so, and extrapolated.
"""

import sys

from lib import baselines
from lib.measuring import memory_folder
from lib.mounts import mounted
from lib.results import Cell, Session, common_arguments
from lib.workloads import CHANGES, WORKLOADS, Setting, Steps

LIMIT_SECONDS, QUICK_LIMIT_SECONDS, TINY_LIMIT_SECONDS = 300, 20, 4
IDLE_SECONDS, QUICK_IDLE_SECONDS = 60, 5
TINY_CHANGES = 2
FOLDER_BYTES = 2 << 30


def on_tusk(arguments, workload):
    def measure(cell):
        files = min(workload.files, 10) if arguments.tiny else workload.files
        quick = arguments.quick or arguments.tiny
        with memory_folder(FOLDER_BYTES) as folder:
            setting = Setting(folder / "export", None, folder / "near", files,
                              arguments.limit or (TINY_LIMIT_SECONDS if arguments.tiny else
                                                  QUICK_LIMIT_SECONDS if quick else LIMIT_SECONDS),
                              1 if arguments.tiny else QUICK_IDLE_SECONDS if quick else IDLE_SECONDS,
                              TINY_CHANGES if arguments.tiny else CHANGES)
            workload.prepare(setting)
            with mounted(workload.line, setting.export) as (setting.wan, _, setting.mount):
                workload.run(Steps(cell, setting), setting)
    return measure


def on_baseline(arguments, workload, kind):
    """The same with few files on a mount of another program; figures are scaled up to what Tusk was given."""
    def measure(cell):
        small = Cell(quiet=True)
        with memory_folder(FOLDER_BYTES) as folder:
            (folder / "ssh").mkdir()
            files = min(workload.baseline_files, workload.files)
            setting = Setting(folder / "export", None, folder / "near", files, arguments.limit or LIMIT_SECONDS,
                              baseline=True)
            workload.prepare(setting)
            with workload.line.wan(tcp="bbr") as setting.wan, \
                    baselines.ssh_server(setting.wan, folder / "ssh") as server, \
                    baselines.MOUNTS[kind](setting.wan, server, setting.export) as setting.mount:
                workload.run(Steps(small, setting), setting)
        for figure in small.figures:
            scale = workload.files / files
            cell.add(f"{kind}: {figure.what.replace(f'{files:,} files', f'{workload.files:,} files')}",
                     None if figure.value is None else figure.value * scale, figure.unit,
                     note="; ".join([figure.note] * bool(figure.note) +
                                    [f"{scale:g} times that of {files} files"] * (scale > 1)))
    return measure


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--baselines", action="store_true", help="also sshfs and rclone, with fewer files")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="for one program, instead of 300 or 20")
    arguments = parser.parse_args()
    session = Session("metadata", arguments)
    missing = baselines.missing()
    for name, workload in WORKLOADS.items():
        session.cell(name, on_tusk(arguments, workload()))
        for kind in baselines.MOUNTS if arguments.baselines and name != "change" else ():
            if kind in missing:
                print(f"{name}, {kind}: {missing[kind]}")
            else:
                session.cell(f"{name}, {kind}", on_baseline(arguments, workload(), kind))
    return session.finish()


if __name__ == "__main__":
    sys.exit(main())
