"""Two network namespaces joined by a plain veth pair: no path in between, so that only the two ends cost anything. Their
loopbacks have the same MTU."""

import os
import subprocess

from harness import HarnessError


class Veth:
    """Stands where a Wan could: ns_a, ns_b, ip_a, ip_b. For the length of a with block."""

    def __init__(self, mtu=1500):
        self.mtu = mtu
        number = os.getpid()
        self.ns_a, self.ns_b = f"tuskveth-{number}-a", f"tuskveth-{number}-b"
        subnet = f"10.{200 + (number >> 8) % 50}.{number & 255}"
        self.ip_a, self.ip_b = f"{subnet}.1", f"{subnet}.2"

    def __enter__(self):
        try:
            for name in (self.ns_a, self.ns_b):
                _ip("netns", "add", name)
            _ip("link", "add", "veth0", "mtu", str(self.mtu), "netns", self.ns_a, "type", "veth", "peer", "name",
                "veth0", "mtu", str(self.mtu), "netns", self.ns_b)
            for name, address in ((self.ns_a, self.ip_a), (self.ns_b, self.ip_b)):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "veth0")
                for device in ("lo", "veth0"):
                    _ip("-n", name, "link", "set", device, "mtu", str(self.mtu), "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.ns_a, self.ns_b):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _ip(*words):
    finished = subprocess.run(["ip", *words], capture_output=True, text=True)
    if finished.returncode != 0:
        raise HarnessError(f"ip {' '.join(words)}: {finished.stderr.strip()}")
