"""Databases with their files on a mount: what they say is committed is there, whoever else writes and whatever is killed.

PostgreSQL runs as the user postgres with all of its data on the mount; SQLite is written to through two mounts at once.
With TUSK_FULL=1 also: the client is killed in the middle, and the data is opened through a new mount.
"""

import contextlib
import glob
import os
import pathlib
import pwd
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import power
from harness import Mount, Tuskd, Wan, popen_in, run_in, wait_until

STEP_SECONDS = 120
FULL = bool(os.environ.get("TUSK_FULL"))
WRITERS_PER_MOUNT, ROWS_PER_WRITER = 2, 20 if FULL else 8
BENCH_SECONDS = 20 if FULL else 3
ACKNOWLEDGED = 30  # commits before the kill, and before each power cut
POWER_CUTS = 8
LOCKED_SECONDS = 90  # a killed client keeps its locks until the server knows that it is gone
POSTGRES_USER = "postgres"

INSERT = """
import sqlite3, sys
path, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
base = sqlite3.connect(path, timeout=100, isolation_level=None)
for number in range(rows):
    base.execute("BEGIN IMMEDIATE")
    (last,) = base.execute("SELECT coalesce(max(number), 0) FROM lines").fetchone()
    base.execute("INSERT INTO lines VALUES (?, ?)", (name, last + 1))
    base.execute("COMMIT")
    print(last + 1, flush=True)
"""


def postgres_programs():
    """The folder of the newest PostgreSQL here, None without one."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    return pathlib.Path(found[-1]).parent if found else None


class Databases(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tusk-databases-")))
        self.folder.chmod(0o755)
        self.export, self.near = self.folder / "export", self.folder / "near"
        self.export.mkdir()
        self.near.mkdir()
        self.near.chmod(0o777)
        self.wan = self.enterContext(Wan(rate="1gbit", delay="2ms" if FULL else "0.2ms"))
        self.server = self.enterContext(Tuskd(self.wan, self.export))

    def mount(self, name="mount"):
        return self.enterContext(Mount(self.wan, self.server.url, path=self.folder / name))

    def kill(self, mount):
        mount.kill()
        wait_until(lambda: harness.fuse_connection(mount.path) is None, STEP_SECONDS, "unmounting by itself")

    # --- SQLite -----------------------------------------------------------------------------------------

    def start_writer(self, path, name, rows):
        writer = popen_in(None, [sys.executable, "-c", INSERT, path, name, rows], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
        self.addCleanup(writer.stdout.close)
        self.addCleanup(writer.stderr.close)
        self.addCleanup(harness.stop, writer, signal.SIGKILL)
        return writer

    def test_sqlite_written_to_through_two_mounts(self):
        mounts = [self.mount("one"), self.mount("two")]
        for journal in ("delete", "truncate", "persist") if FULL else ("delete",):
            with self.subTest(journal):
                name = f"base-{journal}"
                with contextlib.closing(sqlite3.connect(mounts[0].path / name)) as base:
                    base.execute(f"PRAGMA journal_mode={journal}")
                    base.execute("CREATE TABLE lines (who TEXT, number INTEGER)")
                    base.commit()
                writers = [self.start_writer(mount.path / name, f"writer {number}", ROWS_PER_WRITER)
                           for number, mount in enumerate(mounts * WRITERS_PER_MOUNT)]
                for writer in writers:
                    self.assertEqual(writer.wait(STEP_SECONDS), 0, writer.stderr.read())
                # Each transaction has seen the one before it: no number is missing or there twice.
                expected = [(n + 1,) for n in range(len(writers) * ROWS_PER_WRITER)]
                for folder in (mounts[0].path, mounts[1].path, self.export):
                    with contextlib.closing(sqlite3.connect(folder / name, timeout=100)) as base:
                        self.assertEqual(base.execute("SELECT number FROM lines ORDER BY number").fetchall(), expected)
                        self.assertEqual(base.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    @unittest.skipUnless(FULL, "takes a minute: TUSK_FULL=1")
    def test_sqlite_after_the_client_was_killed(self):
        mount = self.mount()
        with contextlib.closing(sqlite3.connect(mount.path / "base")) as base:
            base.execute("CREATE TABLE lines (who TEXT, number INTEGER)")
            base.commit()
        writer = self.start_writer(mount.path / "base", "writer", 100_000)
        last = 0
        while last < ACKNOWLEDGED:
            last = int(writer.stdout.readline())
        self.kill(mount)
        rest = writer.communicate(timeout=STEP_SECONDS)[0].split()
        last = int(rest[-1]) if rest else last
        again = self.mount("again")
        with contextlib.closing(sqlite3.connect(again.path / "base", timeout=LOCKED_SECONDS)) as base:
            numbers = [n for (n,) in base.execute("SELECT number FROM lines ORDER BY number")]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
            self.assertGreaterEqual(len(numbers), last)  # the next may have been on its way
            self.assertEqual(base.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    # --- PostgreSQL -------------------------------------------------------------------------------------

    def as_postgres(self, program, *arguments, check=True, timeout=STEP_SECONDS):
        command = [self.programs / program, *arguments]
        return run_in(None, ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups",
                             *command], timeout, check, env={"PATH": os.environ["PATH"], "LC_ALL": "C",
                                                             "HOME": str(self.near)}, cwd="/")

    def query(self, text):
        return self.as_postgres("psql", "-h", self.near, "-U", POSTGRES_USER, "-Atqc", text, POSTGRES_USER).stdout.strip()

    def start_postgres(self, data):
        self.as_postgres("pg_ctl", "-D", data, "-w", "-t", STEP_SECONDS, "-l", self.near / "log", "-o",
                         f"-c listen_addresses= -c unix_socket_directories={self.near}", "start")
        self.addCleanup(self.as_postgres, "pg_ctl", "-D", data, "-m", "immediate", "stop", check=False)

    def need_postgres(self):
        self.programs = postgres_programs()
        if self.programs is None or not (self.programs / "pgbench").exists():
            self.skipTest("PostgreSQL is not installed (Debian: postgresql)")
        try:
            self.user = pwd.getpwnam(POSTGRES_USER)
        except KeyError:
            self.skipTest("there is no user postgres")

    def make_cluster(self, mount):
        data = mount.path / "data"
        data.mkdir(mode=0o700)
        os.chown(data, self.user.pw_uid, self.user.pw_gid)
        started = time.monotonic()
        self.as_postgres("initdb", "-D", data, "-A", "trust", "-U", POSTGRES_USER, "--no-locale", "-E", "UTF8", "--data-checksums",
                         *([] if FULL else ["--no-sync"]))
        print(f"\ninitdb: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
        self.start_postgres(data)
        return data

    def bench(self, *arguments):
        return self.as_postgres("pgbench", "-h", self.near, "-U", POSTGRES_USER, *arguments, POSTGRES_USER)

    def balances_agree(self):
        self.assertEqual(self.query("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM "
                                    "pgbench_history) AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT "
                                    "sum(tbalance) FROM pgbench_tellers)"), "t")

    def test_postgresql(self):
        self.need_postgres()
        data = self.make_cluster(self.mount())
        self.bench("-i", "-q", "-s", "1")
        done = self.bench("-c", "4", "-T", BENCH_SECONDS)
        print([line for line in done.stdout.splitlines() if "tps" in line or "latency" in line], file=sys.stderr, flush=True)
        self.balances_agree()
        transactions = int(self.query("SELECT count(*) FROM pgbench_history"))
        self.as_postgres("pg_ctl", "-D", data, "-m", "immediate", "stop")  # as after a crash
        self.start_postgres(data)
        self.assertEqual(int(self.query("SELECT count(*) FROM pgbench_history")), transactions)
        self.balances_agree()
        self.as_postgres("pg_ctl", "-D", data, "-m", "fast", "stop")
        self.as_postgres("pg_checksums", "--check", "-D", data)

    @unittest.skipUnless(FULL, "takes a minute: TUSK_FULL=1")
    def test_postgresql_after_the_client_was_killed(self):
        self.need_postgres()
        mount = self.mount()
        self.make_cluster(mount)
        writer = self.start_postgres_writer()
        last = 0
        while last < ACKNOWLEDGED:
            last = int(writer.stdout.readline())
        self.kill(mount)
        rest = writer.communicate(timeout=STEP_SECONDS)[0].split()
        last = int(rest[-1]) if rest else last
        wait_until(lambda: not list(self.near.glob(".s.PGSQL*.lock")) or not self.postmaster_lives(), STEP_SECONDS,
                   "the end of a PostgreSQL without files")
        for left in self.near.glob(".s.PGSQL*"):
            left.unlink()
        self.start_postgres(self.mount("again").path / "data")
        self.assert_lines(last)

    def start_postgres_writer(self):
        """Prints each number once the line with it is committed."""
        self.query("CREATE TABLE lines (number integer)")
        script = "\n".join(f"INSERT INTO lines VALUES ({n});\n\\echo {n}" for n in range(1, 100_000))
        (self.near / "script").write_text(script)
        writer = popen_in(None, ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups",
                                 self.programs / "psql", "-h", self.near, "-U", POSTGRES_USER, "-Atq",
                                 "-v", "ON_ERROR_STOP=1", "-f", self.near / "script", POSTGRES_USER],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/")
        self.addCleanup(writer.stdout.close)
        self.addCleanup(harness.stop, writer, signal.SIGKILL)
        return writer

    @unittest.skipUnless(FULL, "takes a minute: TUSK_FULL=1")
    def test_postgresql_through_power_cuts_of_the_server(self):
        """The client lives: PostgreSQL notices nothing, and what it has committed is on the server's disk."""
        self.need_postgres()
        self.server.stop()
        machine = self.enterContext(power.Machine(self.wan))
        with Mount(self.wan, machine.server.url, path=self.folder / "powered") as mount:
            data = self.make_cluster(mount)
            writer = self.start_postgres_writer()
            last = 0
            for cut in range(POWER_CUTS):
                while last < (cut + 1) * ACKNOWLEDGED:
                    last = int(writer.stdout.readline())
                machine.cut_power()
            while last < (POWER_CUTS + 1) * ACKNOWLEDGED:
                last = int(writer.stdout.readline())
            harness.stop(writer, signal.SIGKILL)
            last = max([last, *(int(line) for line in writer.stdout if line.endswith("\n"))])
            self.as_postgres("pg_ctl", "-D", data, "-m", "fast", "stop")
        machine.look_at_disk()
        self.start_postgres(machine.export / "data")
        self.assert_lines(last)
        self.as_postgres("pg_ctl", "-D", machine.export / "data", "-m", "fast", "stop")
        self.as_postgres("pg_checksums", "--check", "-D", machine.export / "data")

    def assert_lines(self, last):
        numbers = [int(n) for n in self.query("SELECT number FROM lines ORDER BY number").split()]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertGreaterEqual(len(numbers), last)

    def postmaster_lives(self):
        for lock in self.near.glob(".s.PGSQL*.lock"):
            pid = int(lock.read_text().split()[0])
            if os.path.exists(f"/proc/{pid}"):
                return True
        return False


if __name__ == "__main__":
    harness.main(fuse=True)
