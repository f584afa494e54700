"""Figures as SVG files that do not depend on the machine: fonts of matplotlib only, no date, a fixed salt for names."""

import io
import tomllib
from pathlib import Path

import matplotlib
import pandas

matplotlib.use("svg")
from matplotlib import font_manager, pyplot, ticker  # noqa: E402

from model import results_of  # noqa: E402

from .results import digits  # noqa: E402
from .tables import BadSpec, chosen  # noqa: E402

HERE = Path(__file__).parent
# Text widths come from the fonts that are part of matplotlib, so the layout is the same on all machines. The file
# contains text, not outlines: a viewer without this font takes the next one of the list.
BUNDLED = str(Path(matplotlib.get_data_path()))
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "wireup",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}
# Colours that remain different for readers who do not see red and green apart (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]
OWN, OTHERS = "#0072b2", "#b5b5b5"
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
# How lines are drawn that nobody has measured here: values of a publication, and values of its model.
LINES = {"measured": "-", "published": "--", "model": ":"}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "B": 1.0, "MB": 1e6}


def specs():
    """The figures by name, as figures.toml describes them."""
    return tomllib.loads((HERE / "figures.toml").read_text(encoding="utf-8"))


def draw(name, spec, folder=None, files=None):
    """The SVG text of a figure. Its data are `files`, else the file that the spec names, in `folder`."""
    results = results_of(spec, folder, files)
    if files:
        # A reader's own data lack series of the documentation, such as published ones.
        spec = spec | {"known": set(results.values.contestant)}
    with matplotlib.rc_context(STYLE):
        font_manager.fontManager.ttflist = [f for f in font_manager.fontManager.ttflist if f.fname.startswith(BUNDLED)]
        figure = {"bars": bars, "lines": lines}[spec["kind"]](results, spec)
        figure.suptitle(f"{spec['title']} ({spec['better']} is better)", x=0.01, ha="left", fontsize=11)
        figure.text(0.01, 0.012, spec["note"].strip(), fontsize=7.5, color="#555555", va="bottom")
        text = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": name, "Source": f"lab/data/{spec['data']}.jsonl"}
        figure.savefig(text, format="svg", metadata=metadata, facecolor="white")
        pyplot.close(figure)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def write(name, spec, data, files, to):
    """Draws a figure into a folder; returns the path of its file."""
    path = to / f"{name}.svg"
    path.write_text(draw(name, spec, data, files), encoding="utf-8")
    return path


def bars(results, spec):
    """Panels side by side, each with a bar for each contestant that has a value, and a line from low to high."""
    panels = spec["panels"]
    columns = spec.get("columns", len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(9, 1.1 + 1.7 * rows), squeeze=False)
    for panel, axis in zip(panels, axes.flat):
        frame = chosen(results, {"quantity": spec["quantity"]} | panel["where"]).set_index("contestant")
        names = [who for who in spec["contestants"] if who in frame.index]
        if not names or not frame.index.is_unique:
            raise BadSpec(f"panel {panel['title']!r}: {len(frame)} values of {list(frame.index)}")
        scale = UNITS[panel["unit"]]
        labels = [spec.get("labels", {}).get(who, who) for who in names]
        colours = [OWN if who in spec["own"] else OTHERS for who in names]
        values = [frame.at[who, "median"] / scale for who in names]
        axis.barh(labels, values, color=colours, height=0.65)
        for at, who in enumerate(names):
            low, high = frame.at[who, "low"], frame.at[who, "high"]
            reach = values[at] if pandas.isna(high) else high / scale
            if not pandas.isna(low):
                axis.plot([low / scale, reach], [at, at], color="#333333", linewidth=1)
            axis.annotate(
                digits(values[at]), (reach, at), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8
            )
        axis.invert_yaxis()
        axis.set_xlim(0, 1.28 * max([*values, *(frame.high.dropna() / scale)]))
        axis.xaxis.set_major_locator(ticker.MaxNLocator(4))
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
        axis.set_title(f"{panel['title']} [{panel['unit']}]", fontsize=9, loc="left")
    figure.tight_layout(rect=(0, 0.05 + 0.05 / rows, 1, 0.99 - 0.04 / rows))
    return figure


def lines(results, spec):
    """A panel, or several side by side with one vertical axis, each with a line for each series over the field `x`.
    All axes are logarithmic; bars go from low to high."""
    panels = spec.get("panels", [spec])
    figure, axes = pyplot.subplots(1, len(panels), figsize=(9, 4.9), sharey=True, squeeze=False)
    for panel, axis in zip(panels, axes.flat):
        draw_lines(axis, results, spec | panel)
        if panel is spec:
            axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8.5)
        else:
            axis.legend(loc="upper left", fontsize=8)
            axis.set_title(panel["title"], fontsize=9, loc="left")
            axis.label_outer()
            axis.tick_params(axis="x", labelsize=7.5)
    figure.tight_layout(rect=(0, 0.07, 1, 0.96))
    return figure


def draw_lines(axis, results, spec):
    """One panel. A series has its own colour if it was measured and grey if not, or the colour number `colour`."""
    across = spec["x"]
    scale = UNITS[spec["unit"]]
    ticks = set()
    for at, series in enumerate(spec["series"]):
        if series["contestant"] not in spec.get("known", [series["contestant"]]):
            continue
        where = spec.get("where", {}) | series.get("where", {})
        frame = chosen(results, {"contestant": series["contestant"], "quantity": spec["quantity"]} | where)
        if frame[across].duplicated().any():
            raise BadSpec(f"{series['contestant']}: several values for one {across}; name more fields in where")
        frame = frame.sort_values(across)
        style = series.get("style", "measured")
        values, sizes = frame["median"].astype(float) / scale, frame[across].astype(float)
        ticks |= set(frame[across])
        spread = None if frame.low.isna().all() else [values - frame.low / scale, frame.high / scale - values]
        own = series.get("colour", at if style == "measured" else None)
        axis.errorbar(
            sizes,
            values,
            yerr=spread,
            label=series.get("label", series["contestant"]),
            color="#777777" if own is None else COLOURS[own % len(COLOURS)],
            marker=MARKERS[(at if own is None else own) % len(MARKERS)],
            markersize=4.5,
            linestyle=LINES[style],
            linewidth=1.4,
            capsize=2,
        )
    axis.set(xscale="log", yscale="log", xlabel=spec.get("xlabel", across), ylabel=f"{spec['ylabel']} [{spec['unit']}]")
    ticks = spec.get("ticks") or sorted(ticks)
    axis.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axis.xaxis.set_minor_locator(ticker.NullLocator())
    axis.set_ylim(bottom=spec.get("ymin"), top=spec.get("ymax"))
    number = ticker.FuncFormatter(lambda value, _: f"{value:,.6g}")
    axis.yaxis.set_major_formatter(number)
    least, most = axis.get_ylim()
    # Powers of ten alone label hardly anything of a short axis.
    axis.yaxis.set_minor_formatter(number if most < 20 * least else ticker.NullFormatter())
