"""How long it takes to start N processes and to connect each to all others.

W. Yu, J. Wu, D. K. Panda: Fast and Scalable Startup of MPI Programs in InfiniBand Clusters, 2004, section 5.2, in the
paper's symbols. Each model returns (T_init, T_conn, rest) in seconds: to start the processes, to connect them, and what
the paper does not attribute. Each is linear in its constants, so that `fit` can determine them from measurements.
"""

from .record import medians, record

# Bytes a second of the network of the launcher. The paper says "Fast Ethernet or Gigabit Ethernet" and prints no
# number. This one is ours: it reproduces table 1, while 100 Mbit/s is 46 % too slow at 128 processes.
BANDWIDTH = 125e6
# Bytes of the identifier of a queue pair.
ID_BYTES = 4
SIZES = [2**power for power in range(2, 12)]


def W(X, B=BANDWIDTH):
    """Time to carry X identifiers."""
    return ID_BYTES * X / B


def original(N, O0=0.100, O1=10.5, O2=0.12, B=BANDWIDTH):
    """An ssh for each process, one after the other; the launcher sends all identifiers to each process."""
    return O0 * N, O1 * N * (W(N, B) + W(N**2, B)), O2


def ssh_dr(N, D0=0.100, Dcomp=8.5e-9, D1=5.25, D2=0.12, B=BANDWIDTH):
    """As `original`, but each process receives only its own identifiers (data reassembly). The paper prints 2 D1."""
    return D0 * N, Dcomp * N**3 + D1 * 2 * N * W(N, B), D2


def mpd_bc(N, M0=0.20, Wreq=0.0010, Mch=0.0180, M1=2.5, M2=0.30, B=BANDWIDTH):
    """Daemons start the processes; the identifiers go around a ring of these (bootstrap channel)."""
    return M0 + N * Wreq, Mch * N + M1 * N * W(N, B), M2


def ssh_bc(N, D0=0.100, Mch=0.0180, M1=2.5, D2=0.12, B=BANDWIDTH):
    """An ssh for each process, then the ring. Ours: composed of the other models, since the paper has none of it."""
    return D0 * N, Mch * N + M1 * N * W(N, B), D2


def ssh_tree(N, H, F, A=16):
    """`wireup run` on up to A hosts that share their processors, so that the times of all ssh add up. Ours."""
    return H * min(N, A) + F * N, 0.0, 0.0


def session(N, S0, S1):
    """`wireup run` in a session, whose agents are running. Ours."""
    return S0 + S1 * N, 0.0, 0.0


MODELS = {"Original": original, "SSH-DR": ssh_dr, "SSH-BC": ssh_bc, "MPD-BC": mpd_bc}


def large(_):
    """The models from 4 to a million processes, far beyond what the paper measured."""
    for name, model in MODELS.items():
        for N in (2**power for power in range(2, 21, 2)):
            yield record(f"model: {name}", {"ranks": N}, "connected", sum(model(N)))


def original_bytes(N):
    """What the launcher receives and what it sends."""
    return ID_BYTES * N * (N - 1), ID_BYTES * N**2 * (N - 1)


def ssh_dr_bytes(N):
    """What the launcher receives and what it sends."""
    return ID_BYTES * N * (N - 1), ID_BYTES * N * (N - 1)


def bc_bytes(N):
    """What each process forwards along the ring: N - 1 messages, one from each other process."""
    return (N - 1) * ID_BYTES * (N - 1)


def mpd_messages(N):
    """Requests and replies of MPD without a bootstrap channel; each goes once around the ring of its managers."""
    return N * (N - 1)


def table_1(results, name):
    """A row of the paper's table 1: seconds by number of processes."""
    return medians(results, "s4", f"published: {name}", "connected")


def records(results):
    """The models, and how far they are from table 1 at the sizes that it has."""
    for name, model in MODELS.items():
        for N in SIZES:
            yield record(f"model: {name}", {"ranks": N}, "connected", sum(model(N)))
            for part, value in zip(["T_init", "T_conn", "rest"], model(N)):
                yield record(f"model: {name}", {"ranks": N}, part, value)
        for N, seconds in table_1(results, name).items():
            yield record(f"residual: {name}", {"ranks": N}, "connected", sum(model(N)) / seconds - 1, "share")
