"""Medians, ratios, warnings, tables, figures and pages from small data whose results are known."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from report import figures, pages, tables
from report.results import BadLine, load, show, warnings

RUN = {
    "record": "run",
    "schema": 1,
    "benchmark": "launch",
    "version": "0.1.0",
    "commit": None,
    "date": "2026-11-28T11:00:00Z",
    "machine": {"cpus": 2, "kernel": "6.18", "cpu": "cpu"},
    "words": ["launch"],
}


def sample(contestant, number, value, quantity="wall", unit="s", **case):
    return {
        "record": "sample",
        "benchmark": "launch",
        "contestant": contestant,
        "case": {"program": "true"} | case,
        "quantity": quantity,
        "unit": unit,
        "round": number,
        "value": value,
    }


def loaded(*records):
    """What files with these records contain; each list is a file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, lines in enumerate(records):
            paths.append(Path(folder) / f"{number}.jsonl")
            paths[-1].write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return load(paths)


class Values(unittest.TestCase):
    def test_median_range_and_mad_of_odd_and_even_numbers_of_rounds(self):
        results = loaded(
            [
                RUN,
                *(sample("a", at, value) for at, value in enumerate([3.0, 1.0, 2.0])),
                *(sample("b", at, value) for at, value in enumerate([4.0, 1.0, 2.0, 3.0])),
            ]
        )
        row = results.values.set_index("contestant")
        self.assertEqual(list(row.loc["a", ["median", "low", "high", "mad", "rounds"]]), [2.0, 1.0, 3.0, 1.0, 3])
        self.assertEqual(list(row.loc["b", ["median", "mad"]]), [2.5, 1.0])

    def test_ratios_are_taken_round_by_round(self):
        # A disturbance doubles both values of the second round; the third round of b is missing.
        results = loaded(
            [
                RUN,
                sample("a", 0, 1.0),
                sample("b", 0, 2.0),
                sample("a", 1, 2.0),
                sample("b", 1, 4.0),
                sample("a", 2, 9.0),
            ]
        )
        by_round, of_medians = results.ratio("b", "a", "launch", "program=true", "wall")
        self.assertEqual((by_round, of_medians), (2.0, 1.5))

    def test_the_order_of_a_cases_fields_does_not_matter(self):
        results = loaded(
            [RUN, sample("a", 0, 1.0, ranks=4), sample("b", 0, 2.0) | {"case": {"ranks": 4, "program": "true"}}]
        )
        self.assertEqual(results.ratio("b", "a", "launch", "program=true ranks=4", "wall"), (2.0, 2.0))

    def test_ratios_stay_within_a_run(self):
        results = loaded(
            [RUN, sample("a", 0, 1.0), sample("b", 0, 2.0)], [RUN, sample("a", 0, 10.0), sample("b", 0, 40.0)]
        )
        self.assertEqual(results.ratio("b", "a", "launch", "program=true", "wall")[0], 3.0)

    def test_a_printed_ratio_counts_where_samples_were_not_kept(self):
        case = {"program": "true"}
        summary = {"record": "summary", "benchmark": "launch", "case": case, "quantity": "wall", "unit": "s"}
        ratio = {
            "record": "ratio",
            "benchmark": "launch",
            "case": case,
            "quantity": "wall",
            "contestant": "b",
            "reference": "a",
        }
        values = [summary | {"contestant": "a", "median": 2.0}, summary | {"contestant": "b", "median": 3.0}]
        results = loaded([RUN, *values, ratio | {"median": 1.4}])
        self.assertEqual(results.ratio("b", "a", "launch", "program=true", "wall"), ((1.4,), 1.5))
        results = loaded([RUN, *values, ratio | {"median": None, "low": 1.25, "high": 2}])
        by_round, _ = results.ratio("b", "a", "launch", "program=true", "wall")
        self.assertEqual(tables.show_ratio(by_round), "1.25 to 2")

    def test_values_are_shown_with_three_digits_and_a_unit_that_fits(self):
        shown = [
            show(*pair)
            for pair in [
                (7.7, "s"),
                (0.1234, "s"),
                (0.00234, "s"),
                (0.0000123, "s"),
                (0.0, "s"),
                (3.25 * 2**20, "B"),
                (176128, "B"),
                (68, "B"),
                (2359296, "count"),
                (1.001, "share"),
                (0.994, "count"),
            ]
        ]
        self.assertEqual(
            shown,
            [
                "7.70 s",
                "123 ms",
                "2.34 ms",
                "12.3 us",
                "0",
                "3.25 MiB",
                "172 KiB",
                "68 B",
                "2,359,296",
                "100.1 %",
                "0.994",
            ],
        )
        self.assertEqual([show(0.04, "s", 2), show(0.0078, "s", 2), show(3.0, "s", 1)], ["40 ms", "7.8 ms", "3 s"])

    def test_lines_that_are_no_records_are_refused_with_their_place(self):
        for line, why in [
            ({"record": "other"}, "unknown record 'other'"),
            (RUN | {"schema": 2}, "schema 2"),
            ({"record": "sample"}, "sample without benchmark"),
        ]:
            with self.assertRaisesRegex(BadLine, rf"0\.jsonl:2: .*{why}"):
                loaded([RUN, line])

    def test_failures_absences_outliers_and_wide_spreads_are_warned_of(self):
        values = [sample("a", at, value) for at, value in enumerate([0.002, 0.002, 0.002, 1.0])]
        wide = [sample("b", at, value) for at, value in enumerate([1.0, 2.0, 3.0])]
        failed = {
            "record": "failed",
            "benchmark": "launch",
            "contestant": "c",
            "case": {"program": "true"},
            "round": 0,
            "why": "exit code 1",
        }
        lines = warnings(
            loaded([RUN, *values, *wide, failed, {"record": "absent", "contestant": "srun", "why": "not on PATH"}])
        )
        self.assertEqual(
            lines,
            [
                "c, program=true: 1 failed: exit code 1",
                "srun: not measured: not on PATH",
                "a, program=true: wall: 1 of 4 rounds are outliers (up to 1.00 s): others may have used the machine",
                "b, program=true: wall: wide spread, half of the rounds are off by 50 % or more",
            ],
        )


class Tables(unittest.TestCase):
    def test_a_comparison_says_whether_the_ranges_meet(self):
        old = loaded([RUN, *(sample("a", at, 1.0 + at / 10) for at in range(3)), sample("b", 0, 1.0)])
        near, far = (loaded([RUN, *(sample("a", at, start + at / 10) for at in range(3))]) for start in (1.1, 2.0))
        self.assertRegex(
            tables.compare(old, near), r"a +1\.10 s +1\.20 s +1\.091 +meet\nonly in the old data: 1 series"
        )
        self.assertRegex(tables.compare(old, far), r"a +1\.10 s +2\.10 s +1\.909 +apart")

    def test_a_table_of_a_page_has_a_column_for_each_contestant_and_ratios(self):
        results = loaded(
            [RUN, sample("a", 0, 1.0, ranks=4), sample("b", 0, 0.5, ranks=4), sample("a", 0, 3.0, ranks=1024)]
        )
        spec = {
            "rows": ["ranks"],
            "columns": "contestant",
            "order": ["b", "a"],
            "ratios": ["b / a"],
            "where": {"quantity": "wall"},
        }
        self.assertEqual(
            tables.markdown(results, spec),
            "\n".join(
                [
                    "| ranks | b | a | b / a |",
                    "| --- | --- | --- | --- |",
                    "| 4 | 500 ms | 1.00 s | 0.50 |",
                    "| 1,024 |  | 3.00 s |  |",
                ]
            ),
        )

    def test_an_agreement_counts_cases_within_a_share_and_lists_the_others(self):
        predicted = [sample("a", 0, 1.0, "predicted", ranks=ranks) for ranks in (4, 8, 16)]
        gains = [sample("a", 0, value, "gain", ranks=ranks) for ranks, value in ((4, 0.8), (8, 1.3), (16, -1.0))]
        spec = {
            "of": {"quantity": "gain"},
            "to": {"quantity": "predicted"},
            "by": "quantity",
            "within": 0.25,
            "cases": ["program", "ranks"],
        }
        made = tables.agreement(loaded([RUN, *predicted, *gains]), spec).split("\n")
        self.assertEqual(made[0], "| quantity | within 25 % | not |")
        self.assertEqual(made[2:], ["| gain | 1 of 3 | true 8: 1.30 s for 1.00 s; true 16: -1.00 s for 1.00 s |"])

    def test_a_table_that_the_data_do_not_have_is_an_error(self):
        results = loaded([RUN, sample("a", 0, 1.0, ranks=4), sample("a", 0, 1.0, ranks=8)])
        for change, why in [
            ({"where": {"ranks": 5}}, "no ranks"),
            ({"where": {"nodes": 1}}, "no field"),
            ({"order": ["z"]}, "no contestant"),
            ({"rows": ["program"]}, "2 values"),
            ({"colums": 1}, "unknown"),
        ]:
            with self.assertRaisesRegex(tables.BadSpec, why):
                tables.markdown(results, {"rows": ["ranks"], "columns": "contestant"} | change)


class Pages(unittest.TestCase):
    def test_a_block_is_replaced_and_the_text_around_it_stays(self):
        spec = 'data = "launch"\nwhere = { program = "polling" }\nrows = ["autogroups"]\ncolumns = "contestant"'
        block = f"<!-- table\n{spec}\n-->\n"
        text = f"before\n{block}old\n<!-- end -->\nafter\n"
        made = pages.filled(text)
        self.assertTrue(
            made.startswith(f"before\n{block}\n| autogroups |") and made.endswith("\n\n<!-- end -->\nafter\n"), made
        )
        self.assertEqual(pages.filled(made), made)
        with self.assertRaisesRegex(tables.BadSpec, "no program"):
            pages.filled(text.replace("polling", "other"))

    def test_changed_missing_and_undrawn_files_are_found(self):
        page = pages.ROOT / "docs/benchmarks.md"
        drawn = {path: path.read_text(encoding="utf-8") for path in pages.FIGURES.glob("*.svg")}
        same = {page: page.read_text(encoding="utf-8")} | drawn
        self.assertEqual(pages.differing(same), [])
        self.assertEqual(
            pages.differing(same | {page: "other", pages.DATA / "none.md": ""}), [page, pages.DATA / "none.md"]
        )
        figure = pages.FIGURES / "launch.svg"
        self.assertEqual(pages.differing({path: text for path, text in same.items() if path != figure}), [figure])

    def test_the_command_line_prints_tables_and_draws_figures(self):
        def printed(*words):
            return subprocess.run(
                [sys.executable, "-m", "report", *words], cwd=pages.ROOT / "lab", capture_output=True, text=True
            )

        table = printed("table", "data/launch.jsonl", "--to", "hydra-5.0.2").stdout
        self.assertIn("launch: nodes=1 program=true ranks=4; ratios to hydra-5.0.2\n", table)
        self.assertRegex(table, r"wall +wireup +4\.57 ms +3\.67 ms +8\.22 ms +370 us +40 +0\.564 +0\.585\n")
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(printed("figure", "launch", "--to", folder).returncode, 0)
            drawn = (Path(folder) / "launch.svg").read_text(encoding="utf-8")
        self.assertEqual(drawn, (pages.FIGURES / "launch.svg").read_text(encoding="utf-8"))
        failed = printed("figure", "other")
        self.assertEqual((failed.returncode, failed.stderr.split(";")[0]), (1, "report: no figure other"))

    def test_the_same_data_give_the_same_bytes_of_a_figure_without_fonts_or_dates(self):
        spec = figures.specs()["launch"]
        drawn = [figures.draw("launch", spec, pages.DATA) for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertIn(">wireup</text>", drawn[0])
        self.assertNotRegex(drawn[0], r"<dc:date>|\.ttf")

    def test_numbers_of_the_readme_are_those_of_the_data(self):
        """Each number of the section Why that names a benchmark, in the order in which they stand there."""
        jobs, initiation = "in_flight=16 nodes=4 program=true", "nodes=16 program=true ranks=128"
        copies, mpi = "files=1 mib=256 nodes=16", "nodes=1 program=mpi-init ranks=64"
        open_mpi, fence = "nodes=4 program=openmpi5 ranks=16", "nodes=1 program=exchange ranks=64"
        on_hosts = "nodes=4 place=hosts program=mpi-init ranks=16"
        wanted = [
            ("sessions", jobs, "job-rate", 1, {"session": "663", "hydra-5.0.2": "256", "srun-22.05": "77"}),
            ("sessions", initiation, "wall", 1, {"ssh-tree": "1.6", "session": "0.064", "serial": "38"}),
            ("staging", copies, "time", 1, {"wireup": "2.6", "sbcast": "6.7", "sbcast --compress=lz4": "5.1"}),
            ("pmix", open_mpi, "overhead", 1, {"wireup": "0.20", "open-mpi-5": "1.65"}),
            ("launch", mpi, "wall", 1, {"intel-2021.19.0": "1.23", "wireup": "1.17", "hydra-5.0.2": "1.81"}),
            ("launch", fence, "fence", 1000, {"hydra-5.0.2": "0.67", "wireup": "1.10"}),
            ("launch", on_hosts, "wall", 1000, {"hydra-5.0.2": "604", "wireup": "738"}),
        ]
        text = (pages.ROOT / "README.md").read_text(encoding="utf-8")
        why = text.split("\n## Why\n", 1)[1].split("\n## ", 1)[0]
        for data, case, quantity, factor, numbers in wanted:
            values = load([pages.DATA / f"{data}.jsonl"]).values
            values = values[(values.case == case) & (values.quantity == quantity)]
            for contestant, number in numbers.items():
                before, found, why = why.partition(number)
                self.assertTrue(found and not re.search(r"[\d.]$", before), f"{number} of {contestant} in {case}")
                value = values[values.contestant == contestant]["median"].iloc[0] * factor
                decimals = len(number.partition(".")[2])
                # Rounded, halves up or down.
                self.assertAlmostEqual(value, float(number), delta=0.50001 * 10**-decimals, msg=f"{contestant}: {case}")


if __name__ == "__main__":
    unittest.main()
