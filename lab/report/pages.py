"""The pages and figures of benchmarks, made from lab/data.

A page is written by hand but for what stands between `<!-- table`, `<!-- ratios` or `<!-- runs`, with the description
of the table in TOML, and `<!-- end -->`: that is replaced by the table.
"""

import re
import tomllib
from datetime import date
from pathlib import Path

from model import results_of

from . import figures, tables

ROOT = Path(__file__).parents[2]
DATA = ROOT / "lab/data"
FIGURES = ROOT / "docs/figures"
BLOCK = re.compile(r"(<!-- (table|ratios|runs)\n(.*?)-->\n).*?(<!-- end -->)", re.DOTALL)


def pages():
    """The pages that contain such tables."""
    return [ROOT / "docs/benchmarks.md", ROOT / "lab/model/README.md", *sorted(DATA.glob("*.md")), *sorted((ROOT / "lab/reproductions").glob("*/README.md"))]


def tables_of(text):
    """The tables of a page, made anew."""
    blocks = (found.group(0).removeprefix(found.group(1)) for found in BLOCK.finditer(filled(text)))
    return [block.removesuffix("<!-- end -->").strip() for block in blocks]


def filled(text):
    """The page with its tables made anew.

    Raises tables.BadSpec if a description does not fit the data.
    """

    def block(found):
        begin, kind, description, end = found.groups()
        try:
            spec = tomllib.loads(description)
            results = results_of(spec, DATA)
            made = {"table": tables.markdown, "ratios": tables.ratios, "runs": runs}[kind](results, spec)
        except (tomllib.TOMLDecodeError, KeyError, tables.BadSpec) as error:
            raise tables.BadSpec(f"{kind} {description.strip()}\n{type(error).__name__}: {error}") from error
        return f"{begin}\n{made}\n\n{end}"

    return BLOCK.sub(block, text)


def runs(results, spec):
    """A list of how the data were made: command, machine, date, note. `runs`: only these of the file, from 1 on."""
    lines = []
    for number in spec.get("runs") or range(1, len(results.runs) + 1):
        run = results.runs[number - 1]
        machine = run["machine"]
        memory = machine.get("memory_bytes")
        parts = [
            f"{machine['cpus']} cpus" if machine.get("cpus") else "",
            machine.get("cpu") or "",
            f"{memory / 2**30:.0f} GiB" if memory else "",
            f"Linux {machine['kernel']}" if machine.get("kernel") else "",
        ]
        when = date.fromisoformat(run["date"][:10])
        parts = [*filter(None, parts), f"{when.day} {when:%B %Y}"]
        command = run.get("command") or " ".join(["wireup bench", *run["words"]])
        lines.append(f"- `{command}`: {', '.join(parts)}" + (f"; {run['note']}" if run.get("note") else ""))
    return "\n".join(lines)


def made():
    """All pages and figures, as the data give them: text by path."""
    texts = {page: filled(page.read_text(encoding="utf-8")) for page in pages()}
    return texts | {FIGURES / f"{name}.svg": figures.draw(name, spec, DATA) for name, spec in figures.specs().items()}


def differing(texts):
    """The paths whose files are not these texts, and figures that nobody draws."""
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return changed + [path for path in sorted(FIGURES.glob("*.svg")) if path not in texts]
