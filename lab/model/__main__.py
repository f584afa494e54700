"""The command line: `python3 -m model table|figure|fit`, in the folder `lab`."""

import argparse
import sys
from pathlib import Path

from report import figures, pages, tables
from report.results import BadLine, load

from . import fit

HERE = Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser(prog="python3 -m model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table", help="print the tables of README.md, computed anew")
    figure = commands.add_parser("figure", help="draw the figures of models")
    figure.add_argument("--data", action="append", type=Path, metavar="FILE", help="draw these data, not lab/data")
    figure.add_argument("--to", type=Path, default=Path("."), metavar="DIR", help="folder for NAME.svg (default: .)")
    fitted = commands.add_parser("fit", help="print the constants that measurements give, and the errors")
    fitted.add_argument("files", nargs="*", type=Path, help="results (default: those of lab/data)")
    return parser.parse_args()


def run(args):
    if args.command == "table":
        text = (HERE / "README.md").read_text(encoding="utf-8")
        print("\n\n".join(pages.tables_of(text)))
    elif args.command == "figure":
        for name, spec in figures.specs().items():
            if "model" in spec:
                print(figures.write(name, spec, pages.DATA, args.data, args.to))
    else:
        files = args.files or [pages.DATA / f"{name}.jsonl" for name in ("connection", "sessions")]
        print(fit.text(load(files)))


if __name__ == "__main__":
    try:
        run(arguments())
    except (BadLine, tables.BadSpec, OSError) as error:
        sys.exit(f"model: {error}")
