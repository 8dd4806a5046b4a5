"""A tree with every kind of thing in it, copied into a mount and out of one by cp, rsync and tar, stays the same tree.

Compared are names, kinds, modes, owners, content, mtimes to the nanosecond, link targets, which names are hard links
of each other, extended attributes, and that holes stay holes. Everything is looked at where it arrived, on the two
local file systems, so the mount has no part in judging itself.
"""

import collections
import concurrent.futures
import hashlib
import os
import pathlib
import random
import shutil
import stat
import tempfile
import time
import unittest

import harness
from harness import Mount, Tuskd, Wan, run_in

COPY_SECONDS_MAX = 150
FEW, MANY = 20, 2_000  # entries of one directory; tools make several round trips for each, one after the other
DEPTH = 12
HOLE = 8 << 20
SLACK_BLOCKS = 512  # a file system may need some more or fewer for the same data
DIFFERENCES_SHOWN = 20

PAST_NS = -86_400 * 10**9 + 123_456_789  # 1969
FUTURE_NS = 4_102_444_800 * 10**9 + 987_654_321  # 2100

COPIERS = {
    "cp": ["cp", "-a", "{source}/.", "{target}/"],
    "rsync": ["rsync", "-aHAX", "--sparse", "{source}/", "{target}/"],
    "tar": ["sh", "-c", "tar -C '{source}' --xattrs --xattrs-include='*' --sparse -cf - . | "
                        "tar -C '{target}' --xattrs --xattrs-include='*' --same-owner -xpf -"],
}


# --- The tree ---------------------------------------------------------------------------------------


def make_tree(root):
    """Everything that a tree can have in it, the same each time."""
    root.mkdir()
    for part in (make_files, make_modes, make_times, make_links, make_names, make_holes, make_depth, make_crowd):
        part(root, random.Random(part.__name__))


def make_files(root, chance):
    for size in (0, 1, 4095, 4096, 4097, 256 << 10, (1 << 20) + 1):
        (root / f"size {size}").write_bytes(chance.randbytes(size))
    (root / "empty folder").mkdir()
    os.mkfifo(root / "fifo", 0o640)
    attributes = root / "attributes"
    attributes.mkdir()
    (attributes / "file").write_bytes(b"with attributes")
    os.setxattr(attributes / "file", "user.text", "gr\u00fcn".encode())
    os.setxattr(attributes / "file", "user.empty", b"")
    os.setxattr(attributes / "file", "user.bytes", bytes(range(256)))
    os.setxattr(attributes, "user.of a folder", b"yes")


def make_modes(root, _):
    folder = root / "modes"
    folder.mkdir()
    for mode in (0o000, 0o200, 0o400, 0o444, 0o755, 0o4755, 0o2755, 0o6711, 0o1777, 0o7777):
        (folder / f"file {mode:o}").write_text(f"{mode:o}")
        (folder / f"file {mode:o}").chmod(mode)
        (folder / f"folder {mode:o}").mkdir()
        (folder / f"folder {mode:o}" / "inside").write_text("inside")
        (folder / f"folder {mode:o}").chmod(mode)
    (folder / "somebody's").write_text("of another user")
    os.chown(folder / "somebody's", 12345, 54321)


def make_times(root, _):
    folder = root / "times"
    folder.mkdir()
    for name, mtime_ns in (("past", PAST_NS), ("epoch", 0), ("one ns", 1), ("future", FUTURE_NS)):
        (folder / name).write_text(name)
        os.utime(folder / name, ns=(mtime_ns, mtime_ns))
        (folder / f"{name} folder").mkdir()
        (folder / f"{name} folder" / "inside").write_text("changes the folder's mtime")
        os.utime(folder / f"{name} folder", ns=(mtime_ns, mtime_ns))
        (folder / f"{name} link").symlink_to(name)
        os.utime(folder / f"{name} link", ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def make_links(root, _):
    folder = root / "links"
    folder.mkdir()
    (folder / "file").write_text("with three names")
    (folder / "second name").hardlink_to(folder / "file")
    (folder / "below").mkdir()
    (folder / "below" / "third name").hardlink_to(folder / "file")
    (folder / "relative").symlink_to("below/third name")
    (folder / "dangling").symlink_to("no such thing")
    (folder / "absolute").symlink_to("/etc/passwd")
    (folder / "upwards").symlink_to("../../../../../../etc/passwd")
    (folder / "itself").symlink_to("itself")
    (folder / "to a folder").symlink_to("below")
    (folder / "long").symlink_to("/".join(["x" * 99] * 40))
    (folder / "second name of a link").hardlink_to(folder / "dangling")


def make_names(root, _):
    folder = os.fsencode(root / "names")
    os.mkdir(folder)
    for name in (b"new\nline", b" ", b"-rf", b"\x01\x7f", b"back\\slash", b"'\"`$(exit)*?[",
                 "\u00e4".encode(), "a\u0308".encode(), "\u732b".encode() * 85, b"n" * 255, b"...",
                 b"\xff\xfe not UTF-8"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(name)


def make_holes(root, chance):
    folder = root / "holes"
    folder.mkdir()
    with open(folder / "only a hole", "wb") as file:
        file.truncate(HOLE)
    with open(folder / "data, hole, data", "wb") as file:
        file.write(chance.randbytes(64 << 10))
        file.seek(HOLE)
        file.write(chance.randbytes(64 << 10))
    with open(folder / "hole, data, hole", "wb") as file:
        file.seek(HOLE)
        file.write(chance.randbytes(64 << 10))
        file.truncate(2 * HOLE)


def make_depth(root, _):
    folder = root
    for level in range(DEPTH):
        folder = folder / f"level {level}"
        folder.mkdir()
    (folder / "bottom").write_text("here")


def make_crowd(root, _):
    folder = root / "crowd"
    folder.mkdir()
    for number in range(FEW):
        (folder / f"{number:05}").write_text(str(number))


# --- Comparing --------------------------------------------------------------------------------------


def facts(root):
    """What there is to know about each path below root: {path: {fact: value}}."""
    root = os.fsencode(root)
    found, names = {}, collections.defaultdict(list)
    paths = [b"."]
    while paths:
        path = paths.pop()
        full = os.path.join(root, path)
        info = os.lstat(full)
        found[path] = facts_of(full, info)
        if stat.S_ISDIR(info.st_mode):
            paths += [os.path.join(path, name) for name in os.listdir(full)]
        else:
            names[info.st_ino].append(path)
    for linked in names.values():
        for path in linked:
            found[path]["names"] = sorted(linked)
    return found


def facts_of(full, info):
    known = {"mode": f"{info.st_mode:o}", "owner": (info.st_uid, info.st_gid), "mtime": info.st_mtime_ns,
             "attributes": {name: os.getxattr(full, name, follow_symlinks=False)
                            for name in os.listxattr(full, follow_symlinks=False)}}
    if stat.S_ISLNK(info.st_mode):
        known["target"] = os.readlink(full)
    elif stat.S_ISREG(info.st_mode):
        with open(full, "rb") as file:
            known["content"] = (info.st_size, hashlib.file_digest(file, "blake2b").hexdigest()[:16])
        known["blocks"] = info.st_blocks
    return known


def differences(wanted, found):
    """One readable line for each."""
    lines = [f"{path!r} is missing" for path in wanted.keys() - found.keys()]
    lines += [f"{path!r} is new" for path in found.keys() - wanted.keys()]
    for path in wanted.keys() & found.keys():
        for fact in wanted[path].keys() | found[path].keys():
            before, after = wanted[path].get(fact), found[path].get(fact)
            if fact == "blocks":
                same = abs(before - after) <= SLACK_BLOCKS
            else:
                same = before == after
            if not same:
                lines.append(f"{path!r}: {fact} was {before}, is {after}")
    return sorted(lines)


def copy(wan, tool, source, target):
    """Copies what is in one folder into another. Returns how it finished and the seconds it took."""
    command = [part.format(source=source, target=target) for part in COPIERS[tool]]
    start = time.monotonic()
    finished = run_in(wan.ns_a, command, COPY_SECONDS_MAX, check=False)
    return finished, time.monotonic() - start


# --- The tests --------------------------------------------------------------------------------------


class Trees(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir="/var/tmp")))
        cls.addClassCleanup(lambda: run_in(None, ["chmod", "-R", "u+rwx", cls.folder], 60, check=False))
        cls.export = cls.folder / "export"
        cls.export.mkdir()
        cls.original = cls.folder / "original"
        make_tree(cls.original)
        run_in(None, ["cp", "-a", cls.original, cls.export / "original"], COPY_SECONDS_MAX)
        cls.wanted = facts(cls.original)
    def test_the_comparison_notices_each_kind_of_difference(self):
        # Without this, a comparison that sees nothing would be a test that cannot fail.
        spoiled = self.folder / "spoiled"
        run_in(None, ["cp", "-a", self.original, spoiled], COPY_SECONDS_MAX)
        self.assertEqual(differences(self.wanted, facts(spoiled)), [])
        (spoiled / "fifo").chmod(0o600)
        os.utime(spoiled / "times" / "past", ns=(0, PAST_NS + 1))
        run_in(None, ["cp", "--sparse=never", spoiled / "holes" / "only a hole", spoiled / "filled"], COPY_SECONDS_MAX)
        os.replace(spoiled / "filled", spoiled / "holes" / "only a hole")
        run_in(None, ["cp", "-a", "--remove-destination", self.original / "links" / "file",
                      spoiled / "links" / "second name"], COPY_SECONDS_MAX)
        os.removexattr(spoiled / "attributes" / "file", "user.empty")
        (spoiled / "crowd" / "00000").unlink()
        seen = " ".join(differences(self.wanted, facts(spoiled)))
        for difference in ("fifo': mode", "past': mtime", "hole': blocks", "second name': names",
                           "file': attributes", "00000' is missing"):
            self.assertIn(difference, seen)

    def test_all_tools_in_and_out_at_20_ms(self):
        # At the same time, as they mostly wait for answers: that also lets them get into each other's way.
        with Wan(rate="1gbit", delay="10ms", loss="0.01%") as wan, Tuskd(wan, self.export, options=["--setuid"]) as server, \
                Mount(wan, server.url) as mount, concurrent.futures.ThreadPoolExecutor(2 * len(COPIERS)) as pool:
            copies = []
            for tool in COPIERS:
                if shutil.which(tool) is None:
                    print(f"{tool} is not installed")
                    continue
                into, out = self.export / tool, self.folder / f"out by {tool}"
                into.mkdir()
                out.mkdir()
                harness.wait_until_seen(mount.path / tool)
                copies.append((f"{tool} into the mount", into,
                               pool.submit(copy, wan, tool, self.original, mount.path / tool)))
                copies.append((f"{tool} out of the mount", out,
                               pool.submit(copy, wan, tool, mount.path / "original", out)))
            for what, arrived, copying in copies:
                with self.subTest(what):
                    finished, seconds = copying.result()
                    print(f"\n{what}: {len(self.wanted)} entries in {seconds:.1f} s", flush=True)
                    lines = differences(self.wanted, facts(arrived))
                    shown = "\n".join([repr(finished), f"{len(lines)} differences:", *lines[:DIFFERENCES_SHOWN]])
                    self.assertEqual((finished.returncode, lines), (0, []), shown)

    def test_a_folder_of_2000_files_in_and_out(self):
        near, far, back = self.folder / "crowd", self.export / "crowd", self.folder / "crowd back"
        for folder in (near, far, back):
            folder.mkdir()
        for number in range(MANY):
            (near / f"{number:05}").write_text(str(number))
        with Wan(rate="1gbit") as wan, Tuskd(wan, self.export, options=["--setuid"]) as server, Mount(wan, server.url) as mount:
            for source, target in ((near, mount.path / "crowd"), (mount.path / "crowd", back)):
                finished, seconds = copy(wan, "tar", source, target)
                print(f"\n{MANY} files from {source.name} to {target.name}: {seconds:.1f} s", flush=True)
                self.assertEqual(finished.returncode, 0, finished)
            self.assertEqual(len(os.listdir(mount.path / "crowd")), MANY)
        for arrived in (far, back):
            self.assertEqual(differences(facts(near), facts(arrived)), [])


if __name__ == "__main__":
    harness.main(fuse=True)
