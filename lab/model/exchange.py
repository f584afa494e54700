"""How long an exchange of addresses through PMI takes, and how much of it other work hides.

S. Chakraborty et al.: Non-blocking PMI Extensions for Fast MPI Startup, 2015. P processes, values of v bytes, keys of k
bytes. The tables measure two numbers of processes, so that a line through both has no residual; what it says of
16,384 processes is a prediction, which the paper's figures 9, 10 and 12 judge.
"""

from .record import record

SIZES = [2**power for power in range(10, 15)]
# Tables I and II, in seconds: number of processes, then gather, broadcast, processing, total. Gather and broadcast
# overlap, so the total is not their sum.
TABLES = {
    "Fence": {4096: (0.236, 0.218, 0.00428, 0.396), 8192: (0.284, 0.386, 0.00874, 0.685)},
    "Allgather": {4096: (0.165, 0.201, 0.00018, 0.275), 8192: (0.256, 0.356, 0.00036, 0.471)},
}
# Figure 10: how much faster MPI_Init becomes at 16,384 processes if the exchange is hidden.
SPEEDUP = 2.88
SPEEDUP_AT = 16384


def fence_bytes(P, v=18, k=9):
    """What PMI2_KVS_Fence broadcasts: value, key and the length of each, of every process."""
    return P * (v + k + 8)


def allgather_bytes(P, v=18):
    """What PMIX_Allgather broadcasts: value, its length, and the rank as a number, of every process."""
    return P * (v + 4 + 4)


def time_law(scheme):
    """(seconds, seconds a process): the line through both totals of the scheme's table."""
    (few, *_, short), (many, *_, long) = [(P, *times) for P, times in TABLES[scheme].items()]
    slope = (long - short) / (many - few)
    return short - slope * few, slope


def processing_law(scheme):
    """Seconds that a process's value takes to be put into the hash table (Fence) or copied (Allgather)."""
    return sum(times[2] / P for P, times in TABLES[scheme].items()) / len(TABLES[scheme])


def T_exchange(scheme, P):
    start, slope = time_law(scheme)
    return start + slope * P


def T_local():
    """What MPI_Init does without others: from SPEEDUP = (T_local + T_fence) / T_local."""
    return T_exchange("Fence", SPEEDUP_AT) / (SPEEDUP - 1)


def T_init(scheme, P, blocking=True):
    """MPI_Init. Without blocking it does not contain the exchange."""
    return T_local() + (T_exchange(scheme, P) if blocking else 0.0)


def overlap(scheme, P, T_comp):
    """The part of the exchange that computation of T_comp seconds hides."""
    return min(1.0, T_comp / T_exchange(scheme, P))


def records(_):
    for scheme, table in TABLES.items():
        for P, (*_, total) in table.items():
            yield record(f"published: {scheme}", {"ranks": P}, "time", total)
        for P in SIZES:
            case = {"ranks": P}
            yield record(f"model: {scheme}", case, "time", T_exchange(scheme, P))
            yield record(f"model: {scheme}", case, "MPI_Init", T_init(scheme, P))
            yield record(f"model: I{scheme.lower()}", case, "MPI_Init", T_init(scheme, P, blocking=False))
            yield record(f"model: I{scheme.lower()}", case, "computation", T_exchange(scheme, P))
    P = {"ranks": SPEEDUP_AT}
    exchange = {scheme: T_exchange(scheme, SPEEDUP_AT) for scheme in TABLES}
    init = {scheme: T_init(scheme, SPEEDUP_AT) for scheme in TABLES}
    for what, predicted, published, unit in [
        ("Allgather instead of Fence: time saved", 1 - exchange["Allgather"] / exchange["Fence"], 0.38, "share"),
        ("Allgather instead of Fence: MPI_Init saved", 1 - init["Allgather"] / init["Fence"], 0.20, "share"),
        ("computation that hides all: Ifence / Iallgather", exchange["Fence"] / exchange["Allgather"], 1.7, "count"),
        ("MPI_Init: Fence / Iallgather (not predicted)", init["Fence"] / T_local(), SPEEDUP, "count"),
    ]:
        yield record("model", P, what, predicted, unit)
        yield record("published", P, what, published, unit)
