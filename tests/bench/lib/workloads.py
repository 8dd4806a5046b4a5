"""What people do with many small files, as workloads of `./dev bench metadata`: each prepares a tree, runs a program on a
mount, knows when all of it is on the server, and checks the outcome."""

import dataclasses
import os
import select
import statistics
import subprocess
import sys
import time

from lib.lines import Line
from lib.measuring import count_files, make_tree, timed, tree_digest
from harness import HarnessError, popen_in, stop

LOSS = 0.001
NEAR = Line(rtt=100, loss=LOSS)
FAR = Line(rtt=200, loss=LOSS)
SETTLE_SECONDS = 30  # how long what a program left behind may take to reach the server
BASELINE_FILES = 50  # for others than Tusk, where each takes a second or so
BASELINE_FILES_LISTED = 1000  # where a directory is listed at once
CHANGES = 10  # made on the server, to see when the client notices
CHANGES_SECONDS = 60  # for all of them: far more than a client that works takes


@dataclasses.dataclass
class Setting:
    """What a workload runs on: the folder behind the mount, the mount point, a folder nearby, its size and limits."""

    export: object
    mount: object
    near: object
    files: int
    limit: float
    idle: float = 0  # seconds between cold and warm
    changes: int = CHANGES
    wan: object = None
    baseline: bool = False




def folders_of(files, per_folder=50):
    return max(1, files // per_folder)


class Steps:
    """Adds rows to a cell. What is stopped at its limit is extrapolated."""

    def __init__(self, cell, setting):
        self.cell, self.setting = cell, setting

    def run(self, what, goal, command, done=None, settled=None, cwd=None, check=None):
        """Times a command. done() says how many of the files are done when it is stopped; settled() whether all of it
        is on the server: waited for, and part of the time. check(output) raises when the outcome is wrong."""
        setting = self.setting
        env = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        start = time.monotonic()
        run = timed(command, setting.limit, cwd=cwd, must_end=False, env=env)
        if not run.ended:
            count = done(run.output) if done else 0
            share = count / setting.files
            value = run.seconds / share if share > 0 else None
            note = f"stopped after {run.seconds:.0f} s, " + (
                f"{count} of {setting.files} done: extrapolated" if share else "it would take longer")
            self.cell.add(what, value if value else run.seconds, "s", at_most=goal, note=note)
            return False
        seconds = run.seconds
        note = ""
        if settled:
            while not settled():
                if time.monotonic() - start > run.seconds + SETTLE_SECONDS:
                    raise HarnessError(f"{what}: not all is on the server {SETTLE_SECONDS} s after the program's end")
                time.sleep(0.01)
            seconds = max(seconds, time.monotonic() - start)
            note = f"the program itself {run.seconds:.2f} s"
        if check:
            check(run.output)
        self.cell.add(what, seconds, "s", at_most=goal, note=note)
        return True


def expect(condition, words):
    if not condition:
        raise HarnessError(words)


def same_tree(one, two, setting):
    """Also the times, except on mounts that keep whole seconds only."""
    times = not setting.baseline
    return tree_digest(one, times) == tree_digest(two, times)


# --- Workloads --------------------------------------------------------------------------------------
# prepare(setting) before there is a mount, run(steps, setting) on it.


class ListAll:
    """ls -lR of 1,000 files in 20 directories."""

    files, line, baseline_files = 1000, NEAR, BASELINE_FILES_LISTED

    def prepare(self, s):
        make_tree(s.export, s.files, folders_of(s.files))

    def run(self, steps, s):
        def lines(output):
            return sum(line.startswith("-") for line in output.splitlines())

        def complete(output):
            expect(lines(output) == s.files, f"ls shows {lines(output)} of {s.files} files")

        command = ["stdbuf", "-oL", "ls", "-lR", s.mount.path]
        if not steps.run(f"ls -lR, {s.files:,} files, cold", 0.6, command, lines, check=complete) or s.baseline:
            return
        before = s.wan.stats()
        time.sleep(s.idle)
        idle = s.wan.stats()
        # Nothing to extrapolate: without the line buffer and the program before it that set it.
        steps.run(f"ls -lR, {s.files:,} files, warm {s.idle:g} s later", 0.02, ["ls", "-lR", s.mount.path],
                  check=complete)
        after = s.wan.settled_stats()
        steps.run(f"ls -lR, {s.files:,} files, on the server's own disk after it", None, ["ls", "-lR", s.export],
                  check=complete)
        steps.cell.add("packets sent by the client while idle", packets(before, idle), note=f"in {s.idle:g} s")
        steps.cell.add("packets sent by the client for the warm ls", packets(idle, after))


def packets(before, after):
    return after["ab"]["packets_in"] - before["ab"]["packets_in"]


class Find:
    """find over 100,000 files in 2,000 directories at 200 ms."""

    files, line, baseline_files = 100_000, FAR, BASELINE_FILES_LISTED

    def prepare(self, s):
        make_tree(s.export, s.files, folders_of(s.files), size=0)

    def run(self, steps, s):
        def names(output):
            return output.count("/file")

        def complete(output):
            expect(names(output) == s.files, f"find shows {names(output)} of {s.files} files")

        steps.run(f"find, {s.files:,} files, 200 ms, cold", 5, ["find", s.mount.path], names, check=complete)


class CopyOut:
    """cp -r of 1,000 files of 4 KiB out of the mount."""

    files, line, baseline_files = 1000, NEAR, BASELINE_FILES

    def prepare(self, s):
        make_tree(s.export / "tree", s.files, folders_of(s.files))

    def run(self, steps, s):
        def same(_):
            expect(tree_digest(s.near / "copy") == tree_digest(s.export / "tree"), "the copy differs")

        steps.run(f"cp -r out, {s.files:,} files of 4 KiB, cold", 1.5,
                  ["cp", "-r", s.mount.path / "tree", s.near / "copy"],
                  lambda _: count_files(s.near), check=same)


class CopyIn:
    """cp -rp of 1,000 files of 4 KiB into the mount, until all is on the server."""

    files, line, baseline_files = 1000, NEAR, BASELINE_FILES

    def prepare(self, s):
        make_tree(s.near / "tree", s.files, folders_of(s.files))

    def run(self, steps, s):
        def same():
            return count_files(s.export) == s.files and same_tree(s.near / "tree", s.export / "copy", s)

        steps.run(f"cp -rp in, {s.files:,} files of 4 KiB, all on the server", 1.5,
                  ["cp", "-rp", s.near / "tree", s.mount.path / "copy"],
                  lambda _: count_files(s.export), settled=same)


class Unpack:
    """tar xf of a tree of 10,000 source files, sync included."""

    files, line, baseline_files = 10_000, NEAR, BASELINE_FILES

    def prepare(self, s):
        make_tree(s.near / "tree", s.files, folders_of(s.files), size=6000)
        subprocess.run(["tar", "--format=posix", "-C", s.near, "-cf", s.near / "tree.tar", "tree"], check=True)

    def run(self, steps, s):
        def same():
            return count_files(s.export) == s.files and same_tree(s.near / "tree", s.export / "tree", s)

        steps.run(f"tar xf and sync, {s.files:,} files of 6 KB", 10,
                  ["sh", "-ec", 'tar -C "$1" -xf "$2"; sync -f "$1"', "sh", s.mount.path, s.near / "tree.tar"],
                  lambda _: count_files(s.export), settled=same)


class RsyncAgain:
    """rsync -a again when nothing changed."""

    files, line, baseline_files = 10_000, NEAR, BASELINE_FILES_LISTED

    def prepare(self, s):
        make_tree(s.near / "tree", s.files, folders_of(s.files))
        subprocess.run(["cp", "-a", s.near / "tree", s.export / "tree"], check=True)

    def run(self, steps, s):
        def nothing_sent(output):
            expect(not any("/file" in line for line in output.splitlines()), "rsync found a difference")

        command = ["rsync", "-a", "--itemize-changes", f"{s.near}/tree/", f"{s.mount.path}/tree/"]
        if steps.run(f"rsync -a, {s.files:,} files unchanged, cold", 3, command, check=nothing_sent) and not s.baseline:
            steps.run(f"rsync -a, {s.files:,} files unchanged, warm", 0.5, command, check=nothing_sent)


class GitStatus:
    """git status in a clone of 10,000 files."""

    files, line, baseline_files = 10_000, NEAR, BASELINE_FILES_LISTED

    def prepare(self, s):
        origin = s.near / "origin"
        make_tree(origin, s.files, folders_of(s.files))
        git = ["git", "-C", origin, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
            subprocess.run(git + words, check=True)
        self.local = s.near / "local"
        for clone in (s.export / "clone", self.local):
            # As from another machine: its objects come as one pack.
            subprocess.run(["git", "clone", "-q", "--no-local", origin, clone], check=True)
            # What was made within the same second as the index is compared by content: not what is measured.
            time.sleep(1.1)
            (clone / ".git/index").unlink()
            subprocess.run(["git", "-C", clone, "reset", "-q"], check=True)

    def run(self, steps, s):
        def clean(output):
            expect("nothing to commit" in output, f"git status says {output[:200]}")

        def command(clone):
            return ["git", "-C", clone, "status"]

        local = min(timed(command(self.local), s.limit).seconds for _ in range(3))
        if not steps.run(f"git status, {s.files:,} files, cold", 3, command(s.mount.path / "clone"), check=clean) or \
                s.baseline:
            return
        steps.run(f"git status, {s.files:,} files, warm", 2 * local, command(s.mount.path / "clone"), check=clean)
        steps.cell.add(f"git status, {s.files:,} files, local", local, "s")


WATCH = """
import os, sys, time
path, kind = sys.argv[1], sys.argv[2]
def look():
    if kind == "content":
        with open(path, "rb") as file:
            return file.read()
    if kind == "attributes":
        return os.stat(path).st_mode
    return len(os.listdir(path))
last = look()
print("looking", flush=True)
for turn in range(int(sys.argv[3])):
    while (seen := look()) == last:
        time.sleep(0.002)
    print(time.monotonic(), flush=True)
    last = seen
"""


class ChangeElsewhere:
    """A change made on the server, seen by a client that had it cached."""

    files, line = 1, NEAR

    def prepare(self, s):
        (s.export / "folder").mkdir()
        (s.export / "folder/file").write_text("version 0")

    def run(self, steps, s):
        file = s.export / "folder/file"

        def change(kind, turn):
            if kind == "content":
                file.write_text(f"version {turn + 1}")
            elif kind == "attributes":
                file.chmod(0o600 if turn % 2 else 0o640)
            else:
                (s.export / f"folder/new{turn}").touch()

        for kind, path in (("content", "folder/file"), ("attributes", "folder/file"), ("names", "folder")):
            watcher = popen_in(None, [sys.executable, "-c", WATCH, s.mount.path / path, kind, str(s.changes)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                delays = self._delays(watcher, lambda turn, kind=kind: change(kind, turn), s.changes)
            finally:
                stop(watcher)
            steps.cell.add(f"a change of {kind} on the server is seen, {s.changes} times: slowest", max(delays), "s",
                           at_most=0.2, note=f"median {statistics.median(delays):.3f} s; RTT 0.1 s")

    @staticmethod
    def _delays(watcher, change, changes):
        deadline = time.monotonic() + CHANGES_SECONDS
        expect(_line(watcher, deadline) == "looking", "the watcher does not look")
        delays = []
        for turn in range(changes):
            time.sleep(0.3 + 0.13 * turn)  # long enough for it to be cached, and at any point of its lifetime
            start = time.monotonic()
            change(turn)
            delays.append(float(_line(watcher, deadline)) - start)
        return delays


def _line(process, deadline):
    readable, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
    expect(readable, "a change was never seen")
    return process.stdout.readline().strip()


class Remove:
    """rm -rf of 10,000 files."""

    files, line, baseline_files = 10_000, NEAR, BASELINE_FILES

    def prepare(self, s):
        make_tree(s.export / "tree", s.files, folders_of(s.files))

    def run(self, steps, s):
        steps.run(f"rm -rf, {s.files:,} files", 3, ["rm", "-rf", s.mount.path / "tree"],
                  lambda _: s.files - count_files(s.export), settled=lambda: not (s.export / "tree").exists())


WORKLOADS = {"ls": ListAll, "find": Find, "cp out": CopyOut, "cp in": CopyIn, "tar": Unpack, "rsync": RsyncAgain,
             "git": GitStatus, "change": ChangeElsewhere, "rm": Remove}
