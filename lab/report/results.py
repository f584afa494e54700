"""Reads the JSON lines of benchmarks and computes medians and ratios.

A file holds runs: a line `run`, then its lines `sample`, `failed` and `absent`. Samples of one benchmark, case and
round were measured side by side, so a ratio is taken in each round and the median of these ratios counts: a
disturbance that lasts longer than a round changes both sides. Files with older figures have lines `summary` and `ratio`
in place of samples: what a page printed, of samples that were not kept.
"""

import json
from dataclasses import dataclass, field

import pandas

SCHEMA = 1
# What identifies a series of values; `case` is the text that `case_key` makes.
SERIES = ["benchmark", "case", "quantity", "unit", "contestant"]
STATISTICS = ["median", "low", "high", "mad", "rounds"]
# How many digits are shown of a value. A line `summary` says in `digits` if fewer are known.
DIGITS = 3
# A value further from the median than this many robust standard deviations is an outlier (the rule of hyperfine).
OUTLIER_DEVIATIONS = 10.0
# This factor times the median distance from the median (MAD) estimates the standard deviation of normal values.
MAD_TO_DEVIATION = 1.4826
# A MAD above this part of the median is called a wide spread (chosen).
SPREAD_WIDE = 0.1


class BadLine(Exception):
    """A line that is no record of this schema."""


def case_key(case):
    """The case as a text that is equal for equal cases."""
    return " ".join(f"{key}={value}" for key, value in sorted(case.items()))


@dataclass
class Results:
    """What some files contain. `values` has a row for each series with its STATISTICS; `cases` gives the fields of a
    case by its key; `samples` and `ratios` are the lines of these kinds."""

    values: pandas.DataFrame
    samples: pandas.DataFrame
    ratios: pandas.DataFrame
    cases: dict
    runs: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    absent: list = field(default_factory=list)

    def ratio(self, contestant, reference, benchmark, case, quantity):
        """How many times as large the values of `contestant` are as those of `reference`: the median of the rounds'
        ratios, and the ratio of the medians. Each is None if it is not known; a tuple has a printed number or range."""

        def of(frame, who):
            rows = frame[(frame.benchmark == benchmark) & (frame.case == case) & (frame.quantity == quantity)]
            return rows[rows.contestant == who]

        by_round = None
        rounds = of(self.samples, contestant).merge(of(self.samples, reference), on=["run", "round"])
        rounds = rounds[rounds.value_y > 0]
        if len(rounds):
            by_round = float((rounds.value_x / rounds.value_y).median())
        printed = of(self.ratios, contestant)
        printed = printed[printed.reference == reference]
        if by_round is None and len(printed):
            row = printed.iloc[0]
            by_round = (row.low, row.high) if pandas.isna(row["median"]) else (row["median"],)
        above, below = (of(self.values, who)["median"].dropna() for who in (contestant, reference))
        of_medians = float(above.iloc[0] / below.iloc[0]) if len(above) and len(below) and below.iloc[0] else None
        return by_round, of_medians


# The fields that a line of each kind must have.
FIELDS = {
    "run": ["schema", "benchmark", "date", "machine", "words"],
    "sample": [*SERIES, "round", "value"],
    "failed": ["benchmark", "contestant", "case", "why"],
    "absent": ["contestant", "why"],
    "summary": [*SERIES, "median"],
    "ratio": ["benchmark", "case", "quantity", "contestant", "reference", "median"],
}


def load(paths, computed=()):
    """Reads files of JSON lines, and takes computed lines `summary` as if they stood at the end of the last file.

    Raises BadLine if a line is no JSON object, is of another schema, or lacks a field.
    """
    lines = {kind: [] for kind in FIELDS}
    cases = {}

    def keep_case(record):
        key = case_key(record["case"])
        cases[key] = record["case"]
        return record | {"case": key}

    for path in paths:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                    kind = record.pop("record", None)
                    if kind not in FIELDS:
                        raise BadLine(f"unknown record {kind!r}")
                    missing = [name for name in FIELDS[kind] if name not in record]
                    if missing:
                        raise BadLine(f"{kind} without {', '.join(missing)}")
                    if kind == "run" and record["schema"] != SCHEMA:
                        raise BadLine(f"schema {record['schema']}; this report reads {SCHEMA}")
                    if "case" in record:
                        record = keep_case(record)
                except (BadLine, ValueError, TypeError, AttributeError) as error:
                    raise BadLine(f"{path}:{number}: {error}") from error
                lines[kind].append(record if kind == "run" else record | {"run": len(lines["run"])})
    lines["summary"] += map(keep_case, computed)
    samples = pandas.DataFrame(lines["sample"], columns=[*FIELDS["sample"], "run"])
    summaries = pandas.DataFrame(lines["summary"], columns=[*SERIES, *STATISTICS, "digits"])
    summaries["digits"] = summaries["digits"].fillna(DIGITS)
    values = [frame for frame in (summarize(samples), summaries) if len(frame)]
    return Results(
        pandas.concat(values, ignore_index=True) if values else summaries,
        samples,
        pandas.DataFrame(lines["ratio"], columns=[*FIELDS["ratio"], "low", "high", "mad", "rounds"]),
        cases,
        lines["run"],
        lines["failed"],
        lines["absent"],
    )


def summarize(samples):
    """The STATISTICS of each series, in the order in which the series first appear."""
    rows = []
    for series, group in samples.groupby(SERIES, sort=False):
        value = group.value
        median = value.median()
        mad = (value - median).abs().median()
        rows.append([*series, median, value.min(), value.max(), mad, len(value), DIGITS])
    return pandas.DataFrame(rows, columns=[*SERIES, *STATISTICS, "digits"])


def warnings(results):
    """Sentences that a reader of the values needs: failures, absent contestants, outliers, wide spreads."""
    lines = []
    for (who, case), group in pandas.DataFrame(results.failed, columns=["contestant", "case", "why"]).groupby(
        ["contestant", "case"], sort=False
    ):
        lines.append(f"{who}, {case}: {len(group)} failed: {group.why.iloc[0]}")
    lines += [f"{record['contestant']}: not measured: {record['why']}" for record in results.absent]
    for series, group in results.samples.groupby(SERIES, sort=False):
        _, case, quantity, unit, who = series
        value = group.value
        median = value.median()
        mad = (value - median).abs().median()
        # With a MAD of zero any other value would be an outlier; the rounding of the clock is not one.
        bound = max(OUTLIER_DEVIATIONS * MAD_TO_DEVIATION * mad, abs(median) * 1e-6)
        outliers = int(((value - median).abs() > bound).sum())
        if outliers:
            lines.append(
                f"{who}, {case}: {quantity}: {outliers} of {len(value)} rounds are outliers "
                f"(up to {show(value.max(), unit)}): others may have used the machine"
            )
        if mad > SPREAD_WIDE * median > 0:
            lines.append(
                f"{who}, {case}: {quantity}: wide spread, half of the rounds are off by "
                f"{100 * mad / median:.0f} % or more"
            )
    return lines


# For each unit its multiples: from which value on, its size, its name. The largest comes first.
MULTIPLES = {
    "s": [(1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "us")],
    "B": [(2.0**30, 2.0**30, "GiB"), (2.0**20, 2.0**20, "MiB"), (2.0**10, 2.0**10, "KiB"), (0.0, 1.0, "B")],
    "B/s": [(1e9, 1e9, "GB/s"), (1e6, 1e6, "MB/s"), (0.0, 1.0, "B/s")],
    "1/s": [(0.0, 1.0, "/s")],
}


def show(value, unit, known=DIGITS):
    """The value with three significant digits, or as many as are known, and the multiple of its unit that fits."""
    if value is None or pandas.isna(value):
        return "-"
    if unit == "count":
        return f"{value:,.0f}" if value == int(value) else digits(value, known)
    if unit == "share":
        return f"{100 * value:.1f} %"
    if value == 0:
        return "0"
    multiples = MULTIPLES.get(unit, [(0.0, 1.0, unit)])
    size, name = next((size, name) for least, size, name in multiples if abs(value) >= least)
    if name == "B" and value == int(value):
        known = 0
    return f"{digits(value / size, known)} {name}"


def digits(value, known=DIGITS):
    """This many significant digits at least, three by default, never an exponent; thousands have commas."""
    whole = sum(abs(value) >= least for least in (1, 10, 100))
    return f"{value:,.{max(0, int(known) - whole)}f}"
