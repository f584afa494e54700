"""Tables: for the terminal, of a comparison, and in Markdown for pages."""

import pandas

from .results import STATISTICS, show, warnings

# A ratio that is the quotient of two medians, because the rounds were not kept.
QUOTIENT = " (q)"
# Statistics may be columns of a table in Markdown, with these heads.
HEADS = {"median": "median", "low": "smallest", "high": "largest", "mad": "MAD", "rounds": "rounds"}


class BadSpec(Exception):
    """A table or figure is described by words that the data do not have."""


def show_ratio(value):
    """A ratio with two or three decimals, three digits from 10 on; a printed one as such."""
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return " to ".join(f"{number:g}" for number in value)
    if value >= 10:
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:.3f}"[:-1] if f"{value:.3f}".endswith("0") else f"{value:.3f}"


def terminal(results, reference=None):
    """A table for each case, then the warnings. Ratios are to `reference`, else to the case's first contestant."""
    text = []
    for (benchmark, case), group in results.values.groupby(["benchmark", "case"], sort=False):
        base = reference if reference in set(group.contestant) else group.contestant.iloc[0]
        rows = []
        for row in group.itertuples():
            by_round, of_medians = results.ratio(row.contestant, base, benchmark, case, row.quantity)
            if row.contestant == base:
                by_round = 1.0
            shown = [show(getattr(row, name), row.unit, row.digits) for name in STATISTICS[:-1]]
            count = "-" if pandas.isna(row.rounds) else f"{row.rounds:.0f}"
            rows.append([row.quantity, row.contestant, *shown, count, show_ratio(by_round), show_ratio(of_medians)])
        heads = ["quantity", "contestant", *STATISTICS, "ratio", "of medians"]
        text += [f"{benchmark}: {case}; ratios to {base}", aligned([heads, *rows], left=2), ""]
    return "\n".join(text + [f"! {line}" for line in warnings(results)])


def compare(old, new):
    """The medians of the series that both have, the ratio new / old, and whether the ranges of their rounds meet."""
    both = old.values.merge(new.values, on=["benchmark", "case", "quantity", "unit", "contestant"])
    rows = [["case", "quantity", "contestant", "old", "new", "new / old", "ranges"]]
    for row in both.itertuples():
        apart = row.low_x > row.high_y or row.low_y > row.high_x
        known = not pandas.isna([row.low_x, row.high_x, row.low_y, row.high_y]).any()
        ratio = row.median_y / row.median_x if row.median_x else None
        rows.append(
            [
                f"{row.benchmark}: {row.case}",
                row.quantity,
                row.contestant,
                show(row.median_x, row.unit, row.digits_x),
                show(row.median_y, row.unit, row.digits_y),
                show_ratio(None if pandas.isna(ratio) else ratio),
                "unknown" if not known else "apart" if apart else "meet",
            ]
        )
    alone = [len(side.values) - len(both) for side in (old, new)]
    return f"{aligned(rows, left=3)}\nonly in the old data: {alone[0]} series; only in the new data: {alone[1]} series"


def aligned(rows, left):
    """Rows as lines; the first `left` columns and the last are flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]

    def line(row):
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))
        ]
        return "  ".join(["", *cells]).rstrip()

    return "\n".join(line(row) for row in rows)


def chosen(results, where):
    """The values for which each field of `where` has its value, or one of its values; "" is a missing field. Fields of
    the case become columns."""
    frame = results.values.copy()
    fields = sorted({name for case in results.cases.values() for name in case})
    for name in fields:
        frame[name] = pandas.Series([results.cases[case].get(name, "") for case in frame.case], dtype=object)
    for name, wanted in where.items():
        if name not in frame:
            raise BadSpec(f"no field {name!r}; there are {', '.join(frame)}")
        wanted = wanted if isinstance(wanted, list) else [wanted]
        missing = [value for value in wanted if value not in set(frame[name])]
        if missing:
            raise BadSpec(f"no {name} {missing}; there are {list(dict.fromkeys(frame[name]))}")
        frame = frame[frame[name].isin(wanted)]
    return frame


def cell(row, spec):
    """One value as a page shows it: the median, with its range if the table asks for that."""
    low, high = (show(row[name], row["unit"], row["digits"]) for name in ("low", "high"))
    if pandas.isna(row["median"]):
        return f"{low} to {high}"
    text = show(row["median"], row["unit"], row["digits"])
    return f"{text} ({low} to {high})" if spec.get("range") and not pandas.isna(row["low"]) else text


def markdown(results, spec):
    """A table of a page. Fields of `spec`:

    where: which values. rows: the fields that make a row, each a column. columns: the field whose values are the other
    columns, or a list of STATISTICS. order: these values of `columns`, in this order. ratios: columns of ratios,
    "A / B". heads: other words for names and values. range: also the smallest and the largest value of the rounds.
    """
    unknown = set(spec) - {"data", "model", "where", "rows", "columns", "order", "ratios", "heads", "range"}
    if unknown:
        raise BadSpec(f"unknown words {unknown}")
    frame = chosen(results, spec.get("where", {}))
    heads, rows, columns = spec.get("heads", {}), spec["rows"], spec["columns"]

    def word(value):
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        return heads.get(text, text)

    if isinstance(columns, list):
        head = [*map(word, rows), *(word(HEADS[name]) for name in columns)]
        body = [
            [*(word(row[name]) for name in rows), *(statistic(row, name) for name in columns)]
            for _, row in frame.iterrows()
        ]
        return piped(head, body)
    order = spec.get("order") or list(dict.fromkeys(frame[columns]))
    absent = [name for name in order if name not in set(frame[columns])]
    if absent:
        raise BadSpec(f"no {columns} {absent}; there are {list(dict.fromkeys(frame[columns]))}")
    frame = frame[frame[columns].isin(order)]
    body = []
    for names, group in frame.groupby(rows, sort=False):
        line = [word(name) for name in names]
        for value in order:
            found = group[group[columns] == value]
            if len(found) > 1:
                raise BadSpec(f"{names}, {value}: {len(found)} values; name more fields in rows or where")
            line.append(cell(found.iloc[0], spec) if len(found) else "")
        for ratio in spec.get("ratios", []):
            line.append(ratio_cell(results, group, *ratio.split(" / ")))
        body.append(line)
    titles = [" / ".join(heads.get(part, part) for part in ratio.split(" / ")) for ratio in spec.get("ratios", [])]
    return piped([*map(word, rows), *map(word, order), *titles], body)


def agreement(results, spec):
    """A table that says in how many cases the medians of some values (`of`) are within a share (`within`) of others
    (`to`), and lists the other cases by these fields (`cases`). `by`: the field, or `quantity`, that makes a row."""
    of, to = (chosen(results, spec[side]) for side in ("of", "to"))
    both = of.merge(to[["case", "median", "unit", "digits"]], on="case", suffixes=("", "_to"))
    heads, body = spec.get("heads", {}), []
    for value, group in both.groupby(spec["by"], sort=False):
        apart = group[(group["median"] - group.median_to).abs() > spec["within"] * group.median_to.abs()]
        listed = [
            f"{' '.join(str(row[name]) for name in spec['cases'])}: {show(row['median'], row['unit'], row['digits'])}"
            f" for {show(row['median_to'], row['unit_to'], row['digits_to'])}"
            for _, row in apart.iterrows()
        ]
        shown = heads.get(str(value), str(value))
        body.append([shown, f"{len(group) - len(apart)} of {len(group)}", "; ".join(listed)])
    return piped([heads.get(spec["by"], spec["by"]), f"within {100 * spec['within']:g} %", "not"], body)


def statistic(row, name):
    if name == "rounds":
        return "" if pandas.isna(row[name]) else f"{row[name]:.0f}"
    return show(row[name], row["unit"], row["digits"])


def ratio_cell(results, group, contestant, reference):
    """The ratio of a table's row, which is about one case and quantity."""
    keys = group[["benchmark", "case", "quantity"]].drop_duplicates()
    if len(keys) != 1:
        raise BadSpec(f"{contestant} / {reference}: the row has {len(keys)} cases")
    by_round, of_medians = results.ratio(contestant, reference, *keys.iloc[0])
    if by_round is not None:
        return show_ratio(by_round)
    return "" if of_medians is None else f"{of_medians:.2f}{QUOTIENT}"


def ratios(results, spec):
    """A table of the ratios that were printed: contestant, reference, case, ratio with its range, rounds."""
    frame = results.ratios
    for name, wanted in spec.get("where", {}).items():
        frame = frame[frame[name].isin(wanted if isinstance(wanted, list) else [wanted])]
    body = []
    for _, row in frame.iterrows():
        spread = "" if pandas.isna(row["low"]) else show_ratio((row["low"], row["high"]))
        median = "" if pandas.isna(row["median"]) else show_ratio((row["median"],))
        shown = f"{median} ({spread})" if median and spread else median or spread
        body.append([row["contestant"], row["reference"], row["case"], row["quantity"], shown])
    return piped(["of", "to", "case", "quantity", "ratio"], body)


def piped(head, body):
    if not body:
        raise BadSpec("the table is empty")
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])
