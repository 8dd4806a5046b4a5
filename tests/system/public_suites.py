"""Test suites that others have published for file systems, on ext4 and on a mount, case by case.

usage: ./dev suites FOLDER [PATTERN ...]

FOLDER holds built copies of any of these, each in a folder of its own or FOLDER itself (nothing is downloaded):
  pjdfstest, secfs.test   a program pjdfstest or fstest beside tests/**/*.t (TAP)
  LTP                     as installed: runtest/syscalls and testcases/bin; of its cases those about files
  xfstests                check and tests/generic; the group quick of generic
PATTERN: shell patterns; only cases whose name (SUITE:CASE) matches one of them run.

ext4 is a loop device, and the mount is of an export on another one, 1 ms and 1 Gbit/s away. A case that passes on ext4 and
fails on the mount is a failure, unless public_suites.txt names it with the reason why it cannot pass. Exit code 1: there
are failures; 2: nothing to run.
"""

import contextlib
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import harness
from harness import Mount, Tuskd, Wan, run_in

NAMED = pathlib.Path(__file__).with_suffix(".txt")
CASE_SECONDS = 300
STEP_SECONDS = 60
DISK_BYTES = 6 << 30
MOUNT_OPTIONS = ("identity=real", "dev", "suid", "no_auto_unmount")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
TAP = re.compile(r"^(not )?ok (\d+)", re.MULTILINE)
LTP_SKIPPED = 32  # TCONF
# Of LTP's system calls those about files.
LTP_FILES = re.compile(
    r"^(access|chdir|chmod|chown|chroot|close|copy_file_range|creat|dup|faccessat|fallocate|fchdir|fchmod|fchown|fcntl|"
    r"fdatasync|fgetxattr|flistxattr|flock|fpathconf|fremovexattr|fsetxattr|fstat|fsync|ftruncate|futimesat|getcwd|"
    r"getdents|getxattr|lchown|lgetxattr|link|listxattr|llistxattr|llseek|lremovexattr|lseek|lstat|mkdir|mknod|mmap|"
    r"msync|munmap|open|pathconf|pread|pwrite|read|readahead|readlink|readv|removexattr|rename|rmdir|sendfile|setxattr|"
    r"stat|statfs|statvfs|statx|symlink|sync|truncate|umask|unlink|utime|utimensat|utimes|write|writev)[a-z]*\d+")


def run(command, cwd, env=None, seconds=CASE_SECONDS):
    """(exit code, output); the exit code of what takes too long is None."""
    process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        return None, output.decode(errors="replace")


class Place:
    """Where a suite runs: a directory, and how xfstests is to mount such file systems by itself."""

    def __init__(self, path, xfstests):
        self.path, self.xfstests = path, xfstests


class Tap:
    """pjdfstest and its relatives: each case is FILE/NUMBER."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder

    @staticmethod
    def find(folder):
        for program in ("pjdfstest", "fstest"):
            if os.access(folder / program, os.X_OK) and (folder / program).is_file() and (folder / "tests").is_dir():
                return Tap("pjdfstest" if program == "pjdfstest" else "secfs.test", folder)
        return None

    def groups(self):
        return sorted(str(path.relative_to(self.folder / "tests")) for path in (self.folder / "tests").rglob("*.t"))

    def run(self, group, place):
        with tempfile.TemporaryDirectory(dir=place.path) as work:
            os.chmod(work, 0o755)
            code, output = run(["bash", self.folder / "tests" / group], work)
            run(["chattr", "-R", "-f", "-ia", work], None)
        verdicts = {f"{group}/{number}": FAILED if wrong else PASSED for wrong, number in TAP.findall(output)}
        if code is None or not verdicts:
            verdicts[f"{group}/end"] = FAILED if code is None else SKIPPED
        return verdicts


class Ltp:
    name = "ltp"

    def __init__(self, folder):
        self.folder = folder
        lines = (folder / "runtest" / "syscalls").read_text().splitlines()
        cases = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
        self.commands = {words[0]: words[-1] for words in cases if LTP_FILES.match(words[0])}

    @staticmethod
    def find(folder):
        there = (folder / "runtest" / "syscalls").is_file() and (folder / "testcases" / "bin").is_dir()
        return Ltp(folder) if there else None

    def groups(self):
        return sorted(self.commands)

    def run(self, group, place):
        programs = self.folder / "testcases" / "bin"
        with tempfile.TemporaryDirectory(dir=place.path) as work:
            os.chmod(work, 0o777)
            env = {"LTPROOT": str(self.folder), "TMPDIR": work, "PATH": f"{programs}:{os.environ['PATH']}"}
            code, _ = run(["sh", "-c", self.commands[group]], work, env)
        return {group: PASSED if code == 0 else SKIPPED if code == LTP_SKIPPED else FAILED}


class Xfstests:
    name = "xfstests"
    RESULT = re.compile(r"^(generic/\d+)\s+(.*)$", re.MULTILINE)

    def __init__(self, folder):
        self.folder = folder

    @staticmethod
    def find(folder):
        return Xfstests(folder) if (folder / "check").is_file() and (folder / "tests" / "generic").is_dir() else None

    def groups(self):
        listed = self.folder / "tests" / "generic" / "group.list"
        if listed.is_file():
            lines = (line.split() for line in listed.read_text().splitlines() if not line.startswith("#"))
            return [f"generic/{words[0]}" for words in lines if words and "quick" in words[1:]]
        tests = sorted((self.folder / "tests" / "generic").glob("[0-9][0-9][0-9]"))
        return [f"generic/{test.name}" for test in tests if re.search(r"_begin_fstest.*\bquick\b", test.read_text())]

    def run(self, group, place):
        code, output = run([*place.xfstests, "./check", group], self.folder, {"HOST_OPTIONS": "none"})
        told = dict(self.RESULT.findall(output)).get(group, "")
        if code is None or not told:  # check could not even begin, without a mount for instance
            return {group: FAILED}
        if "[not run]" in told or "[expunged]" in told:
            return {group: SKIPPED}
        return {group: PASSED if code == 0 else FAILED}


def suites_in(folder):
    found = []
    for path in (folder, *sorted(p for p in folder.rglob("*") if p.is_dir() and len(p.relative_to(folder).parts) <= 3)):
        if not any(path.is_relative_to(other.folder) for other in found):
            found += [suite for kind in (Tap, Ltp, Xfstests) if (suite := kind.find(path))]
    return found


def impossible(lines):
    """{pattern: reason} of lines "SUITE:CASE reason"; the pattern has no blanks."""
    words = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    return {pattern: reason.strip() for pattern, reason in words}


def compare(case, local, mounted, named):
    """What is to be said of a case: "failed", "impossible", "passed" or "skipped"."""
    if mounted == FAILED and local == PASSED:
        return "impossible" if any(fnmatch.fnmatchcase(case, pattern) for pattern in named) else FAILED
    return PASSED if mounted == PASSED else SKIPPED


def run_suites(suites, local, mounted, patterns, named, say=print):
    """The verdicts: {case: what compare() says}."""
    verdicts = {}
    for suite in suites:
        for group in suite.groups():
            name = f"{suite.name}:{group}"
            if patterns and not any(fnmatch.fnmatchcase(name, pattern) or pattern.startswith(name) for pattern in patterns):
                continue
            here, there = suite.run(group, local), suite.run(group, mounted)
            for case in {**here, **there}:
                full = f"{suite.name}:{case}"
                # What is not reached on the mount, because the case before it ended everything, has failed, too.
                verdict = compare(full, here.get(case, SKIPPED), there.get(case, FAILED), named)
                verdicts[full] = verdict
                if verdict in (FAILED, "impossible"):
                    say(f"{verdict}: {full}")
    return verdicts


def table(verdicts, say=print):
    for suite in sorted({case.split(":")[0] for case in verdicts}):
        of_suite = [verdict for case, verdict in verdicts.items() if case.startswith(suite + ":")]
        say(f"{suite}: " + ", ".join(f"{of_suite.count(kind)} {kind}" for kind in (PASSED, FAILED, "impossible", SKIPPED)))


# --- The two file systems -------------------------------------------------------------------------------------------

@contextlib.contextmanager
def loop_device(image):
    with open(image, "wb") as file:
        file.truncate(DISK_BYTES)
    device = run_in(None, ["losetup", "--find", "--show", image], STEP_SECONDS).stdout.strip()
    try:
        run_in(None, ["mkfs.ext4", "-q", "-F", device], STEP_SECONDS)
        yield device
    finally:
        run_in(None, ["losetup", "-d", device], STEP_SECONDS, check=False)


@contextlib.contextmanager
def mounted_at(device, point):
    point.mkdir(parents=True, exist_ok=True)
    run_in(None, ["mount", device, point], STEP_SECONDS)
    try:
        yield point
    finally:
        run_in(None, ["umount", "-l", point], STEP_SECONDS, check=False)


# xfstests mounts and unmounts by itself: it finds mount.fuse.tusk in a /sbin of its own mount namespace.
XFSTESTS = """
set -e
mkdir -p "$WORK/upper" "$WORK/work"
mount --make-rprivate /
if [ -n "${FUSE_SUBTYP:-}" ]; then
  mount -t overlay overlay -o "lowerdir=$(readlink -f /sbin),upperdir=$WORK/upper,workdir=$WORK/work" "$(readlink -f /sbin)"
fi
exec "$@"
"""
MOUNT_HELPER = """#!/bin/sh
# mount(8) calls: SOURCE POINT -o OPTIONS
set -e
url=$(grep -F "$1#" "$WORK/urls" | head -n 1)
options=$(printf %s "$4" | tr , '\\n' | grep -vxE 'rw|noauto|defaults|suid|dev|exec|nosuid|nodev' | paste -sd, -)
exec nsenter --net=/var/run/netns/"$NETNS" "$TUSK" mount "$url" "$2" -o "$OPTIONS${options:+,$options}"
"""


def xfstests_config(work, **settings):
    config = work / "local.config"
    config.write_text("".join(f"export {name}='{value}'\n" for name, value in settings.items()))
    return config


def xfstests_on_ext4(work, devices):
    points = [work / name for name in ("test", "scratch")]
    for point in points:
        point.mkdir(parents=True)
    config = xfstests_config(work, FSTYP="ext4", TEST_DEV=devices[0], TEST_DIR=points[0], SCRATCH_DEV=devices[1],
                             SCRATCH_MNT=points[1], RESULT_BASE=work / "results")
    return ["env", f"WORK={work}", f"HOST_OPTIONS={config}", "unshare", "-m", "bash", "-c", XFSTESTS, "xfstests"]


def xfstests_on_mounts(work, wan, servers):
    points = [work / name for name in ("test", "scratch")]
    for point in points:
        point.mkdir(parents=True)
    sources = [server.url.split("#")[0] for server in servers]
    (work / "urls").write_text("".join(server.url + "\n" for server in servers))
    (work / "upper").mkdir()
    helper = work / "upper" / "mount.fuse.tusk"
    helper.write_text(MOUNT_HELPER)
    helper.chmod(0o755)
    config = xfstests_config(work, FSTYP="fuse", FUSE_SUBTYP=".tusk", TEST_DEV=sources[0], TEST_DIR=points[0],
                             SCRATCH_DEV=sources[1], SCRATCH_MNT=points[1], RESULT_BASE=work / "results",
                             MOUNT_OPTIONS="-orw", TEST_FS_MOUNT_OPTS="-orw")
    return ["env", f"WORK={work}", f"HOST_OPTIONS={config}", f"NETNS={wan.ns_a}", f"TUSK={harness.program('tusk')}",
            f"OPTIONS={','.join(MOUNT_OPTIONS)}", "FUSE_SUBTYP=.tusk", "unshare", "-m", "bash", "-c", XFSTESTS, "xfstests"]


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    if reason := harness.why_not(fuse=True):
        print(f"skipped, because {reason}")
        return 2
    suites = suites_in(pathlib.Path(arguments[0]).resolve())
    if not suites:
        print(f"{arguments[0]} holds none of these suites, built:\n{__doc__}")
        return 2
    named = impossible(NAMED.read_text().splitlines())
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tusk-suites-")))
        work.chmod(0o755)
        devices = [stack.enter_context(loop_device(work / f"disk{number}")) for number in range(5)]
        local = stack.enter_context(mounted_at(devices[0], work / "local"))
        wan = stack.enter_context(Wan(rate="1gbit", delay="0.5ms"))
        servers = []
        for number, device in enumerate(devices[1:3]):
            export = stack.enter_context(mounted_at(device, work / f"export{number}"))
            servers.append(stack.enter_context(Tuskd(wan, export, port=8875 + number, options=["--setuid"])))
        (export.parent / "export0" / "suite").mkdir()
        mount = stack.enter_context(Mount(wan, servers[0].url, path=work / "mount", options=MOUNT_OPTIONS)).path
        verdicts = run_suites(
            suites, Place(local, xfstests_on_ext4(work / "xfs-ext4", devices[3:5])),
            Place(mount / "suite", xfstests_on_mounts(work / "xfs-tusk", wan, servers)), arguments[1:], named)
        table(verdicts)  # before what may fail at the end
    if not verdicts:
        return 2
    return 1 if FAILED in verdicts.values() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
