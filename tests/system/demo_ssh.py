"""An sshd of our own at the far end of a path, with its own keys, port and configuration: what Tusk is compared with.

Touches no configuration of the machine's own ssh. sshd is the installed one, or one that ./dev has unpacked into
the folder named by TUSK_BASELINE."""

import contextlib
import getpass
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import tempfile

import harness
from harness import HarnessError, popen_in, run_in, stop

PORT = 8877
READY_SECONDS = 10

SERVER_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""

# sshd wants a user and a folder that only its package makes. They exist for this one process alone.
AS_ROOT = """\
mkdir -p /run/sshd
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
exec "$@"
"""


class SshServer:
    """sshd in namespace B, for the length of a with block; its keys and configuration go below folder. Raises
    HarnessError when there is none to be had."""

    def __init__(self, wan, folder):
        self.wan, self.folder = wan, pathlib.Path(tempfile.mkdtemp(dir=folder))
        self._sshd, self._environment = _find_sshd()
        for tool in ("ssh", "scp", "ssh-keygen"):
            if shutil.which(tool) is None:
                raise HarnessError(f"{tool} is missing")
        self._options = ["-i", f"{self.folder}/user_key", "-o", f"Port={PORT}", "-F", "none", "-o", "BatchMode=yes",
                         "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.folder}/known_hosts",
                         "-o", "LogLevel=ERROR"]

    def __enter__(self):
        for key in ("host_key", "user_key"):
            run_in(None, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], READY_SECONDS)
        config = self.folder / "sshd_config"
        config.write_text(SERVER_CONFIG.format(port=PORT, address=self.wan.ip_b, folder=self.folder))
        command = [self._sshd, "-D", "-e", "-f", config]
        if os.geteuid() == 0:
            (self.folder / "passwd").write_text(f"root:x:0:0:root:{self.folder}:/bin/sh\n"
                                                "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
            (self.folder / "shadow").write_text("root:*:1::::::\nsshd:*:1::::::\n")
            # Processes of its own, too: those of connections that were cut would outlive it and pin every mount.
            isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
            prepare = AS_ROOT.format(folder=shlex.quote(str(self.folder)))
            command = [*isolated, "sh", "-ec", prepare, "sh", *command]
        with open(self.folder / "log", "wb") as log:
            self._process = popen_in(self.wan.ns_b, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env=self._environment)
        try:
            harness.wait_until(self._answers, READY_SECONDS, "sshd's answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        stop(self._process)

    def _answers(self):
        if self._process.poll() is not None:
            raise HarnessError(f"sshd ended: {(self.folder / 'log').read_text(errors='replace').strip()}")
        with harness.inside(self.wan.ns_a) if self.wan.ns_a else contextlib.nullcontext():
            client = socket.socket()
        with client, contextlib.suppress(OSError):
            client.settimeout(1)
            client.connect((self.wan.ip_b, PORT))
            return True
        return False

    def remote(self, path):
        return f"{getpass.getuser()}@{self.wan.ip_b}:{path}"

    def scp(self, source, destination):
        return ["scp", "-q", *self._options, source, destination]

    def rsync(self, sources, destination):
        return ["rsync", "-a", "--relative", "-e", shlex.join(["ssh", *self._options]), *sources, f"{destination}/"]


def _find_sshd():
    """Path and environment of sshd."""
    installed = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if installed:
        return installed, None
    baseline = pathlib.Path(os.environ.get("TUSK_BASELINE", "/nonexistent"))
    unpacked = baseline / "usr/sbin/sshd"
    if not unpacked.exists():
        raise HarnessError("sshd (package openssh-server) is missing")
    libraries = os.pathsep.join(str(path.parent) for path in baseline.glob("**/libwrap.so.0"))
    return str(unpacked), {**os.environ, "LD_LIBRARY_PATH": libraries}
