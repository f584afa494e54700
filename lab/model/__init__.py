"""Published models of job start-up, and the same models fitted to what was measured here. README.md has the results."""

from report.results import load

from . import exchange, fit, prrte, startup, steps

# What computes the values of each model, from the results of measurements where it needs them.
RECORDS = {
    "startup": [startup.records, fit.records],
    "startup-large": [startup.large],
    "exchange": [exchange.records],
    "steps": [steps.records],
    "prrte": [prrte.records],
}


def results_of(spec, folder, files=None):
    """The results for a table or figure: those of `files`, else of its `data`, and the values of its `model`."""
    paths = files or [folder / f"{spec['data']}.jsonl"]
    results = load(paths)
    computed = [value for records in RECORDS[spec["model"]] for value in records(results)] if "model" in spec else []
    return load(paths, computed) if computed else results
