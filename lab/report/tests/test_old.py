"""What the report computes of samples of November 2026 is what the benchmarks printed of them at that time.

`old` has, for each benchmark, all samples of a small run in the format of that time, and the tables that it printed.
"""

import json
import re
import unittest
from pathlib import Path
from statistics import median

from report.results import MULTIPLES, load, show
from report.tests.test_report import RUN, loaded

OLD = Path(__file__).parent / "old"
SIZES = {name: size for multiples in MULTIPLES.values() for _, size, name in multiples}
UNITS = {"job-rate": "1/s", "growth": "B"}


def samples(benchmark, contestant, case, rounds):
    """The records of a contestant; `rounds` has the values of each round by quantity."""
    head = {"record": "sample", "benchmark": benchmark, "contestant": contestant, "case": case}
    for number, values in enumerate(rounds):
        for quantity, value in values.items():
            yield head | {"quantity": quantity, "unit": UNITS.get(quantity, "s"), "round": number, "value": value}


def converted(old):
    """The old samples as records of the present schema, without the warm-up rounds."""
    benchmark = old["benchmark"]
    for case in old.get("cases", []):
        for series in case["series"]:
            rounds = [run["values"] or {} for run in series["runs"] if not run["warm_up"]]
            yield from samples(benchmark, series["launcher"], {"name": case["name"]}, rounds)
    for series in old.get("series", []):
        if "scheme" in series:
            runs = series["runs"]
            yield from samples(benchmark, series["scheme"], {"ranks": series["ranks"]}, runs[1:] or runs)
        elif "variant" in series:
            case = {"part": series["part"], "nodes": series["nodes"], "ppn": series["ppn"]}
            yield from samples(benchmark, series["variant"], case, series["runs"])
        elif "column" in series:
            rounds = [
                {f"{phase}, {of}": value for phase, values in one["phases"].items() for of, value in values.items()}
                | {"total": one["total_s"]}
                for one in series["rounds"]
            ]
            yield from samples(benchmark, series["column"], {"ranks": series["ranks"]}, rounds)
        elif "tree" in series:
            names = {"seconds": "time", "again_s": "again", "growth_bytes": "growth"}
            rounds = [{names[name]: value for name, value in one.items() if value} for one in series["rounds"]]
            yield from samples(benchmark, series["contestant"], {"tree": series["tree"]}, rounds)
        for size in series.get("sizes", []):
            rounds = [{"latency": seconds} for seconds in size["rounds_median_s"]]
            yield from samples(benchmark, series["name"], {"bytes": size["bytes"]}, rounds)
    jobs = {}
    for call in old.get("call", []):
        jobs.setdefault((call["launcher"], call["mpi"]), {}).setdefault(call["round"], []).append(call["seconds"])
    for (launcher, mpi), rounds in jobs.items():
        # A round is a job; its value is the median of its calls.
        values = [{name: median(call[name] for call in calls) for name in calls[0]} for calls in rounds.values()]
        yield from samples(benchmark, launcher, {"mpi": mpi}, values)


class Old(unittest.TestCase):
    def read(self, name):
        """The results of a benchmark's old samples, and the lines of its old tables, in cells."""
        results = loaded([RUN, *converted(json.loads((OLD / f"{name}.json").read_text(encoding="utf-8")))])
        text = (OLD / f"{name}.txt").read_text(encoding="utf-8")
        lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip()]
        self.compared = 0
        return results, lines

    def value(self, results, case, quantity, contestant):
        values = results.values
        found = values[(values.case == case) & (values.quantity == quantity) & (values.contestant == contestant)]
        self.assertEqual(len(found), 1, (case, quantity, contestant))
        return found.iloc[0]

    def equal(self, value, printed, unit=None):
        """The value is the printed one, at the precision at which it was printed."""
        number, _, printed_unit = printed.partition(" ")
        size = SIZES[unit or printed_unit] if unit or printed_unit else 1.0
        step = 0.5 * 10.0 ** -len(number.partition(".")[2])
        self.assertAlmostEqual(value / size, float(number), delta=step * 1.000001, msg=printed)
        self.compared += 1

    def test_launchers_in_cases(self):
        for name, count in [("launch", 142), ("start", 36), ("jobs", 50)]:
            with self.subTest(name):
                results, lines = self.read(name)
                for line in lines:
                    heading = re.match(r"(\S+):.*ratio to (\S+)$", line[0])
                    if heading:
                        case, reference = heading.groups()
                        continue
                    if line[0] == "metric":
                        continue
                    quantity, contestant, *statistics, ratio = line
                    row = self.value(results, f"name={case}", quantity, contestant)
                    for statistic, printed in zip(["median", "low", "high", "mad"], statistics, strict=True):
                        self.equal(row[statistic], printed)
                    # Processor time has steps of 10 ms: a ratio to a round with 0 was infinite, and now does not count.
                    if quantity != "cpu" and ratio != "-":
                        self.equal(results.ratio(contestant, reference, name, f"name={case}", quantity)[0], ratio)
                self.assertEqual(self.compared, count)

    def test_schemes_of_exchanges(self):
        results, lines = self.read("exchange")
        for line in lines:
            if line[0] == "scheme":
                continue
            if "ranks (" in line[0]:
                case = f"ranks={line[0].split()[0]}"
                continue
            scheme, time, whole, start, worst, agents, ratio, rounds = line
            printed = {"time": time, "whole": whole, "start-cpu": start, "start-cpu-max": worst, "agent-cpu": agents}
            for quantity, shown in printed.items():
                self.equal(self.value(results, case, quantity, scheme)["median"], shown)
            self.equal(results.ratio(scheme, "text-fence", "exchange", case, "time")[0], ratio)
            self.assertEqual(self.value(results, case, "time", scheme)["rounds"], int(rounds))
        self.assertEqual(self.compared, 144)

    def test_links(self):
        for name, count in [("p2p", 6), ("coll", 14)]:
            with self.subTest(name):
                results, (head, *lines) = self.read(name)
                for line in lines:
                    if line[0].startswith("bandwidth"):
                        break
                    for contestant, printed in zip(head[1:], line[1:], strict=True):
                        row = self.value(results, f"bytes={line[0].split()[0]}", "latency", contestant)
                        self.equal(row["median"], printed, "us")
                self.assertEqual(self.compared, count)

    def test_ranks_of_pmix(self):
        results, (_, *lines) = self.read("modex")
        for job, quantity, *statistics, rounds in lines:
            part, variant, nodes, ppn = re.match(r"(\w+) (.*), (\d+)x(\d+)$", job).groups()
            row = self.value(results, f"nodes={nodes} part={part} ppn={ppn}", quantity, variant)
            for statistic, printed in zip(["median", "low", "high"], statistics, strict=True):
                self.equal(row[statistic], printed)
            self.assertEqual(row["rounds"], int(rounds))
        self.assertEqual(self.compared, 57)

    def test_phases_of_a_start(self):
        results, lines = self.read("steps")
        for line in lines:
            if len(line) == 1:
                case = f"ranks={line[0].split()[0]}"
            elif line[0] == "baseline":
                columns = line
            else:
                phase = line[0].lower().replace(" ", "-")
                for column, printed in zip(columns, line[1:], strict=True):
                    shown = [] if printed == "-" else printed.split(" / ")
                    quantities = [phase] if phase == "total" else [f"{phase}, median", f"{phase}, max"]
                    for quantity, number in zip(quantities, shown):
                        self.equal(self.value(results, case, quantity, column)["median"], number, "ms")
        self.assertEqual(self.compared, 90)

    def test_calls_of_spawn(self):
        results, (_, *lines) = self.read("spawn")
        for mpi, quantity, *medians, low, high, other_low, other_high, ratio in lines:
            ranges = [(low, high), (other_low, other_high)]
            for contestant, middle, (least, most) in zip(["wireup", "hydra-5.0.2"], medians, ranges, strict=True):
                row = self.value(results, f"mpi={mpi}", quantity, contestant)
                for statistic, printed in [("median", middle), ("low", least), ("high", most)]:
                    self.equal(row[statistic], printed)
            self.equal(results.ratio("wireup", "hydra-5.0.2", "spawn", f"mpi={mpi}", quantity)[0], ratio)
        self.assertEqual(self.compared, 49)

    def test_copies_of_files(self):
        results, (_, *lines) = self.read("stage")
        for tree, contestant, _speed, *seconds, _ratio, again, growth in lines:
            row = self.value(results, f"tree={tree}", "time", contestant)
            for statistic, printed in zip(["median", "low", "high"], seconds, strict=True):
                self.equal(row[statistic], printed, "s")
            if again != "-":
                self.equal(self.value(results, f"tree={tree}", "again", contestant)["median"], again, "ms")
                self.equal(self.value(results, f"tree={tree}", "growth", contestant)["high"], growth)
        self.assertEqual(self.compared, 48)

    def test_the_page_shows_what_the_old_pages_showed(self):
        """Values with three digits are shown as they were printed."""
        results = load([OLD.parents[2] / "data/launch.jsonl"])
        row = self.value(results, "nodes=1 program=true ranks=4", "wall", "intel-2021.19.0")
        shown = [show(row[name], "s") for name in ["median", "low", "high", "mad"]]
        self.assertEqual(shown, ["62.4 ms", "57.0 ms", "78.1 ms", "2.23 ms"])


if __name__ == "__main__":
    unittest.main()
