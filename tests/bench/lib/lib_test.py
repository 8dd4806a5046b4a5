"""The helpers of the benchmarks: quantities, limits, tables, drawings, results, and what the simulator prints."""

import contextlib
import io
import json
import mmap
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import cpu  # noqa: E402
import handover  # noqa: E402
from lib import drawing, lines, measuring, results, series, simulator, tables, trace_plot, warm_memory  # noqa: E402
from harness import HarnessError  # noqa: E402


class Quantities(unittest.TestCase):
    def test_sizes_and_rates(self):
        self.assertEqual(lines.parse_size("3gib"), 3 << 30)
        self.assertEqual(lines.parse_size("512 MiB"), 512 << 20)
        self.assertEqual(lines.parse_rate("2.5gbit"), 2500)
        self.assertEqual(lines.parse_rate("100mbit"), 100)

    def test_nonsense_is_named(self):
        for text in ("", "3", "fast", "3gbit gib"):
            with self.subTest(text), self.assertRaisesRegex(ValueError, "such as"):
                lines.parse_rate(text)

    def test_sizes_read_well(self):
        self.assertEqual(lines.size_text(3 << 30), "3 GiB")
        self.assertEqual(lines.size_text(1500), "1.46 KiB")
        self.assertEqual(lines.rate_text(2500), "2.5 Gbit/s")


class Lines(unittest.TestCase):
    def test_the_limit_is_what_packets_carry(self):
        self.assertAlmostEqual(lines.Line().limit, 1000 * 1434 / 1500)
        self.assertAlmostEqual(lines.Line(rate=100, loss=0.01, mtu=9000).limit, 99 * 8934 / 9000)

    def test_settings_are_exact_and_may_be_added_to(self):
        line = lines.Line(rate=2500, rtt=0.2, loss=0.0006, more=(("ba_rate", "10mbit"),))
        self.assertEqual(line.settings(), {"rate": "2500000kbit", "delay": "100us", "loss": "0.06%", "queue": "100ms",
                                           "ba_rate": "10mbit"})
        self.assertEqual(line.simulated()[-2:], ["--set", "ba-rate=10mbit"])

    def test_its_name_says_what_matters(self):
        self.assertEqual(str(lines.Line(rate=10_000, loss=0.001, mtu=9000)), "10 Gbit/s, 100 ms, 0.1 % loss, MTU 9000")


class Tables(unittest.TestCase):
    def test_numbers_to_the_right_words_to_the_left(self):
        self.assertEqual(tables.text_table(("what", "n"), [("a", 5), ("long", 10)]).splitlines(),
                         ["what   n", "----  --", "a      5", "long  10"])

    def test_a_bar_does_not_break_markdown(self):
        self.assertIn("a\\|b", tables.markdown_table(("x",), [("a|b",)]))

    def test_three_digits_that_matter(self):
        self.assertEqual([tables.number(v) for v in (None, 0, 0.0123, 1.234, 12.34, 1234.5)],
                         ["-", "0", "0.012", "1.23", "12.3", "1234"])


class Drawings(unittest.TestCase):
    def test_ticks_are_round_and_cover_the_range(self):
        self.assertEqual(drawing.ticks(0, 100), [0, 20, 40, 60, 80, 100])
        self.assertEqual(drawing.ticks(3, 3), [3])
        self.assertLessEqual(len(drawing.ticks(0, 0.037)), 7)

    def test_what_is_drawn_is_xml_whatever_the_words(self):
        plot = drawing.line_plot("<a & b>", "s", "Mbit/s", [("x", [(0, 1), (1, 5)])], marks=[(0.5, "<")],
                                 levels=[(0, 1, 3)])
        heat = drawing.heat_map("h", ["0 ms"], ["0 %", "1 %"], {("0 %", "0 ms"): 0.5, ("1 %", "0 ms"): (0.1, "< 10 %")})
        root = xml.fromstring(drawing.sheet([plot, heat], 2).svg())
        self.assertTrue(root.tag.endswith("svg"))
        self.assertIn("50 %", "".join(root.itertext()))

    def test_nothing_measured_can_be_drawn_too(self):
        xml.fromstring(drawing.line_plot("empty", "x", "y", [("none", [])]).svg())
        xml.fromstring(drawing.heat_map("empty", ["a"], ["b"], {}).svg())

    def test_bars_are_as_long_as_what_they_stand_for(self):
        plot = drawing.bars("cost", "s/GiB", [("<ours>", [1, 2]), ("theirs", [2, 4])], ("client", "server"))
        root = xml.fromstring(plot.svg())
        background, *boxes = root.iter("{http://www.w3.org/2000/svg}rect")
        lengths = [float(box.get("width")) for box in boxes]
        self.assertEqual(background.get("width"), "100%")
        for length, value in zip(lengths, (1, 2, 2, 4), strict=True):
            self.assertAlmostEqual(length, value * lengths[0], delta=0.4)
        self.assertIn("<ours>", list(root.itertext()))
        self.assertIn("6", list(root.itertext()))
        xml.fromstring(drawing.bars("empty", "s", []).svg())

    def test_many_points_are_thinned_to_their_means(self):
        self.assertEqual(drawing.thinned([(0, 0), (1, 2), (2, 4), (3, 6)], 2), [(0.5, 1), (2.5, 5)])

    def test_shades_go_from_red_to_green(self):
        self.assertEqual(drawing.shade(None), "#eeeeee")
        self.assertEqual(drawing.shade(-1), drawing.shade(0))
        self.assertNotEqual(drawing.shade(0), drawing.shade(1))


class Traces(unittest.TestCase):
    def read(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace"
            path.write_text(content)
            return trace_plot.read(path)

    def test_a_qlog_file_that_ends_in_the_middle(self):
        def metrics(milliseconds, sent):
            return json.dumps({"time": milliseconds, "name": "recovery:metrics_updated", "data": {
                "min_rtt": 100, "smoothed_rtt": 101, "congestion_window": 5, "bytes_in_flight": 4, "pacing_rate": 3,
                "bandwidth": 2, "bytes_sent": sent, "packets_lost": 1}})
        state = json.dumps({"time": 0, "name": "recovery:congestion_state_updated", "data": {"old": "", "new": "steady"}})
        records = [json.dumps({"qlog_version": "0.4"}), state, metrics(0, 0), metrics(500, 1000), '{"time": 9']
        samples = self.read("".join(f"\x1e{record}\n" for record in records))
        self.assertEqual(trace_plot.rates(samples, "sent"), [(0.5, 2000)])
        self.assertEqual(trace_plot.states(samples), [(0, "steady")])
        self.assertIn("steady", "".join(xml.fromstring(trace_plot.draw(samples).svg()).itertext()))

    def test_a_trace_of_the_simulator(self):
        samples = self.read("time_s,done_bytes,state,bandwidth_mbit,pacing_mbit,rtt_min_ms,rtt_ms,in_flight,window,lost\n"
                            "0.1,7,startup,1,2,100,110,5,6,0\n")
        self.assertEqual(samples[0]["pacing"], 2e6)

    def test_other_files_are_named(self):
        for content in ("", "hello", "a,b\n1,2\n"):
            with self.assertRaises(trace_plot.TraceError):
                self.read(content)


class Verdicts(unittest.TestCase):
    def test_a_goal_is_met_at_its_edge(self):
        self.assertEqual(results.Figure("x", 90, "%", at_least=90).verdict, "met")
        self.assertEqual(results.Figure("x", 89.9, "%", at_least=90).verdict, "MISSED")
        self.assertEqual(results.Figure("x", 2, "s", at_most=2).verdict, "met")
        self.assertEqual(results.Figure("x", 5).verdict, "")

    def test_nothing_measured_meets_no_goal(self):
        self.assertEqual(results.Figure("x", None, "s", at_most=2).verdict, "MISSED")

    def test_several_runs_give_the_median_and_how_far_they_were_apart(self):
        runs = []
        for value in (1, 9, 2):
            runs.append(results.Cell())
            with contextlib.redirect_stdout(io.StringIO()):
                runs[-1].add("x", value, "s")
        merged = results.median_of(runs)
        self.assertEqual(merged.figures[0].value, 2)
        self.assertIn("1.00 to 9.00", merged.figures[0].note)

    def test_words_and_drawings_are_of_the_run_that_had_the_median(self):
        runs = []
        for value in (1, 9, 2):
            runs.append(results.Cell(quiet=True))
            runs[-1].add("x", value, "s", note=f"was {value}")
            runs[-1].details["drawn"] = value
        merged = results.median_of(runs)
        self.assertIn("was 2;", merged.figures[0].note)
        self.assertEqual(merged.details, {"drawn": 2})


class Builds(unittest.TestCase):
    def test_only_optimised_builds_without_sanitizers_are_measured(self):
        release = "CMAKE_BUILD_TYPE:STRING=RelWithDebInfo\nTUSK_SANITIZE:STRING=\n"
        self.assertIsNone(results.slow_build(release))
        self.assertIn("optimisation", results.slow_build("CMAKE_BUILD_TYPE:STRING=Debug\n"))
        self.assertIn("address", results.slow_build(release.replace("SANITIZE:STRING=", "SANITIZE:STRING=address")))


MACHINE = {"commit": "abc", "build": "/nonexistent", "cores": 2, "processor": "p", "memory_gib": 1, "kernel": "k",
           "started": "now"}


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch("harness.why_not", return_value=None))
        self.enterContext(mock.patch("signal.signal"))
        self.output = self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.ran = []

    def session(self, *words, commit="abc"):
        arguments = results.common_arguments("").parse_args(["--out", str(self.folder), *words])
        with mock.patch("lib.results.machine", return_value={**MACHINE, "commit": commit}), \
                mock.patch("lib.results.checked_out", return_value="abc"), \
                mock.patch("lib.results.refuse_slow_builds"):
            return results.Session("test", arguments)

    def good(self, cell):
        self.ran.append("good")
        cell.add("speed", 5, "s", at_most=6)

    def bad(self, cell):
        self.ran.append("bad")
        cell.add("before it failed", 1)
        raise HarnessError("the mount is gone")

    def test_what_fails_is_a_line_and_the_rest_goes_on(self):
        session = self.session()
        session.cell("one", self.bad)
        session.cell("two", self.good)
        self.assertEqual(session.finish(), 1)
        self.assertIn("the mount is gone", self.output.getvalue())
        self.assertIn("1 goals met, 0 missed, 1 failed", self.output.getvalue())

    def test_the_file_is_there_after_every_cell(self):
        session = self.session()
        session.cell("one", self.good)
        written = json.loads((self.folder / "results.json").read_text())
        self.assertEqual(written["cells"]["one"]["figures"][0]["value"], 5)
        self.assertEqual(written["commit"], "abc")
        self.assertGreaterEqual(written["cells"]["one"]["page_refaults"], 0)
        self.assertTrue(0 <= written["cells"]["one"]["stolen"] <= 1)

    def test_a_run_is_taken_up_where_it_was_and_failures_are_tried_again(self):
        session = self.session()
        session.cell("one", self.good)
        session.cell("two", self.bad)
        again = self.session("--resume")
        again.cell("one", self.good)
        again.cell("two", self.good)
        self.assertEqual(self.ran, ["good", "bad", "good"])
        self.assertEqual(again.finish(), 0)

    def test_figures_of_two_versions_are_not_mixed(self):
        self.session().cell("one", self.good)
        with self.assertRaisesRegex(SystemExit, "two versions"):
            self.session("--resume", commit="def")

    def test_figures_of_other_options_are_not_mixed(self):
        self.session().cell("one", self.good)
        with self.assertRaisesRegex(SystemExit, "was measured with"):
            self.session("--resume", "--quick")

    def test_only_some_cells(self):
        session = self.session("--only", "^tw")
        self.assertIsNone(session.cell("one", self.good))
        session.cell("two", self.good)
        self.assertEqual(self.ran, ["good"])
        self.assertEqual(session.finish(), 0)

    def test_who_asks_for_no_cell_at_all_is_told_which_there_are(self):
        session = self.session("--only", "three")
        session.cell("one", self.good)
        self.assertEqual(session.finish(), 1)
        self.assertIn("the cells are: one", self.output.getvalue())

    def test_arguments_that_mean_nothing_are_named(self):
        for words in (("--repeat", "0"), ("--repeat", "many"), ("--only", "("), ("--resume", "/nonexistent")):
            with self.subTest(words), self.assertRaises(SystemExit):
                self.session(*words)

    def test_programs_of_another_commit_are_told(self):
        self.session(commit="def")
        self.assertIn("the programs are of commit def", self.output.getvalue())

    def test_a_cell_may_fail_in_any_way(self):
        session = self.session()

        def surprising(cell):
            return {}["no such key"]

        session.cell("one", surprising)
        session.cell("two", self.good)
        self.assertEqual(session.finish(), 1)
        self.assertEqual(self.ran, ["good"])

    def test_an_interrupted_run_keeps_what_it_has(self):
        session = self.session()
        session.cell("one", self.good)

        def interrupted(cell):
            raise KeyboardInterrupt

        with self.assertRaises(SystemExit) as end:
            session.cell("two", interrupted)
        self.assertEqual(end.exception.code, 130)
        self.assertEqual(list(json.loads((self.folder / "results.json").read_text())["cells"]), ["one"])


class Simulator(unittest.TestCase):
    def test_a_transfer(self):
        result = simulator.parse_transfer(
            "done in 27.123 s: 950.1 Mbit/s, 99.5 % of the limit 955.0\n"
            "queue mean 2.50 ms, most 9.75 ms; 2200000 packets, 7 dropped by the queue, 2200 lost on the way, 2207 "
            "taken for lost, 0 of them only late\n")
        self.assertEqual((result["mbit"], result["queue_max_ms"], result["queue_drops"], result["path_losses"]),
                         (950.1, 9.75, 7, 2200))

    def test_a_transfer_that_failed_or_was_wrong_is_no_figure(self):
        for output in ("no connection came about\n",
                       "NOT DONE in 5 s: 1 Mbit/s, 1 % of the limit 9\nqueue mean 1 ms, most 1 ms; 1 packets, 1 "
                       "dropped by the queue, 1 lost on the way, 1 taken for lost, 1 of them only late\n"):
            with self.subTest(output), self.assertRaises(HarnessError):
                simulator.parse_transfer(output)

    def test_flows_that_join_later(self):
        rows = simulator.parse_flows("  time s  model  bbr@5s   Jain queue ms  dropped\n"
                                     "    1.00   95.0       -  1.000      3.0        0\n"
                                     "   10.00   48.0    47.1  0.999      8.5       12\n")
        self.assertEqual(rows[0]["shares"], [95.0, None])
        self.assertEqual((rows[1]["jain"], rows[1]["queue_ms"], rows[1]["dropped"]), (0.999, 8.5, 12))


class Series(unittest.TestCase):
    def test_jain_index_is_one_for_equal_shares_and_least_for_one_that_has_all(self):
        self.assertEqual(series.jain_index([3, 3, 3]), 1)
        self.assertAlmostEqual(series.jain_index([0, 0, 5, 0]), 0.25)

    def test_percentiles_are_values_that_were_measured(self):
        values = list(range(1, 101))
        self.assertEqual([series.percentile(values, share) for share in (50, 99, 99.9, 100)], [50, 99, 100, 100])
        self.assertEqual(series.percentile([7], 0), 7)
        with self.assertRaisesRegex(HarnessError, "nothing"):
            series.percentile([], 50)

    def test_rates_between_samples_are_straight_lines(self):
        times, counts = [10, 11, 13], [0, 1e6, 1e6]
        self.assertAlmostEqual(series.rate_between(times, counts, 10.5, 11.5), 4)
        self.assertEqual(series.count_at(times, counts, 9), 0)
        self.assertEqual(series.count_at(times, counts, 99), 1e6)

    def test_the_first_time_at_a_rate_is_when_a_window_begins_that_has_it(self):
        times, counts = [0, 1, 2, 3], [0, 0, 1e6, 2e6]
        self.assertAlmostEqual(series.first_time_at(times, counts, 0, 3, 8, 1), 1, places=1)
        self.assertIsNone(series.first_time_at(times, counts, 0, 3, 9, 1))

    def test_the_least_rate_is_that_of_the_worst_window(self):
        times, counts = [0, 1, 2, 3], [0, 1e6, 1e6, 3e6]
        self.assertAlmostEqual(series.least_rate(times, counts, 0, 3, 1), 0)
        self.assertAlmostEqual(series.least_rate(times, counts, 0, 3, 3), 8)
        self.assertAlmostEqual(series.least_rate(times, counts, 2, 3, 1), 16)

    def test_the_rows_of_the_emulator(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("time_s,ba_mbit\n0.100,99.5\n")
            file.flush()
            self.assertEqual(series.read_series(file.name), [{"time_s": 0.1, "ba_mbit": 99.5}])

    def test_what_arrives_is_counted_from_the_beginning_on(self):
        rows = [{"time_s": 1.0, "ba_mbit": 8.0}, {"time_s": 2.0, "ba_mbit": 8.0}, {"time_s": 3.0, "ba_mbit": 16.0}]
        times, counts = handover.arrivals(rows, 1.0, 1434 / 1500)
        self.assertEqual(times, [0, 1, 2])
        self.assertAlmostEqual(counts[-1], 3e6 * 1434 / 1500)

    def test_the_timeline_of_a_file_is_checked_against_it(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = pathlib.Path(folder, "one"), pathlib.Path(folder, "two")
            measuring.make_random_file(one, 3 << 20)
            measuring.make_random_file(two, 3 << 20)
            self.assertEqual(series.read_for(one, one, 5)["bytes"][-1], 3 << 20)
            with self.assertRaisesRegex(HarnessError, "not what was made"):
                series.read_for(one, two, 5)


class Profiles(unittest.TestCase):
    def test_what_was_idle_does_not_count_and_what_has_no_name_is_taken_together(self):
        report = """
    60.00%  swapper  [kernel.kallsyms]  [k] pv_native_safe_halt  -      -
    20.00%  tusk     libc.so.6          [.] memmove              -      -
    10.00%  tuskd    libcrypto.so.3     [.] 0x0000000000123456   -      -
    10.00%  tuskd    libcrypto.so.3     [.] 0x0000000000123460   -      -
noise
"""
        self.assertEqual(cpu.parse_profile(report), [(50.0, "tusk  libc.so.6  memmove"),
                                                     (50.0, "tuskd  libcrypto.so.3  (no names)")])


class WarmMemory(unittest.TestCase):
    def test_all_of_it_can_be_given_back(self):
        size, level = 4 * warm_memory.CHUNK, warm_memory._free()
        with mmap.mmap(-1, size) as held, mock.patch.object(warm_memory, "_free", lambda: 0):
            keeper = warm_memory._Keeper(held, size)
            keeper._level = level
            keeper.start()
            keeper.join(10)
            self.assertEqual(keeper._given, size)
            keeper.stop()

    def test_what_fails_is_told(self):
        with mmap.mmap(-1, warm_memory.CHUNK) as held, mock.patch.object(warm_memory, "_free", lambda: 0):
            keeper = warm_memory._Keeper(held, 2 * warm_memory.CHUNK)
            keeper._level, keeper._held = 1 << 40, mock.Mock()
            keeper._held.madvise.side_effect = OSError(12, "no memory")
            keeper.start()
            keeper.join(10)
            with self.assertRaisesRegex(HarnessError, "no memory"):
                keeper.stop()


class Measuring(unittest.TestCase):
    def test_a_program_that_takes_too_long_is_stopped(self):
        run = measuring.timed(["sleep", "60"], 0.05, must_end=False)
        self.assertFalse(run.ended)
        self.assertLess(run.seconds, 5)
        with self.assertRaisesRegex(HarnessError, "more than"):
            measuring.timed(["sleep", "60"], 0.05)

    def test_what_runs_beside_does_not_survive(self):
        with measuring.Running(["sleep", "60"]) as beside:
            self.assertIsNone(beside.process.poll())
        self.assertIsNotNone(beside.process.poll())
        with measuring.Running(["echo", "words"]) as beside:
            self.assertEqual(beside.output(10), "words\n")

    def test_memory_of_a_benchmark_that_was_killed_is_given_back(self):
        with measuring.Running(["sleep", "60"]) as beside:
            gone = f"/dev/shm/{measuring.MEMORY_FOLDERS}{beside.process.pid}-x"
            os.mkdir(gone)
            measuring.remove_stale_folders()
            self.assertTrue(os.path.exists(gone))
        measuring.remove_stale_folders()
        self.assertFalse(os.path.exists(gone))

    def test_a_program_that_fails_is_told(self):
        with self.assertRaisesRegex(HarnessError, "ended with 3: why"):
            measuring.timed(["sh", "-c", "echo why >&2; exit 3"], 10)

    def test_trees_that_differ_have_different_digests(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = pathlib.Path(folder, "one"), pathlib.Path(folder, "two")
            measuring.make_tree(one, 10, 3, 100)
            self.assertEqual(measuring.count_files(one), 10)
            measuring.timed(["cp", "-a", one, two], 10)
            self.assertEqual(measuring.tree_digest(one, times=True), measuring.tree_digest(two, times=True))
            next(two.glob("*/file*")).write_bytes(b"other")
            self.assertNotEqual(measuring.tree_digest(one), measuring.tree_digest(two))

    def test_a_file_and_what_it_is_known_by(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "file")
            wanted = measuring.make_random_file(path, 100_000)
            measuring.check_digest(path, wanted)
            self.assertNotEqual(measuring.digest(path, 50_000), wanted)
            with open(path, "r+b") as file:
                file.write(b"x" * 10)
            with self.assertRaisesRegex(HarnessError, "not what was sent"):
                measuring.check_digest(path, wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
