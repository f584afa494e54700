"""Ranks that use PyTorch's store as Gloo does ("mesh"), or that write to it and exit at once ("leave")."""
import os
import sys
from store_client import RANK, SIZE, Client, keys, text

client = Client("newest")
if sys.argv[1] == "mesh":
    value = b"v" * int(sys.argv[2])
    client.send(1, text(b"/rank/%d" % RANK) + text(value))
    for rank in range(SIZE):
        key = b"/rank/%d" % rank
        client.send(6, keys(key))
        assert client.read(1) == b"\0"
        client.send(3, text(key))
        assert client.value() == value
else:
    # As PyTorch does: the agent asks whose a connection is while the process still runs.
    client.send(13, b"ping")
    assert client.read(4) == b"ping"
    writes = range(300)
    if RANK > 0:
        for number in writes:
            client.send(1, text(b"/%d/%d" % (RANK, number)) + text(b"v" * 1000))
        client.send(14, text(b"/queue") + text(b"%d" % RANK))
        client.send(18, text(b"/barrier") + SIZE.to_bytes(8, "little"))
        os._exit(0)
    client.send(18, text(b"/barrier") + SIZE.to_bytes(8, "little"))
    assert client.read(1) == b"\0"
    for rank in range(1, SIZE):
        for number in writes:
            client.send(5, keys(b"/%d/%d" % (rank, number)))
            assert client.read(1) == b"\0", f"write {number} of rank {rank} is lost"
    client.send(16, text(b"/queue"))
    assert client.number() == SIZE - 1
print(f"rank {RANK}: all right", flush=True)
