"""What it costs PRRTE to send a launch message to all of its daemons, and to exchange the data of all processes.

PRRTE, docs/plans/scalable_collectives, 2026. N daemons, M bytes sent to all or D bytes gathered, radix r of the tree,
alpha seconds a message, beta seconds a byte. Each cost is (latency, transfer) in seconds.
"""

from math import log2

from .record import record

# Bytes of a process in the launch message, in the two forms that the plan compares.
LAUNCH_BYTES = {"one record for each process": 46, "maps of nodes and processes": 13}


def depth(N, r):
    """Levels of a tree of N daemons: the smallest d with r^d >= N."""
    levels, reached = 0, 1
    while reached < N:
        levels, reached = levels + 1, reached * r
    return levels


def broadcast_tree(N, M, r, alpha, beta):
    return depth(N, r) * alpha, depth(N, r) * r * M * beta


def broadcast_scatter(N, M, r, alpha, beta):
    """Parts down the tree, then an allgather of the parts by recursive doubling."""
    return (depth(N, r) + log2(N)) * alpha, 2 * M * beta


def allgather_tree(N, D, r, alpha, beta):
    """Gathered by the root, which broadcasts all of it."""
    return 2 * depth(N, r) * alpha, (1 + depth(N, r) * r) * D * beta


def allgather_ring(N, D, alpha, beta):
    return (N - 1) * alpha, D * beta


def allgather_doubling(N, D, alpha, beta):
    return log2(N) * alpha, D * beta


def records(_):
    N, P, r, alpha, beta = 4096, 131072, 64, 50e-6, 1e-9
    case = {"nodes": N, "ranks": P}
    for form, size in LAUNCH_BYTES.items():
        yield record("tree", case, f"launch message, {form}", sum(broadcast_tree(N, size * P, r, alpha, beta)))
        yield record("scatter", case, f"launch message, {form}", sum(broadcast_scatter(N, size * P, r, alpha, beta)))
    yield record("tree", case, "32 MB exchanged", sum(allgather_tree(N, 32e6, r, alpha, beta)))
    yield record("ring", case, "32 MB exchanged", sum(allgather_ring(N, 32e6, alpha, beta)))
    yield record("doubling", case, "32 MB exchanged", sum(allgather_doubling(N, 32e6, alpha, beta)))
