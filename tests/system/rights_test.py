"""Who may do what: rights to mount that end while they are used, what clients make on the server's machine, and what
other users of either machine can see or bring about."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, fuse_connection, popen_in, program, run_in, wait_until

END_SECONDS = 15  # the right lives for 3 s, the server looks every few seconds
PROGRAM_SECONDS = 10
FELT_SECONDS = 2
AGAIN_SECONDS = 40  # a refused client asks every 30 s
USER, OTHER = 64123, 64124  # who need no names


class Rights(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-rights-")))
        self.export = self.folder / "export"
        self.export.mkdir()
        self.wan = self.enterContext(Wan(rate="100mbit", delay="5ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))

    def administer(self, command, *arguments):
        state = self.server.folder / "state"
        return run_in(self.wan.ns_b, [program("tuskd"), command, "--state-dir", state, *arguments],
                      PROGRAM_SECONDS).stdout

    def status(self, mount, *options):
        return run_in(self.wan.ns_a, [program("tusk"), "status", *options, mount.path], PROGRAM_SECONDS).stdout

    def listed(self, mount):
        return run_in(self.wan.ns_a, ["ls", mount.path], PROGRAM_SECONDS, check=False)

    def test_one_that_runs_out_is_an_error_until_it_is_given_again(self):
        token = self.administer("token", "--export", "export", "--rw", "--expires", "3s",
                                "--host", f"{self.wan.ip_b}:8875").split()[-1]
        with Mount(self.wan, token) as mount:
            (mount.path / "file").write_text("of the good times")
            wait_until(lambda: json.loads(self.status(mount, "--json"))["refused"], END_SECONDS, "a refusal")
            # What is known under a lease, too.
            wait_until(lambda: self.listed(mount).returncode != 0, FELT_SECONDS, "the end of what is cached")
            self.assertIn("Permission denied", self.listed(mount).stderr)
            text = self.status(mount)
            self.assertRegex(text, "refused: .*right")
            self.assertIn("mount again with a new URL", text)

            key = json.loads(self.status(mount, "--json"))["client_key"]
            self.assertIn(f"tuskd allow --export export -- {key}", text)
            self.administer("allow", "--export", "export", "--rw", "--", key)
            wait_until(lambda: json.loads(self.status(mount, "--json"))["connected"], AGAIN_SECONDS, "being let in")
            self.assertEqual(os.listdir(mount.path), ["file"])


class OfLocalUsers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tusk-users-")))
        cls.folder.chmod(0o711)
        cls.wan = cls.enterClassContext(Wan(rate="1gbit", delay="1ms"))

    def export(self, owner=0):
        """A folder of this test, and the user's own place for what tuskd keeps."""
        own = self.folder / self.id().rpartition(".")[2]
        for path in (own, own / "export", own / "state"):
            path.mkdir()
            os.chown(path, owner, owner)
        return own

    def test_a_client_makes_no_program_that_runs_as_root(self):
        export = self.export() / "export"
        with Tuskd(self.wan, export) as server, Mount(self.wan, server.url) as mount:
            self.assertIn("whoever has the URL writes as root here", server.log())
            made, chmodded = mount.path / "made", mount.path / "chmodded"
            os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o4755))
            shutil.copy("/bin/true", chmodded)
            chmodded.chmod(0o6755)
            with self.assertRaises(PermissionError):
                os.mknod(mount.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            with self.assertRaises(PermissionError):
                os.setxattr(chmodded, "security.capability", bytes.fromhex("0100000200200000" + "00" * 12))
            (mount.path / "shared").mkdir()
            (mount.path / "shared").chmod(0o2775)
            for path in (made, chmodded):
                self.assertEqual(path.stat().st_mode & 0o7777, 0o755, path)
            run_in(None, ["sync", mount.path], PROGRAM_SECONDS)  # fsync of the directory
            for path in (made, chmodded):
                self.assertEqual((export / path.name).stat().st_mode & 0o7777, 0o755, path)
            self.assertEqual((export / "shared").stat().st_mode & 0o7777, 0o2775)

    def test_clients_of_a_share_have_the_rights_of_its_user(self):
        export = self.export(USER) / "export"
        (export / "roots").write_text("")
        (export / "roots").chmod(0o644)
        with Tuskd(self.wan, export, options=["--as", "nobody"]) as server, Mount(self.wan, server.url) as mount:
            self.assertNotIn("writes as root", server.log())
            with self.assertRaises(PermissionError):
                (mount.path / "roots").write_text("changed")

    def mount_by(self, path, *words, said=None):
        state = self.folder / "client"
        return run_in(self.wan.ns_a, [program("tusk"), "mount", "--state-dir", state, *words, path], PROGRAM_SECONDS,
                      check=False, input=said)

    def test_a_url_comes_by_a_pipe_or_a_file(self):
        own = self.export()
        point, url_file = own / "point", own / "url"
        point.mkdir()
        with Tuskd(self.wan, own / "export", rw=False) as server:
            wait_until(lambda: f"echo '{server.url}' | tusk mount - " in server.log(), PROGRAM_SECONDS, "the line to type")
            url_file.write_text(server.url + "\n")
            url_file.chmod(0o600)
            bare = server.url.partition("#")[0]
            for words, said in ((["-"], server.url), (["--url-file", "-"], server.url + "\n"),
                                (["--url-file", url_file], ""), ([bare, "-o", f"url_file={url_file}"], "")):
                with self.subTest(words=words):
                    mounted = self.mount_by(point, *words, said=said)
                    self.assertEqual((mounted.returncode, mounted.stderr), (0, ""))
                    self.assertIsNotNone(fuse_connection(point))
                    run_in(self.wan.ns_a, [program("tusk"), "umount", point], PROGRAM_SECONDS)
            seen = self.mount_by(point, server.url)
            self.assertEqual(seen.returncode, 0)
            self.assertIn("other users can see a token on a command line", seen.stderr)
            run_in(self.wan.ns_a, [program("tusk"), "umount", point], PROGRAM_SECONDS)
            url_file.chmod(0o640)
            refused = self.mount_by(point, "--url-file", url_file)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("chmod 600", refused.stderr)
            self.assertNotIn(server.url.partition("#")[2], refused.stderr)
        self.assertEqual(self.mount_by(point, "-", said="").returncode, 1)

    def test_a_place_for_sockets_that_another_user_made_is_not_believed(self):
        place = pathlib.Path(f"/tmp/tusk-{USER}")
        place.mkdir(mode=0o755)
        self.addCleanup(shutil.rmtree, place)
        os.chown(place, OTHER, OTHER)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place / "mnt-0-0.sock"))
            listening.listen()
            (place / "mnt-0-0.sock").chmod(0o777)
            for words in (["status"], ["status", "/mnt"], ["status", "--json"], ["umount", "-f", "/mnt"]):
                asked = run_in(None, ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-i",
                                      program("tusk"), *words], PROGRAM_SECONDS, check=False)
                self.assertNotEqual(asked.returncode, 0, words)
                self.assertIn(f"{place} must be a directory of yours with mode 0700. It belongs to another user", asked.stderr)
            listening.setblocking(False)
            with self.assertRaises(BlockingIOError):  # nobody has connected
                listening.accept()

    def share_as_user(self, own):
        """`tuskd share --rw` by an ordinary user. The process and the URL."""
        url_file = own / "state" / "url"
        url_file.unlink(missing_ok=True)
        log = open(own / "log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        server = popen_in(self.wan.ns_b, ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                                          program("tuskd"), "share", "--rw", own / "export", "--state-dir", own / "state",
                                          "--listen", f"{self.wan.ip_b}:8875", "--url-file", url_file],
                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(harness.stop, server)
        wait_until(lambda: url_file.exists() or server.poll() is not None, END_SECONDS, "the URL")
        self.assertIsNone(server.poll(), (own / "log").read_text())
        return server, url_file.read_text().strip()

    def test_open_files_outlive_a_restart_of_an_ordinary_users_server_whatever_their_modes_say(self):
        own = self.export(USER)
        server, url = self.share_as_user(own)
        if "a user namespace" in (own / "log").read_text():
            self.skipTest("skipped, because no user may make a namespace here")
        with Mount(self.wan, url) as mount, contextlib.ExitStack() as files:
            opened = {}
            for name, mode, later in (("made-0444", 0o444, None), ("made-0200", 0o200, None), ("chmod-0", 0o644, 0)):
                opened[name] = os.open(mount.path / name, os.O_RDWR | os.O_CREAT, mode)
                files.callback(os.close, opened[name])
                os.write(opened[name], b"a" * 300_000)
                os.fsync(opened[name])
                if later is not None:
                    os.chmod(mount.path / name, later)
            harness.stop(server)
            self.share_as_user(own)
            for name, file in opened.items():
                with self.subTest(name=name):
                    os.pwrite(file, b"b" * 100_000, 300_000)
                    os.fsync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    self.assertEqual(os.pread(file, 10, 299_995), b"aaaaabbbbb")
                    os.ftruncate(file, 300_000)
                    self.assertEqual((own / "export" / name).read_bytes(), b"a" * 300_000)

    def test_a_share_of_an_ordinary_user_serves_from_a_sandbox(self):
        own = self.export(USER)
        server, url = self.share_as_user(own)
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        self.assertRegex(status, r"NoNewPrivs:\s1")
        self.assertRegex(status, r"Seccomp:\s2")
        listed = run_in(None, [program("tuskd"), "clients", "--state-dir", own / "state"], PROGRAM_SECONDS).stdout
        self.assertIn("sandbox: ", listed)
        self.assertRegex(listed, r"system calls \(seccomp\)")
        with Mount(self.wan, url) as mount:
            one, two = mount.path / "one", mount.path / "two"
            one.mkdir()
            two.mkdir()
            (one / "file").write_bytes(os.urandom(300_000))
            os.link(one / "file", two / "link")
            os.rename(one / "file", two / "moved")
            os.truncate(two / "moved", 200_000)
            (two / "moved").chmod(0o600)
            os.symlink("/etc/passwd", one / "symlink")
            with open(two / "moved", "rb") as held:
                wanted = held.read()
                harness.stop(server)
                server, _ = self.share_as_user(own)
                held.seek(0)
                self.assertEqual(held.read(), wanted)
                (one / "after").write_text("the restart")
                self.assertEqual(sorted(os.listdir(one)), ["after", "symlink"])
        self.assertEqual((own / "export" / "two" / "link").read_bytes(), wanted)
        self.assertEqual((own / "export" / "one" / "after").read_text(), "the restart")


if __name__ == "__main__":
    harness.main(fuse=True)
