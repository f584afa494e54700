"""A rank that imports what scientific programs import and initialises MPI; rank 0 prints a line for all ranks.

The line has the number of ranks, the time at which the last of them was initialised, the longest MPI_Init, and the
memory of all ranks (PSS: a page that n processes share counts as 1/n of a page in each)."""
import time

import numpy  # noqa: F401
import scipy.linalg  # noqa: F401
import scipy.optimize  # noqa: F401
import scipy.sparse.linalg  # noqa: F401
import scipy.stats  # noqa: F401

before = time.time()
from mpi4py import MPI  # noqa: E402

initialised = time.time()
# All ranks are alive while memory is counted.
MPI.COMM_WORLD.Barrier()
with open("/proc/self/smaps_rollup") as smaps:
    pss = next(int(line.split()[1]) * 1024 for line in smaps if line.startswith("Pss:"))
ranks = MPI.COMM_WORLD.gather((initialised, initialised - before, pss))
if ranks:
    ends, inits, sizes = zip(*ranks)
    print("RANKS", len(ranks), max(ends), max(inits), sum(sizes), flush=True)
