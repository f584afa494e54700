"""Sums Python objects and a buffer over all ranks; every rank checks the sums."""

from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.size * (world.size + 1) // 2
assert world.allreduce(world.rank + 1) == total
mine, summed = array("l", [world.rank + 1] * 1000), array("l", [0] * 1000)
world.Allreduce([mine, MPI.LONG], [summed, MPI.LONG])
assert list(summed) == [total] * 1000
if world.rank == 0:
    print(f"allreduce over {world.size} ranks: right", flush=True)
