"""What goes wrong on the way, at either end and in the hands of users: each time the right error, in good time, or
none at all and the right bytes. Nothing here may hang: every program has a time limit, and exceeding it is a failure.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import Mount, Tuskd, Wan, fuse_connection, popen_in, program, run_in, wait_until

MIB = 1 << 20
COPY_MIB, RATE = 48, "100mbit"  # four seconds: long enough to be interrupted in the middle
COPY_SECONDS_MAX = 60
CLEAR_SECONDS = 15  # a mount that cannot be says so after ten
OTHER_KEY_SECONDS = 20  # for so long it must be shown (SECURITY)
ERROR_SECONDS = 15
SILENCE_SECONDS = 4
DATAGRAMS = 2_000


class Trouble(unittest.TestCase):
    """An export, a file for it, and helpers; each test makes the path, server and mount that it breaks."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-trouble-")))
        self.export, self.near = self.folder / "export", self.folder / "near"
        self.export.mkdir()
        self.near.mkdir()

    def make_file(self, path, mib=COPY_MIB):
        path.write_bytes(os.urandom(mib * MIB))
        return path

    def wan_of(self, **settings):
        return self.enterContext(Wan(**{"rate": RATE, "delay": "5ms", **settings}))

    def serve(self, wan, directory=None, **options):
        return self.enterContext(Tuskd(wan, directory or self.export, **options))

    def mounted(self, wan, url, **options):
        return self.enterContext(Mount(wan, url, **options))

    def start_copy(self, wan, source, target):
        process = popen_in(wan.ns_a, ["cp", source, target], stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.stderr.close())
        self.addCleanup(harness.stop, process, signal.SIGKILL)
        return process

    def finish_copy(self, process, seconds=COPY_SECONDS_MAX):
        self.assertEqual(process.wait(seconds), 0, process.stderr.read())

    def half_way(self, process, path):
        """Waits until a good part of a copy has arrived; it must still be running then."""
        wait_until(lambda: path.exists() and path.stat().st_size > COPY_MIB * MIB // 6, COPY_SECONDS_MAX, "a copy")
        self.assertIsNone(process.poll(), "the copy was over too soon to be disturbed")

    def assert_same(self, one, other):
        self.assertEqual(digest(one), digest(other), f"content of {other.name}")

    def copy_both_ways_disturbed(self, wan, mount, disturb):
        """Copies in and out at the same time, disturbs both in the middle, and compares."""
        far, near = self.make_file(self.export / "far"), self.make_file(self.near / "near")
        into = self.start_copy(wan, near, mount.path / "in")
        out = self.start_copy(wan, mount.path / "far", self.near / "out")
        self.half_way(into, self.export / "in")
        self.half_way(out, self.near / "out")
        disturb()
        self.finish_copy(into)
        self.finish_copy(out)
        self.assert_same(near, self.export / "in")
        self.assert_same(far, self.near / "out")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


class ThePath(Trouble):
    def test_an_outage_of_5_s_only_costs_time(self):
        wan = self.wan_of()

        def outage():
            wan.outage(True)
            wan.at("5s", outage="off")

        self.copy_both_ways_disturbed(wan, self.mounted(wan, self.serve(wan).url), outage)

    def test_damaged_packets_do_not_damage_files(self):
        wan = self.wan_of(corrupt="0.1%")
        self.copy_both_ways_disturbed(wan, self.mounted(wan, self.serve(wan).url), lambda: None)

    def test_ipv6(self):
        wan = self.wan_of()
        server = self.serve(wan, ipv6=True)
        self.assertIn("[fd00:", server.url)
        self.copy_both_ways_disturbed(wan, self.mounted(wan, server.url), lambda: None)

    def test_garbage_to_the_port_changes_nothing(self):
        wan = self.wan_of()
        server = self.serve(wan)
        chance = random.Random(1)
        attacker = self.enterContext(harness.udp_socket(wan.ns_a, wan.ip_a))
        target = (wan.ip_b, 8875)

        def attack():
            for _ in range(DATAGRAMS):
                attacker.sendto(chance.randbytes(chance.choice((0, 1, 7, 40, 300, 1472))), target)

        self.copy_both_ways_disturbed(wan, self.mounted(wan, server.url), attack)
        self.assertIsNone(server.process.poll())
        self.assertRegex(server.log(), rf"datagrams dropped: .* the newest from {wan.ip_a}")

    def test_cut_and_changed_handshakes_change_nothing(self):
        wan = self.wan_of()
        server = self.serve(wan)
        hello = self.first_datagram(wan, server.url)
        chance = random.Random(2)
        attacker = self.enterContext(harness.udp_socket(wan.ns_a, wan.ip_a))
        for length in range(0, len(hello), 3):
            attacker.sendto(hello[:length], (wan.ip_b, 8875))
        for _ in range(DATAGRAMS // 10):
            changed = bytearray(hello)
            changed[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
            attacker.sendto(changed, (wan.ip_b, 8875))
        mount = self.mounted(wan, server.url)
        with open(mount.path / "file", "w") as file:
            file.write("still here")
            file.flush()
            os.fsync(file.fileno())
        self.assertEqual((self.export / "file").read_text(), "still here")
        self.assertIsNone(server.process.poll())

    def first_datagram(self, wan, url):
        """What a client sends first, caught by a socket that stands where a server could."""
        with harness.udp_socket(wan.ns_b, wan.ip_b, 9999) as catcher:
            catcher.settimeout(CLEAR_SECONDS)
            point = self.folder / "hello"
            point.mkdir()
            client = popen_in(wan.ns_a, [program("tusk"), "mount", url.replace(":8875", ":9999"), point, "--state-dir",
                                         self.folder / "hello state"], stderr=subprocess.DEVNULL)
            self.addCleanup(harness.stop, client, signal.SIGKILL)
            return catcher.recv(65535)


class MountingRefused(Trouble):
    """Each: an exit code that is not 0, and one clear line, within a few seconds; and nothing is mounted."""

    def refused(self, wan, url, pattern, point=None, options=()):
        if point is None:
            point = self.folder / "point"
            point.mkdir(exist_ok=True)
        finished = run_in(wan.ns_a, [program("tusk"), "mount", "-", point, "--state-dir", self.folder / "client state",
                                     *options], CLEAR_SECONDS, check=False, input=url)
        self.assertNotEqual(finished.returncode, 0)
        self.assertRegex(finished.stderr, re.compile(pattern, re.IGNORECASE))
        self.assertEqual(len(finished.stderr.strip().splitlines()), 1, finished.stderr)
        self.assertEqual(finished.stdout, "")
        print(f"\n  {finished.stderr.strip()}", flush=True)

    def test_wrong_tokens_fingerprints_exports_and_ports(self):
        wan = self.wan_of()
        server = self.serve(wan)
        base, secret = server.url.split("#")
        self.refused(wan, server.url[:-1] + ("A" if server.url[-1] != "A" else "B"), "token|refused|fingerprint")
        self.refused(wan, f"{base}#{flipped(secret, 0)}", "fingerprint|key|token")
        self.refused(wan, f"{base}-not#{secret}", "export|token|refused")
        self.refused(wan, f"{base.replace(':8875', ':8876')}#{secret}", "reach|answer|UDP")
        self.refused(wan, base, r"tuskd allow --export export -- [\w-]{43}\)")

    def test_a_server_that_answers_is_quoted(self):
        wan = self.wan_of()
        server = self.serve(wan)
        self.export.rmdir()
        self.refused(wan, server.url, "did not let us in.*the exported directory has been removed")

    def test_an_unknown_host_is_no_closed_port(self):
        wan = self.wan_of()
        url = self.serve(wan).url.replace(wan.ip_b, "no-such-host.invalid")
        self.refused(wan, url, "^[^?]*no-such-host.invalid'[^?]*$")

    def test_a_token_for_one_export_does_not_open_another(self):
        wan = self.wan_of()
        one, two = self.folder / "one", self.folder / "two"
        state = self.folder / "state"  # one server identity, so only the token's export differs
        for directory in (one, two):
            directory.mkdir()
        with Tuskd(wan, one, state_dir=state) as first:
            token_of_one = first.url.split("#")[1]
        server = self.serve(wan, two, state_dir=state)
        self.refused(wan, f"{server.url.split('#')[0]}#{token_of_one}", "token|refused|export")

    def test_bad_mount_points_and_options(self):
        wan = self.wan_of()
        server = self.serve(wan)
        file = self.folder / "a file"
        file.write_text("")
        self.refused(wan, server.url, "mount point|no such|exist|missing", point=self.folder / "missing")
        self.refused(wan, server.url, "directory", point=file)
        self.refused(wan, server.url, "unknown option", options=["-o", "no_such_option"])
        self.refused(wan, server.url, "^tusk: .*no-such-flag", options=["--no-such-flag"])
        self.refused(wan, server.url, "mkdir|make a directory", point="/")
        self.refused(wan, server.url, "empty", point="")
        self.refused(wan, server.url, "/proc/sys belongs to the kernel", point="/proc/sys")
        inside = self.export / "inside"
        inside.mkdir()
        self.refused(wan, server.url, "lies in the directory that is to be mounted.*choose", point=inside)
        self.refused(wan, server.url, "lies in the cache folder", point=inside, options=["-o", f"cache={self.export}"])
        self.refused(wan, "http://example.org/", "tusk://|url")
        mount = self.mounted(wan, server.url)
        self.refused(wan, server.url, "busy|already|mounted", point=mount.path)


def flipped(text, index):
    return text[:index] + ("A" if text[index] != "A" else "B") + text[index + 1:]


class TheServer(Trouble):
    def test_killed_and_restarted_in_the_middle_of_copies(self):
        wan = self.wan_of()
        server = self.serve(wan)

        def crash():
            server.kill()
            server.start()

        self.copy_both_ways_disturbed(wan, self.mounted(wan, server.url), crash)

    def test_two_servers_may_use_one_state_directory(self):
        wan = self.wan_of()
        state, exports = self.folder / "state", [self.folder / name for name in ("one", "two")]
        for export in exports:
            export.mkdir()

        def ask(command, *arguments, check=True):
            return run_in(wan.ns_b, [program("tuskd"), command, *arguments, "--state-dir", state], CLEAR_SECONDS, check)

        def shown(command="clients"):
            return ask(command).stdout

        first, second = (self.serve(wan, export, port=port, state_dir=state)
                         for export, port in zip(exports, (8875, 9000)))
        mount = self.mounted(wan, ask("token", "--export", "two", "--rw").stdout.strip())
        (mount.path / "file").write_text("x")
        wait_until((exports[1] / "file").exists, ERROR_SECONDS, "the file on its server")
        each = r":8875: 0 connected\n(  .*\n)*tuskd .*:9000: 1 connected\n(  .*\n)*  two rw"
        wait_until(lambda: re.search(each, shown()), ERROR_SECONDS, "both servers in `tuskd clients`")
        self.assertRegex(ask("token", "--export", "three", check=False).stderr, "no export named 'three'.*'one', 'two'")
        first.stop()
        self.assertNotIn(":8875", shown())
        self.assertIn(":9000/two", ask("token", "--export", "two").stdout)
        second.kill()
        self.assertIn("No server is running", shown())
        finished = ask("token", "--export", "two")
        self.assertRegex(finished.stderr, "warning: no server is running")
        self.assertEqual(list((state / "running").iterdir()), [])
        second.start()  # for the mount

    def test_a_name_is_taken_once(self):
        wan = self.wan_of()
        state = self.folder / "state"
        self.serve(wan, state_dir=state)
        finished = run_in(wan.ns_b, [program("tuskd"), "share", self.near, "--name", "export", "--state-dir", state,
                                     "--listen", ":9000"], CLEAR_SECONDS, check=False)
        self.assertEqual(finished.returncode, 1)
        self.assertRegex(finished.stderr, r"another tuskd \(pid \d+\) exports .*export as 'export': choose another name")

    def test_told_to_reload_it_exports_what_its_paths_lead_to(self):
        wan = self.wan_of()
        state, config, log = (self.folder / name for name in ("state", "tuskd.toml", "log"))
        config.write_text(f'state_dir = "{state}"\nlisten = ["{wan.ip_b}:8875"]\n'
                          f'[[export]]\nname = "films"\npath = "{self.export}"\n')
        (self.export / "old").touch()
        with log.open("w") as said:
            server = popen_in(wan.ns_b, [program("tuskd"), "--config", config], stderr=said)
        self.addCleanup(harness.stop, server)
        running = state / "running"
        wait_until(lambda: running.is_dir() and any(running.iterdir()), ERROR_SECONDS, "the server")
        token = run_in(wan.ns_b, [program("tuskd"), "token", "--export", "films", "--rw", "--config", config, "--host",
                                  f"{wan.ip_b}:8875"], CLEAR_SECONDS)
        self.assertIn("warning: export 'films' is read-only", token.stderr)
        mount = self.mounted(wan, token.stdout.strip())
        self.assertEqual(os.listdir(mount.path), ["old"])
        self.export.rename(self.folder / "moved")
        self.export.mkdir()
        (self.export / "new").touch()
        self.assertEqual(os.listdir(mount.path), ["old"])
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded" in log.read_text(), ERROR_SECONDS, "reloading")
        self.assertIn("is another directory now", log.read_text())
        with Mount(wan, token.stdout.strip()) as anew:
            self.assertEqual(os.listdir(anew.path), ["new"])
        with self.assertRaises(OSError) as caught:
            os.listdir(mount.path)
        self.assertEqual(caught.exception.errno, errno.ESTALE)
        self.export.rename(self.folder / "moved again")
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count("reloaded") == 2, ERROR_SECONDS, "reloading without the directory")
        with Mount(wan, token.stdout.strip()) as anew:
            self.assertEqual(os.listdir(anew.path), ["new"])
        # The others are heeded, and what an export that is not there may allow no longer is not allowed on.
        other = self.folder / "other"
        other.mkdir()
        shutil.rmtree(self.folder / "moved again")
        config.write_text(config.read_text() + f'[[export]]\nname = "other"\npath = "{other}"\n')
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: "reloaded; exports: 2" in log.read_text(), ERROR_SECONDS, "reloading with another export")
        config.write_text(config.read_text().replace('"films"\n', '"films"\naccess = "rw"\n'))
        well = config.read_text()
        config.write_text(well + f'[[export]]\nname = "third"\npath = "{self.folder}/mistaken"\n')
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: "not reloaded" in log.read_text(), ERROR_SECONDS, "refusing a new export without a directory")
        self.assertNotIn("closed until", log.read_text())
        config.write_text(well)
        before = log.read_text().count("reloaded; exports: 1")
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count("reloaded; exports: 1") > before, ERROR_SECONDS,
                   "closing the one whose directory is not there")
        self.assertIn("closed until", log.read_text())
        refused = run_in(wan.ns_a, [program("tusk"), "mount", token.stdout.strip(), self.folder, "--state-dir",
                                    self.folder / "late state"], CLEAR_SECONDS, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("films", refused.stderr)
        self.export.mkdir()
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count("reloaded; exports: 2") == 2, ERROR_SECONDS, "opening it again")

    def test_that_it_is_frozen_shows_within_seconds(self):
        wan = self.wan_of()
        server = self.serve(wan)
        mount = self.mounted(wan, server.url)
        status = [program("tusk"), "status", mount.path]
        server.process.send_signal(signal.SIGSTOP)
        self.addCleanup(server.process.send_signal, signal.SIGCONT)
        asking = popen_in(wan.ns_a, ["df", mount.path], stdout=subprocess.DEVNULL)
        self.addCleanup(harness.stop, asking, signal.SIGKILL)
        wait_until(lambda: "no answer for" in run_in(wan.ns_a, status, ERROR_SECONDS).stdout, SILENCE_SECONDS, "silence")
        self.assertIn("connection      WAITING: no answer for", run_in(wan.ns_a, status, ERROR_SECONDS).stdout)
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual(asking.wait(ERROR_SECONDS), 0)
        self.assertNotIn("no answer for", run_in(wan.ns_a, status, ERROR_SECONDS).stdout)

    def test_set_up_anew_it_is_another_server(self):
        (self.export / "file").write_text("x")
        wan = self.wan_of()
        server = self.serve(wan)
        mount = self.mounted(wan, server.url)
        status = [program("tusk"), "status", mount.path]
        key = re.search('"server_key":"([^"]+)"', run_in(wan.ns_a, [*status, "--json"], ERROR_SECONDS).stdout)[1]
        old_state, server.state_dir = server.state_dir, self.folder / "set up anew"
        server.stop()
        server.start()
        finished = run_in(wan.ns_a, ["cat", mount.path / "file"], OTHER_KEY_SECONDS + ERROR_SECONDS, check=False)
        self.assertIn("Permission denied", finished.stderr)
        said = run_in(wan.ns_a, status, ERROR_SECONDS).stdout
        self.assertIn(f"ANOTHER SERVER KEY: expected the server key {key}, the server has ", said)
        self.assertIn("mount with a new URL", said)
        server.stop()
        server.state_dir = old_state
        server.start()
        wait_until(lambda: "connection      up" in run_in(wan.ns_a, status, ERROR_SECONDS).stdout, ERROR_SECONDS,
                   "the old server")
        self.assertEqual((mount.path / "file").read_text(), "x")

    def test_a_full_disk_reaches_the_writer(self):
        run_in(None, ["mount", "-t", "tmpfs", "-o", "size=20m", "none", self.export], 10)
        self.addCleanup(run_in, None, ["umount", "-l", self.export], 10)
        wan = self.wan_of(rate="1gbit")
        # A server of its own within: it must have let go of the disk before that is unmounted.
        with Tuskd(wan, self.export) as server, Mount(wan, server.url) as mount:
            source = self.make_file(self.near / "large", 40)
            for command in (["cp", source, mount.path / "by cp"],
                            ["dd", f"if={source}", f"of={mount.path}/by dd", "bs=1M", "conv=fsync"]):
                finished = run_in(wan.ns_a, command, COPY_SECONDS_MAX, check=False)
                self.assertNotEqual(finished.returncode, 0, command)
                self.assertIn("No space left", finished.stderr)
                (mount.path / "by cp").unlink(missing_ok=True)

    def test_a_read_only_share_is_read_only(self):
        (self.export / "file").write_text("as it was")
        wan = self.wan_of()
        mount = self.mounted(wan, self.serve(wan, rw=False).url)
        for attempt in (lambda: (mount.path / "new").write_text("x"), lambda: (mount.path / "file").write_text("x"),
                        lambda: (mount.path / "file").unlink(), lambda: (mount.path / "folder").mkdir(),
                        lambda: os.utime(mount.path / "file")):
            with self.assertRaises(OSError) as caught:
                attempt()
            self.assertEqual(caught.exception.errno, errno.EROFS)
        self.assertEqual((mount.path / "file").read_text(), "as it was")

    def test_an_export_that_is_removed_gives_errors(self):
        wan = self.wan_of()
        mount = self.mounted(wan, self.serve(wan).url)
        (self.export / "file").write_text("x")
        (self.export / "file").unlink()
        self.export.rmdir()

        # A mount that is alone makes files by itself until it has heard of it.
        def heard():
            try:
                os.listdir(mount.path)
            except OSError:
                return True
            return False

        wait_until(heard, ERROR_SECONDS, "that the export is gone")
        for command in (["cat", mount.path / "file"], ["touch", mount.path / "new"]):
            self.assertNotEqual(run_in(wan.ns_a, command, ERROR_SECONDS, check=False).returncode, 0, command)

    def test_links_and_dots_are_resolved_by_the_client(self):
        (self.export / "absolute").symlink_to("/etc/hostname")
        (self.export / "upwards").symlink_to("../near/secret")
        (self.near / "secret").write_text("of the server")
        wan = self.wan_of()
        mount = self.mounted(wan, self.serve(wan).url)
        self.assertEqual(os.readlink(mount.path / "absolute"), "/etc/hostname")
        self.assertEqual((mount.path / "absolute").read_bytes(), pathlib.Path("/etc/hostname").read_bytes())
        # Seen from the mount point this is the client's folder beside it, where there is no such file.
        with self.assertRaises(FileNotFoundError):
            (mount.path / "upwards").read_text()
        self.assertEqual(os.stat(mount.path / "..").st_ino, os.stat(mount.path.parent).st_ino)


class TheClient(Trouble):
    def test_killed_it_leaves_no_dead_mount_point(self):
        wan = self.wan_of()
        mount = self.mounted(wan, self.serve(wan).url)
        mount.kill()
        wait_until(lambda: fuse_connection(mount.path) is None, ERROR_SECONDS, "unmounting by itself")
        self.assertEqual(os.listdir(mount.path), [])

    def test_interrupted_before_it_is_mounted_it_leaves_nothing(self):
        wan = self.wan_of()
        point = self.folder / "point"
        point.mkdir()
        for number, options in ((signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGINT, ["--foreground"])):
            # A socket where a server could be: it hears, and never answers.
            with self.subTest(number.name, options=options), harness.udp_socket(wan.ns_b, wan.ip_b, 9999) as silent:
                silent.settimeout(CLEAR_SECONDS)
                mounting = popen_in(wan.ns_a, [program("tusk"), "mount", f"tusk://{wan.ip_b}:9999/x", point, *options, "-o",
                                               "connect_timeout=600", "--state-dir", self.folder / "state"],
                                    stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.addCleanup(harness.stop, mounting, signal.SIGKILL)
                silent.recv(65535)
                os.kill(mounting.pid, number)  # not its group: the daemon has left that
                # The daemon has the same stderr: its end is the end of both.
                said = mounting.communicate(timeout=CLEAR_SECONDS)[1]
                self.assertEqual((mounting.returncode, said), (8, "tusk: interrupted: nothing is mounted\n"))
                self.assertIsNone(fuse_connection(point))

    def test_it_is_found_through_a_symbolic_link(self):
        wan = self.wan_of()
        server = self.serve(wan)
        point, link = self.folder / "point", self.folder / "link"
        point.mkdir()
        link.symlink_to(point)
        tusk = [program("tusk")]
        run_in(wan.ns_a, [*tusk, "mount", server.url, link, "--state-dir", self.folder / "state"], CLEAR_SECONDS)
        self.addCleanup(run_in, wan.ns_a, [*tusk, "umount", "--force", point], COPY_SECONDS_MAX, check=False)
        self.assertIsNotNone(fuse_connection(point))
        self.assertIn(str(point), run_in(wan.ns_a, [*tusk, "status", link], ERROR_SECONDS).stdout)
        run_in(wan.ns_a, [*tusk, "umount", link], COPY_SECONDS_MAX)
        self.assertIsNone(fuse_connection(point))

    def test_it_keeps_nothing_open_of_who_mounted(self):
        wan = self.wan_of()
        server = self.serve(wan)
        point = self.folder / "point"
        point.mkdir()
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        mounting = popen_in(wan.ns_a, [program("tusk"), "mount", server.url, point, "--state-dir", self.folder / "state"],
                            pass_fds=[writer], stdin=subprocess.DEVNULL)
        os.close(writer)
        self.assertEqual(mounting.wait(CLEAR_SECONDS), 0)
        self.addCleanup(run_in, wan.ns_a, [program("tusk"), "umount", point], COPY_SECONDS_MAX)
        self.assertEqual(select.select([reader], [], [], ERROR_SECONDS)[0], [reader])
        self.assertEqual(os.read(reader, 1), b"")

    def test_every_way_to_unmount_brings_everything_to_the_server(self):
        wan = self.wan_of(delay="50ms")
        server = self.serve(wan)
        content = os.urandom(4 * MIB)
        for way in ("tusk umount", "fusermount3 -u", "SIGTERM"):
            with self.subTest(way), Mount(wan, server.url) as mount:
                name = way.replace(" ", "-")
                file = open(mount.path / name, "wb", buffering=0)
                file.write(content)
                if way == "SIGTERM":  # works while the file is open, and most of it is not on the server yet
                    for pid in mount.pids():
                        os.kill(pid, signal.SIGTERM)
                else:
                    file.close()
                    command = {"tusk umount": [program("tusk"), "umount"], "fusermount3 -u": ["fusermount3", "-u"]}[way]
                    run_in(wan.ns_a, [*command, mount.path], COPY_SECONDS_MAX)
                wait_until(lambda: fuse_connection(mount.path) is None, COPY_SECONDS_MAX, "unmounting")
                with contextlib.suppress(OSError):
                    file.close()  # after SIGTERM there is nobody left to ask
                wait_until(lambda: (self.export / name).read_bytes() == content, ERROR_SECONDS, "all of the data")


if __name__ == "__main__":
    harness.main(fuse=True)
