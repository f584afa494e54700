"""compare.py mpi|auto|peers|udp|fabric SEED: random collectives of random groups, by mpi4py or by the wireup package, and what they return.

The same seed gives the same operations and values, so the sorted lines of both are the same.
"""

import array
import random
import sys

STEPS = 60
OPS = {"sum": "SUM", "min": "MIN", "max": "MAX", "and": "BAND", "or": "BOR", "xor": "BXOR"}


class Mpi:
    """mpi4py's communicators with the methods of a group of the wireup package."""

    def __init__(self, communicator):
        self.communicator, self.rank, self.size = communicator, communicator.Get_rank(), communicator.Get_size()

    def split(self, colour, key=0):
        part = self.communicator.Split(MPI.UNDEFINED if colour is None else colour, key)
        return None if part == MPI.COMM_NULL else Mpi(part)

    def dup(self):
        return Mpi(self.communicator.Dup())

    def create(self, members, name):
        return Mpi(self.communicator.Create_group(self.communicator.Get_group().Incl(members), hash(name) % 1000))

    def bcast(self, value, root=0):
        return self.communicator.bcast(value, root)

    def allgather(self, value):
        return self.communicator.allgather(value)

    def alltoall(self, rows):
        return self.communicator.alltoall(rows)

    def allreduce(self, numbers, op="sum"):
        return self._reduce(self.communicator.Allreduce, numbers, op)

    def scan(self, numbers, op="sum"):
        return self._reduce(self.communicator.Scan, numbers, op)

    def exscan(self, numbers, op="sum"):
        return self._reduce(self.communicator.Exscan, numbers, op)

    def _reduce(self, function, numbers, op):
        own = array.array("d" if isinstance(numbers[0], float) else "q", numbers)
        result = array.array(own.typecode, numbers)
        function(own, result, getattr(MPI, OPS[op]))
        return list(result)

    def shift(self, value):
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        return self.communicator.sendrecv(value, dest=right, source=left)

    def send(self, to, value, tag=0):
        # Whoever sends to itself must not wait for its own receive.
        self.pending = self.communicator.isend(value, to, tag)

    def recv(self, source, tag=0):
        value = self.communicator.recv(None, source, tag)
        self.pending.wait()
        return value


def run(world, seed, say):
    """`shared` chooses what all ranks do, `own` what this one contributes."""
    shared = random.Random(seed)
    # The first use of connections waits for all ranks.
    groups = [world, world.dup()]
    for step in range(STEPS):
        own = random.Random(f"{seed} {step} {world.rank}")
        what = shared.choice(["bcast", "allgather", "alltoall", "allreduce", "scan", "exscan", "shift", "send", "split", "dup", "create"])
        group = shared.choice(groups)
        number, length = shared.randrange(1 << 30), shared.choice([0, 1, 7, 100, 3000])
        is_real, op = shared.random() < 0.3, shared.choice(list(OPS))
        op = op if not is_real or op in ("sum", "min", "max") else "sum"
        if group is None:
            if what in ("split", "dup", "create"):
                groups.append(None)
            continue
        value = own.randbytes(length)
        numbers = [own.randrange(-1000, 1000) / 4 if is_real else own.randrange(-1000, 1000) for _ in range(1 + number % 5)]
        if what == "bcast":
            root = number % group.size
            result = group.bcast(value if group.rank == root else None, root)
        elif what == "allgather":
            result = group.allgather(value[:own.randrange(length + 1)])
        elif what == "alltoall":
            result = group.alltoall([own.randbytes(length) for _ in range(group.size)])
        elif what in ("allreduce", "scan", "exscan"):
            result = getattr(group, what)(numbers, op)
            result = None if what == "exscan" and group.rank == 0 else result
        elif what == "shift":
            result = group.shift(value)
        elif what == "send":
            distance, tag = number % group.size, number % 9
            group.send((group.rank + distance) % group.size, value, tag)
            result = group.recv((group.rank - distance) % group.size, tag)
        else:
            if what == "split":
                made = group.split(own.choice([None, 0, 1, 2]), own.randrange(-3, 3))
            elif what == "dup":
                made = group.dup()
            else:
                members = list(range(group.size))
                random.Random(number).shuffle(members)
                members = members[:1 + number % group.size]
                made = group.create(members, f"step {step}") if group.rank in members else None
            groups.append(made)
            result = made and (made.rank, made.size)
        say(f"{world.rank} {step} {what} {result!r}")


lines = []
if sys.argv[1] == "mpi":
    from mpi4py import MPI

    run(Mpi(MPI.COMM_WORLD), int(sys.argv[2]), lines.append)
else:
    import wireup_launcher as wireup

    with wireup.open("auto", sys.argv[1]) if sys.argv[1] in ("udp", "fabric") else wireup.open(sys.argv[1]) as job:
        run(job.world(), int(sys.argv[2]), lines.append)
print("\n".join(lines))
