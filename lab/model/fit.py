"""Determines the constants of the start-up models from measured or published times.

A model of `startup` is linear in its constants, which are not negative. Some sizes determine them, so that the relative
errors are smallest (least squares); the other sizes judge the model. Where the time until the processes are started was
measured, T_init and the rest are fitted each on their own part.
"""

import inspect

import numpy
from scipy.optimize import nnls

from . import startup
from .record import medians, record

FITTED_ON = [4, 16, 64]
JUDGED_ON = [8, 32, 128]
# Which model belongs to which scheme of `wireup-reproduce s4`. The hypercube, which the paper only proposes, has the
# terms of the ring. Each of its processes sends log2 N messages of N / 2 identifiers instead of N - 1 messages of
# N - 1, but connects to as many others.
SCHEMES = {
    "original": startup.original,
    "ssh-dr": startup.ssh_dr,
    "ssh-bc": startup.ssh_bc,
    "mpd-bc": startup.mpd_bc,
    "hypercube": startup.mpd_bc,
}
# The same for what `wireup bench start --case initiation` measures, whose processes do not connect.
STARTERS = {"ssh-tree": startup.ssh_tree, "session": startup.session}


def constants_of(model):
    return [name for name in inspect.signature(model).parameters if name not in ("N", "A", "B")]


def fit(model, times):
    """The constants of `model` for `times`, a dictionary of (T_init or None, total) by number of processes."""
    names = constants_of(model)
    rows, wanted = [], []
    for N, (initiated, total) in times.items():
        # The model with one constant at 1 and the others at 0 is what that constant is multiplied by.
        units = [model(N, **{name: float(name == one) for name in names}) for one in names]
        if initiated is None:
            parts = [([sum(unit) for unit in units], total)]
        else:
            parts = [([unit[0] for unit in units], initiated)]
            parts.append(([unit[1] + unit[2] for unit in units], total - initiated))
        for factors, seconds in parts:
            rows.append([factor / seconds for factor in factors])
            wanted.append(1.0)
    matrix = numpy.array(rows)
    # The factors differ by many powers of ten; columns of one length make the solution exact.
    scale = numpy.linalg.norm(matrix, axis=0)
    solution, _ = nnls(matrix / scale, numpy.array(wanted))
    # The digits beyond depend on the machine, and figures must not.
    return {name: float(f"{value:.6g}") for name, value in zip(names, solution / scale)}


def errors(model, times):
    """(constants, relative errors of the total by number of processes), fitted and judged on the sizes above."""
    constants = fit(model, {N: times[N] for N in FITTED_ON})
    return constants, {N: sum(model(N, **constants)) / times[N][1] - 1 for N in JUDGED_ON}


def measured(results, scheme):
    """(T_init or None, total) of our runs with ssh by number of processes."""
    initiated = medians(results, "s4", scheme, "initiated", shell="ssh")
    total = medians(results, "s4", scheme, "connected", shell="ssh")
    return {N: (initiated.get(N), seconds) for N, seconds in total.items()}


def only_totals(seconds):
    return {N: (None, total) for N, total in seconds.items()}


def sources(results):
    """(name, model, times) of our runs and of the rows of the paper's table 1, as far as the results have all sizes."""
    found = [(name, model, measured(results, name)) for name, model in SCHEMES.items()]
    for name, model in STARTERS.items():
        found.append((name, model, only_totals(medians(results, "initiation", name, "wall"))))
    for name, model in startup.MODELS.items():
        found.append((f"table 1, {name}", model, only_totals(startup.table_1(results, name))))
    return [source for source in found if source[-1].keys() >= {*FITTED_ON, *JUDGED_ON}]


def records(results):
    """The fitted models, up to the largest size of the paper, and their errors."""
    for name, model, times in sources(results):
        constants, found = errors(model, times)
        for N in startup.SIZES:
            yield record(f"fitted: {name}", {"ranks": N}, "connected", sum(model(N, **constants)))
        for N, error in found.items():
            yield record(f"error: {name}", {"ranks": N}, "connected", error, "share")


def text(results):
    """What `python -m model fit` prints."""
    shown = [f"fitted on {FITTED_ON} processes, errors on {JUDGED_ON}"]
    for name, model, times in sources(results):
        constants, found = errors(model, times)
        printed = ", ".join(f"{key} {value:.3g}" for key, value in constants.items())
        shown.append(f"{name}: {printed}; {', '.join(f'{error:+.1%}' for error in found.values())}")
    return "\n".join(shown)
