"""Films of any size that take no room: what a player reads at the head (and the tail) is real, the rest is a hole."""

import struct

MIB = 1 << 20
MDAT_HEAD = 16
VOID_HEAD = 9
MATROSKA_UNKNOWN_SIZE = b"\x01\xff\xff\xff\xff\xff\xff\xff"


def boxes(content):
    """The top-level boxes of an MP4: (kind, offset, size)."""
    found, offset = [], 0
    while offset + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, offset)
        if size == 1:
            size = struct.unpack_from(">Q", content, offset + 8)[0]
        found.append((kind, offset, size))
        offset += size
    return found


def stretch_mp4(content, path, size, index_size):
    """From a small MP4 one of about `size` bytes: its media data goes on as a hole, and its index grows to
    `index_size` bytes, as that of a long film. The index stays where it was, before or behind the media data."""
    parts = dict((kind, content[offset:offset + length]) for kind, offset, length in boxes(content))
    index_first = content.index(b"moov") < content.index(b"mdat")
    filling = index_size - len(parts[b"moov"])
    # The tables of a long film are read; a box that is not known would be jumped over. So the time to sample table
    # takes the room: entries of 8 bytes, of which all but the first say nothing (0 samples).
    moov = grow_box(parts[b"moov"], [b"trak", b"mdia", b"minf", b"stbl", b"stts"], filling // 8)
    old_data_at = next(offset for kind, offset, _ in boxes(content) if kind == b"mdat")
    old_head = 16 if struct.unpack_from(">I", content, old_data_at)[0] == 1 else 8
    media = parts[b"mdat"][old_head:]
    front = parts[b"ftyp"] + (b"" if not index_first else moov)
    data_size = size - len(front) - (0 if index_first else len(moov))
    moved = len(front) + MDAT_HEAD - (old_data_at + old_head)
    moov = move_chunks(moov, moved)
    front = parts[b"ftyp"] + (moov if index_first else b"")
    with open(path, "wb") as film:
        film.write(front + struct.pack(">I4sQ", 1, b"mdat", data_size) + media)
        film.seek(len(front) + data_size)
        film.write(b"" if index_first else moov)
        film.truncate(max(size, film.tell()))


def grow_box(box, way, entries):
    """Adds empty entries to the table at the end of `way`, in the first box of each name."""
    body = bytearray(box)
    sizes, at, end = [0], 8, len(body)
    for kind in way:
        while body[at + 4:at + 8] != kind:
            at += struct.unpack_from(">I", body, at)[0]
            assert at < end, kind
        sizes.append(at)
        at += 8
    table = sizes[-1]
    length, = struct.unpack_from(">I", body, table)
    count, = struct.unpack_from(">I", body, table + 12)
    struct.pack_into(">I", body, table + 12, count + entries)
    for start in sizes:
        struct.pack_into(">I", body, start, struct.unpack_from(">I", body, start)[0] + 8 * entries)
    body[table + length:table + length] = struct.pack(">II", 0, 1) * entries
    return bytes(body)


def move_chunks(moov, by):
    """The index after the media data moved."""
    body, at = bytearray(moov), 0
    while (at := body.find(b"stco", at)) >= 0:
        count, = struct.unpack_from(">I", body, at + 8)
        for entry in range(count):
            where = at + 12 + 4 * entry
            struct.pack_into(">I", body, where, struct.unpack_from(">I", body, where)[0] + by)
        at += 12 + 4 * count
    return bytes(body)


def stretch_matroska(content, path, size):
    """From a small Matroska file of unknown length (written to a pipe) one of `size` bytes, with a hole behind."""
    with open(path, "wb") as film:
        film.write(content + b"\xec\x01" + struct.pack(">Q", size - len(content) - 10)[1:])
        film.truncate(size)
