"""Two contexts of their own beside MPI, which has the conversation that the launcher has prepared. `exit`: rank 1 ends while others wait for it."""

import sys

from mpi4py import MPI

import wireup_launcher as wireup

comm = MPI.COMM_WORLD
names = ["first", "second"]
# Each rank opens them in another order.
contexts = {name: wireup.open(name=name) for name in (names if comm.rank % 2 else reversed(names))}
first, second = (contexts[name].world() for name in names)
assert (first.rank, first.size) == (comm.rank, comm.size)
assert first.allgather(b"%d" % comm.rank) == [b"%d" % rank for rank in range(comm.size)]
assert second.allreduce([comm.rank])[0] == comm.allreduce(comm.rank)
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
for world in (first, second):
    world.send(right, b"%d" % comm.rank)
    assert world.recv(left) == b"%d" % left
    # Until all have received: messages leave only while their senders are in calls of their own context.
    world.barrier()
    comm.Barrier()
if sys.argv[1:] == ["exit"]:
    if comm.rank == 1:
        sys.stdout.flush()
        __import__("os")._exit(0)
    second.barrier()
# MPI may be finalized before the contexts are closed.
MPI.Finalize()
assert second.allreduce([1])[0] == first.size
for context in contexts.values():
    context.close()
print(f"{first.rank} of {first.size}: all right")
