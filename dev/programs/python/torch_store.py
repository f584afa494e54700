"""Every request to the store that PyTorch's own client sends: those of them that this version of PyTorch has."""
from datetime import timedelta

import torch.distributed as dist
import wireup_launcher.torch

store, rank, size = next(dist.rendezvous("wireup://"))
left = (rank - 1) % size


def turn(name):
    """Waits for all ranks, by requests that every version has."""
    if store.add(f"turn/{name}", 1) == size:
        store.set(f"turn/{name}/over", "")
    store.wait([f"turn/{name}/over"])


store.set(f"own/{rank}", f"value {rank}")
assert store.get(f"own/{left}") == b"value %d" % left
assert store.compare_set(f"compare/{rank}", "", "first") == b"first"
assert store.compare_set(f"compare/{rank}", "first", "second") == b"second"
assert store.compare_set(f"compare/{rank}", "first", "third") == b"second"
turn("compared")
assert store.get(f"compare/{left}") == b"second"
turn("read")
assert store.delete_key(f"compare/{rank}") and not store.delete_key(f"compare/{rank}")
assert store.num_keys() >= size
try:
    store.wait(["never"], timedelta(milliseconds=200))
    raise SystemExit("a wait for a key that nobody sets has ended")
except RuntimeError:
    pass
store.set("after a wait that was given up", "")
for client in (store, dist.PrefixStore("prefix", store)):
    client.add("sum", rank)
    turn(f"sum {client}"[:12])
    assert client.add("sum", 0) == size * (size - 1) / 2
has = set(dir(store))
if "check" in has:
    assert store.check([f"own/{left}"]) and not store.check(["never"])
if "append" in has:
    store.append("all", "x")
    turn("appended")
    assert store.get("all") == b"x" * size
if "multi_get" in has:
    store.multi_set([f"a/{rank}", f"b/{rank}"], ["1", "2"])
    turn("set")
    assert store.multi_get([f"a/{left}", f"b/{left}"]) == [b"1", b"2"]
# Debian's builds, which lack libuv, refuse queues in the client.
has -= set() if getattr(store, "libuvBackend", False) else {"queue_push"}
if "queue_push" in has:
    store.queue_push(f"queue/{left}", f"from {rank}")
    assert store.queue_pop(f"queue/{rank}") == b"from %d" % ((rank + 1) % size)
    assert store.queue_len(f"queue/{rank}") == 0
if "list_keys" in has:
    assert any(key.endswith("own/0") for key in store.list_keys())
if "barrier" in has:
    for _ in range(3):
        store.barrier("barrier", size)
turn("end")
names = sorted(has & {"append", "barrier", "check", "list_keys", "multi_get", "queue_push"})
print(f"rank {rank}: {' '.join(names)}: all right", flush=True)
