"""Every method of the package, checked against what its definition says."""

import socket
import sys

import wireup_launcher as wireup


def check(group, members):
    me, size = group.rank, group.size
    rank = members[me]
    assert size == len(members)
    group.barrier()
    for root in range(0, size, 2):
        assert group.bcast(b"from %d\0" % rank if me == root else None, root) == b"from %d\0" % members[root]
    assert group.allgather(bytes(range(rank % 7)) * 3) == [bytes(range(one % 7)) * 3 for one in members]
    assert group.alltoall([b"%03d>%03d" % (rank, one) for one in members]) == [b"%03d>%03d" % (one, rank) for one in members]
    assert group.allreduce([rank, -rank]) == [sum(members), -sum(members)]
    assert group.allreduce([rank], "max") == [max(members)]
    assert group.allreduce([1 << me], "or") == [(1 << size) - 1]
    assert abs(group.allreduce([0.5 * rank])[0] - 0.5 * sum(members)) < 1e-9
    assert group.scan([rank]) == [sum(members[:me + 1])]
    assert group.exscan([rank]) == ([sum(members[:me])] if me else [rank])
    assert group.shift(b"%04d" % rank) == b"%04d" % members[me - 1]
    group.send((me + 1) % size, b"to the right", tag=7)
    job.flush()
    assert group.recv((me - 1) % size, tag=7) == b"to the right"


engine = sys.argv[1] if len(sys.argv) > 1 else "auto"
with wireup.open("auto", engine) if engine in ("udp", "fabric") else wireup.open(engine) as job:
    world = job.world()
    ranks = list(range(world.size))
    check(world, ranks)
    check(world.split(world.rank % 2), ranks[world.rank % 2::2])
    check(world.split("all", key=-world.rank), ranks[::-1])
    nobody = world.split(None if world.rank else 0)
    assert (nobody is None) == (world.rank > 0)
    check(world.dup(), ranks)
    check(world.create(ranks[::-1], "backwards"), ranks[::-1])
    node = job.node()
    assert job.leaders().rank >= 0 and node.size <= world.size
    job.put(f"key{world.rank}", "value")
    job.fence()
    assert job.get(f"key{world.size - 1}") == "value"
    job.publish(f"name of {world.rank}", f"value {world.rank}")
    job.fence()
    assert job.lookup(f"name of {world.size - 1}") == f"value {world.size - 1}"
    job.fence()
    job.unpublish(f"name of {world.rank}")
    job.set_address("net", bytes([world.rank, 0, 59]))
    job.fence()
    assert [job.address("net", rank) for rank in ranks] == [bytes([rank, 0, 59]) for rank in ranks]
    if world.rank < 2 <= world.size and engine != "fabric":
        with job.connect(1 - world.rank) as link:
            link.sendall(b"hello")
            assert link.recv(5, socket.MSG_WAITALL) == b"hello"
    if world.rank == 0:
        job.publish("taken", "by 0")
    world.barrier()
    for wrong in (lambda: job.publish("taken", "again"), lambda: job.lookup("nobody"), lambda: job.unpublish("nobody"), lambda: job.get("nobody"), lambda: world.allreduce([1], "add"), lambda: world.send(world.size, b"")):
        try:
            wrong()
        except (KeyError, ValueError, wireup.Error) as error:
            assert str(error)
        else:
            raise AssertionError("it was accepted")
    world.barrier()
    print(f"{world.rank} of {world.size}: all right")
