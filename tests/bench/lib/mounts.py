"""A fresh mount across a fresh path, and what one large copy through it reaches."""

import contextlib

from lib.measuring import check_digest, timed
from lib.warm_memory import warm_memory
from harness import HarnessError, Mount, Tuskd, wait_until
from progress import Progress

OUT, INTO = "out of", "into"
DIRECTIONS = (OUT, INTO)
UMOUNT_SECONDS = 30


@contextlib.contextmanager
def mounted(line, export, at=(), mount_options=(), **settings):
    """Path, server and mount, for the length of a with block."""
    with line.wan(at, **settings) as wan, Tuskd(wan, export) as server, \
            Mount(wan, server.url, options=mount_options, umount_seconds=UMOUNT_SECONDS) as mount:
        yield wan, server, mount


@contextlib.contextmanager
def mounted_again(line, export, state, first, **settings):
    """The same, of a path that a mount of before has made known: `first`, called with its wan and it, used it."""
    with line.wan(**settings) as wan, Tuskd(wan, export) as server:
        with Mount(wan, server.url, umount_seconds=UMOUNT_SECONDS, state=state) as mount:
            first(wan, mount)
        wait_until((state / "known_paths").exists, UMOUNT_SECONDS, "the client's memory of its path")
        with Mount(wan, server.url, umount_seconds=UMOUNT_SECONDS, state=state) as mount:
            yield wan, server, mount


def copy_large(wan, mount, folder, name, size, wanted, direction, limit):
    """Copies a file of `size` bytes one way with cp, and compares it where it arrived. Mbit/s, from the start of cp to
    its exit. Raises HarnessError when it takes longer than `limit` seconds."""
    if direction == OUT:
        source, target, arrived = mount.path / name, folder / "near" / "copy", folder / "near" / "copy"
    else:
        source, target, arrived = folder / "export" / name, mount.path / "copy", folder / "export" / "copy"
    try:
        with warm_memory(2 * size), Progress(wan):  # the file that is written, and the mount's pages of the other
            seconds = timed(["cp", source, target], limit).seconds
        if arrived.stat().st_size != size:
            raise HarnessError(f"{arrived.stat().st_size} of {size} bytes arrived")
        check_digest(arrived, wanted)  # where it arrived, not through the mount, and before more could follow
    finally:
        arrived.unlink(missing_ok=True)
    return size * 8e-6 / seconds
