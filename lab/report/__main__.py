"""The command line: `python3 -m report table|compare|figure|page`, in the folder `lab`."""

import argparse
import sys
from pathlib import Path

from . import figures, pages, tables
from .results import BadLine, load


def arguments():
    parser = argparse.ArgumentParser(prog="python3 -m report", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="print all values of these files, with ratios")
    table.add_argument("files", nargs="+", type=Path)
    table.add_argument("--to", metavar="CONTESTANT", help="ratios are to this one (default: each case's first)")
    compare = commands.add_parser("compare", help="print what two files have in common side by side")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    figure = commands.add_parser("figure", help="draw figures")
    figure.add_argument("names", nargs="*", metavar="NAME", help="figures of figures.toml (default: all)")
    figure.add_argument("--data", action="append", type=Path, metavar="FILE", help="draw these data, not lab/data")
    figure.add_argument("--to", type=Path, default=Path("."), metavar="DIR", help="folder for NAME.svg (default: .)")
    page = commands.add_parser("page", help="write the pages and figures of the documentation from lab/data")
    page.add_argument("--check", action="store_true", help="write nothing; fail if a page or figure would change")
    return parser.parse_args()


def run(args):
    """Does what the arguments say; returns the exit code."""
    if args.command == "table":
        print(tables.terminal(load(args.files), args.to))
    elif args.command == "compare":
        print(tables.compare(load([args.old]), load([args.new])))
    elif args.command == "figure":
        specs = figures.specs()
        unknown = [name for name in args.names if name not in specs]
        if unknown:
            raise tables.BadSpec(f"no figure {', '.join(unknown)}; there are {', '.join(specs)}")
        for name in args.names or specs:
            print(figures.write(name, specs[name], pages.DATA, args.data, args.to))
    else:
        texts = pages.made()
        changed = pages.differing(texts)
        for path in changed:
            print(f"{'differs from the data' if args.check else 'written'}: {path.relative_to(pages.ROOT)}")
            if not args.check and path in texts:
                path.write_text(texts[path], encoding="utf-8")
        if args.check and changed:
            print("`python3 -m report page`, in lab/, writes them again", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(run(arguments()))
    except (BadLine, tables.BadSpec, OSError) as error:
        sys.exit(f"report: {error}")
