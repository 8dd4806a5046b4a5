#!/usr/bin/env python3
"""Checks what users install: the Debian packages, man pages, completions, units and mount.tusk.

    packaging/package_test.py BUILD-FOLDER        (./dev test)
"""

import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SECONDS_MAX = 300
START_SECONDS_MAX = 30
build_folder = None

CLIENT_FILES = """
usr/bin/tusk
usr/sbin/mount.tusk
usr/share/bash-completion/completions/tusk
usr/share/doc/tusk-client/copyright
usr/share/doc/tusk-client/examples/mnt-films.automount
usr/share/doc/tusk-client/examples/mnt-films.mount
usr/share/doc/tusk-client/examples/tusk-mount.service
usr/share/man/man1/tusk.1
usr/share/man/man8/mount.tusk.8
"""
SERVER_FILES = """
usr/bin/tuskd
usr/lib/systemd/system/tuskd.service
usr/share/bash-completion/completions/tuskd
usr/share/doc/tusk-server/copyright
usr/share/doc/tusk-server/examples/hardened.conf
usr/share/doc/tusk-server/examples/tuskd.toml
usr/share/man/man5/tuskd.toml.5
usr/share/man/man8/tuskd.8
"""
PROGRAMS = {"usr/bin/tusk", "usr/bin/tuskd", "usr/sbin/mount.tusk"}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS_MAX, **options)


class DebianPackages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        made = run("cpack", "-G", "DEB", "--config", pathlib.Path(build_folder).resolve() / "CPackConfig.cmake", "-B",
                   cls.folder.name)
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)

    def package(self, name):
        found = list(pathlib.Path(self.folder.name).glob(f"{name}_*.deb"))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def contents(self, name):
        """Path: mode and owner, of the files."""
        files = {}
        for line in run("dpkg-deb", "--contents", self.package(name)).stdout.splitlines():
            mode, owner, _, _, _, path = line.split(maxsplit=5)
            if not mode.startswith("d"):
                files[path.removeprefix("./")] = (mode, owner)
        return files

    def field(self, name, field):
        return run("dpkg-deb", "--field", self.package(name), field).stdout.strip()

    def test_each_holds_its_files_and_no_others(self):
        for name, wanted in (("tusk-client", CLIENT_FILES), ("tusk-server", SERVER_FILES)):
            files = self.contents(name)
            self.assertEqual(sorted(files), wanted.split())
            for path, (mode, owner) in files.items():
                self.assertEqual(owner, "root/root", path)
                self.assertEqual(mode, "-rwxr-xr-x" if path in PROGRAMS else "-rw-r--r--", path)

    def test_each_names_the_libraries_it_needs(self):
        for name, wanted in (("tusk-client", ["fuse3", "libfuse3-3", "libssl3", "libc6"]), ("tusk-server", ["libssl3", "libc6"])):
            depends = re.findall(r"(?:^|, )([^ ,]+)", self.field(name, "Depends"))
            self.assertLessEqual(set(wanted), set(depends))
            self.assertFalse([package for package in depends if package.endswith("-dev")])
        self.assertNotIn("fuse", self.field("tusk-server", "Depends"))

    def test_what_was_installed_runs(self):
        for name, program in (("tusk-client", "tusk"), ("tusk-server", "tuskd")):
            with tempfile.TemporaryDirectory() as folder:
                run("dpkg-deb", "--extract", self.package(name), folder, check=True)
                asked = run(f"{folder}/usr/bin/{program}", "--version")
                self.assertEqual(asked.returncode, 0, asked.stderr)
                self.assertIn(self.field(name, "Version"), asked.stdout)
                self.assertRegex(asked.stdout, r"\(commit ([0-9a-f]{12}(\+changes)?|unknown)\)")


class Documents(unittest.TestCase):
    def test_man_pages_are_well_formed(self):
        if shutil.which("mandoc") is None:
            self.skipTest("mandoc is missing")
        checked = run("mandoc", "-Tlint", "-Wwarning", *sorted((HERE / "man").iterdir()))
        self.assertEqual(checked.stdout, "")

    def test_man_pages_name_every_option_and_command(self):
        for program, page in (("tusk", "tusk.1"), ("tuskd", "tuskd.8")):
            text = (HERE / "man" / page).read_text().replace("\\-", "-")
            binary = next(pathlib.Path(build_folder).glob(f"fs*/{program}"))
            helps = [run(binary, "--help").stdout]
            commands = re.findall(r"^  ([a-z-]+)  ", helps[0].partition("Subcommands:")[2], re.MULTILINE)
            helps += [run(binary, command, "--help").stdout for command in commands]
            for word in commands + re.findall(r"^  (?:-\w,)?--([a-z-]+)", "".join(helps), re.MULTILINE):
                self.assertIn(word, text, f"{page} is silent about it")

    def test_every_mount_option_is_described_and_completed(self):
        binary = next(pathlib.Path(build_folder).glob("fs*/tusk"))
        options = run(binary, "mount", "--help").stdout.partition("Options for -o:\n")[2]
        names = re.findall(r"^  (\w+)(?:=| )", options, re.MULTILINE)
        self.assertIn("identity", names)
        for file in ("man/tusk.1", "completions/tusk"):
            words = re.findall(r"\w+", (HERE / file).read_text())
            self.assertEqual([name for name in names if name not in words], [], file)

    def test_completions_are_bash(self):
        for file in (HERE / "completions").iterdir():
            self.assertEqual(run("bash", "-n", file).stderr, "")

    def test_the_example_configuration_is_accepted_but_for_its_folders(self):
        text = (HERE / "examples" / "tuskd.toml").read_text()
        with tempfile.TemporaryDirectory() as folder:
            for path in re.findall(r'^#?path = "(.*)"', text, re.MULTILINE):
                pathlib.Path(folder + path).mkdir(parents=True)
                text = text.replace(f'"{path}"', f'"{folder}{path}"')
            # What is commented out must be right, too; but for a key that does not exist.
            text = re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)
            text = re.sub(r"^clients = .*\n", "", text, flags=re.MULTILINE)
            text = re.sub(r"^(as = ).*$", r'\1"root"', text, flags=re.MULTILINE)
            config = pathlib.Path(folder) / "tuskd.toml"
            config.write_text(text)
            binary = next(pathlib.Path(build_folder).glob("fs*/tuskd"))
            checked = run(binary, "check-config", config)
            if os.geteuid() != 0:
                return  # `as` needs root
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_units_are_well_formed(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is missing")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "tuskd.service"
            text = (HERE / "systemd" / "tuskd.service").read_text()
            unit.write_text(text.replace("/usr/bin/tuskd", "/bin/true"))  # it need not be installed
            shutil.copy(HERE / "examples" / "mnt-films.mount", folder)
            shutil.copy(HERE / "examples" / "mnt-films.automount", folder)
            # It also reports on the machine's own units.
            complaints = [line for line in run("systemd-analyze", "verify", "--man=no", unit,
                                               f"{folder}/mnt-films.automount").stderr.splitlines()
                          if "tusk" in line or "mnt-films" in line]
            self.assertEqual(complaints, [])


class Exposure(unittest.TestCase):
    """What systemd thinks of the unit, alone and with the drop-in that costs functions."""

    def exposure(self, *drop_ins):
        unit = (HERE / "systemd" / "tuskd.service").read_text().partition("[Install]")[0]
        for drop_in in drop_ins:
            unit += (HERE / "examples" / drop_in).read_text().partition("[Service]")[2]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tuskd.service"
            file.write_text(unit.replace("/usr/bin/tuskd", "/bin/true"))  # it need not be installed
            said = run("systemd-analyze", "security", "--offline=true", file)
        if said.returncode != 0 and "offline" in said.stderr:
            self.skipTest("this systemd-analyze knows no --offline")
        return float(re.search(r"exposure level for tuskd.service: ([0-9.]+)", said.stdout)[1])

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is missing")
    def test_the_unit_and_its_drop_in_leave_little(self):
        # The weights are those of Debian 12; each systemd has its own.
        slack = 0 if run("systemd-analyze", "--version").stdout.startswith("systemd 252") else 0.3
        self.assertLessEqual(self.exposure(), 3.6 + slack)
        self.assertLessEqual(self.exposure("hardened.conf"), 2.5 + slack)


class Capabilities(unittest.TestCase):
    """What the unit leaves tuskd is what it needs."""

    def log_of_a_start(self, *through):
        binary = next(pathlib.Path(build_folder).glob("fs*/tuskd")).resolve()
        with tempfile.TemporaryDirectory() as folder:
            url, log = pathlib.Path(folder) / "url", pathlib.Path(folder) / "log"
            (pathlib.Path(folder) / "shared").mkdir()
            with log.open("w") as written:
                server = subprocess.Popen([*through, binary, "share", f"{folder}/shared", "--listen", "127.0.0.1:0",
                                           "--state-dir", f"{folder}/state", "--url-file", url, "--watch", "fanotify"],
                                          stdout=written, stderr=written)
            try:
                until = time.monotonic() + START_SECONDS_MAX
                while not url.exists() and server.poll() is None and time.monotonic() < until:
                    time.sleep(0.02)
                self.assertTrue(url.exists(), log.read_text())
            finally:
                server.terminate()
                server.wait(SECONDS_MAX)
            return log.read_text()

    @staticmethod
    def bounding_set(text):
        """As setpriv names it; an empty assignment begins anew."""
        kept = []
        for names in re.findall(r"^CapabilityBoundingSet=(.*)$", text, re.MULTILINE):
            kept = kept + names.split() if names else []
        return ",".join(["-all"] + [f"+{name.removeprefix('CAP_').lower()}" for name in kept])

    def test_with_the_drop_in_it_serves_without_fanotify(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("needs root and setpriv")
        text = "".join((HERE / part).read_text() for part in ("systemd/tuskd.service", "examples/hardened.conf"))
        log = self.log_of_a_start("setpriv", f"--bounding-set={self.bounding_set(text)}", "--no-new-privs")
        self.assertIn("not watched by fanotify", log)

    def test_changes_are_noticed_by_fanotify(self):
        refused = "not watched by fanotify"
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("needs root and setpriv")
        if refused in self.log_of_a_start():
            self.skipTest("there is no fanotify here")
        unit = (HERE / "systemd" / "tuskd.service").read_text()
        bounds = self.bounding_set(unit)
        self.assertNotIn(refused, self.log_of_a_start("setpriv", f"--bounding-set={bounds}", "--no-new-privs"))


class MountHelper(unittest.TestCase):
    """mount.tusk with a stand-in for tusk that writes down its arguments."""

    def mount(self, *arguments, tusk_exits=0):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "tusk"
            fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments\nexit {tusk_exits}\n')
            fake.chmod(0o755)
            done = run(HERE / "mount.tusk", *arguments, env={**os.environ, "TUSK": str(fake)})
            written = pathlib.Path(folder) / "arguments"
            return done, written.read_text().splitlines() if written.exists() else None

    def test_passes_url_directory_and_options(self):
        done, arguments = self.mount("tusk://h/e#t", "/mnt/a b", "-o", "ro,_netdev", "-s", "-n", "-o", "uid=1")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(arguments, ["mount", "tusk://h/e#t", "/mnt/a b", "-o", "ro,_netdev,uid=1"])

    def test_options_are_optional(self):
        self.assertEqual(self.mount("tusk://h/e", "/mnt")[1], ["mount", "tusk://h/e", "/mnt"])

    def test_read_only_flag_is_an_option(self):
        self.assertEqual(self.mount("tusk://h/e", "/mnt", "-r")[1][-2:], ["-o", "ro"])

    def test_fake_mounts_nothing(self):
        done, arguments = self.mount("tusk://h/e", "/mnt", "-f")
        self.assertEqual((done.returncode, arguments), (0, None))

    def test_exit_codes_are_those_of_mount(self):
        for tusk_exits, wanted in ((0, 0), (1, 1), (32, 32), (127, 1), (130, 8)):
            self.assertEqual(self.mount("tusk://h/e", "/mnt", tusk_exits=tusk_exits)[0].returncode, wanted)

    def test_without_home_the_users_own_is_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "tusk"
            fake.write_text('#!/bin/sh\necho "$HOME"\n')
            fake.chmod(0o755)
            done = run(HERE / "mount.tusk", "tusk://h/e", "/mnt", env={"TUSK": str(fake), "PATH": os.environ["PATH"]})
            self.assertEqual(done.stdout.strip(), pwd.getpwuid(os.geteuid()).pw_dir)

    def test_wrong_use_is_said(self):
        for arguments in ([], ["tusk://h/e"], ["tusk://h/e", "/mnt", "-Z"], ["tusk://h/e", "/mnt", "more"],
                          ["tusk://h/e", "/mnt", "-N", "1"], ["-o", "ro"]):
            done, called = self.mount(*arguments)
            self.assertEqual((done.returncode, called), (1, None), arguments)
            self.assertIn("mount.tusk", done.stderr)

    def test_the_token_is_not_shown(self):
        done, _ = self.mount("tusk://h/e#secret", "/mnt", "-v")
        self.assertNotIn("secret", done.stdout + done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    build_folder = sys.argv.pop(1)
    unittest.main(verbosity=2)
