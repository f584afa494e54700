"""A barrier of PyTorch, before which the last worker of torchrun's first attempt fails."""
import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == size - 1:
    sys.exit("the first attempt fails")
dist.barrier()
print(f"rank {rank} of {size}: all right", flush=True)
dist.destroy_process_group()
