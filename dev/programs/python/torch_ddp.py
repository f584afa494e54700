"""Collectives, a second group, a barrier with names and a training step of PyTorch. The argument is the init_method."""
import sys

import torch
import torch.distributed as dist

method = sys.argv[1] if len(sys.argv) > 1 else "env://"
if method == "wireup://":
    import wireup_launcher.torch
dist.init_process_group("gloo", init_method=method)
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == size * (size - 1) / 2
even = dist.new_group(list(range(0, size, 2)))
if rank % 2 == 0:
    ones = torch.ones(1)
    dist.all_reduce(ones, group=even)
    assert ones.item() == (size + 1) // 2
dist.monitored_barrier()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
model(torch.ones(3, 4) * (rank + 1)).sum().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
weights = [torch.zeros(2, 4) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights)
dist.barrier()
print(f"rank {rank}: all right", flush=True)
dist.destroy_process_group()
