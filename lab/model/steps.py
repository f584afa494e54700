"""How much each of four steps shortens the start of 73,728 MPI processes, predicted from the profile before the first.

A. Moody: Impatient with mpirun? Me too :-/, 2016. P processes on N nodes, p on each. All constants are from the column
"baseline": rows of its profile, and its rows Barrier, Finalize and Other. The other columns are predictions.
"""

from math import ceil, log2
from typing import NamedTuple

from .record import record

P, N = 73728, 2048
# Profile of MPI_Init in the baseline, in seconds.
PROFILE = {
    "proc_sync_1": 27.919508,
    "populate_vcs": 21.167241,
    "coll_arch_init": 1.224993,
    "shm_coll": 6.170727,
    "psm_bcast_uuid": 0.442145,
    "psm_init": 0.000139,
    "psm_ep_open": 0.068458,
    "psm_mq_init": 0.000003,
    "psm_ep_allgather": 29.125557,
    "psm_ep_connect": 10.285549,
    "psm_other_init": 0.008648,
}
ROWS = ["MPI_Init", "Barrier", "Finalize", "Other", "Total"]
# The closing table, in seconds. The last column is an estimate of the author: MPI_Init below 3, Total below 10.
PUBLISHED = {
    "baseline": (96.4, 0.0, 2.1, 11.5, 110.0),
    "staged": (68.2, 0.0, 2.0, 11.8, 82.0),
    "groups": (18.4, 0.1, 2.0, 11.7, 32.2),
    "pmix-ring": (13.9, 0.1, 2.0, 7.0, 23.0),
    "on-demand": (3.0, 0.1, 2.0, 7.0, 10.0),
}


def gets(P, N):
    """Gets that the PMI server of a node answers if each process asks for the address of each."""
    return (P // N) * P


def pmi_ring(P, N):
    """Addresses that the PMI server of a node handles if each process asks for two; the slides' order is p + P."""
    return P // N + P


def pmix_ring(P, N):
    """Messages of a node for PMIX_Ring: one of each process, one for each level of the tree."""
    return P // N + ceil(log2(N))


def graph(P):
    """Links of a process in the binomial graph, and rounds in which it makes these."""
    return 2 * ceil(log2(P)), ceil(log2(P))


def split(P):
    """Messages of a process if a group is split by a bitonic sort."""
    return ceil(log2(P)) ** 2


def hops_max(P):
    """Requests until an address is found in the graph."""
    return ceil(log2(P))


def addresses(P, N, k):
    """Addresses that a node stores: all of them, or those of the graph and of k connections of each process."""
    return P, (P // N) * (ceil(log2(P)) + k)


class Constants(NamedTuple):
    """Seconds; each from rows of the baseline."""

    read: float
    fence: float
    address: float
    message: float
    scan: float
    fixed: float


def fitted(profile, P, N):
    """The constants that a profile gives."""
    fence = profile["psm_bcast_uuid"]
    loops = profile["populate_vcs"] + profile["psm_ep_allgather"]
    return Constants(
        # One node's read of the program and its libraries, by a file server that serves one node after the other. The
        # row also contains a fence.
        read=(profile["proc_sync_1"] - fence) / N,
        # A fence with one value.
        fence=fence,
        # One address that a server or a process handles. Both rows are a fence, which brings P addresses to the server,
        # and a get of each process for each address.
        address=loops / (2 * (gets(P, N) + P)),
        # A message to another process and its answer.
        message=profile["psm_ep_connect"] / P,
        # One process that is examined when a process looks for those of its own node.
        scan=profile["shm_coll"] / P,
        # What no step changes.
        fixed=sum(
            profile[row] for row in ("coll_arch_init", "psm_init", "psm_ep_open", "psm_mq_init", "psm_other_init")
        ),
    )


def mpi_init(c, P, N, staged=False, ring=None, on_demand=False):
    """Rows of the profile after some steps. `ring` is the law by which the ring of processes is found; with a ring
    there are groups, which replace gets. With groups each process handles each address once, as in its loop of gets,
    but all processes at the same time. Connections on demand need neither the addresses of all endpoints nor a
    connection to each."""
    links, rounds = graph(P)
    # The groups of all processes, and those of a node and of the first processes of the nodes.
    groups = ring(P, N) * c.address + (links + 2 * split(P)) * c.message if ring else 0.0
    exchange = (P if ring else gets(P, N) + P) * c.address
    return {
        "proc_sync_1": c.fence + c.read * (1 if staged else N),
        "create_groups": groups,
        "populate_vcs": exchange,
        "shm_coll": c.scan * (P // N if ring else P),
        "psm_bcast_uuid": rounds * c.message if ring else c.fence,
        "psm_ep_allgather": 0.0 if on_demand else exchange,
        "psm_ep_connect": 0.0 if on_demand else P * c.message,
        "fixed": c.fixed,
    }


STEPS = {
    "baseline": {},
    "staged": {"staged": True},
    "groups": {"staged": True, "ring": pmi_ring},
    "pmix-ring": {"staged": True, "ring": pmix_ring},
    "on-demand": {"staged": True, "ring": pmix_ring, "on_demand": True},
}


def predicted(column):
    """The column of the closing table. The first message of a connection on demand is sent in the barrier."""
    c = fitted(PROFILE, P, N)
    steps = STEPS[column]
    init = sum(mpi_init(c, P, N, **steps).values())
    _, barrier, finalize, other, _ = PUBLISHED["baseline"]
    barrier += graph(P)[1] * c.message if steps.get("on_demand") else 0.0
    return init, barrier, finalize, other, init + barrier + finalize + other


def records(_):
    for column, published in PUBLISHED.items():
        for row, value, truth in zip(ROWS, predicted(column), published):
            case = {"ranks": P, "nodes": N, "column": column}
            yield record("published", case, row, truth)
            yield record("model", case, row, value)
            if row in ("MPI_Init", "Total"):
                yield record("error", case, row, value / truth - 1, "share")
