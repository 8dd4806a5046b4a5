"""Quantities as people write them, and the paths that benchmarks run on, with what they can carry."""

import dataclasses
import re

from harness import Wan

OVERHEAD = 66  # bytes of a packet that are no file data: IPv4 20, UDP 8, header 13, body frame 9, tag 16 (PROTOCOL.md)
QUEUE_MS = 100

_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_RATES = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}


def _quantity(text, units, example):
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if not found or found[2] not in units:
        raise ValueError(f"'{text}' is not a quantity such as {example}")
    return float(found[1]) * units[found[2]]


def parse_size(text):
    """"3gib" in bytes."""
    return int(_quantity(text, _SIZES, "3gib"))


def parse_rate(text):
    """"2.5gbit" in Mbit/s."""
    return _quantity(text, _RATES, "2.5gbit")


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % unit == 0 else f"{size / unit:.2f} {name}"
    return f"{size} B"


def rate_text(mbit):
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit:g} Mbit/s"


@dataclasses.dataclass(frozen=True)
class Line:
    """A path: rate in Mbit/s, round trip in ms, loss of each direction as a fraction, and more of `tusk-wan --help`
    as pairs of name (with underscores) and value."""

    rate: float = 1000
    rtt: float = 100
    loss: float = 0.0
    mtu: int = 1500
    queue: float = QUEUE_MS  # ms
    more: tuple = ()

    @property
    def payload_share(self):
        """How much of a packet of ours is file data."""
        return (self.mtu - OVERHEAD) / self.mtu

    @property
    def limit(self):
        """Mbit/s of file data that our packets can carry there."""
        return self.rate * (1 - self.loss) * self.payload_share

    @property
    def in_flight(self):
        """Bytes under way when it is full: the bandwidth-delay product."""
        return self.rate * 1e6 / 8 * self.rtt / 1e3

    def __str__(self):
        text = f"{rate_text(self.rate)}, {self.rtt:g} ms, {self.loss * 100:g} % loss"
        if self.mtu != 1500:
            text += f", MTU {self.mtu}"
        return text + "".join(f", {name.replace('_', '-')} {value}" for name, value in self.more)

    def settings(self):
        """As tusk-wan wants them. It makes queues of a time, so a rate that changes keeps it."""
        return {"rate": f"{self.rate * 1000:.0f}kbit", "delay": f"{self.rtt * 500:.0f}us",
                "loss": f"{self.loss * 100:.6g}%", "queue": f"{self.queue:g}ms", **dict(self.more)}

    def wan(self, at=(), **more):
        """The emulated path, a context manager."""
        return Wan(at=at, mtu=self.mtu, **{**self.settings(), **more})

    def simulated(self):
        """The same for tusk-sim."""
        settings = self.settings()
        arguments = ["--rate", settings["rate"], "--rtt", f"{self.rtt * 1000:.0f}us", "--loss", settings["loss"],
                     "--queue", settings["queue"], "--mtu", str(self.mtu)]
        if self.more:
            arguments += ["--set", ",".join(f"{name.replace('_', '-')}={value}" for name, value in self.more)]
        return arguments
